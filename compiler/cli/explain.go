package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/explain"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots/request"
)

// explainFlags are the flags of the verb explain.
type explainFlags struct {
	sourceFlags
	output process.OutputFlag
}

func explainCommand() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain FILE:LINE... [-f DIR | --kubeconfig FILE]",
		Short: "Show which template, objects and fields wrote a line",
		Long: `Compile manifests and show where a line of the result comes from: the line of the template,
and the objects with the fields that the template wrote it for. The command also lists
annotations of these objects, and fields of the kinds that the configuration names, whose
value is on the line.

The file is one of a snapshot, as render writes it, such as haproxy.cfg or maps/host.map.
The haproxy.cfg of an instance has more lines, those of the servers. The command reports
objects with errors, and leaves them out as run does.

Several lines are explained by one compile. With -o json they are an array, one line alone is
an object. A line that the result does not have is reported as missing; the command fails if the
result has none of them.

explain request says who answers a request, and why.`,
		Args: process.Args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.add(cmd)
	f.output.AddTo(cmd)
	cmd.AddCommand(explainRequestCommand())
	return cmd
}

func (f *explainFlags) run(cmd *cobra.Command, args []string) error {
	var places []explain.Place
	for _, text := range args {
		place, err := explain.ParsePlace(text)
		if err != nil {
			return err
		}
		places = append(places, place)
	}
	source, err := f.source(cmd.Context(), cmd.Flags(), cmd.ErrOrStderr(), warnings(cmd.ErrOrStderr()))
	if err != nil {
		return err
	}
	check, err := f.checker(cmd.Context(), source.Config, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	explained, result, err := source.Explain(cmd.Context(), check, time.Now(), places...)
	printDiagnostics(cmd.ErrOrStderr(), result.Diagnostics)
	if err != nil {
		return unpublishable(err)
	}
	var value any = explained
	if len(places) == 1 {
		value = explained[0]
	}
	return f.output.Write(cmd.OutOrStdout(), value, func(w io.Writer) error {
		for _, e := range explained {
			if err := printExplanation(w, e); err != nil {
				return err
			}
		}
		return nil
	})
}

// maxOrigins is the largest number of origins that are printed for a line that many objects share.
const maxOrigins = 20

// printExplanation prints positions first, so that editors make links of them.
func printExplanation(w io.Writer, e explain.Explanation) error {
	fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Text), " "))
	if e.Template != nil {
		fmt.Fprintf(w, "%s:%d: template\n", e.Template.File, e.Template.Line)
	} else {
		fmt.Fprintf(w, "\t%s\n", e.Note)
	}
	for i, o := range e.Origins {
		if i == maxOrigins {
			_, err := fmt.Fprintf(w, "\tand %d more, which -o json lists\n", len(e.Origins)-i)
			return err
		}
		fmt.Fprintln(w, originLine(o))
	}
	return nil
}

// originLine returns an origin in the form of a diagnostic.
func originLine(o explain.Origin) string {
	message := o.Field
	if o.Value != "" {
		message += ": " + o.Value
	}
	if message == "" {
		message = "the object as a whole"
	}
	return diag.Diagnostic{
		Severity: diag.Error, Message: message,
		Position: diag.Position{File: o.File, Line: o.Line, Column: o.Column},
		Object:   diag.Object{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name},
	}.String()
}

// requestReport is what is printed about a request.
type requestReport struct {
	Request string `json:"request"`
	In      string `json:"in"`               // manifests, a cluster, or a stored snapshot
	Chosen  string `json:"chosen,omitempty"` // why this snapshot was chosen, if nobody named it
	request.Answer
	Secret   string          `json:"secret,omitempty"` // the Secret with the certificate
	Services []serviceReport `json:"services"`
	// EndpointsKnown says that the servers are those of now, or of the snapshot. EndpointsFrom then says where they
	// come from. Otherwise EndpointsUnknown says why they are not known.
	EndpointsKnown   bool   `json:"endpointsKnown"`
	EndpointsFrom    string `json:"endpointsFrom,omitempty"`
	EndpointsUnknown string `json:"endpointsUnknown,omitempty"`
	// EndpointsLater says that the servers are those of now, while the answer is that of another time.
	EndpointsLater bool `json:"endpointsLater,omitempty"`
	// EndpointsElsewhere says that the servers are those of a cluster that does not have the store. The answer does not
	// depend on them.
	EndpointsElsewhere bool `json:"endpointsElsewhere,omitempty"`
	// Origins says that the objects are known. Wrote are the objects that wrote the lines.
	Origins bool        `json:"origins"`
	Wrote   []wroteLine `json:"wrote,omitempty"`
	Losers  []loser     `json:"losers,omitempty"`
	LeftOut []string    `json:"leftOut,omitempty"` // objects that the snapshot leaves out
	Asked   *asked      `json:"asked,omitempty"`
	Unasked string      `json:"unasked,omitempty"` // why no haproxy answered

	wrote map[request.Line][]explain.Origin
}

type wroteLine struct {
	request.Line
	Origins []explain.Origin `json:"origins"`
}

// loser is a rule that claims the request too, but does not win.
type loser struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Field     string `json:"field"`
	Rule      string `json:"rule"`
	Reason    string `json:"reason"`
	File      string `json:"file,omitempty"`
	Line      int    `json:"line,omitempty"`
	Column    int    `json:"column,omitempty"`
}

// asked is the answer of a haproxy.
type asked struct {
	Status   int    `json:"status"`
	Location string `json:"location,omitempty"`
	Backend  string `json:"backend,omitempty"`
	Service  string `json:"service,omitempty"`
	Agrees   bool   `json:"agrees"`
}

// who says in a few words who answers.
func (r requestReport) who() string {
	var services []string
	for _, s := range r.Services {
		services = append(services, s.Service)
	}
	return r.Who(services)
}

// print prints positions on lines of their own, so that editors make links of them.
func (r requestReport) print(w io.Writer) error {
	fmt.Fprintln(w, r.Request)
	say := func(label, text string) { sayRequest(w, label, text) }
	line := func(l request.Line) { fmt.Fprintf(w, "  %s:%d: %s\n", l.File, l.Line, l.Text) }
	origins := func(l request.Line) {
		for i, o := range r.wrote[l] {
			if i == 3 {
				fmt.Fprintf(w, "    and %d more, which -o json lists\n", len(r.wrote[l])-i)
				return
			}
			fmt.Fprintf(w, "    %s\n", originLine(o))
		}
	}
	section := func(label string, lines []request.Line) {
		if len(lines) > 0 {
			fmt.Fprintln(w, label)
		}
		for _, l := range lines {
			line(l)
			origins(l)
		}
	}
	say("answered by", r.who())
	say("in", r.In)
	if r.Chosen != "" {
		say("", r.Chosen)
	}
	if r.PassedOn && strings.Contains(r.Request, " https://") {
		say("TLS", "is passed on to the Service as it is")
	}
	if c := r.Certificate; c != nil {
		of := c.File
		if r.Secret != "" && r.Secret != "/" {
			of += ", of Secret " + r.Secret
		}
		if c.Default {
			of += ", the default: no line names the host"
		}
		say("certificate", of)
	}
	if r.Path != "" {
		say("path", r.Path+", in the form in which paths are compared")
	}
	section("listener", []request.Line{r.Listener})
	section("lines of maps", r.Lines)
	if r.Rule != nil {
		section("decided by", []request.Line{*r.Rule})
	}
	section("options", r.Options)
	r.printServers(w)
	section("not certain: these rules may answer first", r.Unsure)
	section("lost: lines that match too, and are less specific", r.Lost)
	if len(r.Losers) > 0 {
		fmt.Fprintln(w, "lost: rules that claim the request too")
	}
	for _, l := range r.Losers {
		process.Hang(w, "  ", "    ", diag.Diagnostic{
			Severity: diag.Error, Message: l.Rule + ": " + l.Reason, Position: diag.Position{File: l.File, Line: l.Line, Column: l.Column, Field: l.Field},
			Object: diag.Object{Kind: l.Kind, Namespace: l.Namespace, Name: l.Name},
		}.String())
	}
	for i, text := range r.LeftOut {
		if i == 0 {
			fmt.Fprintln(w, "left out of the snapshot")
		}
		process.Hang(w, "  ", "    ", text)
	}
	if !r.Origins {
		say("objects", "a snapshot does not say which objects wrote its lines; with -f or --kubeconfig they are shown")
	}
	return r.printAsked(w)
}

// sayRequest writes a line with a label. Text that does not fit the terminal continues below.
func sayRequest(w io.Writer, label, text string) {
	process.Hang(w, fmt.Sprintf("%-13s ", label), strings.Repeat(" ", 14), text)
}

func (r requestReport) printAsked(w io.Writer) error {
	var text string
	switch a := r.Asked; {
	case a == nil && r.Unasked == "":
		return nil
	case a == nil:
		text = "not by a haproxy: " + r.Unasked
	default:
		answer := fmt.Sprint("HAProxy itself, status ", a.Status)
		if a.Backend != "" {
			answer = fmt.Sprintf("backend %s, status %d", a.Backend, a.Status)
		}
		switch {
		case !a.Agrees:
			text = "a haproxy that runs it gave ANOTHER answer: " + answer + "; believe it, and report this"
		case r.Status == 503 && a.Backend != "":
			text = "a haproxy that runs it, with a server for every Service, sent it to the same backend"
		default:
			text = "a haproxy that runs it gave the same answer: " + answer
		}
	}
	sayRequest(w, "checked", text)
	return nil
}
