package validate

import (
	"bytes"
	"crypto/sha256"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	parser "github.com/haproxytech/client-native/v6/config-parser"
	"github.com/haproxytech/client-native/v6/config-parser/options"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
)

// parserTurn is held while the parser is used: the parser keeps the name of the last defaults section
// in a variable of its package.
var parserTurn sync.Mutex

// rewritten returns haproxy.cfg as the Dataplane API would write it. It returns false for what the API cannot read:
// there are lines that its parser returns an error for, and such that it panics for.
func rewritten(config []byte) (text string, ok bool) {
	parserTurn.Lock()
	defer parserTurn.Unlock()
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	p, err := parser.New(options.String(string(config)))
	if err != nil {
		return "", false
	}
	return p.String(), true
}

// lostIn returns the lines, counted from 0, that the Dataplane API would change or cannot read.
func lostIn(config []byte) []int {
	text, ok := rewritten(config)
	if ok {
		return notBack(config, text)
	}
	out := unreadable(config)
	lines := bytes.SplitAfter(config, []byte("\n"))
	for _, i := range out {
		lines[i] = []byte("\n")
	}
	rest := bytes.Join(lines, nil)
	if text, ok = rewritten(rest); ok {
		out = append(out, notBack(rest, text)...)
		slices.Sort(out)
	}
	return out
}

// unreadable returns the faulty lines, counted from 0, of a text that the Dataplane API cannot read. These are the lines
// that it cannot read alone in their section; if there are none, the heads of all sections.
func unreadable(config []byte) []int {
	var out, heads []int
	for s := range haproxycfg.Sections(config) {
		head := ""
		if s.Keyword != "" {
			head = string(s.Head.Text) + "\n"
			heads = append(heads, s.Head.Number-1)
			if _, ok := rewritten([]byte(head)); !ok {
				out = append(out, s.Head.Number-1)
				continue
			}
		}
		for _, line := range s.Lines {
			if _, ok := rewritten([]byte(head + string(line.Text) + "\n")); !ok {
				out = append(out, line.Number-1)
			}
		}
	}
	if len(out) == 0 {
		return heads
	}
	return out
}

// roundTrips checks what the Dataplane API makes of configurations. Most of its time goes into
// backends, and most of these differ only in their names: such backends are checked once, and not again
// while the result is remembered.
type roundTrips struct {
	known verdictMemo
}

// check reads haproxy.cfg and writes it as the Dataplane API does, and reports the lines that differ
// afterwards. It does not check what HAProxy thinks of them.
func (r *roundTrips) check(config []byte) []fault {
	parts, ok := splitBackends(config)
	if !ok {
		return checkWhole(config)
	}
	faults := checkWhole(parts.rest)
	for i := range faults {
		faults[i].line = parts.numbers[faults[i].line-1]
	}
	for _, line := range r.ofBackends(parts.backends) {
		faults = append(faults, lostLine(line))
	}
	slices.SortFunc(faults, func(a, b fault) int { return a.line - b.line })
	return faults
}

// checkWhole checks a text by itself.
func checkWhole(config []byte) []fault {
	var faults []fault
	for _, i := range lostIn(config) {
		faults = append(faults, lostLine(i+1))
	}
	return faults
}

func lostLine(number int) fault {
	return fault{number, "the Dataplane API would change this line, or cannot read it", "write it in another way, or report it if it is valid"}
}

// notBack returns the lines, counted from 0, that are missing in the result.
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

// ofBackends returns the lines of backends that are missing in the result.
func (r *roundTrips) ofBackends(backends []backendText) []int {
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
	askBackends(asked, verdicts)
	for _, b := range asked {
		r.known.put(b.key, verdicts[b.key])
	}
	var out []int
	for _, b := range backends {
		for _, i := range verdicts[b.key] {
			out = append(out, b.line+i)
		}
	}
	return out
}

// askBackends reads and writes all given backends together, under unique names, and records the lines that are missing in
// the result, counted from 0. If the text cannot be read, it looks for the faulty backends.
func askBackends(backends []backendText, verdicts map[textKey][]int) {
	if len(backends) == 0 {
		return
	}
	var all bytes.Buffer
	texts := make([][]byte, len(backends))
	for i, b := range backends {
		texts[i] = b.named(strconv.Itoa(i))
		all.Write(texts[i])
	}
	written, ok := rewritten(all.Bytes())
	switch half := len(backends) / 2; {
	case !ok && half == 0:
		verdicts[backends[0].key] = lostIn(texts[0])
		return
	case !ok:
		askBackends(backends[:half], verdicts)
		askBackends(backends[half:], verdicts)
		return
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
}

// backendText is a backend as it stands in haproxy.cfg.
type backendText struct {
	line  int    // of its head, from 1
	from  string // what follows the name in its head
	lines []byte // those behind the head, as a part of haproxy.cfg
	key   textKey
}

// textKey names a text by its content.
type textKey [sha256.Size]byte

// named returns the backend under another name, and without the texts of plain comments.
func (b backendText) named(name string) []byte {
	out := make([]byte, 0, len(b.lines)+len(name)+len(b.from)+16)
	b.parts(name, func(part []byte) { out = append(out, part...) })
	return out
}

// parts calls do with the parts of the backend under another name. There are thousands of backends, of which few texts
// differ: only these are copied.
func (b backendText) parts(name string, do func([]byte)) {
	do([]byte("backend " + name + b.from + "\n"))
	for line := range bytes.Lines(b.lines) {
		do(plainComment(line))
	}
}

// backendParts is a haproxy.cfg, divided into backends and the rest.
type backendParts struct {
	backends []backendText
	rest     []byte
	numbers  []int           // of the lines of rest, from 1
	names    map[string]bool // of backends
}

// headForm matches the heads of those backends that can be checked alone.
var headForm = regexp.MustCompile(`^backend ([A-Za-z0-9._:-]+)( from [A-Za-z0-9._:-]+)?\n$`)

// splitBackends takes the backends out of a haproxy.cfg. Other sections, and comments at the beginning
// of a line, are the rest. It returns false if the indentation does not show the sections: what the
// Dataplane API reads then depends on the lines around.
func splitBackends(config []byte) (backendParts, bool) {
	if bytes.Contains(config, []byte("config-snippet")) || !bytes.HasSuffix(config, []byte("\n")) {
		return backendParts{}, false
	}
	p := backendParts{names: map[string]bool{}}
	number, in, at := 0, outside, 0
	for line := range bytes.Lines(config) {
		number, at = number+1, at+len(line)
		kind := kindOf(line)
		switch {
		case kind == oddLine || kind == indentedLine && in == behindBackend || len(line) > maxLine:
			return backendParts{}, false
		case kind == backendLine:
			if !p.open(line, number) {
				return backendParts{}, false
			}
			in = inBackend
			continue
		case kind == indentedLine && in == inBackend:
			last := &p.backends[len(p.backends)-1]
			last.lines = config[at-len(line)-len(last.lines) : at] // they follow one another
			continue
		case kind == headLine:
			in = outside
		case kind == outerLine && in == inBackend:
			in = behindBackend
		}
		p.rest, p.numbers = append(p.rest, line...), append(p.numbers, number)
	}
	h := sha256.New()
	for i := range p.backends {
		h.Reset()
		p.backends[i].parts("x", func(part []byte) { h.Write(part) })
		h.Sum(p.backends[i].key[:0])
	}
	return p, true
}

// whereabouts say what a line that is indented would belong to.
type whereabouts int

const (
	outside       whereabouts = iota // to a section of the rest
	inBackend                        // to the last backend
	behindBackend                    // to it too, but an empty line or a comment is between
)

// lineKind is what a line is by its form alone.
type lineKind int

const (
	oddLine      lineKind = iota
	headLine              // begins a section
	backendLine           // begins a backend
	indentedLine          // belongs to one
	outerLine             // is empty, or a comment that is not indented
)

// keywordForm matches the beginnings of lines whose first word is written without
// quotes and the like.
var keywordForm = regexp.MustCompile(`^[ \t]+(?:#|[a-z][a-z0-9._-]*[ \t\n])`)

func kindOf(line []byte) lineKind {
	word := haproxycfg.FirstWord(line)
	switch {
	case line[0] == '\n' || line[0] == '#':
		return outerLine
	case word == "backend" && line[0] == 'b':
		return backendLine
	case line[0] != ' ' && line[0] != '\t' && haproxycfg.BeginsSection(word):
		return headLine
	case keywordForm.Match(line) && !haproxycfg.BeginsSection(word):
		return indentedLine
	}
	return oddLine
}

// open begins a backend, and reports whether the backend can be checked alone: its head is plain, and
// no other one has its name.
func (p *backendParts) open(line []byte, number int) bool {
	m := headForm.FindSubmatch(line)
	if m == nil || p.names[string(m[1])] {
		return false
	}
	p.names[string(m[1])] = true
	p.backends = append(p.backends, backendText{line: number, from: string(m[2])})
	return true
}

// plainForm matches a comment on a line of its own that cannot be read as anything else.
var plainForm = regexp.MustCompile(`^[ \t]+# [A-Za-z0-9 ./:_=-]+\n$`)

var anyComment = []byte("    # comment\n")

// plainComment leaves the text out of such a comment, which names a Service.
func plainComment(line []byte) []byte {
	if i := bytes.IndexByte(line, '#'); i > 0 && plainForm.Match(line) {
		return anyComment
	}
	return line
}
