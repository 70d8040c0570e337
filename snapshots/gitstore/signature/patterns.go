package signature

import "strings"

// matchList reports whether a word matches a list of patterns with commas, as in
// ssh_config(5), PATTERNS: one of them, and none that begins with an exclamation
// mark.
func matchList(list, word string) bool {
	matched := false
	for pattern := range strings.SplitSeq(list, ",") {
		not, negated := strings.CutPrefix(pattern, "!")
		switch {
		case negated && match(not, word):
			return false
		case !negated && match(pattern, word):
			matched = true
		}
	}
	return matched
}

// match reports whether a word matches a pattern, in which * stands for any text
// and ? for a character.
func match(pattern, word string) bool {
	star, back := -1, 0
	p, w := 0, 0
	for w < len(word) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, back = p, w
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == word[w]):
			p++
			w++
		case star >= 0:
			back++
			p, w = star+1, back
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
