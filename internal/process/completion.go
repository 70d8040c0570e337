package process

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"
)

// Completion says what the flags of a program take, for shells to complete. All
// others are taken to be files. The flags of the log are known.
type Completion struct {
	Folders []string            // flags that take a directory
	Words   map[string][]string // flags that take one of a few words
}

// logWords are what the flags of [LogOptions] take.
var logWords = map[string][]string{
	"log-level":  {"debug", "info", "warn", "error"},
	"log-format": {"text", "json"},
}

// AddTo tells it to all verbs of a program that have the flags. Verbs without
// arguments get none completed.
func (c Completion) AddTo(root *cobra.Command) {
	words := maps.Clone(logWords)
	maps.Copy(words, c.Words)
	for _, cmd := range root.Commands() {
		for _, name := range c.Folders {
			if cmd.Flags().Lookup(name) != nil {
				_ = cmd.MarkFlagDirname(name) // fails for unknown flags only
			}
		}
		for _, name := range slices.Sorted(maps.Keys(words)) {
			if cmd.Flags().Lookup(name) != nil {
				_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words[name], cobra.ShellCompDirectiveNoFileComp))
			}
		}
		if cmd.ValidArgsFunction == nil && !takesArguments(cmd) {
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
	}
}

// takesArguments reports whether a verb takes one argument, or two.
func takesArguments(cmd *cobra.Command) bool {
	return cmd.ValidateArgs([]string{""}) == nil || cmd.ValidateArgs([]string{"", ""}) == nil
}
