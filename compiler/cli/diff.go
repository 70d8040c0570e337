package cli

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/difference"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// diffFlags are the flags of the verb diff.
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
		Short: "Compare manifests or snapshots, and say whether the change needs a reload",
		Long: `Compare two configurations, and say what brings a fleet from the first to the second:
nothing, a change at run time, or a reload, with the line that decides it.

Each of the two is a directory of manifests, a cluster, or a stored snapshot. Manifests and
clusters are compiled, with the same flags for both. Write cluster for the cluster of
--kubeconfig, and cluster:NAME for that of one of its contexts. Write STORE@head for the
newest snapshot of a store, or STORE@r12. A store is a directory with snapshots or a URL, as
for render.

If both directories have EndpointSlices, their endpoints are compared as live data; with
--endpoints recorded they are a file. Contents of Secrets are not compared. The command
reports objects with errors, and leaves them out as run does.

-o markdown is for pull requests: verdict, findings that are new, and the difference, no longer
than a comment may be.`,
		Args: process.Args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0], args[1]) },
	}
	f.cluster.add(cmd)
	f.addHow(cmd)
	f.output.AddWithTo(cmd, "markdown")
	f.opening.AddFlags(cmd.Flags())
	cmd.Flags().BoolVar(&f.exitCode, "exit-code", false, "exit with 1 if they differ")
	return cmd
}

// differ is the exit code if the sides differ, as with git.
const differ = 1

func (f *diffFlags) run(cmd *cobra.Command, a, b string) error {
	sides := sideReader{flags: f, cmd: cmd, now: time.Now(), end: func() {}, files: compiler.Files("")}
	defer func() { sides.end() }()
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
	printed := func(w io.Writer) error {
		if f.output.Is("markdown") {
			return report.Markdown(w, newFindings(from.result.Diagnostics, to.result.Diagnostics))
		}
		return report.Print(w, process.Coloured(stdout))
	}
	if err := f.output.Write(stdout, report, printed); err != nil {
		return err
	}
	if f.exitCode && d.Verdict != difference.Nothing {
		return &process.ExitError{Code: differ}
	}
	return nil
}

// newFindings returns the findings about the second side that the first side does not have.
// Positions do not matter.
func newFindings(before, after []diag.Diagnostic) []string {
	key := func(d diag.Diagnostic) string { return d.Object.String() + "\x00" + d.Message }
	known := map[string]bool{}
	for _, d := range before {
		known[key(d)] = true
	}
	var out []string
	for _, d := range after {
		if !known[key(d)] {
			out = append(out, d.String())
		}
	}
	return out
}

// side is one side of the comparison. If it was compiled, it has the origins of its lines.
type side struct {
	difference.Side
	result compiler.Result
}

// reportOf returns the report of a difference, with the objects that wrote the line that
// decides.
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

// sideReader reads the sides of a comparison. It prepares compiling once, and only if a
// side has to be compiled.
type sideReader struct {
	flags  *diffFlags
	cmd    *cobra.Command
	now    time.Time
	source *compiler.Source // nil until something has to be compiled
	check  *validate.Checker
	end    func()              // the end of the time for checks
	files  *compiler.Directory // the directory that was read last
}

// read reads the side that a person named.
func (r *sideReader) read(name string) (side, error) {
	store, revision, err := parseSide(name, exists)
	switch {
	case err != nil:
		return side{}, err
	case revision != "":
		return storedSide(r.cmd.Context(), store, revision, r.flags.cluster.store(r.flags.opening, slog.New(slog.DiscardHandler)))
	}
	objects, err := r.objects(name)
	if err != nil {
		return side{}, err
	}
	return r.compile(objects)
}

// objects returns the objects of files or of a cluster. If the name exists as a file, it
// means the file.
func (r *sideReader) objects(name string) (compiler.Objects, error) {
	word, kubeContext, _ := strings.Cut(name, ":")
	if word != "cluster" || exists(name) {
		r.files = r.files.Beside(name)
		return r.files, nil
	}
	if !r.flags.cluster.wanted() {
		return nil, process.WithHint(process.Usage("no cluster is named"), "use --kubeconfig FILE; a file of that name is ./cluster")
	}
	log := warnings(r.cmd.ErrOrStderr())
	connection, err := r.flags.cluster.connect(kubeContext, log)
	if err != nil {
		return nil, err
	}
	return follow(r.cmd.Context(), connection, log), nil
}

// parseSide distinguishes a stored snapshot, STORE@REVISION, from manifests, for which
// revision is empty. If the name exists as a file or directory, it means manifests.
func parseSide(name string, exists func(path string) bool) (store, revision string, err error) {
	switch {
	case name == "":
		return "", "", process.WithHint(process.Usage("one of the two is empty"), "name manifests, cluster, or a snapshot as STORE@r12; is a variable of the shell not set?")
	case exists(name):
		return "", "", nil
	}
	if i := strings.LastIndexByte(name, '@'); i > 0 && snapshots.IsName(name[i+1:]) {
		return name[:i], name[i+1:], nil
	}
	if isStore(name) && !strings.HasPrefix(name, "cluster:") {
		return "", "", process.WithHint(process.Usage("%s names a store, but none of its snapshots", redacted(name)), "add @head for the newest, or @r12")
	}
	return "", "", nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// redacted returns the URL of a store without the parts that may hold a password.
func redacted(url string) string {
	if i := strings.LastIndexByte(url, '@'); i >= 0 {
		scheme, _, _ := strings.Cut(url, ":")
		return scheme + "://…" + url[i:]
	}
	return url
}

// compile compiles objects, and prints the diagnostics.
func (r *sideReader) compile(objects compiler.Objects) (side, error) {
	stderr := r.cmd.ErrOrStderr()
	if r.check == nil {
		c, err := r.flags.configuration(r.cmd.Context(), r.cmd.Flags(), stderr, warnings(stderr))
		if err != nil {
			return side{}, err
		}
		if r.check, err = r.flags.checker(r.cmd.Context(), c, stderr); err != nil {
			return side{}, err
		}
		r.end = r.check.Reuse()
		source := compiler.Source{Templates: r.flags.templates, Config: c}.Remembering()
		r.source = &source
	}
	source := *r.source
	source.Objects = objects
	compiled, result, err := source.Side(r.cmd.Context(), r.check, r.now)
	printDiagnostics(stderr, result.Diagnostics)
	return side{compiled, result}, unpublishable(err)
}

// storedSide reads a snapshot from a store.
func storedSide(ctx context.Context, url, revision string, o stores.Options) (side, error) {
	s, name, err := storedSnapshot(ctx, url, o, func(store stores.Store, ids []snapshots.ID) (snapshots.ID, error) {
		return findID(store, ids, revision)
	})
	if err != nil {
		return side{}, err
	}
	return side{Side: difference.SideOf(name, s)}, nil
}

// findID returns the ID of the snapshot that a person named.
func findID(store stores.Store, ids []snapshots.ID, revision string) (snapshots.ID, error) {
	id, ok := snapshots.FindID(ids, revision)
	if !ok {
		return id, process.WithHint(process.Usage("%s holds no snapshot %s", store, revision), "pusher history --store STORE lists its snapshots")
	}
	return id, nil
}

// storedSnapshot reads the snapshot of a store that choose returns. It also returns its
// name, including that of the store.
func storedSnapshot(ctx context.Context, url string, o stores.Options, choose func(stores.Store, []snapshots.ID) (snapshots.ID, error)) (snapshots.Snapshot, string, error) {
	store, err := stores.Open(ctx, url, o)
	if err != nil {
		return snapshots.Snapshot{}, "", err
	}
	defer store.Close()
	ids, err := store.IDs(ctx)
	if err != nil {
		return snapshots.Snapshot{}, "", err
	}
	if len(ids) == 0 {
		return snapshots.Snapshot{}, "", stores.NoSnapshots(ctx, store)
	}
	id, err := choose(store, ids)
	if err != nil {
		return snapshots.Snapshot{}, "", err
	}
	s, err := store.Get(ctx, id)
	return s, store.String() + "@" + id.String(), err
}
