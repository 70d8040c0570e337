package validate

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	parser "github.com/haproxytech/client-native/v6/config-parser"
	"github.com/haproxytech/client-native/v6/config-parser/options"
)

// parserTurn is held while the parser is used: it keeps the name of the last
// defaults section in a variable of its package.
var parserTurn sync.Mutex

// rewritten returns haproxy.cfg as the Dataplane API would write it.
func rewritten(config []byte) (string, error) {
	parserTurn.Lock()
	defer parserTurn.Unlock()
	p, err := parser.New(options.String(string(config)))
	if err != nil {
		return "", fmt.Errorf("read haproxy.cfg as the Dataplane API does: %w", err)
	}
	return p.String(), nil
}

// roundTrips checks what the Dataplane API makes of configurations. Most of its
// time goes into backends, of which most are like others but for their names:
// those are checked once, and never again while they are remembered.
type roundTrips struct {
	known verdictMemo
}

// check reads haproxy.cfg and writes it as the Dataplane API does, and reports
// the lines that do not come back. It is no check of what HAProxy thinks of them.
func (r *roundTrips) check(config []byte) ([]fault, error) {
	parts, ok := splitBackends(config)
	if !ok {
		return checkWhole(config)
	}
	faults, err := checkWhole(parts.rest)
	if err != nil {
		return nil, err
	}
	for i := range faults {
		faults[i].line = parts.numbers[faults[i].line-1]
	}
	lost, err := r.ofBackends(parts.backends)
	for _, line := range lost {
		faults = append(faults, lostLine(line))
	}
	slices.SortFunc(faults, func(a, b fault) int { return a.line - b.line })
	return faults, err
}

// checkWhole checks a text by itself.
func checkWhole(config []byte) ([]fault, error) {
	text, err := rewritten(config)
	if err != nil {
		return nil, err
	}
	var faults []fault
	for _, i := range notBack(config, text) {
		faults = append(faults, lostLine(i+1))
	}
	return faults, nil
}

func lostLine(number int) fault {
	return fault{number, "the Dataplane API would not keep this line as it is", "write it in another way, or report it if it is valid"}
}

// notBack returns the lines, counted from 0, that are not in what they became.
func notBack(config []byte, became string) []int {
	back := map[string]int{}
	for line := range strings.Lines(became) {
		back[normal(line)]++
	}
	var out []int
	number := -1
	for line := range bytes.Lines(config) {
		number++
		text := normal(string(line))
		if text == "" {
			continue
		}
		if back[text] == 0 {
			out = append(out, number)
			continue
		}
		back[text]--
	}
	return out
}

// fromForm matches what the Dataplane API adds to, or takes from, the head of
// a section.
var fromForm = regexp.MustCompile(`^((?:frontend|backend|listen|defaults)(?: \S+)?) from \S+$`)

// normal returns a line with one space between words and none around them.
func normal(line string) string {
	text := strings.Join(strings.Fields(line), " ")
	return fromForm.ReplaceAllString(text, "$1")
}

// ofBackends returns the lines of backends that do not come back.
func (r *roundTrips) ofBackends(backends []backendText) ([]int, error) {
	var asked []backendText // one of each kind that is not known
	verdicts := map[textKey][]int{}
	for _, b := range backends {
		if _, ok := verdicts[b.key]; ok {
			continue
		}
		lost, ok := r.known.get(b.key)
		if verdicts[b.key] = lost; !ok {
			asked = append(asked, b)
		}
	}
	if err := askBackends(asked, verdicts); err != nil {
		return nil, err
	}
	for _, b := range asked {
		r.known.put(b.key, verdicts[b.key])
	}
	var out []int
	for _, b := range backends {
		for _, i := range verdicts[b.key] {
			out = append(out, b.line+i)
		}
	}
	return out, nil
}

// askBackends has backends, under names that tell them apart, read and written
// at once, and takes note of the lines that do not come back, counted from 0.
func askBackends(backends []backendText, verdicts map[textKey][]int) error {
	if len(backends) == 0 {
		return nil
	}
	var all bytes.Buffer
	texts := make([][]byte, len(backends))
	for i, b := range backends {
		texts[i] = b.named(strconv.Itoa(i))
		all.Write(texts[i])
	}
	written, err := rewritten(all.Bytes())
	if err != nil {
		return err
	}
	became := map[string]string{} // by name
	for section := range strings.SplitSeq(written, "\nbackend ") {
		if name := strings.Fields(section); len(name) > 0 {
			became[name[0]] = "backend " + section
		}
	}
	for i, b := range backends {
		verdicts[b.key] = notBack(texts[i], became[strconv.Itoa(i)])
	}
	return nil
}
