package routing

import (
	"cmp"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
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

// deny takes the routes of an Ingress that is left out, if it protects
// something, and answers them with 503: otherwise their requests might match a
// route of another Ingress, which does not protect them. A canary has none.
func (t *translation) deny(ing ingress) {
	protects, at := t.protected(ing)
	if protects == "" || options.IsCanary(ing.Value.Annotations) {
		return
	}
	t.report(diag.Warning, ing, at,
		protects+" protects an Ingress that cannot be used as it is; its routes answer 503", "see what else is said of this Ingress")
	t.readOptions(ing)
	t.asked.denied = true
	t.shutOnes = append(t.shutOnes, ing.Ref)
	sound := inputs.Object[networkingv1.Ingress]{Ref: ing.Ref, Value: ing.Value.DeepCopy(), At: ing.At}
	for i, rule := range ing.Value.Spec.Rules {
		rule = soundPaths(ing, rule, t.asked.expressions)
		sound.Value.Spec.Rules[i] = rule
		if rule.Host != "" && !soundHost(ing, rule.Host) {
			sound.Value.Spec.Rules[i].Host = ""
			continue
		}
		t.rule(sound, i, rule)
	}
	if backend := ing.Value.Spec.DefaultBackend; backend != nil {
		t.defaultBackend(sound, *backend)
	}
	if len(validation.IsDNS1123Label(ing.Ref.Namespace)) > 0 {
		return // no Secret is there, and no file may have such a name
	}
	for i, entry := range ing.Value.Spec.TLS {
		t.denyTLS(sound, i, entry)
	}
}

// denyTLS takes the hosts of a tls entry as far as they are sound, so that
// clients whose requests are refused are not shown another certificate too.
func (t *translation) denyTLS(ing ingress, i int, entry networkingv1.IngressTLS) {
	v := validator{ing: ing}
	if v.tlsEntry(networkingv1.IngressTLS{SecretName: entry.SecretName}); len(v.found) > 0 {
		return
	}
	entry.Hosts = slices.Clone(entry.Hosts)
	for j, host := range entry.Hosts {
		if !soundHost(ing, host) {
			entry.Hosts[j] = ""
		}
	}
	t.tlsEntry(ing, i, entry)
}

func soundHost(ing ingress, host string) bool {
	v := validator{ing: ing}
	v.host(host)
	return len(v.found) == 0
}

// soundPaths returns a rule with those paths that can be matched.
func soundPaths(ing ingress, rule networkingv1.IngressRule, expressions bool) networkingv1.IngressRule {
	if rule.HTTP == nil {
		return rule
	}
	paths := slices.DeleteFunc(slices.Clone(rule.HTTP.Paths), func(p networkingv1.HTTPIngressPath) bool {
		p.Backend = networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "any", Port: networkingv1.ServiceBackendPort{Number: 1}}}
		v := validator{ing: ing, expressions: expressions}
		v.path(p)
		unusable, _ := v.checkUsable(p)
		return len(v.found) > 0 || unusable != ""
	})
	rule.HTTP = &networkingv1.HTTPIngressRuleValue{Paths: paths}
	return rule
}

// A dropped Ingress is one that protects something and has no routes, not even closed ones,
// since HAProxy or a check refuses those too. Its requests get to whatever else matches them.
// Only routes of its own namespace lead to the Services that it protects. So those that may
// match its requests now are closed, and nobody else pays for it.

// bar finds out which hosts of which namespaces are closed for Ingresses that were dropped.
func (t *translation) bar(ingresses []ingress) {
	for _, ing := range ingresses {
		if !t.cfg.Dropped[ing.Ref] || options.IsCanary(ing.Value.Annotations) || !t.protects(ing) {
			continue
		}
		_, aliases := hostOptions(ing)
		bar := func(host string) {
			if _, known := t.barred[sharing{host, ing.Ref.Namespace}]; !known {
				t.barred[sharing{host, ing.Ref.Namespace}] = ing.Ref
			}
		}
		bar("") // where a request goes whose host has no other route, and the default backend
		t.eachHost(ing, aliases, func(host string, _ ...any) {
			bar(host)
			bar(wildcardKey(host))
		})
	}
}

// closeBarred has the Ingress at hand refuse requests for a host of the model that were those of
// an Ingress which was dropped. What it returns ends that.
func (t *translation) closeBarred(ing ingress, host string, at ...any) (end func()) {
	by, barred := t.barred[sharing{host, ing.Ref.Namespace}]
	was := t.asked.denied
	if !barred || was {
		return func() {}
	}
	t.asked.denied = true
	t.report(diag.Warning, ing, ing.Position(at...),
		"the routes"+ofHost(host)+" answer 503: "+by.String()+", which protects something there, cannot be used as it is, and its routes cannot even be closed",
		"mend "+by.String())
	return func() { t.asked.denied = was }
}
