package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/controller"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/function"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/tracing"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// renderFlags are the flags of the verb render.
type renderFlags struct {
	sourceFlags
	log        process.LogOptions
	output     string
	opening    stores.Options
	quarantine bool
	shrink     bool
	authors    []string
}

func renderCommand() *cobra.Command {
	var f renderFlags
	cmd := &cobra.Command{
		Use:   "render [-f DIR | --kubeconfig FILE] -o DIR|STORE",
		Short: "Compile manifests, or a cluster, once, into a directory or a store",
		Long: `Compile manifests, or the objects of a cluster, once. If something is wrong, the command
prints it with FILE:LINE:COLUMN, writes nothing, and exits with 3, unless you give
--allow-quarantine.

The output is a plain directory or a store. In a directory the rendered files replace those
that were rendered there before. If half of what a store's newest snapshot serves would be
gone, the command publishes nothing and exits with 3, unless --allow-shrink or shrinkGuard
of the configuration approves the loss.

A store is one of

` + stores.Forms,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.add(cmd)
	f.log.AddFlags(cmd.Flags())
	cmd.Flags().StringVarP(&f.output, "output", "o", "", "directory for the rendered files, or a store (required)")
	f.opening.AddFlags(cmd.Flags())
	cmd.Flags().StringArrayVar(&f.authors, "author", nil, "who made the change, for the history; in CI the author of the commit, as 'Name <email>', who is then the author in a git store too; may repeat")
	cmd.Flags().BoolVar(&f.quarantine, "allow-quarantine", false, "leave out objects with errors, and write the rest")
	cmd.Flags().BoolVar(&f.shrink, "allow-shrink", false, "publish to a store even if half of its backends or hosts would be gone")
	return cmd
}

func (f *renderFlags) run(cmd *cobra.Command) error {
	stderr := cmd.ErrOrStderr()
	log, err := f.log.Logger(stderr)
	if err != nil {
		return err
	}
	f.cluster.forStore = stores.InCluster(f.output)
	source, err := f.source(cmd.Context(), cmd.Flags(), stderr, log)
	if err != nil {
		return err
	}
	store, err := f.destination(cmd.Context(), log)
	if err != nil {
		return err
	}
	if store != nil {
		defer store.Close()
	}
	if err := companions(source.Config, f.output); err != nil {
		return err
	}
	check, err := f.checker(cmd.Context(), source.Config, stderr)
	if err != nil {
		return err
	}
	tracers, flush := tracing.Start(cmd.Context(), service, log)
	defer flush()
	timeline := controller.BeginTimeline(tracing.Continue(cmd.Context(), os.Getenv("TRACEPARENT")), tracers, "render")
	defer timeline.Dropped("error") // unless the compile ends otherwise
	source.Stages = timeline.Stage
	result, err := source.Once(timeline.Within(cmd.Context()), check, time.Now(), "render")
	timeline.Compiled(result, err)
	printDiagnostics(stderr, result.Diagnostics)
	if result.Ignored != "" {
		log.Info("objects of kinds that are not compiled were passed over", "objects", result.Ignored)
	}
	if result.Ingresses.Compiled > 0 && len(result.Ingresses.Others) > 0 {
		fmt.Fprintln(stderr, result.Ingresses)
	}
	if err := f.verdict(result, err); err != nil {
		timeline.Dropped("refused")
		return err
	}
	if err := f.write(cmd.Context(), cmd.OutOrStdout(), timeline, result, source.Config.ShrinkGuard, store); err != nil {
		return err
	}
	if process.Terminal(stderr) { // scripts take output on stderr for an error
		fmt.Fprintln(stderr, summary(controller.StoredReport(result.Draft.Number(1, snapshots.ID{}))))
	}
	return nil
}

// summary says on one line what a snapshot contains, and what it leaves out.
func summary(r controller.Report) string {
	leftOut := "nothing"
	if n := len(r.Found); n > 0 {
		leftOut = plural(n, "object")
	}
	return holds(r.Head) + "; " + leftOut + " left out"
}

// destination opens the store for the output, or returns nil for a plain directory. It
// refuses what cannot be a store before anything is compiled.
func (f *renderFlags) destination(ctx context.Context, log *slog.Logger) (stores.Store, error) {
	switch {
	case f.output == "":
		return nil, process.WithHint(process.Usage("no output is named"), "use -o DIR, or -o with a store such as dir:PATH")
	case f.output == "-": // elsewhere this is standard output; here it would be a folder that is hard to remove
		return nil, process.WithHint(process.Usage("-o -: the output is several files, and cannot be printed"), "use -o DIR; ./- if it has that name")
	case !isStore(f.output) && stores.LikeGit(f.output) == "":
		return nil, nil
	}
	o := f.cluster.store(f.opening, log)
	o.Publish = true
	return stores.Open(ctx, f.output, o)
}

// verdict returns why nothing should be written, or nil.
func (f *renderFlags) verdict(r compiler.Result, err error) error {
	if err != nil {
		return unpublishable(err)
	}
	if diag.HasErrors(r.Diagnostics) && !f.quarantine {
		return process.Invalid(nil)
	}
	return nil
}

// write writes the result to the store or the directory.
func (f *renderFlags) write(ctx context.Context, stdout io.Writer, timeline *controller.Timeline, r compiler.Result, g config.ShrinkGuard, store stores.Store) error {
	if store == nil {
		r.Draft.Subject = compiler.Subject(snapshots.Snapshot{}, r)
		timeline.Dropped("directory")
		return compiler.WriteTree(f.output, r.Draft)
	}
	if f.shrink {
		g = config.ShrinkGuard{}
	}
	r.Draft.Provenance.Author = strings.Join(f.authors, ", ")
	id, published, err := timeline.Publish(ctx, store, r, g)
	if shrunk, ok := errors.AsType[*controller.ShrinkError](err); ok {
		return process.WithHint(process.Invalid(shrunk), "use --allow-shrink, or "+shrunk.Approval())
	}
	if err != nil {
		return err
	}
	word := "unchanged"
	if published {
		word = "published"
	}
	_, err = fmt.Fprintln(stdout, id, word)
	return err
}

// companions refuses a configuration that keeps certificates beside the snapshot, if the
// output cannot have any.
func companions(c config.Config, store string) error {
	if c.Certificates.Mode != config.CompanionCertificates || stores.InCluster(store) {
		return nil
	}
	return process.WithHint(process.Usage("%s: %w", store, snapshots.ErrNoCompanions),
		"publish to configmap:NAMESPACE/NAME, or set certificates.mode: sealed")
}

// isStore reports whether an output is the URL of a store and not a plain directory.
func isStore(output string) bool {
	scheme, _, ok := strings.Cut(output, ":")
	return ok && !strings.ContainsAny(scheme, "/.\\")
}

func fnCommand() *cobra.Command {
	var haproxy string
	cmd := &cobra.Command{
		Use:   "fn",
		Short: "Compile as a KRM function of kustomize or kpt",
		Long: `Read a ResourceList, compile its items, and write the list with a ConfigMap that holds the
snapshot. kustomize and kpt run this command, as a transformer or a generator. The
functionConfig is a CompilerFunction, which may name more manifests, templates and a
configuration.

If something is wrong, the command writes it to the results of the list, prints it, adds no
snapshot, and exits with 3.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			check, err := validate.Find(cmd.Context(), haproxy)
			if err != nil {
				return err
			}
			f := function.Function{In: cmd.InOrStdin(), Out: cmd.OutOrStdout(), Log: cmd.ErrOrStderr(), Check: check, Now: time.Now()}
			if err := f.Run(cmd.Context()); !errors.Is(err, function.ErrInvalid) {
				return err
			}
			return process.Invalid(nil)
		},
	}
	cmd.Flags().StringVar(&haproxy, "haproxy", "haproxy", "name or path of the haproxy that checks configurations, 2.6 or later")
	return cmd
}
