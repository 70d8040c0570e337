package routing

import (
	"fmt"
	"regexp/syntax"
	"strings"
)

// unmatchable says of what an expression holds that no path in the normal form does, "" if there
// is nothing: a part with it matches no request, and what it was to protect would be open.
func unmatchable(path string) string {
	tree, err := syntax.Parse(path, syntax.Perl)
	if err != nil {
		return "" // which is said elsewhere
	}
	return unmatchableIn(tree)
}

func unmatchableIn(e *syntax.Regexp) string {
	switch e.Op {
	case syntax.OpLiteral:
		return unmatchableText(string(e.Rune))
	case syntax.OpCharClass:
		for i := 0; i < len(e.Rune); i += 2 {
			for r := e.Rune[i]; r <= min(e.Rune[i+1], 0x7f); r++ {
				if inNormalPath(r) {
					return ""
				}
			}
		}
		return fmt.Sprintf("%q", e)
	case syntax.OpConcat:
		text := ""
		for _, sub := range e.Sub {
			if sub.Op == syntax.OpLiteral {
				text += string(sub.Rune) // one without regard to case is one of its own
				continue
			}
			if found := unmatchableText(text); found != "" {
				return found
			}
			text = ""
			if found := unmatchableIn(sub); found != "" {
				return found
			}
		}
		return unmatchableText(text)
	}
	for _, sub := range e.Sub {
		if found := unmatchableIn(sub); found != "" {
			return found
		}
	}
	return ""
}

// unmatchableText returns the part of a text that stands in no path of the normal form.
func unmatchableText(text string) string {
	for _, r := range text {
		if !inNormalPath(r) {
			return fmt.Sprintf("%q", r)
		}
	}
	for i := range len(text) {
		if c, encoded := encodedAt(text, i); encoded && mayStand(c) {
			return fmt.Sprintf("%q", text[i:i+3])
		}
	}
	for _, sequence := range []string{"//", "/./", "/../"} {
		if strings.Contains(text, sequence) {
			return fmt.Sprintf("%q", sequence)
		}
	}
	return ""
}

// inNormalPath reports whether a character stands in paths of the normal form.
func inNormalPath(r rune) bool {
	return r < 0x80 && (mayStand(byte(r)) || strings.ContainsRune("/;%", r))
}
