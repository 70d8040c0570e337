package policy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
)

// Line is a line of haproxy.cfg that an object's author wrote, checked by
// [NewLine]. It is the only value that is written as it is; nothing else can be
// made one.
type Line struct{ text string }

// Text returns the line, without white space around it.
func (l Line) Text() string { return l.text }

// MaxLine is how many bytes a [Line] may have.
const MaxLine = 4096

// plainWord is a keyword: HAProxy would take others apart before it reads them,
// and find a section behind quotes.
var plainWord = regexp.MustCompile(`^[a-z][a-z0-9.-]*$`)

// keywords say why a line may not begin with them.
var keywords = map[string][]string{
	"begins a section, and is not possible here": haproxycfg.SectionKeywords,
	"is written by the templates, and is not possible here": strings.Fields(`server server-template use-server dispatch bind mode id guid
		disabled enabled`),
	"reaches beyond the backend, and is not possible here": strings.Fields(`stats external-check errorfile errorfiles
		load-server-state-from-file log filter`),
}

// NewLine checks a line. What haproxy makes of it is for haproxy to say.
func NewLine(text string) (Line, error) {
	text = strings.Trim(text, " \t")
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return Line{}, fmt.Errorf("holds the unprintable character %U", r)
		}
	}
	if len(text) > MaxLine {
		return Line{}, fmt.Errorf("has %d bytes; a line may have %d", len(text), MaxLine)
	}
	if strings.HasSuffix(text, `\`) {
		return Line{}, errors.New("ends in a backslash")
	}
	words := strings.Fields(text)
	if len(words) > 1 && (words[0] == "no" || words[0] == "default") {
		words = words[1:]
	}
	if len(words) == 0 || !plainWord.MatchString(words[0]) {
		return Line{}, errors.New("begins with no keyword")
	}
	for why, refused := range keywords { // of which one at most holds it
		if slices.Contains(refused, words[0]) {
			return Line{}, errors.New("begins with " + words[0] + ", which " + why)
		}
	}
	return Line{text}, nil
}
