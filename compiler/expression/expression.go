// Package expression decides which regular expressions the authors of objects may write.
//
// HAProxy compiles and runs them, with PCRE, for everybody's requests. So PCRE and Go must read an
// expression alike, since HAProxy reports only one refused expression per run, and it must cost little
// on any input. PCRE goes back and tries again where several ways are possible: an expression with two
// such places can take 80 ms of a worker's only thread for one path of 8 KiB.
//
// [Parse] therefore accepts a part of the language: literals, classes, groups, alternatives,
// repetitions, ^, $, \b and (?i). It refuses everything else with a place and a hint. The bound of the
// cost is computed from the expression, see cost.go.
//
// # Decisions
//
// Regular expressions of tenants are judged before HAProxy sees them: HAProxy stops at an expression
// that PCRE refuses, and runs any other for as long as it takes, for everybody's requests.
package expression

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hapsnap/hapsnap/internal/printable"
)

const (
	// maxLength is the longest expression, in bytes.
	maxLength = 1024
	// maxGroups is how many groups HAProxy can refer to: \1 to \9.
	maxGroups = 9
	// maxNested is how deep repetitions may be nested. The cost of each is computed several times for
	// each of those around it.
	maxNested = 3
	// maxSize is how large an expression may be once it is compiled, see [compiled]. PCRE2 takes half as much again: HAProxy's
	// files put a host and prefixes before an expression, and with these it must not be too large either.
	maxSize = 16_384
)

// Expression is a regular expression that HAProxy may run.
type Expression struct {
	// Groups is how many groups in parentheses can be referred to.
	Groups int
	// Steps is about the most steps that a match takes on a text of 8 KiB by a matcher that goes back.
	// A step is a comparison of one character or a choice.
	Steps int
}

// Error is why an expression is refused.
type Error struct {
	Message, Hint string
}

func (e *Error) Error() string { return e.Message }

func refuse(hint, format string, args ...any) error {
	return &Error{Message: fmt.Sprintf(format, args...), Hint: hint}
}

// mostShown is how many bytes of an expression an error about its syntax shows.
const mostShown = 100

// Parse reads an expression. The error is an [*Error].
func Parse(text string) (Expression, error) {
	if len(text) > maxLength {
		return Expression{}, refuse("use a shorter one", "is longer than %d bytes", maxLength)
	}
	// Go's own error is the best one for an expression that nobody could read.
	if _, err := syntax.Parse(text, syntax.Perl); err != nil {
		why := err.Error()
		if syntaxError, ok := errors.AsType[*syntax.Error](err); ok {
			why = fmt.Sprintf("%s: `%s`", syntaxError.Code, printable.Text(printable.Shortened(syntaxError.Expr, mostShown)))
		}
		return Expression{}, refuse("", "is not a regular expression: %s", why)
	}
	tree, groups, err := parse(text)
	if err != nil {
		return Expression{}, err
	}
	if groups > maxGroups {
		return Expression{}, refuse("write (?:…) for groups that no target refers to", "has %d groups; only %d can be referred to", groups, maxGroups)
	}
	if n := nested(tree); n > maxNested {
		return Expression{}, refuse("", "has %d repetitions within one another; %d are allowed", n, maxNested)
	}
	if n := compiled(tree); n > maxSize {
		return Expression{}, refuse("repeat less: a group that is repeated counts as often as it is repeated",
			"is too large: it takes %d bytes once it is compiled; %d are allowed", n, maxSize)
	}
	steps, err := cost(tree)
	if err != nil {
		return Expression{}, err
	}
	return Expression{Groups: groups, Steps: steps}, nil
}

// nested returns how many repetitions stand within one another.
func nested(n node) int {
	most := 0
	for _, part := range n.parts {
		most = max(most, nested(part))
	}
	if n.kind == repeat {
		most++
	}
	return most
}

// What parts of an expression take of the compiled form of PCRE2, in bytes, with the two bytes for a link that it is built
// with by default. Some take less.
const (
	sizeOfLiteral = 2
	sizeOfClass   = 1 + 32  // a bit for each byte
	sizeOfWay     = 1 + 2   // for each alternative but the first
	sizeOfGroup   = 5 + 3   // for its beginning and its end
	sizeOfMaybe   = 1 + 6   // for each repetition of a group that may be missing
	sizeOfCount   = 2*4 + 1 // for the numbers of {n,m} after one character
)

// compiled returns about how many bytes an expression takes once PCRE2 has compiled it, and not less than that. PCRE2 writes a
// group that is repeated several times as often as that, and refuses what takes more than 32 KiB. Go's own parser
// only bounds the number of repetitions.
func compiled(n node) int {
	size := n.size
	for _, part := range n.parts {
		size += compiled(part)
	}
	switch {
	case n.kind != repeat:
		return size
	case n.parts[0].kind == character:
		return size + sizeOfCount
	case n.most < 0:
		return 1 + max(1, n.least)*size
	}
	return n.least*size + (n.most-n.least)*(size+sizeOfMaybe)
}

// kind is what a node of an expression is.
type kind int

const (
	character kind = iota // one of a set
	sequence              // of its parts
	choice                // of one of its parts
	repeat                // of its one part
	begin                 // ^
	end                   // $
	boundary              // \b or \B
)

// node is a part of an expression. The tree has all parts of the text, as PCRE has them: Go's own
// parser merges equal alternatives, which would hide their cost.
type node struct {
	kind        kind
	parts       []node
	set         set  // of a character
	least, most int  // of a repeat; most is -1 for any number
	lazy        bool // of a repeat: as few as possible
	not         bool // of a boundary
	size        int  // what it takes of PCRE's compiled form, besides its parts
}

// parser reads the part of the language that PCRE and Go read alike.
type parser struct {
	text   string
	at     int
	groups int
	fold   bool // (?i)
}

// parse returns the tree of an expression, and how many groups can be referred to. Go has accepted the
// text before.
func parse(text string) (node, int, error) {
	p := parser{text: text}
	if rest, ok := strings.CutPrefix(text, "(?i)"); ok {
		p.fold, p.at = true, len(text)-len(rest)
	}
	n, err := p.choice()
	if err == nil && p.at < len(text) {
		err = refuse("", "has ) without a (")
	}
	return n, p.groups, err
}

func (p *parser) peek() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

func (p *parser) choice() (node, error) {
	out := node{kind: choice}
	for {
		n, err := p.sequence()
		if err != nil {
			return node{}, err
		}
		out.parts = append(out.parts, n)
		if p.peek() != '|' {
			break
		}
		p.at++
	}
	if len(out.parts) == 1 {
		return out.parts[0], nil
	}
	out.size = sizeOfWay * (len(out.parts) - 1)
	return out, nil
}

func (p *parser) sequence() (node, error) {
	out := node{kind: sequence}
	for p.at < len(p.text) && p.peek() != '|' && p.peek() != ')' {
		n, err := p.item()
		if err == nil {
			n, err = p.repetition(n)
		}
		if err != nil {
			return node{}, err
		}
		out.parts = append(out.parts, n)
	}
	return out, nil
}

// item reads one thing that can be repeated, or an assertion.
func (p *parser) item() (node, error) {
	c := p.peek()
	if c < ' ' || c > 0x7e {
		r, _ := utf8.DecodeRuneInString(p.text[p.at:])
		return node{}, refuse("use printable ASCII; paths are compared percent-encoded", "holds %q", r)
	}
	switch c {
	case '(':
		return p.group()
	case '[':
		return p.class()
	case '\\':
		if p.at+1 >= len(p.text) {
			return node{}, refuse(escapeHint, "ends with a backslash")
		}
		if c := p.text[p.at+1]; c == 'b' || c == 'B' {
			p.at += 2
			return node{kind: boundary, not: c == 'B', size: 1}, nil
		}
		n := node{kind: character, size: sizeOfLiteral}
		err := p.escaped(&n.set)
		return p.folded(n), err
	case '{':
		return node{}, refuse(`write \{`, "holds { that begins no repetition")
	}
	p.at++
	switch c {
	case '^':
		return node{kind: begin, size: 1}, nil
	case '$':
		return node{kind: end, size: 1}, nil
	case '.':
		return node{kind: character, set: notNewline(), size: 1}, nil
	}
	return p.literal(c), nil
}

func (p *parser) literal(c byte) node {
	n := node{kind: character, size: sizeOfLiteral}
	n.set[c] = true
	return p.folded(n)
}

// folded adds the letters of the other case, if (?i) says so.
func (p *parser) folded(n node) node {
	if !p.fold {
		return n
	}
	for c := 'A'; c <= 'Z'; c++ {
		either := n.set[c] || n.set[c|0x20]
		n.set[c], n.set[c|0x20] = either, either
	}
	return n
}

func (p *parser) group() (node, error) {
	p.at++
	switch rest := p.text[p.at:]; {
	case strings.HasPrefix(rest, "?:"):
		p.at += 2
	case strings.HasPrefix(rest, "?"):
		return node{}, refuse("write (?:…) for a group, and (?i) at the beginning for letters of either case", "holds (? with something else than a colon")
	default:
		p.groups++
	}
	n, err := p.choice()
	p.at++ // Go has found its )
	// A group is a node of its own, so that what is repeated is all of it.
	return node{kind: sequence, parts: []node{n}, size: sizeOfGroup}, err
}

const escapeHint = `use \d \w \s \D \W \S \b \B, two digits after \x, or a backslash before a sign`

// escaped adds the characters of an escape to a set.
func (p *parser) escaped(s *set) error {
	text := p.text[p.at:]
	if len(text) < 2 {
		return refuse(escapeHint, "ends with a backslash")
	}
	c := text[1]
	if class := classes[c|0x20]; class != nil && (c|0x20 == c || c >= 'A') && strings.IndexByte("dDwWsS", c) >= 0 {
		for i := range s {
			s[i] = s[i] || class(byte(i)) == (c >= 'a')
		}
		p.at += 2
		return nil
	}
	if c == 'x' && len(text) >= 4 {
		if code, err := strconv.ParseUint(text[2:4], 16, 8); err == nil && code < 0x80 {
			s[code] = true
			p.at += 4
			return nil
		}
	}
	if c <= ' ' || c > 0x7e || isWord(c) {
		return refuse(escapeHint, "holds %q", text[:2])
	}
	s[c] = true
	p.at += 2
	return nil
}

// classes are those of \d, \w and \s; those of capital letters are their complements.
var classes = map[byte]func(byte) bool{
	'd': func(c byte) bool { return '0' <= c && c <= '9' },
	'w': isWord,
	's': func(c byte) bool { return strings.IndexByte("\t\n\f\r ", c) >= 0 },
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

func notNewline() set {
	var s set
	for i := range s {
		s[i] = i != '\n'
	}
	return s
}

// named are the classes of POSIX.
var named = map[string]string{
	"alpha": "A-Za-z", "digit": "0-9", "alnum": "0-9A-Za-z", "upper": "A-Z", "lower": "a-z", "xdigit": "0-9A-Fa-f", "word": "0-9A-Za-z_",
}

// class reads […].
func (p *parser) class() (node, error) {
	p.at++
	n := node{kind: character, size: sizeOfClass}
	not := p.peek() == '^'
	if not {
		p.at++
	}
	if strings.IndexByte(":.=", p.peek()) >= 0 && p.peek() != 0 {
		return node{}, refuse(`write a backslash before it`, "holds [ that begins with %q", p.peek())
	}
	for first := true; first || p.peek() != ']'; first = false {
		if p.at >= len(p.text) {
			return node{}, refuse("", "has [ without a ]")
		}
		if err := p.element(&n.set); err != nil {
			return node{}, err
		}
	}
	p.at++
	n = p.folded(n)
	if not {
		for i := range n.set {
			n.set[i] = !n.set[i]
		}
	}
	return n, nil
}

// element reads a character, a range or a class within […].
func (p *parser) element(s *set) error {
	if strings.HasPrefix(p.text[p.at:], "[:") {
		name, _, _ := strings.Cut(p.text[p.at+2:], ":]")
		ranges, ok := named[name]
		if !ok {
			return refuse(`write \[, or one of [:alpha:], [:digit:], [:alnum:], [:upper:], [:lower:], [:xdigit:], [:word:]`, "holds [ within […]")
		}
		for len(ranges) >= 3 && ranges[1] == '-' {
			s.addRange(ranges[0], ranges[2])
			ranges = ranges[3:]
		}
		for i := range len(ranges) {
			s[ranges[i]] = true
		}
		p.at += len("[:") + len(name) + len(":]")
		return nil
	}
	from, single, err := p.bound(s)
	if err != nil || !single || p.peek() != '-' || p.at+1 < len(p.text) && p.text[p.at+1] == ']' {
		return err
	}
	p.at++
	to, single, err := p.bound(s)
	if err == nil && !single {
		err = refuse("", "holds a range that ends with a class")
	}
	if err == nil {
		s.addRange(from, to)
	}
	return err
}

// bound reads a character within […], which may be an end of a range, or an escape of
// several.
func (p *parser) bound(s *set) (c byte, single bool, err error) {
	c = p.peek()
	switch {
	case c == '[':
		return 0, false, refuse(`write \[`, "holds [ within […]")
	case c < ' ' || c > 0x7e:
		r, _ := utf8.DecodeRuneInString(p.text[p.at:])
		return 0, false, refuse("use printable ASCII; paths are compared percent-encoded", "holds %q", r)
	case c != '\\':
		s[c] = true
		p.at++
		return c, true, nil
	}
	if p.at+1 < len(p.text) && strings.IndexByte("bB", p.text[p.at+1]) >= 0 {
		return 0, false, refuse(escapeHint, "holds %q within […]", p.text[p.at:p.at+2])
	}
	var of set
	if err := p.escaped(&of); err != nil {
		return 0, false, err
	}
	n := 0
	for i, in := range of {
		if in {
			n++
			c, s[i] = byte(i), true
		}
	}
	return c, n == 1, nil
}

// repetition reads what may follow an item.
func (p *parser) repetition(n node) (node, error) {
	r := node{kind: repeat, parts: []node{n}}
	switch p.peek() {
	case '*':
		r.least, r.most = 0, -1
	case '+':
		r.least, r.most = 1, -1
	case '?':
		r.least, r.most = 0, 1
	case '{':
		least, most, length := counts(p.text[p.at:])
		if length == 0 {
			return node{}, refuse(`write \{`, "holds { that begins no repetition")
		}
		r.least, r.most = least, most
		p.at += length - 1
	default:
		return n, nil
	}
	p.at++
	if p.peek() == '?' {
		r.lazy = true
		p.at++
	}
	switch {
	case isAssertion(n):
		return node{}, refuse("", "repeats what takes no characters")
	case r.most != 1 && isNullable(n):
		return node{}, refuse("", "repeats what may take no characters")
	case p.peek() == '{' || p.peek() == '*' || p.peek() == '+':
		return node{}, refuse("", "repeats a repetition")
	}
	return r, nil
}

// counts reads {n}, {n,} or {n,m}; a length of 0 is neither.
func counts(text string) (least, most, length int) {
	inside, _, ok := strings.Cut(text[1:], "}")
	from, to, ranged := strings.Cut(inside, ",")
	least, err := strconv.Atoi(from)
	if !ok || err != nil || strings.ContainsAny(inside, "+- ") {
		return 0, 0, 0
	}
	switch {
	case !ranged:
		most = least
	case to == "":
		most = -1
	default:
		if most, err = strconv.Atoi(to); err != nil {
			return 0, 0, 0
		}
	}
	return least, most, len(inside) + 2
}

// isAssertion reports whether a node takes no character, wherever it matches.
func isAssertion(n node) bool {
	switch n.kind {
	case begin, end, boundary:
		return true
	case character, repeat:
		return false
	}
	for _, part := range n.parts {
		if !isAssertion(part) {
			return false
		}
	}
	return true
}

// isNullable reports whether a node may match without taking a character.
func isNullable(n node) bool {
	switch n.kind {
	case character:
		return false
	case repeat:
		return n.least == 0 || isNullable(n.parts[0])
	case sequence:
		for _, part := range n.parts {
			if !isNullable(part) {
				return false
			}
		}
		return true
	case choice:
		for _, part := range n.parts {
			if isNullable(part) {
				return true
			}
		}
		return false
	}
	return true
}

func (s *set) addRange(from, to byte) {
	for c := int(from); c <= int(to); c++ {
		s[c] = true
	}
}
