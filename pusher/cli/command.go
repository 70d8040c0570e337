package cli

import (
	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
)

// NewCommand returns the command "pusher" with all of its verbs.
func NewCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "pusher",
		Short: "Roll snapshots of HAProxy configurations out to a fleet of instances",
		Args:  process.Args(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(
		runCommand(), checkCommand(), statusCommand(), historyCommand(), showCommand(), diffCommand(), verifyCommand(),
		pinCommand(), unpinCommand(), overrideCommand(), rollbackCommand(), approveCommand(), rejectCommand(), retryCommand(),
		promoteCommand(), abortCommand(), confirmEndpointsCommand(), pauseCommand(), resumeCommand(), signCommand(), recoverCommand(), acceptRewindCommand(), gcCommand(),
		rbacCommand(), process.VersionCommand(),
	)
	process.Completion{Folders: []string{"live", "cache-dir"}}.AddTo(root)
	return root
}
