package validate

import (
	"bytes"
	"crypto/sha256"
	"regexp"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
)

// backendText is a backend as it stands in haproxy.cfg.
type backendText struct {
	line int    // of its head, from 1
	from string // what follows the name in its head
	body []byte // without the texts of plain comments
	key  textKey
}

// textKey names a text by its content.
type textKey [sha256.Size]byte

// named returns the backend under another name.
func (b backendText) named(name string) []byte {
	return append([]byte("backend "+name+b.from+"\n"), b.body...)
}

// backendParts is a haproxy.cfg, taken apart.
type backendParts struct {
	backends []backendText
	rest     []byte
	numbers  []int           // of the lines of rest, from 1
	names    map[string]bool // of backends
}

// headForm matches the heads of those backends that can be looked at alone.
var headForm = regexp.MustCompile(`^backend ([A-Za-z0-9._:-]+)( from [A-Za-z0-9._:-]+)?\n$`)

// splitBackends takes the backends out of a haproxy.cfg. Other sections, and
// comments at the beginning of a line, are the rest. It reports false for a text
// that is not so plain that its sections could be told from its indentation: what
// the Dataplane API reads then depends on the lines around.
func splitBackends(config []byte) (backendParts, bool) {
	if bytes.Contains(config, []byte("config-snippet")) || !bytes.HasSuffix(config, []byte("\n")) {
		return backendParts{}, false
	}
	p := backendParts{names: map[string]bool{}}
	number, in := 0, outside
	for line := range bytes.Lines(config) {
		number++
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
			last.body = append(last.body, plainComment(line)...)
			continue
		case kind == headLine:
			in = outside
		case kind == outerLine && in == inBackend:
			in = behindBackend
		}
		p.rest, p.numbers = append(p.rest, line...), append(p.numbers, number)
	}
	p.seal()
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

// open begins a backend, and reports whether it can be looked at alone: that is,
// its head is plain, and no other one has its name.
func (p *backendParts) open(line []byte, number int) bool {
	m := headForm.FindSubmatch(line)
	if m == nil || p.names[string(m[1])] {
		return false
	}
	p.names[string(m[1])] = true
	p.backends = append(p.backends, backendText{line: number, from: string(m[2])})
	return true
}

// seal gives the backends their keys.
func (p *backendParts) seal() {
	for i := range p.backends {
		b := &p.backends[i]
		b.key = sha256.Sum256(b.named("x"))
	}
}

// plainForm matches a comment on a line of its own that nothing takes for more.
var plainForm = regexp.MustCompile(`^[ \t]+# [A-Za-z0-9 ./:_=-]+\n$`)

// plainComment leaves the text out of such a comment, which names a Service.
func plainComment(line []byte) []byte {
	if i := bytes.IndexByte(line, '#'); i > 0 && plainForm.Match(line) {
		return []byte("    # comment\n")
	}
	return line
}
