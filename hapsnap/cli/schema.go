package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/schemas"
)

func schemaCommand(name string) *cobra.Command {
	names := schemas.Names()
	cmd := &cobra.Command{
		Use:   "schema " + strings.Join(names, "|"),
		Short: "Print the JSON Schema of a kind of file",
		Long: `Print the JSON Schema of a kind of file, for an editor or a pipeline. Editors that use the YAML
language server take the schema that the first line of a file names:

  # yaml-language-server: $schema=fleet.schema.json`,
		Example: "  " + name + " schema fleet",
		Args:    process.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, ok := schemas.Of(args[0])
			if !ok {
				hint := process.DidYouMean(args[0], names)
				if hint == "" {
					hint = "there are " + strings.Join(names, ", ")
				}
				return process.WithHint(process.Usage("there is no schema of %q", args[0]), hint)
			}
			_, err := cmd.OutOrStdout().Write(data)
			return err
		},
		ValidArgsFunction: cobra.FixedCompletions(completions(names), cobra.ShellCompDirectiveNoFileComp),
	}
	return cmd
}

// meaning says what the schemas are of.
var meaning = map[string]string{
	"channel":        "what people say should run",
	"compilerconfig": "the configuration of the compiler",
	"compilertest":   "tests of configurations and templates",
	"fleet":          "the fleet of a pusher",
	"snapshot":       "the manifest of a snapshot",
}

func completions(names []string) []cobra.Completion {
	var out []cobra.Completion
	for _, name := range names {
		out = append(out, cobra.CompletionWithDesc(name, meaning[name]))
	}
	return out
}
