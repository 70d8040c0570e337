package compiler

import (
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
)

// announcer tells the objects of a cluster what became of them. Both calls return
// at once. It is up to the announcer to say nothing while another process leads.
type announcer interface {
	// Compiled says what was found by a compile of the objects.
	Compiled(in inputs.Inputs, found []diag.Diagnostic)
	// Published says which Ingresses the store's newest snapshot has lines of.
	Published(in inputs.Inputs, served map[diag.Object]bool, c config.IngressStatus)
}

// tellCompiled tells the objects what was found.
func (l *loop) tellCompiled(in inputs.Inputs, r Result) {
	l.from = in
	if l.Announcer != nil {
		l.Announcer.Compiled(in, r.Diagnostics)
	}
}

// tellPublished tells the Ingresses whether they are served.
func (l *loop) tellPublished(r Result) {
	if l.Announcer != nil {
		l.Announcer.Published(l.from, served(r.Artifact), l.Source.Config.IngressStatus)
	}
}

// served returns the Ingresses that an artifact has lines of, be it one that keeps
// their routes closed: requests for them are answered here.
func served(a render.Artifact) map[diag.Object]bool {
	out := map[diag.Object]bool{}
	for _, lines := range a.Origins {
		for _, line := range lines {
			for _, o := range line.Objects {
				if o.Object.Kind == "Ingress" && o.Object.APIVersion == "" {
					out[o.Object] = true
				}
			}
		}
	}
	return out
}
