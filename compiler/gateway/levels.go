package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// level is an object whose options hold for all requests that come by it, or go to it, besides those of the route: a
// Gateway, a ListenerSet, or a Service.
type level struct {
	ref      diag.Object
	at       func(path ...any) diag.Position
	protects options.Values // what no route loosens
	defaults options.Values // what a route may say in another way
	key      string         // tells it from another object, and another version of it
}

// levelOf reads the options of an object, and returns nil if it has none.
func levelOf(on options.Place, ref diag.Object, at func(path ...any) diag.Position, annotations map[string]string) (*level, []options.Problem) {
	values, problems := options.Read(on, annotations)
	if len(problems) == 0 && !values.NeedsBackend() {
		return nil, nil
	}
	_, more, closed := options.Resolve(values)
	out := &level{ref: ref, at: at}
	values.Closed = values.Closed || closed
	out.protects, out.defaults = values.Divide()
	var given []any
	for name, value := range annotations {
		if strings.HasPrefix(name, options.Prefix) {
			given = append(given, fmt.Sprint(name, "=", value, at("metadata", "annotations", name)))
		}
	}
	slices.SortFunc(given, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	out.key = ref.String() + digest(given...)
	return out, slices.Concat(problems, more[0])
}

// spot is where an option stands.
func (l *level) spot(option string) access.Spot {
	at := []any{"metadata", "annotations", options.Prefix + option}
	return access.Spot{Origin: routing.Origin{Object: l.ref, Position: l.at(at...), Field: manifests.FieldPath(at)}, Title: "annotation " + options.Prefix + option}
}

// origin is where its options stand.
func (l *level) origin() routing.Origin {
	return routing.Origin{Object: l.ref, Position: l.at("metadata", "annotations"), Field: "metadata.annotations"}
}

// under is what claims of a route are made for: how servers know the Gateway, and the objects whose options hold, the
// outermost first.
type under struct {
	shown  string
	levels []*level
}

// key tells one from another.
func (u under) key() string {
	out := []string{u.shown}
	for _, l := range u.levels {
		out = append(out, l.key)
	}
	return strings.Join(out, "|")
}

// readLevel reads the options of a Gateway or a ListenerSet. It returns why nothing is served by it if one of them
// protects something and cannot be used.
func (t *gateways) readLevel(ref diag.Object, at func(path ...any) diag.Position, annotations map[string]string) string {
	l, problems := levelOf(options.OnGateway, ref, at, annotations)
	for _, p := range problems {
		t.report(p.Severity, ref, at("metadata", "annotations", p.Annotation), p.Message, p.Hint)
	}
	if l == nil {
		return ""
	}
	if l.protects.Closed {
		return fmt.Sprintf("an annotation protects something, and cannot be used on this %s", ref.Kind)
	}
	if l.protects.NeedsBackend() || l.defaults.NeedsBackend() {
		t.levels[ref] = l
	}
	return ""
}

// under returns what claims of routes of a listener are made for.
func (t *routes) under(l *attach.Listener) under {
	out := under{shown: l.Gateway.Shown}
	for _, ref := range []diag.Object{l.Gateway.Ref, l.Owner.By} {
		if level := t.levels[ref]; level != nil && !slices.Contains(out.levels, level) {
			out.levels = append(out.levels, level)
		}
	}
	return out
}

// unguarded reports whether a listener routes connections that its Gateway or ListenerSet protects, which nothing here
// can do for connections, and says so.
func (t *routes) unguarded(l *attach.Listener) bool {
	u := t.under(l)
	i := slices.IndexFunc(u.levels, func(x *level) bool { return x.protects.Protect() })
	if i < 0 {
		return false
	}
	by := u.levels[i]
	t.addNew(diag.Diagnostic{
		Severity: diag.Error, Object: by.ref, Position: by.at("metadata", "annotations"),
		Message: fmt.Sprintf("listener %s routes whole connections, which its annotations protect and cannot: they are closed", l.Spec.Name),
		Hint:    "have it on a Gateway of its own, without them",
	})
	return true
}

// layer is what one object protects.
type layer struct {
	settings options.Settings
	asks     access.Asker
	// all says that all of its filters are meant, and not only those that let in; last, that they come behind those of
	// the rule: what a Service is told of a user is not for a route to change.
	all, last bool
}

// asker names what options of an object name.
func (r *reader) asker(namespace string, spot func(option string) access.Spot) access.Asker {
	return access.Asker{Namespace: namespace, Spot: spot, SharedServices: r.sharedServices, Inspection: r.inspection, Service: r.service, Port: servicePort}
}

// ownSpot is where an option of the route stands.
func (r *reader) ownSpot(option string) access.Spot {
	return (&level{ref: r.Ref, at: r.Position}).spot(option)
}

// layers returns what protects a backend of a route, the outermost first: the route's Gateway, its ListenerSet and the
// route itself.
func (r *reader) layers() []layer {
	var out []layer
	for _, l := range r.levels {
		if l.protects.Protect() {
			settings, _, _ := options.Resolve(l.protects)
			out = append(out, layer{settings: settings, asks: r.asker(l.ref.Namespace, l.spot)})
		}
	}
	settings, _, _ := options.Resolve(r.options)
	return append(out, layer{settings: settings, asks: r.asker(r.Route.Namespace, r.spotOf), all: true})
}

// spotOf is where an option stands that the route has, or has from its Gateway or ListenerSet.
func (r *reader) spotOf(option string) access.Spot {
	if !r.own.Has(option) {
		for _, l := range slices.Backward(r.levels) {
			if l.defaults.Has(option) {
				return l.spot(option)
			}
		}
	}
	return r.ownSpot(option)
}

// join gives a backend what several layers ask for, all of which hold.
func (out *demand) join(made *routing.Backend, layers []layer, w *wants) {
	var first, last []policy.Filter
	var all policy.Protection
	alone := len(layers) == 1
	for i := range layers {
		l := &layers[i]
		s := &l.settings
		out.lists = append(out.lists, access.FindLists(&s.Protection, l.asks))
		if s.Basic != nil {
			out.users = append(out.users, access.FindUsers(s, l.asks))
		}
		if s.External != nil {
			asked := access.FindService(s, l.asks)
			if out.found = append(out.found, asked.Found...); asked.Refused != nil {
				out.found, out.refused = append(out.found, *asked.Refused), true
				return
			}
			w.add(asked.Backend, asked.Origin)
		}
		if d := access.FindAgents(s, l.asks); d != nil {
			out.found, out.refused = append(out.found, *d), true
			return
		}
		if s.WAF != nil {
			out.policies = append(out.policies, access.FindPolicy(s, l.asks))
		}
		ways, rest := s.Ways()
		if l.all {
			ways = slices.Concat(ways, rest)
		}
		filters := &first
		if l.last {
			filters = &last
		}
		p := s.Protection
		if !alone {
			rate, fits := all.Rate.With(p.Rate)
			if !fits {
				out.found, out.refused = append(out.found, l.asks.Spot("rate-limit").Closes(" counts in another way than that of its Gateway, ListenerSet or Service, and both hold", "use the same period, header and exempt networks, or leave one out")), true
				return
			}
			all.Rate, all.MaxBody = rate, smaller(all.MaxBody, p.MaxBody)
			p.Rate, p.MaxBody, p.Layer = nil, 0, i+1
			if p.Any() || s.Basic != nil || s.External != nil {
				*filters = append(*filters, policy.Guard{Protection: p})
			}
		} else {
			all = p
		}
		*filters = append(*filters, ways...)
	}
	made.Filters = slices.Concat(first, made.Filters, last)
	if all.Any() {
		made.Protection = &all
	}
}

// smaller returns the smaller limit, where 0 is none.
func smaller(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// levelOfService returns what the annotations of a Service ask for besides how it is spoken to, or nil.
func levelOfService(ref reference) *level {
	l, _ := levelOf(options.OnService, ref.service.Ref, ref.service.Position, ref.service.Value.Annotations)
	if l == nil || !l.protects.Protect() {
		return nil
	}
	return l
}
