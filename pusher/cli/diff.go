package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots/difference"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// diffFlags are those of the verb diff.
type diffFlags struct {
	storeFlags
	output   process.OutputFlag
	exitCode bool
}

func diffCommand() *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff A B --store STORE",
		Short: "Compare two snapshots, and say whether it needs a reload",
		Long: `Compare two snapshots file by file, and say what it takes to bring a fleet from
the first to the second: nothing, a change at run time, or a reload, and the line
that decides. What is in Secrets, and live endpoints, are no part of snapshots.`,
		Args: process.Args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.with(cmd.Context(), func(store stores.Store) error { return f.run(cmd, store, args[0], args[1]) })
		},
	}
	cmd.ValidArgsFunction = f.completeUpTo(2, allIDs)
	f.storeFlags.add(cmd)
	f.output.AddTo(cmd)
	cmd.Flags().BoolVar(&f.exitCode, "exit-code", false, "exit with 1 if they differ")
	return cmd
}

// differ is the exit code for snapshots that are not the same, as git has it.
const differ = 1

func (f *diffFlags) run(cmd *cobra.Command, store stores.Reader, a, b string) error {
	from, err := storedSide(cmd.Context(), store, a)
	if err != nil {
		return err
	}
	to, err := storedSide(cmd.Context(), store, b)
	if err != nil {
		return err
	}
	d, err := difference.Compare(from, to)
	if err != nil {
		return err
	}
	report, stdout := d.Report(from.Name, to.Name), cmd.OutOrStdout()
	printed := func(w io.Writer) error { return report.Print(w, process.Coloured(stdout)) }
	if err := f.output.Write(stdout, report, printed); err != nil {
		return err
	}
	if f.exitCode && d.Verdict != difference.Nothing {
		return &process.ExitError{Code: differ}
	}
	return nil
}

// storedSide reads a snapshot to be compared.
func storedSide(ctx context.Context, store stores.Reader, name string) (difference.Side, error) {
	id, err := stored(ctx, store, name)
	if err != nil {
		return difference.Side{}, err
	}
	s, err := store.Get(ctx, id)
	if err != nil {
		return difference.Side{}, damaged(err)
	}
	return difference.Side{Name: id.String(), Files: s.Files, Certificates: s.Manifest.Spec.Certificates, Recipients: s.Manifest.Spec.Recipients}, nil
}
