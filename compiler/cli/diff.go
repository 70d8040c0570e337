package cli

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots/difference"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// diffFlags are those of the verb diff.
type diffFlags struct {
	sourceFlags
	output   process.OutputFlag
	opening  stores.Options
	exitCode bool
}

func diffCommand() *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare what manifests or snapshots give, and say whether it needs a reload",
		Long: `Compare two configurations, and say what it takes to bring a fleet from the
first to the second: nothing, a change at run time, or a reload, and the line
that decides.

Each is a directory of manifests or a cluster, which is compiled, with the same
flags for both, or a stored snapshot. The word cluster is that of --kubeconfig,
cluster:NAME that of a context of it. STORE@head is the newest snapshot of a
store, or STORE@r12. A store is a directory with snapshots or a URL, as of render.

Endpoints of manifests are compared as live data, where both directories have
EndpointSlices; with --endpoints recorded they are a file. What is in Secrets is
not compared. Objects that are at fault are reported, and left out as run does it.`,
		Args: process.Args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0], args[1]) },
	}
	f.cluster.add(cmd)
	f.addHow(cmd)
	f.output.AddTo(cmd)
	f.opening.AddFlags(cmd.Flags())
	cmd.Flags().BoolVar(&f.exitCode, "exit-code", false, "exit with 1 if they differ")
	return cmd
}

// differ is the exit code for sides that are not the same, as git has it.
const differ = 1

func (f *diffFlags) run(cmd *cobra.Command, a, b string) error {
	sides := sideReader{flags: f, cmd: cmd, now: time.Now()}
	from, err := sides.read(a)
	if err != nil {
		return err
	}
	to, err := sides.read(b)
	if err != nil {
		return err
	}
	d, err := difference.Compare(from.Side, to.Side)
	if err != nil {
		return err
	}
	report := reportOf(d, from, to)
	stdout := cmd.OutOrStdout()
	printed := func(w io.Writer) error { return report.Print(w, process.Coloured(stdout)) }
	if err := f.output.Write(stdout, report, printed); err != nil {
		return err
	}
	if f.exitCode && d.Verdict != difference.Nothing {
		return &process.ExitError{Code: differ}
	}
	return nil
}

// side is one of the two, with what its lines came from if it was compiled.
type side struct {
	difference.Side
	result compiler.Result
}

// reportOf is the report of a difference, with the objects that wrote the line
// that decides.
func reportOf(d difference.Difference, a, b side) difference.Report {
	r := d.Report(a.Name, b.Name)
	if r.Decides == nil {
		return r
	}
	of := b
	if d.Decides.Old {
		of = a
	}
	seen := map[string]bool{}
	for _, o := range of.result.Artifact.Origin(d.Decides.File, d.Decides.Line).Objects {
		if object := o.Object.String(); !seen[object] {
			seen[object] = true
			r.Decides.Objects = append(r.Decides.Objects, object)
		}
	}
	return r
}
