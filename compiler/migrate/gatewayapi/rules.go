package gatewayapi

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/expression"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
)

// mover is one call of [Move].
type mover struct {
	Options
	model     routing.Model
	backends  map[string]routing.Backend
	services  map[types.NamespacedName]inputs.Object[corev1.Service]
	ingresses map[diag.Object]inputs.Object[networkingv1.Ingress]
	// exposed are the Services of routes that are protected or closed. A path that servers read in different
	// ways could reach them through another route, and so bypass the protection.
	exposed map[types.NamespacedName]bool
	// parts are the header names and expressions that the routes of a namespace use.
	parts map[string]map[string]bool

	// there are the objects of the Gateway API in the manifests, by kind. They are not overwritten.
	there map[string]map[types.NamespacedName]bool

	listenersOf []listener
	routes      []gatewayv1.HTTPRoute
	tlsRoutes   []gatewayv1.TLSRoute
	tlsParents  []string                   // the listener of each TLSRoute
	attached    map[string]map[string]bool // the namespaces with routes on each listener
	found       []diag.Diagnostic
}

// say adds a finding.
func (m *mover) say(severity diag.Severity, object diag.Object, at diag.Position, message, hint string) {
	m.found = append(m.found, diag.Diagnostic{Severity: severity, Object: object, Position: at, Message: message, Hint: hint})
}

// group has the routes of one path of a host. All but the last one have conditions.
type group struct {
	routing.PathMatch
	routes []routing.Route
}

// owner is the Ingress that owns the path.
func (g group) owner() diag.Object { return g.routes[len(g.routes)-1].Origin.Object }

// groupsOf returns the paths of a host. Regular expressions come first, in their order.
func groupsOf(h routing.Host) []group {
	var out []group
	at := map[routing.PathMatch]int{}
	for _, r := range h.Routes {
		i, known := at[r.Match.PathMatch]
		if !known {
			i = len(out)
			at[r.Match.PathMatch] = i
			out = append(out, group{PathMatch: r.Match.PathMatch})
		}
		out[i].routes = append(out[i].routes, r)
	}
	order := map[routing.PathMatch]int{}
	for i, e := range h.Expressions {
		order[e.PathMatch] = i - len(h.Expressions)
	}
	slices.SortStableFunc(out, func(a, b group) int { return order[a.PathMatch] - order[b.PathMatch] })
	return out
}

// rule is a rule of a route, for one host. alone is set if the rule must not be merged, since its position
// matters.
type rule struct {
	gatewayv1.HTTPRouteRule
	alone bool
}

// does says, for comparing, what a rule does with its requests.
func (r rule) does() string {
	r.Matches = nil
	text, _ := json.Marshal(r.HTTPRouteRule) // these types can always be encoded
	return string(text)
}

// same reports whether two rules do the same with their requests.
func (r rule) same(o rule) bool { return r.does() == o.does() }

// rulesOf returns the rules for a path of a host.
func (m *mover) rulesOf(h routing.Host, g group, secure bool) []rule {
	path, usable := m.pathOf(h, g)
	if path == nil {
		return nil
	}
	var out []rule
	for _, r := range g.routes {
		body := rule{alone: len(r.Match.Conditions) > 0}
		match := gatewayv1.HTTPRouteMatch{Path: path}
		if len(r.Match.Conditions) > 0 && m.late(h, g, r) || !m.conditions(&match, g, r) {
			continue
		}
		if usable {
			body.HTTPRouteRule = m.action(h, r, secure)
		}
		if len(body.BackendRefs) > 0 && m.guarded(h, r) {
			body.HTTPRouteRule = gatewayv1.HTTPRouteRule{}
		}
		body.Matches = []gatewayv1.HTTPRouteMatch{match}
		if root := m.appRoot(h, r, secure); root != nil && len(r.Match.Conditions) == 0 {
			exact, slash := gatewayv1.PathMatchExact, "/"
			root.Matches = []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{Type: &exact, Value: &slash}}}
			out = append(out, rule{HTTPRouteRule: *root})
		}
		out = append(out, body)
		if len(r.Match.Conditions) == 0 {
			if r.Yields {
				m.annotation(diag.Error, r, "fallback-service", "cannot be moved: while its own Service has no endpoint, a route answers 503", "")
			}
			break // the routes after it are for a Service without endpoints
		}
		if r.Yields {
			m.say(diag.Warning, r.Origin.Object, r.Origin.Position, "while the canary has no endpoint, its requests get 503, and are not sent to the other Service", "")
		}
	}
	return out
}

// allowedPath matches the paths that the API accepts.
var allowedPath = regexp.MustCompile(`^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})+$`)

const mostPath = 1024 // bytes, says the API

// pathOf returns how a route matches a path, or nil if no route can. If usable is false, the rule for the path
// has to be closed.
func (m *mover) pathOf(h routing.Host, g group) (path *gatewayv1.HTTPPathMatch, usable bool) {
	at := g.routes[len(g.routes)-1].Origin
	as := func(kind gatewayv1.PathMatchType, value string) *gatewayv1.HTTPPathMatch {
		return &gatewayv1.HTTPPathMatch{Type: &kind, Value: &value}
	}
	if g.Type == routing.Expression {
		text := "(?i)(?:" + g.Path + ").*"
		if !takesExpression(text) || len(text) > mostPath {
			m.say(diag.Error, at.Object, at.Position, fmt.Sprintf("path %q cannot be moved: it is not an expression that a route may have; its requests are not served", g.Path), "write it as prefixes")
			return nil, false
		}
		if prefix, ok := overlapping(h, g.Path); ok {
			m.say(diag.Error, at.Object, at.Position, fmt.Sprintf("path %q cannot be moved: in a route an expression comes before the prefix %q, which comes before it here; its requests are not served", g.Path, orSlash(prefix)), "write it as prefixes")
			return nil, false
		}
		if !oneOwner(h) {
			m.say(diag.Warning, at.Object, at.Position, fmt.Sprintf("path %q: the order of expressions of several Ingresses becomes that of the ages and names of their routes", g.Path), "")
			return as(gatewayv1.PathMatchRegularExpression, text), !m.anyClosed(h)
		}
		return as(gatewayv1.PathMatchRegularExpression, text), true
	}
	text := orSlash(g.Path)
	if !allowedPath.MatchString(text) || len(text) > mostPath || strings.Contains(strings.ToLower(text), "%2f") || strings.Contains(text, "//") || hasDots(text) {
		if len(text) > mostPath/2 {
			m.say(diag.Error, at.Object, at.Position, fmt.Sprintf("path %.40q… cannot be moved: no route may have it; its requests are those of shorter paths", text), "")
			return nil, false
		}
		m.say(diag.Error, at.Object, at.Position, fmt.Sprintf("path %q cannot be moved: no route may have it; requests for it are answered 500", text), "")
		end := ""
		if g.Type == routing.Prefix {
			end = "(?:/.*)?"
		}
		return as(gatewayv1.PathMatchRegularExpression, regexp.QuoteMeta(strings.TrimSuffix(text, "/"))+end), false
	}
	if g.Type == routing.Exact {
		return as(gatewayv1.PathMatchExact, text), true
	}
	return as(gatewayv1.PathMatchPathPrefix, text), true
}

func hasDots(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if part == "." || part == ".." {
			return true
		}
	}
	return false
}

func orSlash(path string) string {
	if path == "" {
		return "/"
	}
	return path
}

// overlapping returns a prefix that comes before an expression of the host, and may take the same requests.
func overlapping(h routing.Host, path string) (string, bool) {
	literal := routing.LiteralOf(path)
	var before []string
	for _, e := range h.Expressions {
		if e.Path == path {
			before = e.Prefixes
		}
	}
	for _, r := range h.Routes {
		if r.Match.Type != routing.Prefix || slices.Contains(before, routing.PrefixKey(r.Match.Path)) {
			continue
		}
		prefix := strings.ToLower(r.Match.Path) + "/"
		if overlap(literal, prefix) {
			return r.Match.Path, true
		}
	}
	return "", false
}

// oneOwner reports whether one Ingress owns all expressions of a host, and one route can hold them.
func oneOwner(h routing.Host) bool {
	owners, n := map[diag.Object]bool{}, 0
	for _, g := range groupsOf(h) {
		if g.Type == routing.Expression {
			owners[g.owner()] = true
			n += len(g.routes)
		}
	}
	return len(owners) <= 1 && n <= mostRules
}

// anyClosed reports whether an expression of a host is protected or closed.
func (m *mover) anyClosed(h routing.Host) bool {
	return slices.ContainsFunc(h.Routes, func(r routing.Route) bool {
		return r.Match.Type == routing.Expression && m.keepsOut(r)
	})
}

// late reports whether a canary by header cannot be moved, because another expression comes before its own.
// Routes compare the number of headers first. So the canary would come before the other expression, and bypass
// its protection.
func (m *mover) late(h routing.Host, g group, r routing.Route) bool {
	literal := routing.LiteralOf(g.Path)
	for _, e := range h.Expressions {
		if g.Type != routing.Expression || e.PathMatch == g.PathMatch {
			return false
		}
		if overlap(literal, routing.LiteralOf(e.Path)) {
			m.say(diag.Error, r.Origin.Object, r.Origin.Position, fmt.Sprintf("the canary of path %q cannot be moved: in a route what looks at a header comes before the path %q, which comes before it here; the canary gets nothing by %s", g.Path, e.Path, r.Match.Conditions[0].Name), "write the paths as prefixes")
			return true
		}
	}
	return false
}

// mostParts is how many header names and expressions the compiler accepts in the routes of a namespace.
const mostParts = 64

// room records that the routes of a namespace use a header name or an expression. It reports whether the
// compiler accepts it.
func (m *mover) room(namespace, part string) bool {
	known := m.parts[namespace]
	if known == nil {
		known = map[string]bool{}
		m.parts[namespace] = known
	}
	if !known[part] && len(known) == mostParts {
		return false
	}
	known[part] = true
	return true
}

// leavesOpen reports whether a host has to be closed, because a path that becomes an expression would not be
// protected. The compiler accepts a limited number of expressions in a namespace, and expressions do not match
// paths of more than 1023 bytes. Another route would get such requests.
func (m *mover) leavesOpen(h routing.Host) bool {
	const closes = "all routes of host %s are closed, and answer 500"
	for _, g := range groupsOf(h) {
		path, _ := m.pathOf(h, g)
		if path == nil || *path.Type != gatewayv1.PathMatchRegularExpression {
			continue
		}
		at := g.routes[len(g.routes)-1].Origin
		if !m.room(at.Object.Namespace, "path "+*path.Value) {
			m.say(diag.Error, at.Object, at.Position, fmt.Sprintf("path %q cannot be moved: the routes of namespace %s would look at more than %d names of headers and expressions; "+closes, g.Path, at.Object.Namespace, mostParts, hostname.Shown(h.Name)),
				"write it as prefixes, or keep the Ingress")
			return true
		}
		if !slices.ContainsFunc(g.routes, m.keepsOut) {
			continue
		}
		if why := m.around(h, g); why != "" {
			m.say(diag.Error, at.Object, at.Position, fmt.Sprintf("path %q is protected and cannot be moved: %s; "+closes, g.Path, why, hostname.Shown(h.Name)), "write it as prefixes, or keep the Ingresses of the host")
			return true
		}
	}
	return false
}

// around says which other route would get requests of a path that becomes an expression, without protecting
// them. It is "" if none would.
func (m *mover) around(h routing.Host, g group) string {
	const long = "an expression of a route looks at no path of more than 1023 bytes, and longer ones would get to "
	literal, all := strings.ToLower(orSlash(g.Path)), false
	if g.Type == routing.Expression {
		literal = routing.LiteralOf(g.Path)
	}
	for _, o := range groupsOf(h) {
		open := slices.ContainsFunc(o.routes, func(r routing.Route) bool { return !m.keepsOut(r) })
		switch o.Type {
		case routing.Prefix:
			all = all || o.Path == ""
			if open && g.Type != routing.Exact && o.PathMatch != g.PathMatch && overlap(literal, strings.ToLower(o.Path)+"/") {
				return fmt.Sprintf("%spath %q", long, orSlash(o.Path))
			}
		case routing.Expression:
			if open && g.Type != routing.Expression && overlap(literal, routing.LiteralOf(o.Path)) {
				return fmt.Sprintf("in a route path %q would come before it", o.Path)
			}
		}
	}
	if g.Type != routing.Exact && !all && m.model.Default != "" && !h.Closed {
		return long + "the default backend"
	}
	return ""
}

// overlap reports whether a path may begin with both texts. The text of a prefix ends with a slash, which the
// path need not have.
func overlap(literal, other string) bool {
	return strings.HasPrefix(other, literal) || strings.HasPrefix(literal+"/", other)
}

// conditions adds the conditions of a route to a match. It reports false if it cannot.
func (m *mover) conditions(match *gatewayv1.HTTPRouteMatch, g group, r routing.Route) bool {
	for _, c := range r.Match.Conditions {
		kind, name, value := gatewayv1.HeaderMatchExact, c.Name, c.Value
		switch c.Of {
		case routing.Header:
			if strings.Trim(value, " \t") != value || value == "" {
				m.say(diag.Error, r.Origin.Object, r.Origin.Position, fmt.Sprintf("the value %q of the header %s cannot be matched by a route: the canary gets nothing by it", value, name), "")
				return false
			}
		case routing.HeaderPattern:
			kind, value = gatewayv1.HeaderMatchRegularExpression, within(value)
		case routing.Cookie:
			kind, name, value = gatewayv1.HeaderMatchRegularExpression, "Cookie", "(?:.*; ?)?"+regexp.QuoteMeta(name)+"="+regexp.QuoteMeta(value)+"(?: ?;.*)?"
			m.annotation(diag.Warning, r, "canary-by-cookie", "becomes an expression for the header Cookie, which no value of more than 1023 bytes matches", "")
		default:
			m.say(diag.Error, r.Origin.Object, r.Origin.Position, fmt.Sprintf("a condition on %s %s cannot be moved", c.Of, c.Name), "")
			return false
		}
		if kind == gatewayv1.HeaderMatchRegularExpression {
			if !takesExpression(value) {
				m.say(diag.Error, r.Origin.Object, r.Origin.Position, fmt.Sprintf("the expression %q cannot be that of a route: the canary gets nothing by it", c.Value), "")
				return false
			}
		}
		part := "header " + strings.ToLower(name)
		if kind == gatewayv1.HeaderMatchRegularExpression {
			part += " " + value
		}
		if namespace := g.owner().Namespace; !m.room(namespace, part) {
			m.say(diag.Error, r.Origin.Object, r.Origin.Position, fmt.Sprintf("the canary cannot be moved: the routes of namespace %s would look at more than %d names of headers and expressions; it gets nothing by %s", namespace, mostParts, c.Name), "use one header for several canaries")
			return false
		}
		match.Headers = append(match.Headers, gatewayv1.HTTPHeaderMatch{Type: &kind, Name: gatewayv1.HTTPHeaderName(name), Value: value})
	}
	return true
}

// takesExpression reports whether a route may have a regular expression. There it has to match the whole value.
func takesExpression(text string) bool {
	plain, anyCase := strings.CutPrefix(text, "(?i)")
	pattern := "^(?:" + plain + ")$"
	if anyCase {
		pattern = "(?i)" + pattern
	}
	_, err := expression.Parse(pattern)
	_, wrong := regexp.Compile(text)
	return err == nil && wrong == nil
}

// within returns an expression that matches whole values in which another expression finds something.
func within(text string) string {
	if strings.Contains(text, "|") || !strings.HasPrefix(text, "^") {
		return ".*(?:" + text + ").*"
	}
	text = strings.TrimPrefix(text, "^")
	if start, whole := strings.CutSuffix(text, "$"); whole && !strings.HasSuffix(start, `\`) {
		return start
	}
	return "(?:" + text + ").*"
}

// guarded reports whether a route could bypass the protection of another one. A protected Ingress guards all
// routes of its namespace on the host, since their Services may have the same Pods.
func (m *mover) guarded(h routing.Host, r routing.Route) bool {
	if m.keepsOut(r) || !slices.ContainsFunc(h.Guards, func(g routing.Guard) bool { return g.Namespace == r.Origin.Object.Namespace }) {
		return false
	}
	for _, t := range m.backends[r.Backend].Targets {
		service := types.NamespacedName{Namespace: t.Service.Namespace, Name: t.Service.Service}
		for protected := range m.exposed {
			if !m.mayShare(service, protected) {
				continue
			}
			what := fmt.Sprintf("Service %s may have Pods of one that is protected by another route", service)
			if m.exposed[service] {
				what = fmt.Sprintf("Service %s is protected by another route", service)
			}
			m.say(diag.Error, r.Origin.Object, r.Origin.Position,
				fmt.Sprintf("%s; host %q has a route that protects. An Ingress refuses paths here that servers read in different ways, and a route does not: the route is closed, and answers 500", what, hostname.Shown(h.Name)),
				"if the servers read paths as they are written, set hapsnap.dev/unsafe-paths: pass on the Ingresses that protect; if the Pods differ, add the Services to the manifests, with selectors that say so")
			return true
		}
	}
	return false
}

// mayShare reports whether two Services may have the same Pods. They cannot if their selectors want different
// values of a label.
func (m *mover) mayShare(a, b types.NamespacedName) bool {
	if a == b || a.Namespace != b.Namespace {
		return a == b
	}
	one, other := m.services[a], m.services[b]
	if one.Value == nil || other.Value == nil {
		return true
	}
	for label, value := range one.Value.Spec.Selector {
		if wanted, has := other.Value.Spec.Selector[label]; has && wanted != value {
			return false
		}
	}
	return true
}

// keepsOut reports whether a route is protected, or closed because its protection is wrong.
func (m *mover) keepsOut(r routing.Route) bool {
	b := m.backends[r.Backend]
	ing := m.ingresses[r.Origin.Object]
	return m.protects(b) || len(b.Targets) == 0 && ing.Value != nil && options.Protects(ing.Value.Annotations) != ""
}

// protects reports whether a backend refuses requests, which no route can do.
func (m *mover) protects(b routing.Backend) bool {
	return b.Protection != nil && b.Protection.Any() || len(b.Snippet) > 0 || slices.ContainsFunc(b.Filters, func(f policy.Filter) bool {
		switch f.(type) {
		case policy.BasicAuth, policy.ExternalAuth:
			return true
		}
		return false
	})
}

// annotation reports something about an annotation of the route's Ingress, or of its Service.
func (m *mover) annotation(severity diag.Severity, r routing.Route, name, message, hint string) {
	text := "annotation " + options.Prefix + name + " " + message
	for _, o := range append([]routing.Origin{r.Origin}, m.backends[r.Backend].Origins...) {
		ing, known := m.ingresses[o.Object]
		if !known {
			continue
		}
		if _, has := ing.Value.Annotations[options.Prefix+name]; has {
			m.say(severity, o.Object, ing.Position("metadata", "annotations", options.Prefix+name), text, hint)
			return
		}
	}
	for _, t := range m.backends[r.Backend].Targets {
		service := m.services[types.NamespacedName{Namespace: t.Service.Namespace, Name: t.Service.Service}]
		if service.Value == nil {
			continue
		}
		if _, has := service.Value.Annotations[options.Prefix+name]; has {
			m.say(severity, service.Ref, service.Position("metadata", "annotations", options.Prefix+name), text, hint)
			return
		}
	}
	m.say(severity, r.Origin.Object, r.Origin.Position, "option "+name+" of its class "+message, hint)
}
