package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/difference"
	"github.com/hapsnap/hapsnap/snapshots/gitstore/signature"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// showFlags are those of the verb show.
type showFlags struct {
	storeFlags
	output process.OutputFlag
	file   string
}

func showCommand() *cobra.Command {
	var f showFlags
	cmd := &cobra.Command{
		Use:   "show SNAPSHOT --store STORE [--file PATH]",
		Short: "Show what a snapshot consists of, where it comes from and what became of it, or print one of its files",
		Long: `Show what a snapshot consists of, where it comes from, and what became of it: who did what
with it, when it reached which fleet, and what took its place. With --file, print one of its
files, such as haproxy.cfg. The command verifies every digest of the snapshot first.`,
		Args: process.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.with(cmd.Context(), func(store stores.Store) error { return f.run(cmd, store, args[0]) })
		},
	}
	cmd.ValidArgsFunction = f.complete(allIDs)
	f.storeFlags.add(cmd)
	f.output.AddTo(cmd)
	cmd.Flags().StringVar(&f.file, "file", "", "path of the file to print, byte for byte")
	_ = cmd.RegisterFlagCompletionFunc("file", process.Bounded(f.completeFile)) // fails for unknown flags only
	return cmd
}

func (f *showFlags) run(cmd *cobra.Command, store stores.Store, name string) error {
	if f.file != "" && f.output.String() != "text" {
		return process.Usage("a file is printed byte for byte: --file and -o %s exclude each other", &f.output)
	}
	id, err := stored(cmd.Context(), store, name)
	if err != nil {
		return err
	}
	if f.file != "" {
		s, err := store.Get(cmd.Context(), id)
		if err != nil {
			return damaged(err)
		}
		content, ok := s.File(f.file)
		if f.file == snapshots.ManifestFile {
			content, err = s.Manifest.Marshal()
			ok = true
		}
		if err != nil {
			return fmt.Errorf("encode manifest: %w", err)
		}
		if !ok {
			return process.WithHint(process.Usage("%s holds no file %s", id, f.file), "its files are: "+strings.Join(paths(s.Manifest), ", "))
		}
		_, err = cmd.OutOrStdout().Write(content)
		return err
	}
	manifest, err := store.Manifest(cmd.Context(), id)
	if err != nil {
		return damaged(err)
	}
	s := snapshotDetails{Manifest: manifest}
	if s.Signature, err = signatureOf(cmd.Context(), store, id); err != nil {
		return err
	}
	journal, err := store.Journal(cmd.Context())
	if err != nil {
		s.NoLife = err.Error()
	}
	s.Life = channel.Life(id, journal)
	now := time.Now()
	return f.output.Write(cmd.OutOrStdout(), s, func(w io.Writer) error { return printShown(w, s, now) })
}

// snapshotDetails is a manifest, and what the store says of its signature.
type snapshotDetails struct {
	snapshots.Manifest
	Signature *signature.Finding `json:"signature,omitempty"` // in git and ConfigMaps
	// Life is what became of it, the oldest first, and NoLife is why that cannot be told.
	Life   []channel.Entry `json:"life,omitempty"`
	NoLife string          `json:"noLife,omitempty"`
}

// stored returns the snapshot of a store that a person named. The channel, which
// may be what is wrong, is not read.
func stored(ctx context.Context, store stores.Reader, name string) (snapshots.ID, error) {
	ids, err := allOf(ctx, store)
	if err != nil {
		return snapshots.ID{}, err
	}
	return find(ids, name)
}

// paths returns the files of a snapshot, without the manifest itself.
func paths(m snapshots.Manifest) []string {
	var out []string
	for _, f := range m.Spec.Files {
		out = append(out, f.Path)
	}
	return out
}

// completeFile completes the files of the snapshot that was named.
func (f *showFlags) completeFile(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	if len(args) == 0 || f.store == "" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	_ = f.with(cmd.Context(), func(store stores.Store) error { // there is nobody to tell
		id, err := stored(cmd.Context(), store, args[0])
		if err != nil {
			return err
		}
		m, err := store.Manifest(cmd.Context(), id)
		if err == nil {
			out = append(paths(m), snapshots.ManifestFile)
		}
		return err
	})
	return out, cobra.ShellCompDirectiveNoFileComp
}

func printShown(w io.Writer, s snapshotDetails, now time.Time) error {
	spec, from := s.Spec, s.Provenance
	line := func(name, value string) {
		if value != "" {
			process.Label(w, name, "%s", value)
		}
	}
	line("snapshot", s.Metadata.Name)
	line("subject", spec.Subject)
	if !from.Time.IsZero() {
		line("time", fmt.Sprintf("%s, %s ago", from.Time.UTC().Format(time.RFC3339), process.Age(now.Sub(from.Time))))
	}
	line("parent", spec.Parent.String())
	digest := func(name string, value snapshots.Digest) {
		if value != "" {
			process.LabelCut(w, name, string(value))
		}
	}
	digest("digest", spec.Digest)
	digest("templates", from.TemplatesDigest)
	line("compiler", from.CompilerVersion)
	line("haproxy", from.HAProxyVersion)
	line("trigger", from.Trigger)
	line("author", from.Author)
	line("signed", describeSignature(s.Signature))
	line("inputs", strconv.Itoa(len(from.Inputs)+from.OmittedInputs))
	for _, c := range spec.Certificates {
		line("needs", certificate(c))
	}
	for _, r := range spec.Recipients {
		line("sealed to", r)
	}
	for _, q := range spec.Quarantined {
		line("left out", fmt.Sprintf("%s %s: %s", q.Kind, types.NamespacedName{Namespace: q.Namespace, Name: q.Name}, q.Reason))
	}
	for _, e := range s.Life {
		line(e.At.UTC().Format(time.RFC3339), tell(e))
	}
	if s.NoLife != "" {
		line("journal", "it cannot be read: "+s.NoLife)
	}
	fmt.Fprintln(w)
	table := process.Table{Columns: []process.Column{{Title: "FILE"}, {Title: "BYTES"}, {Title: "SHA256", Cut: true}}}
	for _, f := range spec.Files {
		table.Add(f.Path, strconv.FormatInt(f.Size, 10), f.SHA256)
	}
	return table.Write(w)
}

// certificate tells where a file of certificates comes from.
func certificate(c snapshots.CertificateRef) string {
	if c.Secret == (snapshots.SecretName{}) {
		return c.File + ": the fallback certificate"
	}
	text := fmt.Sprintf("%s: %s", c.File, bind.Need{Use: c.Use, Secret: c.Secret})
	switch {
	case c.Versioned() && c.Version == "":
		return fmt.Sprintf("%s, %s, which did not exist or could not be served", text, c.Mode)
	case c.Versioned():
		return fmt.Sprintf("%s, %s, version %.10s", text, c.Mode, c.Version)
	}
	return text
}

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
		Short: "Compare two snapshots, and say whether the change needs a reload",
		Long: `Compare two snapshots file by file, and say what brings a fleet from the first to the
second: nothing, a change at run time, or a reload, with the line that decides it.
Snapshots do not contain values of Secrets or live endpoints.`,
		Args: process.Args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.with(cmd.Context(), func(store stores.Store) error { return f.run(cmd, store, args[0], args[1]) })
		},
	}
	cmd.ValidArgsFunction = f.completeUpTo(2, allIDs)
	f.storeFlags.add(cmd)
	f.output.AddWithTo(cmd, "markdown")
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
	printed := func(w io.Writer) error {
		if f.output.Is("markdown") {
			return report.Markdown(w, nil)
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
	return difference.SideOf(id.String(), s), nil
}
