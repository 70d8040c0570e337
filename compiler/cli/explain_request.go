package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/explain"
	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/sandbox"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/request"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// requestFlags are the flags of the verb explain request.
type requestFlags struct {
	sourceFlags
	output  process.OutputFlag
	opening stores.Options

	headers                            []string
	client, store, snapshot, at, fleet string
	ask                                bool
}

func explainRequestCommand() *cobra.Command {
	var f requestFlags
	cmd := &cobra.Command{
		Use:   "request [METHOD] URL [-f DIR | --kubeconfig FILE] [--store STORE]",
		Short: "Show who answers a request, and why",
		Long: `Show which listener takes a request and with which certificate, which lines of maps match,
which backend gets it with which options and servers, which objects wrote all that, and which
rules claim the request too and do not get it.

The command compiles manifests, or a cluster, or takes a snapshot of a store: with --snapshot
the one that is named, with --at the one that the fleet ran then, as the journal says, and
otherwise the newest. Where the journal does not go back that far, --at takes the newest that
was published by then, and says so. A snapshot does not say which objects wrote a line.

The servers are those of the manifests or of the snapshot. Where these have none, since the
pusher joins endpoints later, they are the EndpointSlices of the cluster now, if one is named and
you may read them. The answer depends on them only if the store is in that cluster and the
snapshot is the newest, or the one that should run.

The explanation is read from the rules and maps of the configuration. With a haproxy, a process
of its own runs the configuration and answers the request, as for compiler test; the answer is
shown beside the explanation. The exit code is 1 if the two do not agree.`,
		Args: process.Args(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args, time.Now()) },
	}
	f.add(cmd)
	f.output.AddTo(cmd)
	f.opening.AddFlags(cmd.Flags())
	flags := cmd.Flags()
	flags.StringArrayVar(&f.headers, "header", nil, "header of the request, as NAME=VALUE; may be given several times")
	flags.StringVar(&f.client, "client", "", "IP address of the client (default: one that no list names)")
	flags.StringVar(&f.store, "store", "", "store with the snapshot")
	flags.StringVar(&f.snapshot, "snapshot", "", "snapshot of the store, such as r12 or head")
	flags.StringVar(&f.at, "at", "", "the snapshot that ran at a time, such as 'yesterday 14:03', '2h ago' or 2026-01-31T14:03:00Z")
	flags.StringVar(&f.fleet, "fleet", "", "with --at, the fleet that is meant, where several ran different snapshots")
	flags.BoolVar(&f.ask, "ask", true, "have a haproxy answer the request as well")
	_ = cmd.RegisterFlagCompletionFunc("snapshot", process.Bounded(f.completeSnapshot)) // this only fails for unknown flags
	return cmd
}

// explained is the snapshot in which a request is followed, with its origin.
type explained struct {
	name     string
	snapshot snapshots.Snapshot
	artifact render.Artifact // zero for a stored snapshot
	objects  inputs.Inputs
	secrets  []corev1.Secret
	found    []diag.Diagnostic
	config   config.Config
	compiled bool
	check    *validate.Checker // nil without a haproxy
	unasked  string            // why check is nil
	chosen   string            // why this snapshot was chosen, if nobody named it
	past     bool              // the snapshot answered at an earlier time, or is not what runs now
}

func (f *requestFlags) run(cmd *cobra.Command, args []string, now time.Time) error {
	method := ""
	if len(args) == 2 {
		method = args[0]
	}
	r, err := request.Parse(method, args[len(args)-1], f.headers, f.client)
	if err != nil {
		return err
	}
	of, err := f.read(cmd, now)
	if err != nil {
		return err
	}
	report, err := f.report(cmd.Context(), of, r)
	if err != nil {
		return err
	}
	if err := f.output.Write(cmd.OutOrStdout(), report, report.print); err != nil {
		return err
	}
	if report.Asked != nil && !report.Asked.Agrees {
		return &process.ExitError{Code: process.ExitFailure}
	}
	return nil
}

// read compiles the named manifests, or reads the snapshot.
func (f *requestFlags) read(cmd *cobra.Command, now time.Time) (explained, error) {
	if f.fleet != "" && f.at == "" {
		return explained{}, process.Usage("--fleet is for --at")
	}
	if f.snapshot != "" && f.at != "" {
		return explained{}, process.WithHint(process.Usage("a snapshot and a time are named"), "use --snapshot or --at")
	}
	fromStore := f.snapshot != "" || f.at != "" || f.store != ""
	switch {
	case f.manifests != "" && (f.snapshot != "" || f.at != ""):
		return explained{}, process.WithHint(process.Usage("both manifests and a snapshot are named"), "use -f DIR, or --store STORE with --snapshot or --at")
	case f.manifests != "" || !fromStore:
		return f.compile(cmd, now)
	case f.store == "":
		return explained{}, process.WithHint(process.Usage("a snapshot is named, and no store"), "use --store STORE")
	}
	return f.stored(cmd, now)
}

func (f *requestFlags) compile(cmd *cobra.Command, now time.Time) (explained, error) {
	stderr := cmd.ErrOrStderr()
	source, err := f.source(cmd.Context(), cmd.Flags(), stderr, warnings(stderr))
	if err != nil {
		return explained{}, err
	}
	check, err := f.checker(cmd.Context(), source.Config, stderr)
	if err != nil {
		return explained{}, err
	}
	result, objects, err := source.WithObjects(cmd.Context(), check, now, "explain")
	printDiagnostics(stderr, result.Diagnostics)
	if err != nil {
		return explained{}, unpublishable(err)
	}
	return explained{
		name: source.Objects.String(), snapshot: result.Draft.Number(1, snapshots.ID{}), artifact: result.Artifact, objects: objects,
		secrets: inputs.Values(objects.Secrets), found: result.Diagnostics, config: source.Config, compiled: true, check: check,
	}, nil
}

// report follows the request, and says which objects wrote the lines and rules on its way.
func (f *requestFlags) report(ctx context.Context, of explained, r request.Request) (requestReport, error) {
	files := of.snapshot.Files
	if r.Port == 0 {
		var err error
		if r.Port, err = request.Port(files, r.TLS); err != nil {
			return requestReport{}, err
		}
	}
	directives, err := bind.Directives(of.snapshot.Config())
	if err != nil {
		return requestReport{}, err
	}
	servers, err := f.serverBook(of, directives)
	if err != nil {
		return requestReport{}, err
	}
	answer, err := request.Led(files, r, servers.usable(ctx))
	if errors.Is(err, request.ErrNoListener) {
		return requestReport{}, process.WithHint(process.Usage("%w", err), "name the port of a listener in the URL, or none for the usual one")
	}
	if err != nil {
		return requestReport{}, err
	}
	out := requestReport{Request: r.String(), In: of.name, Chosen: of.chosen, Answer: answer, Origins: of.compiled}
	servers.describe(ctx, &out)
	for _, c := range of.snapshot.Manifest.Spec.Certificates {
		if answer.Certificate != nil && c.File == answer.Certificate.File {
			out.Secret = c.Secret.String()
		}
	}
	for _, q := range of.snapshot.Manifest.Spec.Quarantined {
		out.LeftOut = append(out.LeftOut, q.Kind+" "+q.Namespace+"/"+q.Name+": "+q.Reason)
	}
	if of.compiled {
		out.LeftOut = nil // the diagnostics have been printed already
		of.addOrigins(&out, r)
	}
	return out, f.have(ctx, of, r, &out)
}

// addOrigins adds which objects wrote the lines, and which rules lost.
func (of explained) addOrigins(out *requestReport, r request.Request) {
	wrote := func(l request.Line) []explain.Origin {
		e, err := explain.Explain(explain.Place{File: l.File, Line: l.Line}, of.snapshot.Files, of.artifact, of.objects)
		if err != nil {
			return nil
		}
		return e.Origins
	}
	out.wrote = map[request.Line][]explain.Origin{}
	lines := append([]request.Line{}, out.Lines...)
	if out.Certificate != nil {
		lines = append(lines, out.Certificate.Line)
	}
	if out.Rule != nil {
		lines = append(lines, *out.Rule)
	}
	lines = append(lines, out.Options...)
	for _, l := range lines {
		if origins := wrote(l); len(origins) > 0 {
			out.wrote[l] = origins
			out.Wrote = append(out.Wrote, wroteLine{l, origins})
		}
	}
	form := routing.FormOf(of.config.Paths)
	losers := explain.Losers{
		Form: form, Found: of.found,
		Compiled: func(ing inputs.Object[networkingv1.Ingress]) bool {
			selected := inputs.NewSelector(of.config, of.objects.Namespaces).Objects(inputs.Inputs{Ingresses: []inputs.Object[networkingv1.Ingress]{ing}})
			selected.Classes = of.objects.Classes
			return ingress.CensusOf(selected, ingress.Config{IngressClass: of.config.IngressClass, ControllerClass: of.config.ControllerClass, WatchWithoutClass: of.config.WatchIngressWithoutClass}).Compiled == 1
		},
		Winners: func(object diag.Object, at diag.Position, field string) bool {
			for _, l := range out.Lines {
				if l.File == "maps/host.map" { // all rules of the host have written it
					continue
				}
				for _, o := range out.wrote[l] {
					same := o.Kind == object.Kind && o.Namespace == object.Namespace && o.Name == object.Name
					if same && (o.Field == field || at.File != "" && o.File == at.File && o.Line == at.Line && o.Column == at.Column) {
						return true
					}
				}
			}
			return false
		},
	}
	out.Answer.Lost = nil // the rules say it better than the maps do
	for _, c := range losers.Of(of.objects.Ingresses, r) {
		out.Losers = append(out.Losers, loser{
			Kind: c.Object.Kind, Namespace: c.Object.Namespace, Name: c.Object.Name, Field: c.Field, Rule: c.Rule, Reason: c.Reason,
			File: c.Position.File, Line: c.Position.Line, Column: c.Position.Column,
		})
	}
}

// have makes a haproxy answer the request.
func (f *requestFlags) have(ctx context.Context, of explained, r request.Request, out *requestReport) error {
	switch {
	case !f.ask:
		return nil
	case of.check == nil:
		out.Unasked = of.unasked
		return nil
	case out.Closed:
		out.Unasked = "the connection is closed"
		return nil
	case out.PassedOn:
		out.Unasked = "the connection is passed on to the Service, which ends TLS"
		return nil
	}
	box, err := sandbox.StartSnapshot(ctx, of.check, of.snapshot, of.secrets)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		out.Unasked = err.Error()
		return nil
	}
	defer box.Close()
	headers := map[string]string{}
	for name, values := range r.Headers {
		headers[name] = strings.Join(values, ", ")
	}
	got, err := box.Ask(ctx, sandbox.Request{TLS: r.TLS, Port: r.Port, Method: r.Method, Host: r.Host, Path: r.Target, Headers: headers, From: r.Client})
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		out.Unasked = err.Error()
		return nil
	}
	out.Asked = &asked{Status: got.Status, Location: got.Location}
	if got.Server != nil {
		out.Asked.Backend, out.Asked.Service = got.Server.Backend, got.Server.Service
	}
	out.Asked.Agrees = agrees(*out, *out.Asked)
	return nil
}

// agrees reports whether a haproxy answered as the explanation says. In the sandbox, every Service has a server that
// answers. If the explanation leaves rules open, these may have answered.
func agrees(e requestReport, got asked) bool {
	switch {
	case got.Backend != "" && len(e.Among) > 0:
		return slices.Contains(e.Among, got.Backend)
	case got.Backend != "":
		return got.Backend == e.Backend && (e.Status == 0 || e.Status == 503)
	case len(e.Unsure) > 0:
		return true
	case got.Location != "" && e.Location != "" && got.Location != e.Location:
		return false
	}
	return got.Status == e.Status || e.Status == 0 && got.Status == 503 && len(e.Services) == 0
}
