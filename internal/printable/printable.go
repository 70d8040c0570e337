// Package printable makes text of unknown origin safe to show: in a log, on a terminal, in a message of a
// commit. [Text] and [JSON] escape, and drop nothing, so that a reader still sees what an object holds. [Shortened],
// [Few] and [Quoted] bound how long a text gets.
package printable

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns s with every character escaped that is not printable as Go defines it ([strconv.IsPrint]):
// control characters, which can end a line or command a terminal, formatting characters, which can reverse the
// text that is shown, and bytes that are not UTF-8. The escapes are those of Go, such as \n, \x7f and \u202e.
// Printable text, quotes and backslashes included, is not changed.
func Text(s string) string {
	if isPrintable(s) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch _, size := utf8.DecodeRuneInString(s[i:]); {
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x` + strconv.FormatUint(uint64(s[i])|0x100, 16)[1:])
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}

// Lines is Text for several lines: line breaks and tabs stay.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		cells := strings.Split(line, "\t")
		for n, cell := range cells {
			cells[n] = Text(cell)
		}
		lines[i] = strings.Join(cells, "\t")
	}
	return strings.Join(lines, "\n")
}

// JSON returns a JSON document in which the characters that are not printable are escaped, as [Text] chooses them.
// encoding/json leaves those above U+007E as they are, and some command a terminal too. The document says the same.
func JSON(document []byte) []byte {
	var out []byte
	for i, r := range string(document) {
		switch {
		case r < utf8.RuneSelf && r != 0x7f, strconv.IsPrint(r):
			if out != nil {
				out = utf8.AppendRune(out, r)
			}
			continue
		case out == nil:
			out = append([]byte{}, document[:i]...)
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	if out == nil {
		return document
	}
	return out
}

func isPrintable(s string) bool {
	for i, r := range s {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				return false
			}
		}
		if !strconv.IsPrint(r) {
			return false
		}
	}
	return true
}

// longest is how many characters of a value a message shows.
const longest = 60

// Quoted returns a value in quotes, as Go writes it, for a message. A long value is
// shortened.
func Quoted(s string) string {
	if r := []rune(s[:min(len(s), 8*longest)]); len(r) > longest { // a rune has 4 bytes at most
		s = string(r[:longest]) + "…"
	}
	return strconv.Quote(s)
}

// Shortened returns the beginning of a text, cut between two characters after the given number of bytes, and followed by
// "…" if it was longer.
func Shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// Few lists the first of many texts, and says how many more there are.
func Few(texts []string, most int) string {
	if more := len(texts) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(texts[:most], ", "), more)
	}
	return strings.Join(texts, ", ")
}
