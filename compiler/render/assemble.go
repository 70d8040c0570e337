package render

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// assembly takes the marks out of what templates wrote, and records for each line where it came from.
type assembly struct {
	files Templates
	sets  [][]routing.Origin // what markEnter counts in
	blank bool               // whether blank lines are kept
	empty bool               // whether nothing was written

	text    []byte
	origins []*LineOrigin // as in an Artifact

	file, line int // of the template, by the last markLine
	frames     []frame
	base       []routing.Origin // of the template data
	current    []byte           // the line so far
	origin     LineOrigin       // and where it came from
}

// frame is a template that is being executed: the sets of its ranges, from the outermost; -1 stands for
// an element without objects.
type frame struct {
	sets []int
}

// section adds what one execution of a template wrote.
func (a *assembly) section(marked []byte, base []routing.Origin) {
	a.base, a.frames = base, append(a.frames[:0], frame{})
	a.take(marked)
	if len(a.current) > 0 {
		a.endLine()
	}
}

// stopped returns where an execution stopped after it wrote this much: the place, and the objects of
// the line that it was about to write.
func (a *assembly) stopped(marked []byte, base []routing.Origin) LineOrigin {
	a.base, a.frames = base, []frame{{}}
	a.take(marked)
	return LineOrigin{
		Template: a.files[a.file].Path, Line: a.line,
		Objects: union(a.objects(), a.origin.Objects),
	}
}

// take adds marked text.
func (a *assembly) take(marked []byte) {
	for len(marked) > 0 {
		i := bytes.IndexByte(marked, 0)
		if i < 0 {
			a.write(marked)
			break
		}
		a.write(marked[:i])
		end := i + bytes.IndexByte(marked[i:], ';')
		first, second, _ := bytes.Cut(marked[i+2:end], []byte(","))
		x, _ := strconv.Atoi(string(first))
		y, _ := strconv.Atoi(string(second))
		top := &a.frames[len(a.frames)-1]
		switch marked[i+1] {
		case markLine:
			a.file, a.line = x, y
		case markEnter:
			top.sets = append(top.sets[:min(x, len(top.sets))], y)
		case markLeave:
			top.sets = top.sets[:min(x, len(top.sets))]
		case markCall:
			a.frames = append(a.frames, frame{})
		case markBack:
			a.frames = a.frames[:len(a.frames)-1]
		}
		marked = marked[end+1:]
	}
}

// separate puts an empty line between the text so far and what follows.
func (a *assembly) separate() {
	if len(a.text) > 0 {
		a.text = append(a.text, '\n')
		a.origins = append(a.origins, &noOrigin)
	}
}

// objects returns the objects of the current line: those of the innermost range that has any, otherwise
// those of the page.
func (a *assembly) objects() []routing.Origin {
	for _, f := range slices.Backward(a.frames) {
		for _, set := range slices.Backward(f.sets) {
			if set >= 0 {
				return a.sets[set]
			}
		}
	}
	return a.base
}

// write adds text without marks.
func (a *assembly) write(text []byte) {
	for len(text) > 0 {
		line, rest, ended := bytes.Cut(text, []byte("\n"))
		if len(bytes.TrimSpace(line)) > 0 {
			if a.origin.Line == 0 {
				a.origin.Template, a.origin.Line = a.files[a.file].Path, a.line
			}
			a.origin.Objects = union(a.origin.Objects, a.objects())
		}
		a.current = append(a.current, line...)
		if ended {
			a.endLine()
		}
		text = rest
	}
}

// endLine ends the current line. If it drops blank lines, it also drops trailing white space: an action on a line of its
// own in a template leaves both.
func (a *assembly) endLine() {
	line := a.current
	if !a.blank {
		line = bytes.TrimRight(line, " \t\r")
	}
	if len(line) > 0 || a.blank {
		a.text = append(append(a.text, line...), '\n')
		origin := a.origin
		a.origins = append(a.origins, &origin)
	}
	a.current, a.origin = a.current[:0], LineOrigin{}
}

// union appends the origins of b that are not in a. The result may share memory
// with b, which is never changed.
func union(a, b []routing.Origin) []routing.Origin {
	if len(a) == 0 {
		return slices.Clip(b)
	}
	if len(b) == 0 || &a[0] == &b[0] {
		return a
	}
	for _, origin := range b {
		if !slices.Contains(a, origin) {
			a = append(a, origin)
		}
	}
	return slices.Clip(a)
}

// Artifact is what rendering produced.
type Artifact struct {
	Files []snapshots.File // sorted by path
	// Origins says, for each file, where each of its lines came from. A line that was not written again shares its origin
	// with the artifacts before, so it must not be changed.
	Origins      map[string][]*LineOrigin
	Certificates []snapshots.CertificateRef // sorted by file
}

// LineOrigin is where a line of the output came from.
type LineOrigin struct {
	Template string // as users know the file
	Line     int    // in the template, from 1; 0 for a line that no template wrote
	// Objects are those whose values are on the line, in the order in which the template reached them.
	Objects []routing.Origin
}

// Origin returns the origin of a line of a file, counted from 1, or the zero
// LineOrigin.
func (a Artifact) Origin(file string, line int) LineOrigin {
	lines := a.Origins[file]
	if line < 1 || line > len(lines) {
		return LineOrigin{}
	}
	return *lines[line-1]
}

// noOrigin is that of lines that no template wrote.
var noOrigin LineOrigin

// Fault is a reason not to publish an artifact: a value that may not be written, a template that cannot
// be executed, or a line that HAProxy refuses, which package validate finds.
type Fault struct {
	Message, Hint string
	Origin        LineOrigin
	// File and Line are the place in the artifact, and Text is the line there; they are zero if there
	// is none.
	File string
	Line int
	Text string
	// Refused says that a function refused a value: a check, or fail. Then the template works as it is
	// meant to. Value is the value, if it is known.
	Refused bool
	Value   string
	// Field is the missing field of the object's content, if that is the fault.
	Field string
	// Namespace limits the objects to blame to those of a namespace, if the line also has objects of others; "" is no
	// limit.
	Namespace string
}

// verbatim returns an author's line as it is. It takes no text: only a [policy.Line] has been checked
// for what would end the line or the section, and templates cannot make one.
func verbatim(line any) (Text, error) {
	l, ok := line.(policy.Line)
	if !ok || l.Text() == "" {
		return "", fmt.Errorf("verbatim: a value of type %T is no line of a snippet", line)
	}
	return Text(l.Text()), nil
}

// checker returns how a value is written into a file, or why it must not be.
type checker func(value any) (string, error)

// ValueError is a value that must not be written.
type ValueError struct {
	Value   string
	Problem string // follows the value: "holds a space, which ends a word"
	Hint    string
}

// Error returns the value, shortened, and what is wrong with it.
func (e *ValueError) Error() string {
	return fmt.Sprintf("value %s %s", printable.Quoted(e.Value), e.Problem)
}

// checkConfig writes a value as one word of haproxy.cfg, or as a part of one.
func checkConfig(value any) (string, error) {
	if text, ok := value.(Text); ok {
		return string(text), nil
	}
	s, err := word(value)
	switch {
	case err == nil && strings.Contains(s, "$"):
		return "", &ValueError{s, "holds '$', which HAProxy expands within quotes", "leave it out, or use quote in the template"}
	case s == "{" || s == "}": // in a list it could end one condition and begin another
		return "", &ValueError{s, "is a brace, which is where a condition begins or ends", "leave it out"}
	}
	return s, err
}

// checkMap writes a value into a map. Maps have no quoting, and a single quote has no meaning there.
func checkMap(value any) (string, error) {
	if _, ok := value.(Text); ok {
		return checkList(value)
	}
	return wordWithout(value, ` #"\`)
}

// checkList writes a value into a crt-list, which has no quoting.
func checkList(value any) (string, error) {
	if text, ok := value.(Text); ok && strings.ContainsAny(string(text), `'"\`) {
		return "", &ValueError{string(text), "is quoted, but maps and crt-lists have no quotes", "do not use quote here"}
	} else if ok {
		return string(text), notSecret(string(text))
	}
	return word(value)
}

// checkText writes a value into a file of any other form.
func checkText(value any) (string, error) {
	s, err := scalar(value)
	if err != nil {
		return "", err
	}
	return s, checkPrintable(s)
}

// word returns a value that is one word without quotes.
func word(value any) (string, error) { return wordWithout(value, ` #"'\`) }

// wordWithout returns a value that holds none of the given characters.
func wordWithout(value any, refused string) (string, error) {
	s, err := scalar(value)
	if err != nil {
		return "", err
	}
	if err := checkPrintable(s); err != nil {
		return "", err
	}
	if i := strings.IndexAny(s, refused); i >= 0 {
		name := map[byte]string{' ': "a space", '#': "'#'", '"': "a double quote", '\'': "a single quote", '\\': "a backslash"}[s[i]]
		return "", &ValueError{s, "holds " + name + ", which is not a part of a word", "leave it out, or use quote in the template"}
	}
	return s, nil
}

// checkPrintable refuses characters that could end a line, or that a reader would not see.
func checkPrintable(s string) error {
	if !utf8.ValidString(s) {
		return &ValueError{s, "is not valid UTF-8", "leave the bytes out"}
	}
	if err := notSecret(s); err != nil {
		return err
	}
	for _, r := range s {
		if !unicode.IsPrint(r) || r == utf8.RuneError { // JSON replaces bytes that are no text with it
			return &ValueError{s, fmt.Sprintf("holds the unprintable character %U", r), "leave it out"}
		}
	}
	return nil
}

// notSecret refuses the words that stand for values of Secrets: only a template can ask for one, and
// only as a word of haproxy.cfg.
func notSecret(s string) error {
	if strings.Contains(s, bind.SecretMark) {
		return &ValueError{s, "holds " + bind.SecretMark + ", which stands for the value of a Secret", "only templates can write one: with the function secret, in haproxy.cfg, without quotes"}
	}
	return nil
}

// errNotScalar is a mistake in a template: the text would depend on how Go prints the value.
var errNotScalar = errors.New("is not text, a number or a boolean")

// scalar returns the text of a value that has just one.
func scalar(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case Text:
		return string(v), nil
	case config.Duration:
		return string(v), nil
	case fmt.Stringer:
		return v.String(), nil
	}
	v := reflect.ValueOf(value)
	switch {
	case !v.IsValid():
		return "", fmt.Errorf("nothing %w", errNotScalar)
	case v.Kind() == reflect.String:
		return v.String(), nil
	case v.CanFloat():
		return decimal(v.Float()).String(), nil
	case v.Kind() == reflect.Bool || v.CanInt() || v.CanUint():
		return fmt.Sprint(value), nil
	}
	return "", fmt.Errorf("a value of type %T %w", value, errNotScalar)
}

// decimal is a number that is printed without an exponent, as people write it.
type decimal float64

// String returns such as 1000000 and 0.25.
func (d decimal) String() string { return strconv.FormatFloat(float64(d), 'f', -1, 64) }

// decimals returns values with decimals in the place of floating-point numbers.
func decimals(values []any) []any {
	out := slices.Clone(values)
	for i, value := range out {
		if v := reflect.ValueOf(value); v.IsValid() && v.CanFloat() {
			out[i] = decimal(v.Float())
		}
	}
	return out
}

// secretWord returns the word of haproxy.cfg that stands for a value of a Secret.
func secretWord(name, key string) (Text, error) {
	object, err := snapshots.ParseSecretName(name)
	if err != nil {
		return "", err
	}
	word, err := bind.SecretWord(bind.SecretKey{Secret: object, Key: key})
	return Text(word), err
}

// secret is secretWord as templates call it. It records what they asked for.
func (r *rendering) secret(name, key string) (Text, error) {
	word, err := secretWord(name, key)
	if err == nil {
		r.secretsOf = append(r.secretsOf, string(word))
		r.secrets[string(word)] = true
	}
	return word, err
}

// checkSecrets refuses words for values of Secrets that no template asked for: an object must not make
// the pusher write the value of any Secret it likes.
func (r *rendering) checkSecrets(config *assembly) {
	if !bytes.Contains(config.text, []byte(bind.SecretMark)) {
		return
	}
	number := 0
	for line := range bytes.Lines(config.text) {
		number++
		asked := 0
		for word := range bytes.FieldsSeq(line) {
			if r.secrets[string(word)] {
				asked++
			}
		}
		if bytes.Count(line, []byte(bind.SecretMark)) > asked {
			r.faults = append(r.faults, faultOf{len(r.set.files), Fault{
				Message: fmt.Sprintf("the line holds %s, which stands for the value of a Secret", bind.SecretMark),
				Hint:    "only templates can write one, with the function secret", Origin: *config.origins[number-1], Refused: true,
			}})
		}
	}
}
