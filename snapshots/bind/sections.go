package bind

import (
	"bytes"
	"iter"
	"strings"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
)

// section is a section of haproxy.cfg, by its keyword and name. The zero value
// stands for the lines before the first section.
type section struct {
	keyword, name string
}

// hasServers reports whether server lines may stand in the section.
func (s section) hasServers() bool { return s.keyword == "backend" || s.keyword == "listen" }

// openSection reads a line that starts a section, and reports whether it does.
func openSection(line []byte) (section, bool) {
	s, begins := haproxycfg.BeginSection(haproxycfg.Line{Text: line})
	return section{s.Keyword, s.Name}, begins
}

// blanks are the bytes that separate words for HAProxy.
const blanks = " \t\r\v\f"

func isBlank(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' && c != '\n' }

// firstWord returns the first word of a line and what follows it. A comment
// has no words.
func firstWord(line []byte) (word, rest []byte) {
	start := 0
	for start < len(line) && isBlank(line[start]) {
		start++
	}
	end := start
	for end < len(line) && !isBlank(line[end]) {
		if line[end] == '#' {
			return line[start:end], nil
		}
		end++
	}
	return line[start:end], line[end:]
}

// numberedLines yields the lines of text from 1, each without its newline. A
// final newline does not start another line.
func numberedLines(text []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for number := 1; len(text) > 0; number++ {
			line, rest, _ := bytes.Cut(text, []byte{'\n'})
			if !yield(number, line) {
				return
			}
			text = rest
		}
	}
}

// isTokenByte tells the bytes that a path in a configuration consists of. A
// path ends at any other byte.
var isTokenByte = func() (is [256]bool) {
	for c := range is {
		is[c] = '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' ||
			strings.ContainsRune("._/-", rune(c))
	}
	return is
}()

// isName reports whether s holds nothing but letters, digits, '.', '_', '-'
// and the bytes of extra.
func isName(s, extra string) bool {
	for i := range len(s) {
		if !isTokenByte[s[i]] && !strings.Contains(extra, s[i:i+1]) || s[i] == '/' {
			return false
		}
	}
	return true
}
