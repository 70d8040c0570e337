package docs_test

import (
	"fmt"
	"path"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	compiler "github.com/hapsnap/hapsnap/compiler/cli"
	front "github.com/hapsnap/hapsnap/hapsnap/cli"
	pusher "github.com/hapsnap/hapsnap/pusher/cli"
	waf "github.com/hapsnap/hapsnap/waf/cli"
)

// words splits a line like a shell, into the words of each of its simple commands. It returns an error for what
// an interactive zsh reads differently than bash: unquoted patterns, and comments, which zsh takes for
// arguments.
func words(line string) (commands [][]string, err error) {
	var command []string
	var word strings.Builder
	begun, quote := false, rune(0)
	endWord := func() {
		if begun {
			command = append(command, word.String())
		}
		word.Reset()
		begun = false
	}
	endCommand := func() {
		endWord()
		if len(command) > 0 {
			commands = append(commands, command)
		}
		command = nil
	}
	escaped := false
	for _, r := range line {
		switch {
		case escaped:
			word.WriteRune(r)
			begun, escaped = true, false
		case r == '\\' && quote != '\'':
			escaped = true
		case quote != 0:
			if r == quote {
				quote = 0
			} else {
				word.WriteRune(r)
			}
		case r == '\'' || r == '"':
			quote, begun = r, true
		case r == ' ' || r == '\t':
			endWord()
		case strings.ContainsRune("|&;()<>\n", r):
			endCommand()
		case r == '#' && !begun:
			return nil, fmt.Errorf("a comment, which zsh takes for arguments: %s", line)
		case strings.ContainsRune("?*[", r):
			return nil, fmt.Errorf("%q is not quoted, and zsh takes it for a pattern: %s", r, line)
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quote != 0 || escaped {
		return nil, fmt.Errorf("a quote is left open: %s", line)
	}
	endCommand()
	return commands, nil
}

// programOf returns which of our programs a command runs, or "".
func programOf(command []string) string {
	if name := path.Base(command[0]); name == "compiler" || name == "pusher" || name == "waf" || name == front.Name {
		return name
	}
	return ""
}

// checkCommand compares a command of ours with the existing verbs and flags. If the command is whole, it also
// checks the arguments and flags that its verb requires.
func checkCommand(command []string, whole bool) error {
	var root *cobra.Command
	switch programOf(command) {
	case "pusher":
		root = pusher.NewCommand()
	case "waf":
		root = waf.NewCommand()
	case front.Name:
		root = front.NewCommand(front.Name)
	default:
		root = compiler.NewCommand()
	}
	root.InitDefaultCompletionCmd("completion")
	root.InitDefaultHelpCmd()
	verb, rest, err := root.Find(command[1:])
	if err != nil {
		return err
	}
	if verb == root && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return fmt.Errorf("%s has no verb %s", root.Name(), rest[0])
	}
	verb.InitDefaultHelpFlag()
	if err := verb.ParseFlags(rest); err != nil && (whole || !strings.Contains(err.Error(), "needs an argument")) {
		return fmt.Errorf("%s: %w", verb.CommandPath(), err)
	}
	if !whole {
		return nil
	}
	return checkWhole(verb)
}

// checkWhole returns an error for a missing argument or flag.
func checkWhole(verb *cobra.Command) error {
	if err := verb.ValidateArgs(verb.Flags().Args()); err != nil {
		return fmt.Errorf("%s: %w", verb.CommandPath(), err)
	}
	var lacks []string
	verb.Flags().VisitAll(func(f *pflag.Flag) {
		// rbac prints the roles for a pusher's state alone too, without the other flags.
		if strings.HasSuffix(f.Usage, "(required)") && !f.Changed && verb.Name() != "rbac" {
			lacks = append(lacks, "--"+f.Name)
		}
	})
	if len(lacks) > 0 {
		return fmt.Errorf("%s needs %s", verb.CommandPath(), strings.Join(lacks, ", "))
	}
	return nil
}
