// Package haproxycfg reads a haproxy.cfg as HAProxy reads it: lines, words and sections. All packages
// of this module that look into a haproxy.cfg use it, so that they agree with each other and with
// HAProxy on where a section begins and which words a line has.
//
// The rules are those of section 2.2 (quoting and escaping) and 2.3 (environment variables) of
// HAProxy's configuration manual:
//   - Indentation means nothing. A line begins a section if its first word, after
//     quotes and escapes were resolved, is one of [SectionKeywords].
//   - Blanks separate words. Quotes join, a backslash escapes, # begins a comment
//     outside of quotes, and a carriage return ends the line.
//   - A line that begins with [ is a scope, and has no words.
//
// Two things are not resolved, since the reader cannot know them: the values of environment variables,
// which stay in the word as they are written (see [Word.Variable]), and the conditions of .if blocks. A
// line within such a block is read like any other.
//
// The package allocates memory for words only: a [Line] is a part of the text that was read, which must
// not be changed meanwhile.
package haproxycfg

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"unicode/utf8"
)

// SectionKeywords are the words that begin a section in HAProxy 2.6 to 3.4. An older HAProxy takes a newer
// keyword for an unknown directive.
var SectionKeywords = []string{
	"acme", "backend", "cache", "crt-store", "defaults", "fcgi-app", "frontend", "global", "healthcheck", "http-errors",
	"listen", "log-forward", "log-profile", "mailers", "namespace_list", "peers", "program", "resolvers", "ring", "traces",
	"userlist",
}

var isSectionKeyword = func() map[string]bool {
	words := map[string]bool{}
	for _, word := range SectionKeywords {
		words[word] = true
	}
	return words
}()

// BeginsSection reports whether a line with this first word begins a section.
func BeginsSection(word string) bool { return isSectionKeyword[word] }

// Line is a line of a haproxy.cfg.
type Line struct {
	Number int    // from 1
	Text   []byte // without the newline
}

// Words returns the words of the line. Of a line that HAProxy refuses it returns the words before the
// fault.
func (l Line) Words() []Word {
	words, _ := Words(l.Text)
	return words
}

// Texts returns the words of the line as HAProxy sees them.
func (l Line) Texts() []string {
	words := l.Words()
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = w.Text
	}
	return out
}

// First returns the first word of the line, "" for a line without words.
func (l Line) First() string { return FirstWord(l.Text) }

// Is reports whether the first word of the line is the one given. It allocates nothing if that word has
// no quotes or escapes.
func (l Line) Is(word string) bool {
	if first, ok := plainFirst(l.Text); ok {
		return string(first) == word && word != ""
	}
	return l.First() == word
}

// Lines yields the lines of a text. A final newline does not begin another line.
func Lines(text []byte) iter.Seq[Line] {
	return func(yield func(Line) bool) {
		for number := 1; len(text) > 0; number++ {
			line, rest, _ := bytes.Cut(text, []byte{'\n'})
			if !yield(Line{number, line}) {
				return
			}
			text = rest
		}
	}
}

// Section is a section of a haproxy.cfg. The zero Keyword stands for the lines
// before the first one.
type Section struct {
	Keyword string
	Name    string // "" for none
	From    string // the defaults that the section names, "" for none
	Head    Line
	Lines   []Line // those after the head, comments and empty ones included
}

// HasServers reports whether server lines may stand in the section.
func (s Section) HasServers() bool { return s.Keyword == "backend" || s.Keyword == "listen" }

// BeginSection reads a line that begins a section, and reports whether it does.
// The section has no lines yet.
func BeginSection(l Line) (Section, bool) {
	if word, ok := plainFirst(l.Text); ok {
		if !isSectionKeyword[string(word)] {
			return Section{}, false // nearly all lines; nothing is allocated
		}
		if name, from, ok := plainHead(l.Text, word); ok {
			return Section{Keyword: string(word), Name: string(name), From: string(from), Head: l}, true
		}
	}
	words := l.Words()
	if len(words) == 0 || !isSectionKeyword[words[0].Text] {
		return Section{}, false
	}
	s := Section{Keyword: words[0].Text, Head: l}
	if len(words) > 1 {
		s.Name = words[1].Text
	}
	if i := slices.IndexFunc(words, func(w Word) bool { return w.Text == "from" }); i > 0 && i+1 < len(words) {
		s.From = words[i+1].Text
		if i == 1 && s.Keyword == "defaults" { // defaults from NAME
			s.Name = ""
		}
	}
	return s, true
}

// plainHead returns what BeginSection reads of a line that begins with this word, if that is a name, alone or with the defaults
// that the section names, and nothing in it has to be resolved. Nearly all lines that begin a section are such lines.
func plainHead(line, first []byte) (name, from []byte, ok bool) {
	rest := line[bytes.Index(line, first)+len(first):]
	name, rest = plainWord(rest)
	if len(name) == 0 || string(name) == "from" {
		return nil, nil, false
	}
	word, rest := plainWord(rest)
	if string(word) == "from" {
		from, rest = plainWord(rest)
		word, rest = plainWord(rest)
	}
	return name, from, len(word) == 0 && (len(rest) == 0 || string(rest) == "\n")
}

// plainWord returns the first word of a text that begins with a blank, and what follows it. The word is empty if the text begins
// in another way, or if something has to be resolved in it.
func plainWord(text []byte) (word, rest []byte) {
	start := 0
	for start < len(text) && (text[start] == ' ' || text[start] == '\t') {
		start++
	}
	end := start
	for end < len(text) && isPlain(text[end]) && text[end] < utf8.RuneSelf {
		end++
	}
	if start == 0 || end < len(text) && text[end] != ' ' && text[end] != '\t' && text[end] != '\n' {
		return nil, text[start:]
	}
	return text[start:end], text[end:]
}

// Sections yields the sections of a text in order. Lines before the first section
// come as one without a keyword, if there are any.
func Sections(text []byte) iter.Seq[Section] {
	return func(yield func(Section) bool) {
		var current Section
		for line := range Lines(text) {
			next, begins := BeginSection(line)
			if !begins {
				current.Lines = append(current.Lines, line)
				continue
			}
			if (current.Keyword != "" || len(current.Lines) > 0) && !yield(current) {
				return
			}
			current = next
		}
		if current.Keyword != "" || len(current.Lines) > 0 {
			yield(current)
		}
	}
}

// MaxWords is how many words HAProxy reads of a line. It refuses a line with more.
const MaxWords = 64

// Word is one word of a line.
type Word struct {
	// Text is the word without quotes, and with escapes resolved. An environment
	// variable stays as it is written.
	Text string
	// Start and End are where the word stands in the line, in bytes, quotes included.
	Start, End int
	// Quoted says that a quote or an escape was resolved: Text is not what is written.
	Quoted bool
	// Variable says that the word has an environment variable, so that HAProxy may see another text, and with
	// "${NAME[*]}" any number of words.
	Variable bool
}

// SyntaxError is a line that HAProxy refuses before it looks at its words.
type SyntaxError struct {
	Position int // in the line, in bytes from 0
	Message  string
}

// Error returns "byte POSITION: what is wrong", where positions count from 1.
func (e *SyntaxError) Error() string { return fmt.Sprintf("byte %d: %s", e.Position+1, e.Message) }

// Blanks are the bytes that separate words for HAProxy. A newline ends a line, and is not a blank.
const Blanks = " \t\v\f\r"

// IsBlank reports whether a byte is one of [Blanks].
func IsBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '\r' }

// FirstWord returns the first word of a line as HAProxy sees it, "" for a line without words. It is
// faster than [Words].
func FirstWord(line []byte) string {
	if word, ok := plainFirst(line); ok {
		return string(word)
	}
	words, _ := Words(line)
	if len(words) == 0 {
		return ""
	}
	return words[0].Text
}

// plainFirst returns the first word of a line if nothing in it has to be resolved.
func plainFirst(line []byte) ([]byte, bool) {
	start := 0
	for start < len(line) && IsBlank(line[start]) {
		start++
	}
	end := start
	for end < len(line) && isPlain(line[end]) {
		end++
	}
	if end < len(line) && !IsBlank(line[end]) && line[end] != '#' && line[end] != '\n' {
		return nil, false
	}
	if end > start && line[start] == '[' {
		return nil, true
	}
	return line[start:end], true
}

// CountWords returns how many words HAProxy sees in a line, without their texts.
func CountWords(line []byte) int {
	if bytes.ContainsAny(line, "\"'\\#$\r\n\x00") {
		words, _ := Words(line)
		return len(words)
	}
	if word, _ := plainFirst(line); len(word) == 0 {
		return 0
	}
	count, blank := 0, true
	for _, c := range line {
		if blank && !IsBlank(c) {
			count++
		}
		blank = IsBlank(c)
	}
	return count
}

// isPlain reports whether the byte stands for itself wherever it is in a word.
func isPlain(c byte) bool { return plain[c] }

var plain = func() (table [256]bool) {
	for c := range table {
		table[c] = !IsBlank(byte(c)) && !bytes.ContainsRune([]byte("\"'\\#$\n\x00"), rune(c))
	}
	return table
}()

// Words returns the words of a line, which may end in a line break. With an error,
// which is a [*SyntaxError], it also returns the words before the fault.
func Words(line []byte) ([]Word, error) {
	s := newScanner(line)
	if s.at < len(s.line) && s.line[s.at] == '[' {
		return nil, nil // a scope
	}
	for s.next() {
	}
	return s.words, s.err
}

// Comment returns the comment of a line, from its # on, and whether there is one.
func Comment(line []byte) ([]byte, bool) {
	if bytes.IndexByte(line, '#') < 0 {
		return nil, false
	}
	s := newScanner(line)
	for s.next() {
	}
	if s.err != nil || s.at >= len(s.line) || s.line[s.at] != '#' {
		return nil, false
	}
	return s.line[s.at:], true
}

// scanner reads the words of a line, one after another.
type scanner struct {
	line  []byte
	text  string // the line; plain words are parts of it
	at    int
	words []Word
	err   error
}

// newScanner returns a scanner at the first byte of a line that is not blank.
func newScanner(line []byte) scanner {
	if i := bytes.IndexAny(line, "\n\x00"); i >= 0 {
		line = line[:i]
	}
	s := scanner{line: line, text: string(line)}
	s.skipBlanks()
	return s
}

func (s *scanner) skipBlanks() {
	for s.at < len(s.line) && IsBlank(s.line[s.at]) {
		s.at++
	}
}

// next reads a word and the blanks behind it, and reports whether there may be
// another word.
func (s *scanner) next() bool {
	start := s.at
	for s.at < len(s.line) && isPlain(s.line[s.at]) {
		s.at++
	}
	if s.at == len(s.line) || IsBlank(s.line[s.at]) || s.line[s.at] == '#' {
		if s.at > start {
			if s.words == nil {
				s.words = make([]Word, 0, 4)
			}
			s.words = append(s.words, Word{Text: s.text[start:s.at], Start: start, End: s.at})
		}
		return s.more()
	}
	s.at = start
	return s.composed()
}

// composed reads a word with quotes, escapes or variables.
func (s *scanner) composed() bool {
	w := Word{Start: s.at}
	var text []byte
	var quote byte
	opened := 0
	exists := false // an escape, a character or a pair of quotes makes a word
	for s.at < len(s.line) {
		c := s.line[s.at]
		switch {
		case quote == 0 && (IsBlank(c) || c == '#'):
			return s.end(w, text, exists)
		case c == '\r': // it ends the line, within quotes too
			return s.fail(opened, "unmatched quote")
		case c == quote:
			quote, exists = 0, true
			s.at++
		case quote == 0 && (c == '"' || c == '\''):
			quote, opened, w.Quoted = c, s.at, true
			s.at++
		case c == '\\' && quote != '\'':
			became, length, ok := escape(s.line[s.at:], quote)
			if !ok {
				return s.fail(s.at, "truncated or invalid hexadecimal sequence")
			}
			w.Quoted = w.Quoted || length > 1
			text, exists = append(text, became), true
			s.at += length
		case c == '$' && quote == '"':
			length, message := variable(s.line[s.at:])
			if message != "" {
				return s.fail(s.at, message)
			}
			text, exists, w.Variable = append(text, s.line[s.at:s.at+length]...), true, true
			s.at += length
		default:
			text, exists = append(text, c), true
			s.at++
		}
	}
	if quote != 0 {
		return s.fail(opened, "unmatched quote")
	}
	return s.end(w, text, exists)
}

func (s *scanner) end(w Word, text []byte, exists bool) bool {
	if exists {
		w.Text, w.End = string(text), s.at
		s.words = append(s.words, w)
	}
	return s.more()
}

// more skips the blanks behind a word, and reports whether another word may follow.
// A carriage return right behind a word ends the line; behind a blank it is a blank.
func (s *scanner) more() bool {
	if s.at < len(s.line) && s.line[s.at] == '\r' {
		s.at = len(s.line)
	}
	s.skipBlanks()
	return s.at < len(s.line) && s.line[s.at] != '#'
}

func (s *scanner) fail(at int, message string) bool {
	s.err = &SyntaxError{at, message}
	return false
}

// escape reads a backslash and what follows it, outside of single quotes. A backslash before any other
// character stands for itself.
func escape(text []byte, quote byte) (became byte, length int, ok bool) {
	if len(text) < 2 {
		return '\\', 1, true
	}
	switch c := text[1]; c {
	case ' ', '\\', '#', '\'', '"':
		return c, 2, true
	case 't':
		return '\t', 2, true
	case 'n':
		return '\n', 2, true
	case 'r':
		return '\r', 2, true
	case '$':
		if quote == '"' {
			return c, 2, true
		}
	case 'x':
		if len(text) < 4 {
			return 0, 0, false
		}
		n, err := strconv.ParseUint(string(text[2:4]), 16, 8)
		return byte(n), 4, err == nil
	}
	return '\\', 1, true
}

// variable returns how long an environment variable at the beginning of the text is, or what is wrong with it.
func variable(text []byte) (length int, message string) {
	at, brace := 1, false
	if at < len(text) && text[at] == '{' {
		at, brace = at+1, true
	}
	if at == len(text) || !isLetter(text[at]) && text[at] != '_' && text[at] != '.' {
		return 0, "forbidden first character in the name of an environment variable"
	}
	for at++; at < len(text) && (isLetter(text[at]) || text[at] == '_' || '0' <= text[at] && text[at] <= '9'); at++ {
	}
	if !brace {
		return at, ""
	}
	if at < len(text) && text[at] == '[' {
		if !bytes.HasPrefix(text[at:], []byte("[*]")) {
			return 0, "truncated or invalid word expansion"
		}
		at += len("[*]")
	}
	end := bytes.IndexByte(text[at:], '}')
	if end < 0 || end > 0 && text[at] != '-' {
		return 0, "unmatched brace in the name of an environment variable"
	}
	return at + end + 1, ""
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
