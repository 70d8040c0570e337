package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
)

// Any program can offer the commands: below a command of its own, with its streams, and
// more than once. An error comes back with its exit code and is printed by nobody.
func TestCommandsInAnotherProgram(t *testing.T) {
	t.Parallel()
	for range 2 {
		var out, errs bytes.Buffer
		root := &cobra.Command{Use: "front", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(NewCommand())
		root.SetOut(&out)
		root.SetErr(&errs)
		root.SetArgs([]string{"pusher", "version"})
		if err := root.ExecuteContext(t.Context()); err != nil || !strings.HasPrefix(out.String(), "front ") {
			t.Errorf("version: %v, printed %q", err, &out)
		}
		root.SetArgs([]string{"pusher", "history"})
		err := root.ExecuteContext(t.Context())
		if e, ok := errors.AsType[*process.ExitError](err); !ok || e.Code != process.ExitUsage || errs.Len() > 0 {
			t.Errorf("history without flags: %v, printed %q", err, &errs)
		}
	}
}
