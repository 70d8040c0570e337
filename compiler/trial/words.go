package trial

import "github.com/hapsnap/hapsnap/internal/haproxycfg"

// line is a line of haproxy.cfg.
type line struct {
	text  string
	words []haproxycfg.Word
}

func newLine(text string) line {
	return line{text, haproxycfg.Line{Text: []byte(text)}.Words()}
}

// word returns a word as HAProxy sees it, or "".
func (l line) word(i int) string {
	if i >= len(l.words) {
		return ""
	}
	return l.words[i].Text
}

// from returns the line from a word on, without what stands before it.
func (l line) from(i int) string {
	if i >= len(l.words) {
		return ""
	}
	return l.text[l.words[i].Start:]
}

// withWord returns the text with another word in the place of one.
func (l line) withWord(i int, word string) string {
	return l.text[:l.words[i].Start] + word + l.text[l.words[i].End:]
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
