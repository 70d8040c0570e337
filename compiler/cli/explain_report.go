package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/explain"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots/request"
)

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
