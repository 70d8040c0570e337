package cli

import (
	"os"
	"testing"

	"github.com/spf13/cobra"

	compiler "github.com/hapsnap/hapsnap/compiler/cli"
	"github.com/hapsnap/hapsnap/internal/testing/terminal"
	pusher "github.com/hapsnap/hapsnap/pusher/cli"
)

// The help of the programs, at terminals of 80 and of 120 columns.
func TestTerminalOfHelp(t *testing.T) {
	for _, root := range []*cobra.Command{NewCommand(Name), compiler.NewCommand(), pusher.NewCommand()} {
		terminal.Golden(t, "help-"+root.Name(), func(to *os.File) {
			root.SetArgs([]string{"--help"})
			root.SetOut(to)
			root.SetErr(to)
			if err := root.ExecuteContext(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
