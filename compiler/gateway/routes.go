package gateway

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
	"github.com/hapsnap/hapsnap/compiler/gateway/layout"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// routes attaches the routes of all kinds to listeners, and has what they bring there.
type routes struct {
	*findings
	cfg      Config
	world    *attach.World
	claimer  *claimer
	backends *backends
	binds    map[string]*bind
	verdicts *Verdicts
	levels   map[diag.Object]*level
	matches  map[string]size // how many were counted, by namespace
	barred   []barred
	parts    map[string]map[string]bool // the parts of requests that conditions look at, by namespace
	// optionBytes is the length of the options of rules, by namespace.
	optionBytes map[string]int
	// given are the routes whose matches were given to listeners.
	given map[diag.Object]*given
}

// given is a route whose matches were given to listeners, with the listeners that count it as attached.
type given struct {
	*read
	attached []*attach.Listener
}

// read is a route in one translation: its claims, as far as they are served.
type read struct {
	*claims
	of      any // the object itself, by its address
	matches []layout.Match
	left    map[int]bool // rules that are left out
	// under are the matches for Gateways with options or a client certificate, by the key of the under.
	under map[string][]layout.Match
	// refused says why no rule of the route is served, and dropped why some are not.
	refused, dropped attach.Verdict
}

// read returns what the rules of a route lead to.
func (t *routes) read(o route) *read {
	r := &read{claims: t.claimer.of(o, under{}), of: o.of, left: map[int]bool{}, under: map[string][]layout.Match{}}
	t.found = append(t.found, r.found...)
	r.refused = r.claims.refused
	for i, rule := range r.rules {
		p := rule.problem
		if p == nil {
			p = t.costly(r.Object.Ref.Namespace, rule.matches)
		}
		if p == nil {
			p = t.wordy(r.Object.Ref.Namespace, rule.bytes)
		}
		if p != nil {
			r.left[i] = true
			own := *p // claims share the problem
			p = own.in("spec", "rules", i)
			t.report(diag.Error, o.Ref, o.Position(p.path...), p.message+"; the rule is not served", "")
			if r.dropped.Fine() {
				r.dropped = attach.Verdict{Reason: p.reason, Message: fmt.Sprintf("Dropped Rule %d: %s: %s", i, manifests.FieldPath(p.path), p.message)}
			}
			if rule.problem == nil {
				if r.own.Protect() { // not even its closed matches are served
					t.bar(r)
				}
				continue
			}
		}
		t.backends.merge(rule.wants)
		r.matches = append(r.matches, rule.matches...)
	}
	if n := len(r.rules); n > 0 && len(r.left) == n {
		r.refused, r.dropped = r.dropped, attach.Verdict{}
	}
	if r.isOfConnections() && r.refused.Fine() {
		// A route of connections has one match, for all connections.
		at := []any{"spec", "rules", 0}
		r.matches = []layout.Match{{
			PathMatch: routing.PathMatch{Type: routing.Prefix}, Origin: routing.Origin{Object: r.Ref, Position: r.Position(at...), Field: manifests.FieldPath(at)},
			Rank: layout.Rank{Created: r.Value.CreationTimestamp.Time, Namespace: r.Object.Ref.Namespace, Name: r.Ref.Name},
		}}
	}
	return r
}

// matchesFor returns the matches of a route for Gateways that show a certificate to servers over TLS, or that have
// options.
func (t *routes) matchesFor(r *read, u under) []layout.Match {
	key := u.key()
	if key == "" || r.isOfConnections() {
		return r.matches
	}
	if out, known := r.under[key]; known {
		return out
	}
	if t.cfg.Refused[r.Ref] {
		return r.matches
	}
	var out []layout.Match
	for i, rule := range t.claimer.of(route{r.Object, r.of}, u).rules {
		if !r.left[i] || len(rule.matches) > 0 && rule.problem != nil { // what is wrong was reported
			t.backends.merge(rule.wants)
			out = append(out, rule.matches...)
		}
	}
	r.under[key] = out
	return out
}

// route attaches a route to the listeners that it names, and gives its matches to them.
func (t *routes) route(o route) {
	var parents []int // among its parentRefs
	for i, ref := range o.Value.Spec.ParentRefs {
		if t.world.Parent(o.Ref.Namespace, ref) != nil {
			parents = append(parents, i)
		}
	}
	if len(parents) == 0 {
		return // it is for other programs
	}
	if scope := o.Value.Spec.UseDefaultGateways; scope != "" && scope != gatewayv1.GatewayDefaultScopeNone {
		t.report(diag.Warning, o.Ref, o.Position("spec", "useDefaultGateways"), "default Gateways are not supported: the route is attached to those of its parentRefs alone", "")
	}
	r := t.read(o)
	if t.cfg.Refused[o.Ref] {
		t.closeRefused(r)
	}
	if t.cfg.Dropped[o.Ref] {
		t.bar(r)
		return
	}
	attached := map[*attach.Listener]bool{}
	gave := &given{read: r}
	t.given[o.Ref] = gave
	verdict := RouteVerdict{Ref: o.Ref}
	for _, i := range parents {
		ref := o.Value.Spec.ParentRefs[i]
		parent := t.world.Parent(o.Ref.Namespace, ref)
		attachments, why := t.world.Attach(parent, ref, r.Route)
		if r.Kind == "UDPRoute" {
			why = r.refused // for any listener
		} else if !why.Fine() {
			t.report(diag.Warning, o.Ref, o.Position("spec", "parentRefs", i),
				fmt.Sprintf("the route is not attached to %s: %s", parent.By, why.Message), "")
		}
		closing := why.Fine() && len(r.matches) > 0 && (!r.refused.Fine() || t.cfg.Refused[o.Ref])
		if why.Fine() {
			why = r.refused
		}
		if closing {
			for _, a := range attachments {
				t.give(a, r)
			}
			verdict.Parents = append(verdict.Parents, r.verdict(ref, why, t.cfg))
			continue
		}
		if why.Fine() {
			if attachments, why = attach.Settle(attachments, r.Route); !why.Fine() {
				t.report(diag.Error, o.Ref, o.Position("spec", "hostnames"), fmt.Sprintf("the route is not attached to %s: %s", parent.By, why.Message), "")
			}
		}
		if why.Fine() {
			why = t.bound(r, attachments)
		}
		verdict.Parents = append(verdict.Parents, r.verdict(ref, why, t.cfg))
		if !why.Fine() {
			continue
		}
		for _, a := range attachments {
			if attached[a.Listener] {
				continue
			}
			attached[a.Listener] = true
			a.Listener.Attached++
			gave.attached = append(gave.attached, a.Listener)
			if !a.Listener.PassesOn() {
				for _, u := range r.uses {
					t.claimer.source.policies.note(a.Listener.Gateway, u)
				}
			}
			t.give(a, r)
		}
	}
	if !t.cfg.Refused[o.Ref] {
		t.verdicts.Routes = append(t.verdicts.Routes, verdict)
	}
}

// give gives the matches of a route to a listener.
func (t *routes) give(a attach.Attachment, r *read) {
	name := bindName(a.Listener.Gateway, int(a.Listener.Spec.Port))
	b := t.binds[name]
	if b == nil || !a.Listener.Serves() {
		return
	}
	l := &b.listeners[b.at[a.Listener]]
	connections, matches := "", t.matchesFor(r, t.under(a.Listener))
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

// mostParts is the largest number of names of headers and parameters, and of expressions, that the routes of a
// namespace may look at. Each takes time in every request with conditions.
const mostParts = 64

// size is the size of matches in HAProxy's maps.
type size struct{ matches, bytes int }

func sizeOf(attachments []attach.Attachment, matches []layout.Match) size {
	var out size
	each := 0
	for _, m := range matches {
		each += len(m.Path)
		for _, c := range m.Conditions {
			each += len(c.Name) + len(c.Value)
		}
	}
	for _, a := range attachments {
		out.matches += len(a.Hosts) * len(matches)
		for _, h := range a.Hosts {
			out.bytes += each + len(h.Name)*len(matches)
		}
	}
	return out
}

// bound counts what a route brings to listeners, and says why that is too much.
func (t *routes) bound(r *read, attachments []attach.Attachment) attach.Verdict {
	namespace := r.Object.Ref.Namespace
	all, more := t.matches[namespace], sizeOf(attachments, r.matches)
	all = size{all.matches + more.matches, all.bytes + more.bytes}
	var message, limit string
	switch {
	case t.cfg.MostRoutes > 0 && all.matches > t.cfg.MostRoutes:
		message, limit = fmt.Sprintf("the routes of the namespace %s have more than %d matches, once for each host", namespace, t.cfg.MostRoutes), "namespaceRoutes"
	case t.cfg.MostRouteBytes > 0 && all.bytes > t.cfg.MostRouteBytes:
		message, limit = fmt.Sprintf("the matches of the namespace %s have more than %d bytes, once for each host", namespace, t.cfg.MostRouteBytes), "namespaceRouteBytes"
	default:
		t.matches[namespace] = all
		return attach.Verdict{}
	}
	if r.own.Protect() {
		t.bar(r)
	}
	t.report(diag.Error, r.Ref, r.Position("spec"), message+"; this one is not served", "raise limits."+limit+" of the configuration")
	return attach.Verdict{Reason: string(gatewayv1.RouteReasonUnsupportedValue), Message: message}
}

// thin leaves out the youngest routes of namespaces that have too many matches after these are laid out, see
// [layout.Crowd].
func (t *routes) thin() {
	var ports [][]layout.Listener
	for _, name := range slices.Sorted(maps.Keys(t.binds)) {
		if t.binds[name].takesRequests() {
			ports = append(ports, t.binds[name].requests())
		}
	}
	left, verdicts := map[diag.Object]bool{}, t.verdicts.routes()
	for _, l := range layout.Crowd(ports, layout.Size{Routes: t.cfg.MostRoutes, Bytes: t.cfg.MostRouteBytes}) {
		left[l.Route] = true
		r := t.given[l.Route]
		const laidOut = "once for each host, and for each path whose requests they may get"
		message, limit := fmt.Sprintf("the routes of the namespace %s have more than %d matches, %s", r.Object.Ref.Namespace, t.cfg.MostRoutes, laidOut), "namespaceRoutes"
		if l.Bytes {
			message, limit = fmt.Sprintf("the matches of the namespace %s have more than %d bytes, %s", r.Object.Ref.Namespace, t.cfg.MostRouteBytes, laidOut), "namespaceRouteBytes"
		}
		t.report(diag.Error, r.Ref, r.Position("spec"), message+"; this one is not served",
			"raise limits."+limit+" of the configuration, or give each host a match without conditions, so that it needs no paths of a wildcard host")
		if r.own.Protect() {
			t.bar(r.read)
		}
		for _, a := range r.attached {
			a.Attached--
		}
		verdicts[l.Route].refuse(attach.Verdict{Reason: string(gatewayv1.RouteReasonUnsupportedValue), Message: message}, t.cfg.Fleet)
	}
	if len(left) == 0 {
		return
	}
	for _, b := range t.binds {
		for i := range b.listeners {
			l := &b.listeners[i]
			l.Matches = slices.DeleteFunc(l.Matches, func(m layout.Match) bool { return left[m.Origin.Object] })
		}
	}
}

// costly notes the parts of requests that matches look at. If there are too many, it says which part is one too many.
func (t *routes) costly(namespace string, matches []layout.Match) *problem {
	known := t.parts[namespace]
	if known == nil {
		known = map[string]bool{}
		t.parts[namespace] = known
	}
	more := map[string]bool{}
	for _, m := range matches {
		for _, c := range m.Conditions {
			part := string(c.Of) + " " + c.Name
			if c.Of == routing.HeaderPattern || c.Of == routing.QueryPattern || c.Of == routing.PathPattern {
				part += " " + c.Value
			}
			if !known[part] {
				more[part] = true
			}
		}
	}
	if len(known)+len(more) > mostParts {
		return unsupported("the routes of the namespace %s look at more than %d names of headers and parameters, and expressions", namespace, mostParts).in("matches")
	}
	maps.Copy(known, more)
	return nil
}

// wordy counts the bytes that a rule adds to backends. It says when there are too many.
func (t *routes) wordy(namespace string, bytes int) *problem {
	if t.cfg.MostOptionBytes > 0 && t.optionBytes[namespace]+bytes > t.cfg.MostOptionBytes {
		return unsupported("the options and filters of the routes of the namespace %s have more than %d bytes in HAProxy's backends (limits.namespaceOptionBytes of the configuration)", namespace, t.cfg.MostOptionBytes)
	}
	t.optionBytes[namespace] += bytes
	return nil
}

// count returns to how many backends a rule leads.
func (w *wants) count() int {
	names := map[string]bool{}
	for _, b := range w.backends {
		names[b.Name] = true
	}
	return len(names)
}

// optionBytes returns the length of the options of a route.
func (c *claims) optionBytes() int {
	n := 0
	for name, value := range c.Value.Annotations {
		if strings.HasPrefix(name, options.Prefix) {
			n += len(name) + len(value)
		}
	}
	return n
}

// filterBytes returns the length of the filters of a rule and its backendRefs.
func filterBytes(rule gatewayv1.HTTPRouteRule) int {
	lists := [][]gatewayv1.HTTPRouteFilter{rule.Filters}
	for _, ref := range rule.BackendRefs {
		lists = append(lists, ref.Filters)
	}
	n := 0
	for _, filters := range lists {
		if len(filters) > 0 {
			text, _ := json.Marshal(filters) // about their length in the configuration
			n += len(text)
		}
	}
	return n
}
