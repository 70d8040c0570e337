package ingress

import (
	"maps"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/haproxycfg"
)

// backends are the backends of requests, by name, and what their options name.
type backends struct {
	*findings
	certs    *certificates
	access   *access.Taker
	byName   map[string]*routing.Backend
	replaced map[string]bool // no route of the Ingress leads there since a canary shares its requests
	closed   map[string]bool // something that is to protect the backend cannot be had
}

// take returns the name of the backend that an Ingress, whose turn it is, sends requests to, and makes
// the backend if it is new. It reports the problem of a backend once for each Ingress.
func (t *backends) take(d demand, turn *turn) string {
	name := turn.nameOf(d)
	b := t.byName[name]
	if b == nil {
		b = &routing.Backend{Name: name}
		t.byName[name] = b
		if !turn.denied {
			b.Targets = d.targets
			t.applyOptions(b, d.options, turn)
		}
	}
	// The claims of one Ingress are merged after those of the other, so that this one is the last.
	if n := len(b.Origins); n > 0 && b.Origins[n-1].Object == turn.Ref {
		return name
	}
	b.Origins = append(b.Origins, d.origin)
	if d.problem != nil && !turn.denied {
		problem := *d.problem
		problem.Message += "; requests for it are answered 503"
		t.add(problem)
	}
	return name
}

// applyOptions gives a new backend what its Ingress and its Service ask for. Where a part that protects
// something cannot be had, the backend gets no targets, so that it answers 503.
func (t *backends) applyOptions(b *routing.Backend, o *backendOptions, turn *turn) {
	t.add(o.found...)
	if o.plain {
		return
	}
	b.Origins = append(b.Origins, o.origins...)
	usable := !o.closed && !turn.refused && t.access.Lists(o.lists) && t.authenticate(o, turn)
	if usable && o.refused != nil {
		t.add(*o.refused)
		usable = false
	}
	filters := o.filters
	if usable {
		filters, usable = t.access.Policy(o.policy, filters)
	}
	if !usable {
		b.Targets = nil
		t.closed[b.Name] = true
		return
	}
	b.Filters, b.Protection, b.Upstream, b.Snippet = filters, o.protects, o.upstream, o.snippet
	t.certs.takeForServers(o.secrets)
}

// authenticate adds the list of users and the authentication service that the options name, and reports
// whether both can be used.
func (t *backends) authenticate(o *backendOptions, turn *turn) bool {
	if o.users != nil {
		t.access.Users(*o.users)
	}
	if o.auth == nil {
		return true
	}
	t.add(o.auth.Found...)
	if o.auth.Refused != nil {
		t.add(*o.auth.Refused)
		return false
	}
	b := t.byName[o.auth.Backend.Name]
	if b == nil {
		made := o.auth.Backend
		b = &made
		t.byName[b.Name] = b
	}
	if n := len(b.Origins); n == 0 || b.Origins[n-1].Object != turn.Ref {
		b.Origins = append(b.Origins, o.auth.Origin)
	}
	return true
}

// protecting reports whether a backend refuses requests that another backend might serve: because of
// who sent them, because of how many there are, or all of them. A limit on the size of bodies does not
// count, and neither do changes to answers. Denied says that the Ingress answers 503 everywhere.
func (t *backends) protecting(backend string, denied bool) bool {
	b := t.byName[backend]
	if backend == routing.Unavailable {
		return denied
	}
	p := policy.Protection{}
	if b.Protection != nil {
		p = *b.Protection
	}
	p.MaxBody = 0
	return t.closed[backend] || p.Any() || slices.ContainsFunc(b.Snippet, refuses) || slices.ContainsFunc(b.Filters, func(f policy.Filter) bool {
		switch f.(type) {
		case policy.BasicAuth, policy.ExternalAuth, policy.Agent, policy.WAF:
			return true
		}
		return false
	})
}

// refuses reports whether a line of a snippet may keep requests out.
func refuses(line routing.SnippetLine) bool {
	words := haproxycfg.Line{Text: []byte(line.Text())}.Texts()
	return len(words) > 1 && slices.Contains([]string{"deny", "tarpit", "reject", "silent-drop", "auth", "return", "redirect"}, words[1]) ||
		len(words) > 2 && words[2] == "reject"
}

// variant makes a backend that is like another one but for its targets.
func (t *backends) variant(from *routing.Backend, main claim, name string, targets []routing.Target, origin routing.Origin) {
	b := t.byName[name]
	if b == nil {
		made := *from
		made.Name, made.Targets = name, targets
		made.Origins = slices.DeleteFunc(slices.Clone(from.Origins), func(o routing.Origin) bool {
			return o.Object.Kind == main.by.Ref.Kind && o.Object != main.by.Ref
		})
		b = &made
		t.byName[name] = b
	}
	if !slices.ContainsFunc(b.Origins, func(o routing.Origin) bool { return o.Object == origin.Object }) {
		b.Origins = append(b.Origins, origin)
	}
}

// dropReplaced removes the backends that no route leads to any more since canaries share their
// requests.
func (t *backends) dropReplaced(hosts *hosts) {
	if len(t.replaced) == 0 {
		return
	}
	for _, h := range hosts.byName {
		for _, c := range h.routes {
			delete(t.replaced, c.backend)
			for _, r := range c.before {
				delete(t.replaced, r.Backend)
			}
		}
	}
	if hosts.fallback != nil {
		delete(t.replaced, hosts.fallback.backend)
	}
	for name := range t.replaced {
		delete(t.byName, name)
	}
}

// modelBackends returns backends as the model has them.
func modelBackends(backends map[string]*routing.Backend) []routing.Backend {
	var out []routing.Backend
	for _, name := range slices.Sorted(maps.Keys(backends)) {
		b := *backends[name]
		slices.SortFunc(b.Origins, routing.Origin.Compare)
		slices.Sort(b.Prefixes)
		b.Prefixes = slices.Compact(b.Prefixes)
		b.Expressions = routing.SortExpressions(b.Expressions)
		out = append(out, b)
	}
	return out
}
