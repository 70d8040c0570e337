package process

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Help texts have the flags of a verb first, and those of the store, of git, of the cluster
// and of the log under titles of their own, in 80 columns.
func TestHelpIsGrouped(t *testing.T) {
	t.Parallel()
	root := &cobra.Command{Use: "tool"}
	verb := &cobra.Command{Use: "verb", Run: func(*cobra.Command, []string) {}, Example: "  tool verb"}
	for _, flag := range []string{"git-token-file", "kubeconfig", "reason", "store", "log-level"} {
		verb.Flags().String(flag, "", strings.Repeat("many words ", 12))
	}
	root.AddCommand(verb)
	GroupHelp(root)
	text, at := verb.UsageString(), 0
	for _, want := range []string{
		"Usage:\n  tool verb [flags]\n", "\nExamples:\n  tool verb\n", "\nFlags:\n", "--reason", "\nFlags of the store:\n", "--store",
		"\nFlags of a store in git:\n", "--git-token-file", "\nFlags of the cluster:\n", "--kubeconfig", "\nFlags of the log:\n", "--log-level",
	} {
		n := strings.Index(text[at:], want)
		if n < 0 {
			t.Fatalf("no %q there:\n%s", want, text)
		}
		at += n + len(want)
	}
	for line := range strings.Lines(text) {
		if len(line) > helpWidth+1 {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
}
