package haproxycfg

import (
	"bytes"
	"iter"
	"slices"
)

// SectionKeywords are the words that begin a section in HAProxy 2.6 to 3.4. An
// older one takes a newer keyword for a directive, which it does not know.
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
	if word, ok := plainFirst(l.Text); ok && !isSectionKeyword[string(word)] {
		return Section{}, false // nearly all lines; nothing is allocated
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
