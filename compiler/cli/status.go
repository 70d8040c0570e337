package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/cluster"
	"github.com/hapsnap/hapsnap/compiler/controller"
	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// statusFlags are the flags of the verb status.
type statusFlags struct {
	address, store string
	opening        stores.Options
	sourceFlags
	output   process.OutputFlag
	exitCode bool
}

func statusCommand() *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status --address HOST:PORT | --store STORE | -f DIR",
		Short: "Show what was published, what was left out, and what is wrong",
		Long: `Show which snapshot is the newest, what it holds, which objects were left out and why, and
what waits for a person. With --address the command asks a running compiler, at the address
of its --metrics-address. With --store it reads the newest snapshot of the store, which works
without a compiler too. With -f it compiles manifests, publishes nothing, and says what would
be left out, and what the status of the objects of the Gateway API would say (-o json has all
of it).

The exit code is 0 if there is an answer and 1 if there is none. With --exit-code it is 3 if
objects, templates or the configuration have errors or a loss waits for approval, and
otherwise 1 if the compiler is not ready, or another compiler publishes to its store.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			now := time.Now()
			r, err := f.report(cmd)
			if err != nil {
				return err
			}
			if err := f.output.Write(cmd.OutOrStdout(), r, func(w io.Writer) error { f.print(w, r, now); return nil }); err != nil {
				return err
			}
			if code := exitCode(r); f.exitCode && code != process.ExitOK {
				return &process.ExitError{Code: code}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.address, "address", "", "address of a running compiler, such as localhost:8080")
	flags.StringVar(&f.store, "store", "", "store whose newest snapshot the command reads")
	addInput(cmd, &f.manifests, "directory of manifests, or one file, that the command compiles")
	f.opening.AddFlags(flags)
	f.cluster.addConnection(cmd)
	f.addHow(cmd)
	flags.BoolVar(&f.exitCode, "exit-code", false, "exit with 3 or 1 if something is wrong")
	f.output.AddTo(cmd)
	return cmd
}

// report asks a compiler or a store, or compiles manifests.
func (f *statusFlags) report(cmd *cobra.Command) (controller.Report, error) {
	ctx := cmd.Context()
	switch {
	case f.address != "" && f.store != "":
		return controller.Report{}, process.WithHint(process.Usage("both a compiler and a store are named"), "use one of --address and --store")
	case f.manifests != "" && (f.address != "" || f.store != ""):
		return controller.Report{}, process.WithHint(process.Usage("manifests are named, and what was published too"), "use one of --address, --store and -f")
	case f.manifests != "":
		// The report has what is wrong with the manifests.
		source, err := f.source(cmd.Context(), cmd.Flags(), cmd.ErrOrStderr(), slog.New(slog.DiscardHandler))
		if err != nil {
			return controller.Report{}, err
		}
		check, err := f.checker(cmd.Context(), source.Config, cmd.ErrOrStderr())
		if err != nil {
			return controller.Report{}, err
		}
		result, err := source.Once(cmd.Context(), check, time.Now(), "status")
		if err != nil && len(result.Diagnostics) == 0 {
			return controller.Report{}, err
		}
		return controller.CompiledReport(result, err), nil
	case f.address != "":
		r, err := askCompiler(ctx, f.address)
		return r, process.WithHint(err, "name the address that compiler run was given with --metrics-address, or use --store if none runs")
	case f.store != "":
		return askStore(ctx, f.store, f.cluster.store(f.opening, slog.New(slog.DiscardHandler)))
	}
	return controller.Report{}, process.WithHint(process.Usage("neither a compiler nor a store is named"), "use --address HOST:PORT, --store STORE or -f DIR")
}

// print writes a report for people.
func (f *statusFlags) print(w io.Writer, r controller.Report, now time.Time) {
	if f.manifests == "" {
		printReport(w, r, now)
		return
	}
	p := reportPrinter{to: w, now: now}
	p.line("compiled", "%s", f.manifests)
	if r.Compiler.CompileError != "" {
		p.line("failed", "%s", r.Compiler.CompileError)
	}
	p.line("classes", "%s", r.Compiler.Ingresses)
	if r.Compiler.Warnings > 0 {
		p.line("warnings", "%d", r.Compiler.Warnings)
	}
	p.findings(r)
}

// exitCode returns the exit code with --exit-code.
func exitCode(r controller.Report) int {
	c := r.Compiler
	switch {
	case len(r.Found) > 0, r.Withheld > 0, c != nil && (c.Held != nil || c.Refused != nil || c.RefusedTemplates != nil):
		return process.ExitInvalid
	case c != nil && (!c.Ready || c.Rival != nil):
		return process.ExitFailure
	}
	return process.ExitOK
}

const (
	statusPath    = process.StatusPath
	statusTimeout = 10 * time.Second // how long a compiler may take to answer
)

// serveStatus answers the requests of askCompiler. Anybody may reach the port. So only clients on the same host, or in
// the same pod, get the names of objects and what is wrong with them, since that may depend on values of Secrets.
// What the status does not know about the webhook, such as files that are not there, reviews returns.
func serveStatus(s *controller.Status, objects compiler.Objects, reviews func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r := s.Report()
		r.Compiler.Interrupted = interrupted(objects)
		if err := reviews(); err != nil && r.Compiler.Webhook == nil {
			r.Compiler.Webhook = &controller.CredentialsReport{Error: strings.ReplaceAll(err.Error(), "\n", "; ")}
		}
		if !isLoopback(request.RemoteAddr) {
			r = r.ForAnybody()
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(r) // if it fails, the client is gone
	})
}

func isLoopback(remote string) bool {
	at, err := netip.ParseAddrPort(remote)
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// interrupted returns the watches of a cluster that are interrupted.
func interrupted(objects compiler.Objects) []controller.WatchReport {
	followed, ok := objects.(*cluster.Cluster)
	if !ok {
		return nil
	}
	var out []controller.WatchReport
	for _, t := range followed.Troubles() {
		out = append(out, controller.WatchReport{Objects: t.Query.String(), Error: t.Err.Error(), Since: t.Since})
	}
	return out
}

// askCompiler asks a running compiler.
func askCompiler(ctx context.Context, address string) (controller.Report, error) {
	var r controller.Report
	if err := checkAddress("address", address); err != nil {
		return r, err
	}
	if _, err := process.AskStatus(ctx, address, statusTimeout, &r); err != nil {
		return r, fmt.Errorf("ask the compiler: %w", err)
	}
	if r.Compiler == nil {
		return r, fmt.Errorf("ask the compiler: what answers at %s is not a compiler", address)
	}
	return r, nil
}

// askStore reads the newest snapshot of a store.
func askStore(ctx context.Context, url string, o stores.Options) (controller.Report, error) {
	store, err := stores.Open(ctx, url, o)
	if err != nil {
		return controller.Report{}, err
	}
	defer store.Close()
	ids, err := store.IDs(ctx)
	if err != nil {
		return controller.Report{}, err
	}
	if len(ids) == 0 {
		return controller.Report{}, stores.NoSnapshots(ctx, store)
	}
	head, err := store.Get(ctx, ids[len(ids)-1])
	if err != nil {
		return controller.Report{}, err
	}
	return controller.StoredReport(head), nil
}

// printReport writes a report for people.
func printReport(w io.Writer, r controller.Report, now time.Time) {
	p := reportPrinter{to: w, now: now}
	p.head(r.Head)
	if r.Compiler != nil {
		p.compiler(*r.Compiler)
	}
	p.findings(r)
}

// findings writes which objects were left out.
func (p *reportPrinter) findings(r controller.Report) {
	for _, f := range r.Found {
		name, since := "left out", ""
		if f.Kind == "" {
			name = "wrong"
		}
		if !f.Since.IsZero() {
			since = "\nfor " + process.Age(p.now.Sub(f.Since))
		}
		p.line(name, "%s%s", p.text(f), since)
	}
	switch {
	case r.Withheld > 0:
		p.line("left out", "%s; the compiler names them only to clients on its own host\nuse kubectl port-forward to its pod, or --store", plural(r.Withheld, "object or part of one"))
	case len(r.Found) == 0:
		p.line("left out", "nothing")
	}
}

// reportPrinter writes a line for each known thing.
type reportPrinter struct {
	to  io.Writer
	now time.Time
}

// line writes a line with a name. Further lines of the text, and text that does not fit, stand below it.
func (p *reportPrinter) line(name, format string, args ...any) {
	process.Label(p.to, name, format, args...)
}

func (p *reportPrinter) head(h controller.HeadReport) {
	if h.Snapshot.IsZero() {
		p.line("newest", "nothing published yet, as far as the compiler knows")
		return
	}
	p.line("newest", "%s, %s old: %s", h.Snapshot, process.Age(p.now.Sub(h.Time)), h.Subject)
	p.line("holds", "%s", holds(h))
}

// holds says how much a snapshot contains.
func holds(h controller.HeadReport) string {
	return fmt.Sprintf("%s with servers, %s, %s", plural(h.Backends, "backend"), plural(h.Hosts, "host"), plural(h.Certificates, "certificate"))
}

func (p *reportPrinter) compiler(c controller.CompilerReport) {
	switch {
	case c.Ready:
		p.line("ready", "yes")
	case c.Held != nil:
		p.line("ready", "no: a loss waits for approval")
	default:
		p.line("ready", "no: %s", c.Reason)
	}
	if !c.Leads {
		p.line("leads", "no: %s", cmp.Or(c.Leader, "it publishes nothing"))
	}
	for _, i := range c.Interrupted {
		p.line("watch", "%s, which has not answered for %s: %s", i.Objects, process.Age(p.now.Sub(i.Since)), i.Error)
	}
	if a := c.Unanswered; a != nil {
		p.line("store", "it was asked to %s, and has not answered for %s; nothing is compiled until it does, or is given up", a.To, process.Age(p.now.Sub(a.Since)))
	}
	if w := c.Webhook; w != nil && w.Since.IsZero() {
		p.line("webhook", "no review can be answered: %s", w.Error)
	} else if w != nil {
		p.line("webhook", "its certificate cannot be made or used, for %s: %s", process.Age(p.now.Sub(w.Since)), w.Error)
	}
	if c.LastSuccess.IsZero() {
		p.line("success", "not yet")
	} else {
		p.line("success", "%s ago", process.Age(p.now.Sub(c.LastSuccess)))
	}
	if h := c.Held; h != nil {
		p.line("held", "%s: %s since %s\n%s", h.Digest.Short(), h.Lost, h.Since, h.Approval)
	}
	if c.Rival != nil {
		p.line("trouble", "%s\nstop one of the two, or give it a store or a branch of its own", c.Rival)
	}
	if c.Refused != nil {
		p.refused(*c.Refused, "the previous configuration is used")
	}
	if c.RefusedTemplates != nil {
		p.refused(*c.RefusedTemplates, "the previous templates are used")
	}
	if c.Ingresses != nil {
		p.line("classes", "%s", c.Ingresses)
	}
	if c.Warnings > 0 {
		p.line("warnings", "%d", c.Warnings)
	}
}

// refused says what is wrong with the configuration or the templates.
func (p *reportPrinter) refused(c controller.ConfigReport, instead string) {
	if c.Error != "" {
		p.line("refused", "%s; %s", c.Error, instead)
	}
	for _, f := range c.Found {
		p.line("refused", "%s\nfor %s; %s", p.text(f), process.Age(p.now.Sub(f.Since)), instead)
	}
}

// text returns a finding in its usual printed form.
func (p *reportPrinter) text(f controller.Finding) string {
	return strings.ReplaceAll(f.Diagnostic().String(), "\t", "")
}

// plural returns texts such as "2 hosts".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

const reportSecretHelp = "Secret, as NAMESPACE/NAME, in which the compiler that leads writes what /status tells clients on its own host: objects that are left out, why, and what to do. The page of the pusher shows it (--ui-compiler secret:NAMESPACE/NAME)"

// reportSecret returns the Secret that --report-secret names. ok is false if it names none.
func reportSecret(flag string) (name types.NamespacedName, ok bool, err error) {
	if flag == "" {
		return name, false, nil
	}
	if name, err = objectname.Parse(flag); err != nil {
		return name, false, process.Usage("--report-secret: %w", err)
	}
	return name, true, nil
}

// checkReport returns a usage error if the Secret of --report-secret cannot be written.
func (f *runFlags) checkReport(objects compiler.Objects) error {
	_, wanted, err := reportSecret(f.report)
	if _, follows := objects.(*cluster.Cluster); wanted && !follows {
		return process.WithHint(process.Usage("--report-secret is for a compiler that follows a cluster"), "use --kubeconfig, or leave --report-secret out")
	}
	return err
}

// How often a reporter looks for something new to write, how old a written report may become, and how long a write may
// take.
const (
	reportPace    = 5 * time.Second
	reportAge     = time.Minute
	reportTimeout = 10 * time.Second
)

// reporter writes the report of the leading compiler into a Secret. The report has names of objects, and what is wrong
// with them, which only those may read who may read the Secret. The reporter writes nothing before the first compile.
// Otherwise a compiler that has just started would report that nothing is left out.
type reporter struct {
	report  func() controller.Report
	leading func() bool
	write   func(ctx context.Context, report []byte, at time.Time) error
	log     *slog.Logger

	last   *controller.Report // the last written report, without the time of the last compile; nil for none
	at     time.Time          // when last was written
	failed string             // the error of the last write, which is logged once
}

// run writes reports until ctx is done.
func (r *reporter) run(ctx context.Context) {
	ticker := time.NewTicker(reportPace)
	defer ticker.Stop()
	for {
		r.once(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// once writes a new report. It also writes an old report again, so that readers see that the compiler runs.
func (r *reporter) once(ctx context.Context, now time.Time) {
	report := r.report()
	if !r.leading() || report.Compiler.Ingresses == nil && report.Compiler.CompileError == "" {
		r.last = nil
		return
	}
	of := *report.Compiler
	of.LastSuccess, of.Gateway = time.Time{}, nil // Within leaves out Gateway
	untimed := &controller.Report{Head: report.Head, Found: report.Found, Withheld: report.Withheld, Compiler: &of}
	if now.Sub(r.at) < reportAge && reflect.DeepEqual(untimed, r.last) {
		return
	}
	report, err := report.Within(configmapstore.MaxReport)
	if err != nil {
		r.log.Error("the report of the compiler cannot be written", "err", err)
		return
	}
	text, _ := json.Marshal(report) // it has been marshalled before
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if err := r.write(ctx, text, now); err != nil {
		if ctx.Err() == nil && err.Error() != r.failed {
			r.log.Warn("the report of the compiler cannot be written, trying again", "err", err, "hint", "see what compiler rbac --report-secret grants")
			r.failed = err.Error()
		}
		return
	}
	if r.failed != "" {
		r.log.Info("the report of the compiler is written again")
	}
	r.last, r.at, r.failed = untimed, now, ""
}
