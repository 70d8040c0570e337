package routing

import (
	"cmp"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/internal/haproxycfg"
)

// Guard refuses requests of a host whose path servers read in different ways, such as
// /public/..%2fadmin. HAProxy would take it for one of /public, and a server for one of
// /admin, past what protects that.
//
// What an Ingress protects can be walked around by way of routes to the same server, which
// are those of its namespace. So it has requests for these refused, and for nobody else's
// on a host that it shares. The namespace that has a host guards all of it.
type Guard struct {
	// Namespace is that of the routes that take the requests; "" are those that no route
	// takes.
	Namespace string
	// Parameters says that paths with parameters are refused too.
	Parameters bool
	Origin     Origin
}

// pathRules is what an Ingress says of the paths of its hosts.
type pathRules struct {
	form       PathForm
	said       bool // by an option
	unsafe     config.UnsafePaths
	parameters config.PathParameters
}

// pathRules returns what holds for the Ingress at hand: its options, or the configuration.
func (t *translation) pathRules() pathRules {
	asked, said := t.asked.paths, t.cfg.Paths
	if asked.Normalize != nil {
		said.Normalize = *asked.Normalize
	}
	said.Unsafe = cmp.Or(config.UnsafePaths(asked.Unsafe), said.Unsafe)
	said.Parameters = cmp.Or(config.PathParameters(asked.Parameters), said.Parameters)
	return pathRules{
		form: FormOf(said), said: asked.Normalize != nil || asked.Parameters == string(config.IgnoreParameters),
		unsafe: said.Unsafe, parameters: said.Parameters,
	}
}

// FormOf returns the form that the configuration has paths compared in.
func FormOf(p config.Paths) PathForm {
	switch {
	case !p.Normalize:
		return AsSent
	case p.Parameters == config.IgnoreParameters:
		return WithoutParameters
	}
	return NormalForm
}

// guarding says that a route protects something, so that its host is guarded.
type guarding struct {
	unsafe, parameters bool
}

// guardFor returns how the Ingress at hand guards a host of which it has a route to a backend.
func (t *translation) guardFor(backend string, form PathForm) guarding {
	rules := t.asked.pathRules
	if rules.unsafe != config.RejectUnsafe || !t.protecting(backend) {
		return guarding{}
	}
	matched := rules.parameters == config.MatchParameters || rules.parameters == config.IgnoreParameters && form == WithoutParameters
	return guarding{unsafe: true, parameters: !matched}
}

// protecting reports whether a backend keeps requests out that another one might serve:
// for who sent them, for how many there are, or for all. The size of a body keeps nobody
// out, and neither does what an answer is like.
func (t *translation) protecting(backend string) bool {
	b := t.backends[backend]
	if backend == Unavailable {
		return t.asked.denied
	}
	p := policy.Protection{}
	if b.Protection != nil {
		p = *b.Protection
	}
	p.MaxBody = 0
	return t.closed[backend] || p.Any() || slices.ContainsFunc(b.Snippet, refuses) || slices.ContainsFunc(b.Filters, func(f policy.Filter) bool {
		return f.Kind() == policy.BasicAuth{}.Kind() || f.Kind() == policy.ExternalAuth{}.Kind()
	})
}

// refuses reports whether a line of a snippet may keep requests out.
func refuses(line SnippetLine) bool {
	words := haproxycfg.Line{Text: []byte(line.Text())}.Texts()
	return len(words) > 1 && slices.Contains([]string{"deny", "tarpit", "reject", "silent-drop", "auth", "return", "redirect"}, words[1]) ||
		len(words) > 2 && words[2] == "reject"
}

// guards returns the guards of a host, by namespace. One that is closed has a backend for what
// no route takes.
func (t *translation) guards(name string, closed bool) []Guard {
	h := t.hosts[name]
	byNamespace := map[string]*Guard{}
	guard := func(namespace string, g guarding, at Origin) {
		was := byNamespace[namespace]
		if was == nil {
			byNamespace[namespace] = &Guard{Namespace: namespace, Parameters: g.parameters, Origin: at}
			return
		}
		was.Parameters = was.Parameters || g.parameters
		if at.compare(was.Origin) < 0 {
			was.Origin = at
		}
	}
	present := map[string]bool{"": true}
	if closed {
		present["hapsnap"] = true
	}
	for _, c := range h.routes {
		present[c.by.Ref.Namespace] = true
	}
	for _, c := range h.routes {
		if c.guard.unsafe {
			guard(c.by.Ref.Namespace, c.guard, c.origin)
		}
	}
	unmatched := ""
	if t.fallback != nil {
		unmatched = t.fallback.by.Ref.Namespace
		if t.fallback.guard.unsafe && present[unmatched] {
			guard(unmatched, t.fallback.guard, t.fallback.origin)
		}
	}
	if of := byNamespace[t.ownerNamespace(name)]; of != nil {
		for namespace := range present {
			guard(namespace, guarding{true, of.Parameters}, of.Origin)
		}
	} else if of := byNamespace[unmatched]; of != nil {
		guard("", guarding{true, of.Parameters}, of.Origin)
	}
	out := make([]Guard, 0, len(byNamespace))
	for _, g := range byNamespace {
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b Guard) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return slices.Clip(out[:len(out):len(out)])
}

// ownerNamespace returns the namespace that has a host.
func (t *translation) ownerNamespace(host string) string {
	if o := t.owners[host]; o != nil {
		return o.namespace()
	}
	return t.hosts[host].origin.Object.Namespace
}

// formOf returns the form that the Ingress at hand, which is the oldest with routes of a
// host, has paths compared in. Only the owner of the host may say.
func (t *translation) formOf(ing ingress, host string) PathForm {
	if o := t.owners[host]; o != nil && o.namespace() != ing.Ref.Namespace {
		return FormOf(t.cfg.Paths)
	}
	return t.asked.pathRules.form
}

// GuardEntry is a line of the map of guards. It says of "HOST|NAMESPACE" what is refused,
// and of what maps lead to that it protects something.
type GuardEntry struct {
	Key, Value string
	Origin     Origin
}

// The values of a [GuardEntry].
const (
	GuardsForms      = "forms"
	GuardsParameters = "parameters"
	IsProtected      = "protected"
)

// Guards returns the entries for hosts, by key.
func Guards(hosts []Host) []GuardEntry {
	var out []GuardEntry
	protected := map[string]Origin{}
	for _, h := range hosts {
		for _, g := range h.Guards {
			value := GuardsForms
			if g.Parameters {
				value = GuardsParameters
			}
			out = append(out, GuardEntry{h.Name + "|" + g.Namespace, value, g.Origin})
		}
		if len(h.Guards) == 0 {
			continue // as most
		}
		for _, c := range h.Choices() {
			if last := c.Routes[len(c.Routes)-1]; last.Protects {
				if was, known := protected[c.To()]; !known || last.Origin.compare(was) < 0 {
					protected[c.To()] = last.Origin
				}
			}
		}
	}
	for name, origin := range protected {
		out = append(out, GuardEntry{name, IsProtected, origin})
	}
	slices.SortFunc(out, func(a, b GuardEntry) int { return cmp.Compare(a.Key, b.Key) })
	return out
}
