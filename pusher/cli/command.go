package cli

import (
	"log/slog"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
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

// complete returns the completion of an argument that names a snapshot: those of
// the store, as far as it is named and can be read, the newest first.
func (f *storeFlags) complete(which func(channel.View) []snapshots.ID) cobra.CompletionFunc {
	return f.completeUpTo(1, which)
}

// completeUpTo is complete for several arguments.
func (f *storeFlags) completeUpTo(n int, which func(channel.View) []snapshots.ID) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		if len(args) >= n || f.store == "" {
			return nil, directive
		}
		store, err := f.open(cmd.Context(), slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, directive
		}
		defer store.Close()
		view, err := store.View(cmd.Context())
		if err != nil {
			return nil, directive
		}
		var out []cobra.Completion
		for _, id := range slices.Backward(which(view)) {
			out = append(out, id.String())
		}
		return out, directive
	}
}

func allIDs(view channel.View) []snapshots.ID { return view.IDs }
