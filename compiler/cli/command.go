package cli

import (
	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/internal/process"
)

// NewCommand returns the command "compiler" with all of its verbs.
func NewCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "compiler",
		Short: "Compile ingress manifests into validated snapshots of HAProxy configurations",
		Args:  process.Args(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(
		renderCommand(), runCommand(), statusCommand(), explainCommand(), diffCommand(),
		testCommand(), fnCommand(), migrateCommand(), rbacCommand(), process.VersionCommand(),
	)
	process.Completion{
		Folders: []string{"templates", "cache-dir", "webhook-cert-dir"},
		Words:   map[string][]string{"endpoints": {string(config.Live), string(config.Recorded)}},
	}.AddTo(root)
	return root
}
