package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots/difference"
)

// diffFlags are those of the verb diff.
type diffFlags struct {
	sourceFlags
	output   process.OutputFlag
	cacheDir string
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
	cmd.Flags().StringVar(&f.cacheDir, "cache-dir", "", "folder for what is fetched from a git store")
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
	if err := f.output.Write(cmd.OutOrStdout(), report, report.print); err != nil {
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

// diffReport is what is printed of a difference.
type diffReport struct {
	A       string       `json:"a"`
	B       string       `json:"b"`
	Verdict string       `json:"verdict"`
	Decides *decidedLine `json:"decides,omitempty"`
	Why     string       `json:"why,omitempty"`
	Files   []diffFile   `json:"files"`
}

// decidedLine is the line that decides, and the objects that it came from.
type decidedLine struct {
	Side    string   `json:"side"` // a or b
	File    string   `json:"file"`
	Line    int      `json:"line"`
	Text    string   `json:"text"`
	Objects []string `json:"objects,omitempty"`
}

type diffFile struct {
	Path    string `json:"path"`
	Live    bool   `json:"live,omitempty"`
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
	Diff    string `json:"diff"`
}

func reportOf(d difference.Difference, a, b side) diffReport {
	r := diffReport{A: a.Name, B: b.Name, Verdict: string(d.Verdict), Why: d.Why, Files: []diffFile{}}
	for _, f := range d.Files {
		r.Files = append(r.Files, diffFile{Path: f.Path, Live: f.Live, Added: f.Added, Removed: f.Removed, Diff: f.Diff})
	}
	if d.Decides.File == "" {
		return r
	}
	name, of := "b", b
	if d.Decides.Old {
		name, of = "a", a
	}
	r.Decides = &decidedLine{Side: name, File: d.Decides.File, Line: d.Decides.Line, Text: d.Decides.Text}
	seen := map[string]bool{}
	for _, o := range of.result.Artifact.Origin(d.Decides.File, d.Decides.Line).Objects {
		if object := o.Object.String(); !seen[object] {
			seen[object] = true
			r.Decides.Objects = append(r.Decides.Objects, object)
		}
	}
	return r
}

// maxObjects is how many objects are printed of a line that many share.
const maxObjects = 3

// print prints the differences, then the verdict on a line of its own.
func (r diffReport) print(w io.Writer) error {
	for _, f := range r.Files {
		fmt.Fprint(w, f.Diff)
	}
	if r.Decides == nil {
		_, err := fmt.Fprintln(w, r.Verdict)
		return err
	}
	sign := "+"
	if r.Decides.Side == "a" {
		sign = "-"
	}
	fmt.Fprintf(w, "%s: %s:%d: %s%s\n", r.Verdict, r.Decides.File, r.Decides.Line, sign, r.Decides.Text)
	for i, object := range r.Decides.Objects {
		if i == maxObjects {
			fmt.Fprintf(w, "\tand %d more objects\n", len(r.Decides.Objects)-i)
			break
		}
		fmt.Fprintf(w, "\t%s\n", object)
	}
	if r.Why != "" {
		fmt.Fprintf(w, "\t%s\n", r.Why)
	}
	return nil
}
