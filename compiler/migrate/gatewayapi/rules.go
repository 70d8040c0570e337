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
	// exposed are the Services of routes that protect and are closed, by namespace. Through a route to one of
	// them, a path that servers read in different ways would lead past what protected it.
	exposed map[types.NamespacedName]bool

	listenersOf []listener
	routes      []gatewayv1.HTTPRoute
	tlsRoutes   []gatewayv1.TLSRoute
	tlsParents  []string                   // the listener of each of them
	attached    map[string]map[string]bool // the namespaces of the routes of each listener
	found       []diag.Diagnostic
}

// say adds a finding, once.
func (m *mover) say(severity diag.Severity, object diag.Object, at diag.Position, message, hint string) {
	m.found = append(m.found, diag.Diagnostic{Severity: severity, Object: object, Position: at, Message: message, Hint: hint})
}

// group is the routes of one path of a host: all but the last one have conditions.
type group struct {
	routing.PathMatch
	routes []routing.Route
}

// owner is the Ingress that has the path.
func (g group) owner() diag.Object { return g.routes[len(g.routes)-1].Origin.Object }

// groupsOf returns the paths of a host. Expressions come first, in their order.
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

// rule is a rule of a route, for one host. Alone says that it has conditions, so that its place counts.
type rule struct {
	gatewayv1.HTTPRouteRule
	alone bool
}

// same reports whether two rules do the same with what they match.
func (r rule) same(o rule) bool {
	r.Matches, o.Matches = nil, nil
	a, _ := json.Marshal(r.HTTPRouteRule) // which these types can be
	b, _ := json.Marshal(o.HTTPRouteRule)
	return string(a) == string(b)
}

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
		if !m.conditions(&match, r) {
			continue
		}
		if usable && !m.guarded(h, r) {
			body.HTTPRouteRule = m.action(h, r, secure)
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
			break // what follows is for when there are no endpoints
		}
		if r.Yields {
			m.say(diag.Warning, r.Origin.Object, r.Origin.Position, "while the canary has no endpoint, its requests get 503, and are not sent to the other Service", "")
		}
	}
	return out
}

// allowedPath are the paths that the API takes.
var allowedPath = regexp.MustCompile(`^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})+$`)

const mostPath = 1024 // bytes, says the API

// pathOf returns how a route matches a path, nil if no route can. A path that is not usable is to be closed.
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

// overlapping returns a prefix of a host that comes before an expression, and that may take the same
// requests.
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
		if strings.HasPrefix(prefix, literal) || strings.HasPrefix(literal+"/", prefix) {
			return r.Match.Path, true
		}
	}
	return "", false
}

// oneOwner reports whether the expressions of a host are those of one Ingress, and few enough for one route.
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

// anyClosed reports whether an expression of a host leads to something that is closed.
func (m *mover) anyClosed(h routing.Host) bool {
	return slices.ContainsFunc(h.Routes, func(r routing.Route) bool {
		return r.Match.Type == routing.Expression && m.protects(m.backends[r.Backend])
	})
}

// conditions adds the conditions of a route to a match, and reports whether it can.
func (m *mover) conditions(match *gatewayv1.HTTPRouteMatch, r routing.Route) bool {
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
		match.Headers = append(match.Headers, gatewayv1.HTTPHeaderMatch{Type: &kind, Name: gatewayv1.HTTPHeaderName(name), Value: value})
	}
	return true
}

// takesExpression reports whether a route may have an expression, which takes whole values there.
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

// within returns an expression that takes values in which another one is found.
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

// guarded reports whether a route would lead past what protects another one, and says so.
func (m *mover) guarded(h routing.Host, r routing.Route) bool {
	b := m.backends[r.Backend]
	if m.protects(b) || !slices.ContainsFunc(h.Guards, func(g routing.Guard) bool { return g.Namespace == r.Origin.Object.Namespace }) {
		return false
	}
	for _, t := range b.Targets {
		service := types.NamespacedName{Namespace: t.Service.Namespace, Name: t.Service.Service}
		if m.exposed[service] {
			m.say(diag.Error, r.Origin.Object, r.Origin.Position,
				fmt.Sprintf("Service %s is protected by another route of host %q. An Ingress refuses paths here that servers read in different ways, and a route does not: the route is closed, and answers 500", service, hostname.Shown(h.Name)),
				"if the Service reads paths as they are written, set hapsnap.dev/unsafe-paths: pass on the Ingresses that protect it")
			return true
		}
	}
	return false
}

// protects reports whether a backend keeps requests out, which no route can.
func (m *mover) protects(b routing.Backend) bool {
	return b.Protection != nil && b.Protection.Any() || len(b.Snippet) > 0 || slices.ContainsFunc(b.Filters, func(f policy.Filter) bool {
		switch f.(type) {
		case policy.BasicAuth, policy.ExternalAuth:
			return true
		}
		return false
	})
}

// annotation says something of an annotation of the Ingress of a route, or of a Service that it leads to.
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
