package printable

import "strconv"

// longest is how many characters of a value a message has.
const longest = 60

// Quoted returns a value in quotes, as Go writes it, for a message. A long value is
// shortened.
func Quoted(s string) string {
	if r := []rune(s[:min(len(s), 8*longest)]); len(r) > longest { // a rune has 4 bytes at most
		s = string(r[:longest]) + "…"
	}
	return strconv.Quote(s)
}
