package cli

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	compiler "github.com/hapsnap/hapsnap/compiler/cli"
	"github.com/hapsnap/hapsnap/internal/testing/terminal"
	pusher "github.com/hapsnap/hapsnap/pusher/cli"
)

// This is the help of the programs on terminals of 80 and of 120 columns.
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

// The help of every verb of every program fits 80 columns.
func TestHelpFits(t *testing.T) {
	t.Parallel()
	const columns = 80
	var look func(cmd *cobra.Command)
	verbs := 0
	look = func(cmd *cobra.Command) {
		verbs++
		var out strings.Builder
		cmd.SetOut(&out)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > columns {
				t.Errorf("%s --help has a line of %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
		for _, verb := range cmd.Commands() {
			look(verb)
		}
	}
	for _, root := range []*cobra.Command{NewCommand(Name), compiler.NewCommand(), pusher.NewCommand()} {
		root.InitDefaultHelpCmd()
		root.InitDefaultCompletionCmd()
		look(root)
	}
	if verbs < 80 {
		t.Errorf("%d verbs were looked at", verbs)
	}
}
