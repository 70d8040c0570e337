package process

import (
	"regexp"
	"strings"
)

// plainWord is a word that no shell changes: bash, zsh and fish take it as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+:,./-][A-Za-z0-9_@%+:,./=-]*$`)

// ShellCommand returns a command line that people can copy into a shell: words that a shell
// would change are quoted.
func ShellCommand(words ...string) string {
	quoted := make([]string, 0, len(words))
	for _, word := range words {
		if !plainWord.MatchString(word) {
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		quoted = append(quoted, word)
	}
	return strings.Join(quoted, " ")
}
