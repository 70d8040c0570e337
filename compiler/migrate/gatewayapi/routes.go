package gatewayapi

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
)

// These are limits of the API.
const (
	mostRules     = 16
	mostMatches   = 64  // of a rule
	allMatches    = 128 // of a route
	mostHosts     = 16
	mostParents   = 32
	mostListeners = 64
	mostName      = 253
)

// piece is the routing of one Ingress for some hosts.
type piece struct {
	owner  diag.Object
	kind   string // "http", "https", or "" for both
	places []place
	rules  []rule
}

// place is a host with the names of the listeners that get its requests.
type place struct {
	host    string
	parents []string
}

// parts divides a piece into parts that fit into routes. A host stays with its listeners.
func (p piece) parts() (out []piece) {
	for _, at := range p.places {
		for parents := range slices.Chunk(at.parents, mostParents) {
			last := len(out) - 1
			if last < 0 || len(out[last].places) == mostHosts || len(union(out[last].parents(), parents)) > mostParents {
				out, last = append(out, piece{owner: p.owner, kind: p.kind, rules: p.rules}), last+1
			}
			out[last].places = append(out[last].places, place{at.host, parents})
		}
	}
	return out
}

func (p piece) hosts() (out []string) {
	for _, at := range p.places {
		out = union(out, []string{at.host})
	}
	return out
}

// parents returns the listeners of all hosts of the piece.
func (p piece) parents() (out []string) {
	for _, at := range p.places {
		out = union(out, at.parents)
	}
	return out
}

// union returns names, and the other names that are not among them.
func union(names, others []string) []string {
	out := slices.Clone(names)
	for _, name := range others {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// same reports whether two pieces of an Ingress differ only in their hosts.
func (p piece) same(o piece) bool {
	return p.owner == o.owner && p.kind == o.kind && (p.places[0].host == "") == (o.places[0].host == "") && sameRules(p.rules, o.rules)
}

func sameRules(a, b []rule) bool {
	return slices.EqualFunc(a, b, func(x, y rule) bool {
		return x.same(y) && fmt.Sprint(matchesOf(x)) == fmt.Sprint(matchesOf(y))
	})
}

// matchesOf returns what a rule matches, as text.
func matchesOf(r rule) (out []string) {
	for _, match := range r.Matches {
		text := ""
		if match.Path != nil {
			text = string(*match.Path.Type) + " " + *match.Path.Value
		}
		for _, h := range match.Headers {
			text += fmt.Sprintf(" %s %s %q", *h.Type, h.Name, h.Value)
		}
		out = append(out, text)
	}
	return out
}

// move makes listeners and routes of the model.
func (m *mover) move() {
	for _, b := range m.model.Backends {
		m.backends[b.Name] = b
	}
	hosts := m.hosts()
	m.exposed = m.exposedServices(hosts)
	m.listenersOf = m.listeners(hosts)
	// Connections that are passed through have listeners and routes of their own.
	for _, l := range m.model.Listeners {
		if l.Protocol != routing.HTTPS || l.Bind != "" || m.HTTPSPort == 0 {
			continue
		}
		for _, r := range l.Routes {
			if r.Terminate || r.SNI == "" {
				continue
			}
			m.listenersOf = slices.DeleteFunc(m.listenersOf, func(l listener) bool { return l.secure && l.host == r.SNI })
			added := named(m.listenersOf, listener{host: r.SNI, secure: true, passes: true})
			m.listenersOf = append(m.listenersOf, added)
			m.tlsRoute(added.name, r)
		}
	}
	// For a wildcard host, Gateways take more names than Ingresses.
	for _, name := range sortedKeys(hosts) {
		if h := hosts[name]; hostname.IsWildcard(name) && len(h.Routes) > 0 {
			m.say(diag.Warning, h.Origin.Object, h.Origin.Position, "host "+hostname.Shown(name)+" stands for names of one label or more in a route, and of one label in an Ingress: more hosts are served", "")
		}
	}
	var pieces []piece
	for _, name := range sortedKeys(hosts) {
		pieces = append(pieces, m.ofHost(hosts, hosts[name])...)
	}
	pieces = append(pieces, m.ofDefault(hosts)...)
	m.name(joined(pieces))
	m.shared()
}

// joined joins the pieces of an Ingress that differ only in their hosts.
func joined(pieces []piece) []piece {
	var out []piece
	for _, p := range pieces {
		i := slices.IndexFunc(out, p.same)
		if i < 0 {
			out = append(out, p)
			continue
		}
		out[i].places = append(out[i].places, p.places...)
	}
	slices.SortStableFunc(out, func(a, b piece) int { return a.owner.Compare(b.owner) })
	return out
}

// exposedServices returns the Services of routes that protect something, including closed routes.
func (m *mover) exposedServices(hosts map[string]*virtualHost) map[types.NamespacedName]bool {
	out := map[types.NamespacedName]bool{}
	for _, h := range hosts {
		for _, r := range h.Routes {
			b := m.backends[r.Backend]
			if m.protects(b) {
				for _, t := range b.Targets {
					out[types.NamespacedName{Namespace: t.Service.Namespace, Name: t.Service.Service}] = true
				}
			}
			if ing := m.ingresses[r.Origin.Object]; ing.Value != nil && len(b.Targets) == 0 && options.Protects(ing.Value.Annotations) != "" {
				for _, service := range servicesOf(ing.Value) {
					out[types.NamespacedName{Namespace: ing.Ref.Namespace, Name: service}] = true
				}
			}
		}
	}
	return out
}

func servicesOf(ing *networkingv1.Ingress) (out []string) {
	add := func(b *networkingv1.IngressBackend) {
		if b != nil && b.Service != nil {
			out = append(out, b.Service.Name)
		}
	}
	add(ing.Spec.DefaultBackend)
	for _, r := range ing.Spec.Rules {
		if r.HTTP != nil {
			for i := range r.HTTP.Paths {
				add(&r.HTTP.Paths[i].Backend)
			}
		}
	}
	return out
}

// ofHost returns the pieces of a host: one or two for each Ingress with routes there.
func (m *mover) ofHost(hosts map[string]*virtualHost, h *virtualHost) []piece {
	var plain, secure []string
	for _, l := range m.listenersOf {
		switch {
		case l.passes:
		case l.secure && l.known && l.owner == h.Name:
			secure = append(secure, l.name)
		case !l.secure && (l.host == h.Name && (h.own || h.Name == "") || l.host == "" && !h.own):
			plain = append(plain, l.name)
		}
	}
	var owners []diag.Object
	rules := map[diag.Object]*[2]ruleList{}
	if m.otherForm(h.Host) || m.lacks(h.Host) || m.leavesOpen(h.Host) {
		root := gatewayv1.HTTPRouteMatch{Path: &gatewayv1.HTTPPathMatch{Type: new(gatewayv1.PathMatchPathPrefix), Value: new("/")}}
		closed := []rule{{HTTPRouteRule: gatewayv1.HTTPRouteRule{Matches: []gatewayv1.HTTPRouteMatch{root}}}}
		return pieces(groupsOf(h.Host)[0].owner(), h.Name, [2][]rule{closed, closed}, plain, secure)
	}
	for _, g := range groupsOf(h.Host) {
		owner := g.owner()
		both := rules[owner]
		if both == nil {
			both = &[2]ruleList{}
			rules[owner], owners = both, append(owners, owner)
		}
		for i, secure := range []bool{false, true} {
			more := m.rulesOf(h.Host, g, secure)
			for n := range more {
				more[n].alone = more[n].alone || g.Type == routing.Expression
			}
			both[i].add(more)
		}
	}
	var out []piece
	for _, owner := range owners {
		out = append(out, pieces(owner, h.Name, [2][]rule{rules[owner][0].rules, rules[owner][1].rules}, plain, secure)...)
	}
	return out
}

// pieces returns the pieces of an Ingress for a host. It is one if requests with and without TLS are treated
// alike.
func pieces(owner diag.Object, host string, rules [2][]rule, plain, secure []string) []piece {
	var out []piece
	add := func(kind string, parents []string, rules []rule) {
		if len(parents) > 0 && len(rules) > 0 {
			out = append(out, piece{owner, kind, []place{{host, parents}}, rules})
		}
	}
	if sameRules(rules[0], rules[1]) {
		add("", slices.Concat(plain, secure), rules[0])
		return out
	}
	add("http", plain, rules[0])
	add("https", secure, rules[1])
	return out
}

// ruleList is a list of rules. Rules that do the same are joined.
type ruleList struct {
	rules []rule
	open  map[string]int // by what a rule does: the last one that others may be joined to
}

// add adds rules.
func (l *ruleList) add(more []rule) {
	for _, r := range more {
		if r.alone || replacesPrefix(r) {
			l.rules = append(l.rules, r)
			continue
		}
		does := r.does()
		if i, known := l.open[does]; known && len(l.rules[i].Matches) < mostMatches {
			all := l.rules[i].Matches
			l.rules[i].Matches = append(all[:len(all):len(all)], r.Matches...)
			continue
		}
		if l.open == nil {
			l.open = map[string]int{}
		}
		l.open[does] = len(l.rules)
		l.rules = append(l.rules, r)
	}
}

// replacesPrefix reports whether a rule replaces the prefix that it matches. The API allows such a rule one
// match.
func replacesPrefix(r rule) bool {
	return slices.ContainsFunc(r.Filters, func(f gatewayv1.HTTPRouteFilter) bool {
		replaces := func(p *gatewayv1.HTTPPathModifier) bool {
			return p != nil && p.Type == gatewayv1.PrefixMatchHTTPPathModifier
		}
		return f.URLRewrite != nil && replaces(f.URLRewrite.Path) || f.RequestRedirect != nil && replaces(f.RequestRedirect.Path)
	})
}

// otherForm reports that Gateways compare the paths of a host in another form. It returns whether the host has
// to be closed for that.
func (m *mover) otherForm(h routing.Host) bool {
	if len(h.Routes) == 0 || h.Form == m.Form {
		return false
	}
	if slices.ContainsFunc(h.Routes, m.keepsOut) {
		m.say(diag.Error, h.Origin.Object, h.Origin.Position, "paths of host "+hostname.Shown(h.Name)+" are compared in another form by routes, and something there is protected: its routes are closed, and answer 500", "say in paths of the configuration what the annotations normalize-paths and path-parameters say")
		return true
	}
	m.say(diag.Warning, h.Origin.Object, h.Origin.Position, "paths of host "+hostname.Shown(h.Name)+" are compared in the form that the configuration says, and no longer as the annotations normalize-paths and path-parameters do", "")
	return false
}

// ofDefault returns the pieces of the default backend. It serves what no rule of a host takes.
func (m *mover) ofDefault(hosts map[string]*virtualHost) []piece {
	if m.model.Default == "" {
		return nil
	}
	all := routing.Host{Form: m.Form}
	for _, name := range sortedKeys(hosts) {
		all.Guards = append(all.Guards, hosts[name].Guards...)
	}
	var plain, secure []string
	for _, l := range m.listenersOf {
		owner := hosts[l.owner]
		switch {
		case l.passes || l.known && owner != nil && (owner.Closed || l.owner == "" && takesAll(owner.Host)):
		case l.secure:
			secure = append(secure, l.name)
		default:
			plain = append(plain, l.name)
		}
	}
	r := routing.Route{Match: routing.Match{PathMatch: routing.PathMatch{Type: routing.Prefix}}, Backend: m.model.Default, Origin: m.model.DefaultOrigin}
	var rules [2][]rule
	for i, secure := range []bool{false, true} {
		rules[i] = m.rulesOf(all, group{r.Match.PathMatch, []routing.Route{r}}, secure)
	}
	return pieces(m.model.DefaultOrigin.Object, "", rules, plain, secure)
}

// lacks reports whether a host has to be closed because a protected path cannot be moved. Otherwise the
// requests of that path would go to shorter paths.
func (m *mover) lacks(h routing.Host) bool {
	for _, g := range groupsOf(h) {
		path, _ := m.pathOf(h, g)
		for _, r := range g.routes {
			if path == nil && m.keepsOut(r) {
				m.say(diag.Error, r.Origin.Object, r.Origin.Position, "the host "+hostname.Shown(h.Name)+" has a path that is protected and cannot be moved: all of its routes are closed, and answer 500", "keep the Ingress")
				return true
			}
		}
	}
	return false
}

// takesAll reports whether a host has a rule for every path.
func takesAll(h routing.Host) bool {
	return slices.ContainsFunc(h.Routes, func(r routing.Route) bool { return r.Match.PathMatch == routing.PathMatch{Type: routing.Prefix} })
}

// name makes routes of the pieces, as many as the limits of the API require. Each gets a name of its own.
func (m *mover) name(pieces []piece) {
	used := map[string]bool{}
	for ref := range m.ingresses {
		used[ref.Namespace+"/"+ref.Name] = true
	}
	for ref := range m.there["HTTPRoute"] {
		used[ref.String()] = true
	}
	first := map[diag.Object]bool{}
	for _, p := range pieces {
		for rules := range chunks(p.rules) {
			for _, part := range p.parts() {
				name := p.owner.Name
				if p.kind == "http" {
					name += "-http"
				} else if !first[p.owner] && !m.there["HTTPRoute"][types.NamespacedName{Namespace: p.owner.Namespace, Name: name}] {
					first[p.owner] = true
					m.routes = append(m.routes, m.httpRoute(p.owner.Namespace, name, part.hosts(), part.parents(), rules))
					continue
				}
				if len(name) > mostName-16 {
					name = strings.Trim(name[:mostName-16], "-.")
				}
				free := name
				for n := 2; used[p.owner.Namespace+"/"+free]; n++ {
					free = fmt.Sprintf("%s-%d", name, n)
				}
				used[p.owner.Namespace+"/"+free] = true
				m.routes = append(m.routes, m.httpRoute(p.owner.Namespace, free, part.hosts(), part.parents(), rules))
			}
		}
	}
}

// chunks divides rules into parts that fit into routes.
func chunks(rules []rule) func(yield func([]rule) bool) {
	return func(yield func([]rule) bool) {
		var part []rule
		n := 0
		for _, r := range rules {
			if len(part) == mostRules || n+len(r.Matches) > allMatches {
				if !yield(part) {
					return
				}
				part, n = nil, 0
			}
			part, n = append(part, r), n+len(r.Matches)
		}
		yield(part)
	}
}

func (m *mover) httpRoute(namespace, name string, hosts, parents []string, rules []rule) gatewayv1.HTTPRoute {
	out := gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	out.APIVersion, out.Kind = gatewayv1.GroupVersion.String(), "HTTPRoute"
	for _, host := range hosts {
		if host != "" {
			out.Spec.Hostnames = append(out.Spec.Hostnames, gatewayv1.Hostname(hostname.Shown(host)))
		}
	}
	out.Spec.ParentRefs = m.parents(namespace, parents)
	m.attach(namespace, parents)
	for _, r := range rules {
		out.Spec.Rules = append(out.Spec.Rules, r.HTTPRouteRule)
	}
	return out
}

// parents returns references to listeners.
func (m *mover) parents(namespace string, listeners []string) []gatewayv1.ParentReference {
	var out []gatewayv1.ParentReference
	for _, name := range listeners {
		section := gatewayv1.SectionName(name)
		ref := gatewayv1.ParentReference{Name: gatewayv1.ObjectName(m.Gateway.Name), SectionName: &section}
		if i := slices.IndexFunc(m.listenersOf, func(l listener) bool { return l.name == name }); i >= mostListeners {
			kind := gatewayv1.Kind("ListenerSet")
			ref.Kind, ref.Name = &kind, gatewayv1.ObjectName(m.setName(i/mostListeners))
		}
		if namespace != m.Gateway.Namespace {
			to := gatewayv1.Namespace(m.Gateway.Namespace)
			ref.Namespace = &to
		}
		out = append(out, ref)
	}
	return out
}

// setName returns the name of a ListenerSet.
func (m *mover) setName(n int) string { return fmt.Sprintf("%s-%d", m.Gateway.Name, n+1) }
