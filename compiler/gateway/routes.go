package gateway

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
	"github.com/hapsnap/hapsnap/compiler/inputs"
)

// routes are those of all kinds: which listeners they are attached to, and what they bring there.
type routes struct {
	reader
	world    *attach.World
	binds    map[string]*bind
	verdicts *Verdicts
	matches  map[string]int // that were counted, by namespace
}

// route attaches a route to the listeners that it names, and gives these its matches.
func (t *routes) route(o inputs.Object[gatewayv1.HTTPRoute]) {
	var parents []gatewayv1.ParentReference
	for _, ref := range o.Value.Spec.ParentRefs {
		if t.world.Parent(o.Ref.Namespace, ref) != nil {
			parents = append(parents, ref)
		}
	}
	if len(parents) == 0 {
		return // somebody else's
	}
	r := t.read(o)
	attached := map[*attach.Listener]bool{}
	verdict := RouteVerdict{Ref: o.Ref}
	for _, ref := range parents {
		parent := t.world.Parent(o.Ref.Namespace, ref)
		attachments, why := t.world.Attach(parent, ref, r.Route)
		if r.Kind == "UDPRoute" {
			why = r.refused // whatever the listeners are
		} else if !why.Fine() {
			t.report(diag.Warning, o.Ref, o.Position("spec", "parentRefs", slices.IndexFunc(o.Value.Spec.ParentRefs, func(p gatewayv1.ParentReference) bool { return sameParent(p, ref) })),
				fmt.Sprintf("the route is not attached to %s: %s", parent.By, why.Message), "")
		}
		if why.Fine() {
			why = r.refused
		}
		if why.Fine() {
			if attachments, why = attach.Settle(attachments, r.Route); !why.Fine() {
				t.report(diag.Error, o.Ref, o.Position("spec", "hostnames"), fmt.Sprintf("the route is not attached to %s: %s", parent.By, why.Message), "")
			}
		}
		if why.Fine() {
			why = t.bound(r, attachments)
		}
		verdict.Parents = append(verdict.Parents, r.verdict(ref, why, t.cfg.Controller))
		if !why.Fine() {
			continue
		}
		for _, a := range attachments {
			if attached[a.Listener] {
				continue
			}
			attached[a.Listener] = true
			a.Listener.Attached++
			if !a.Listener.PassesOn() {
				for _, u := range r.uses {
					t.backends.policies.note(a.Listener.Gateway, u)
				}
			}
			t.give(a, r)
		}
	}
	t.verdicts.Routes = append(t.verdicts.Routes, verdict)
}

// bound counts what a route brings to listeners, and says why that is too much.
func (t *routes) bound(r *read, attachments []attach.Attachment) attach.Verdict {
	n := 0
	for _, a := range attachments {
		n += len(a.Hosts) * len(r.matches)
	}
	namespace := r.Object.Ref.Namespace
	if t.cfg.MostRoutes > 0 && t.matches[namespace]+n > t.cfg.MostRoutes {
		message := fmt.Sprintf("the routes of the namespace %s have more than %d matches, once for each host", namespace, t.cfg.MostRoutes)
		t.report(diag.Error, r.Ref, r.Position("spec"), message+"; this one is not served", "raise limits.namespaceRoutes of the configuration")
		return attach.Verdict{Reason: string(gatewayv1.RouteReasonUnsupportedValue), Message: message}
	}
	t.matches[namespace] += n
	return attach.Verdict{}
}

func sameParent(a, b gatewayv1.ParentReference) bool {
	return equality.Semantic.DeepEqual(a, b)
}

// give adds the matches of a route to a listener.
func (t *routes) give(a attach.Attachment, r *read) {
	name := bindName(a.Listener.Gateway, int(a.Listener.Spec.Port))
	b := t.binds[name]
	if b == nil || !a.Listener.Serves() {
		return
	}
	l := &b.listeners[slices.Index(b.of, a.Listener)]
	connections, matches := "", t.matchesFor(r, a.Listener.Gateway.Shown)
	if r.isOfConnections() && len(a.Hosts) > 0 && len(r.matches) > 0 {
		connections = t.connect(r, a.Listener)
	}
	for _, host := range a.Hosts {
		for _, m := range matches {
			m.Host, m.Of = host.Name, host.Of
			if connections != "" {
				m.Backend = connections
			}
			l.Matches = append(l.Matches, m)
		}
	}
}
