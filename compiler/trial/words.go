package trial

import "strings"

// span is where a word is in a line.
type span struct{ from, to int }

// split finds the words of a line of haproxy.cfg, with their quotes. A comment is
// none.
func split(line string) []span {
	var words []span
	start, quote := -1, byte(0)
	end := func(at int) {
		if start >= 0 {
			words = append(words, span{start, at})
		}
		start = -1
	}
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote != 0:
			if c == '\\' && quote == '"' {
				i++
			} else if c == quote {
				quote = 0
			}
			continue
		case c == ' ' || c == '\t':
			end(i)
			continue
		case c == '#':
			end(i)
			return words
		}
		if start < 0 {
			start = i
		}
		switch c {
		case '\\':
			i++
		case '\'', '"':
			quote = c
		}
	}
	end(len(line))
	return words
}

// line is a line of haproxy.cfg.
type line struct {
	text  string
	words []span
}

func newLine(text string) line { return line{text, split(text)} }

// word returns a word without quotes, or "".
func (l line) word(i int) string {
	if i >= len(l.words) {
		return ""
	}
	return strings.NewReplacer(`"`, "", "'", "").Replace(l.text[l.words[i].from:l.words[i].to])
}

// from returns the line from a word on, without what stands before it.
func (l line) from(i int) string {
	if i >= len(l.words) {
		return ""
	}
	return l.text[l.words[i].from:]
}

// withWord returns the text with another word in the place of one.
func (l line) withWord(i int, word string) string {
	return l.text[:l.words[i].from] + word + l.text[l.words[i].to:]
}

// has reports whether one of the words from i on is word.
func (l line) has(i int, word string) bool {
	for ; i < len(l.words); i++ {
		if l.word(i) == word {
			return true
		}
	}
	return false
}
