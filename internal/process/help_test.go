package process

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// Help texts list the flags of a verb first, and those of the store, of git, of the cluster and of the log
// under titles of their own, in 80 columns.
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

// Texts fit 80 columns, and keep their paragraphs, items and columns.
func TestReflow(t *testing.T) {
	t.Parallel()
	const text = `Wait until the fleet is where it should be, and say nothing
before that, however long it takes:

  --for rollout    no rollout is under way
  --for ready      the fleet runs what people want, and nothing is wrong at all
                   anywhere

- one item that is long enough to be wrapped once
and goes on
- another
  one
1. first

The end. üüüüüüüüüüüüüüüüüüüüü üüüüüüüüüüüüüüüüüüü
A-word-that-is-longer-than-a-line-of-forty-columns`
	const want = `Wait until the fleet is where it should
be, and say nothing before that, however
long it takes:

  --for rollout    no rollout is under
    way
  --for ready      the fleet runs what
                   people want, and
                   nothing is wrong at
                   all anywhere

- one item that is long enough to be
  wrapped once and goes on
- another one
1. first

The end. üüüüüüüüüüüüüüüüüüüüü
üüüüüüüüüüüüüüüüüüü
A-word-that-is-longer-than-a-line-of-forty-columns`
	if diff := cmp.Diff(want, Reflow(text, 40)); diff != "" {
		t.Error(diff)
	}
	if again := Reflow(want, 40); Reflow(again, 40) != again {
		t.Errorf("not the same once more:\n%s", again)
	}
}

// An example that is too long for a line stays one command for a shell.
func TestLongExamples(t *testing.T) {
	t.Parallel()
	const line = `  tool verb --reason 'two words that stay together' --store "another one" r12`
	want := "  tool verb --reason \\\n      'two words that stay together' \\\n      --store \"another one\" r12\n"
	if got := commandLine(line, 40); got != want {
		t.Errorf("%q", got)
	}
	if got := commandLine(line, 80); got != line+"\n" {
		t.Errorf("%q", got)
	}
	if got := useLine("tool verb --for A|B {--state STATE | --address HOST} [flags]", 40); got != "  tool verb --for A|B\n      {--state STATE | --address HOST}\n      [flags]\n" {
		t.Errorf("%q", got)
	}
}
