package gatewayapi

import (
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// action collects what a rule does with its requests. A closed rule answers 500.
type action struct {
	*mover
	route   routing.Route
	backend routing.Backend

	closed            bool
	rewrite           gatewayv1.HTTPURLRewriteFilter
	redirect          *gatewayv1.HTTPRequestRedirectFilter
	requests, answers gatewayv1.HTTPHeaderFilter
	named             map[policy.Message]map[string]bool // headers that are changed, in lower case
	cors              *gatewayv1.HTTPCORSFilter
}

// action returns what a rule does, without its matches. Protection comes before the redirect to HTTPS.
func (m *mover) action(h routing.Host, r routing.Route, secure bool) gatewayv1.HTTPRouteRule {
	b := m.backends[r.Backend]
	if redirect := redirectsWholly(b); redirect != nil && !secure && !m.protects(b) {
		return gatewayv1.HTTPRouteRule{Filters: []gatewayv1.HTTPRouteFilter{redirectFilter(&gatewayv1.HTTPRequestRedirectFilter{Scheme: new("https"), StatusCode: new(redirect.Code)})}}
	}
	a := action{mover: m, route: r, backend: b, named: map[policy.Message]map[string]bool{policy.Requests: {}, policy.Answers: {}}}
	// A rule that only some requests may use is closed.
	p := policy.Protection{}
	if a.backend.Protection != nil {
		p = *a.backend.Protection
	}
	for _, o := range []struct {
		name string
		asks bool
	}{
		{"allow-list", p.Allow.Any()}, {"deny-list", p.Deny.Any()}, {"allow-countries", len(p.AllowCountries) > 0}, {"deny-countries", len(p.DenyCountries) > 0},
		{"rate-limit", p.Rate != nil && p.Rate.Requests > 0}, {"rate-limit-connections", p.Rate != nil && p.Rate.Connections > 0},
		{"max-body-size", p.MaxBody > 0}, {"client-ca-secret", p.Clients != nil}, {"snippet", len(a.backend.Snippet) > 0},
	} {
		if o.asks {
			a.closes(o.name, "a route has nothing that keeps requests out", "keep the Ingress, or say --without "+o.name+" if the route may do without it")
		}
	}
	for _, f := range b.Filters {
		a.filter(h, f, secure)
	}
	out := gatewayv1.HTTPRouteRule{}
	if a.redirect == nil {
		out.BackendRefs, out.Timeouts = a.servers()
		a.closed = a.closed || len(out.BackendRefs) == 0
	}
	if a.closed {
		return gatewayv1.HTTPRouteRule{}
	}
	out.Filters = a.filters()
	return out
}

// closes reports that an annotation cannot be moved, and closes the rule.
func (a *action) closes(annotation, message, hint string) {
	a.closed = true
	a.annotation(diag.Error, a.route, annotation, "cannot be moved: "+message+"; the route is closed, and answers 500", hint)
}

// filter adds what a filter does.
func (a *action) filter(h routing.Host, f policy.Filter, secure bool) {
	switch f := f.(type) {
	case policy.HTTPSRedirect: // only for requests without TLS
	case policy.BasicAuth:
		a.closes("auth-basic", "a route asks for no password", "keep the Ingress")
	case policy.ExternalAuth:
		a.closes("auth-url", "a route asks no service", "keep the Ingress")
	case policy.ReservedHeaders:
		for _, name := range f.Names {
			a.edit(policy.Requests, "auth-response-headers", policy.HeaderEdit{Do: policy.Remove, Name: name})
		}
	case policy.CORS:
		a.allowOrigins(f)
	case policy.Redirect:
		a.redirects(f)
	case policy.HostRedirect:
		host := gatewayv1.PreciseHostname(f.Host)
		a.redirect = &gatewayv1.HTTPRequestRedirectFilter{Hostname: &host, StatusCode: new(f.Code)}
	case policy.Headers:
		name := "request-headers"
		if f.Of == policy.Answers {
			name = "response-headers"
		}
		for _, e := range f.Edits {
			a.edit(f.Of, name, e)
		}
	case policy.HSTS:
		if secure {
			a.edit(policy.Answers, "hsts", policy.HeaderEdit{Do: policy.Set, Name: "Strict-Transport-Security", Value: f.Value})
		}
	case policy.RewriteHost:
		if strings.Contains(f.Host, ":") {
			a.closes("rewrite-host", "a route replaces the host with a name that has no port", "")
			return
		}
		host := gatewayv1.PreciseHostname(f.Host)
		a.rewrite.Hostname = &host
	case policy.RewritePath:
		a.rewritePath(f)
	case policy.ForwardedFor:
		a.closes("forwarded-for", "for a route the configuration says what becomes of X-Forwarded-For", "set forwarded.policy of the configuration, and remove the annotation")
	case policy.InterceptErrors:
		a.annotation(diag.Error, a.route, "intercept-errors", "cannot be moved: answers of endpoints are passed on as they are", "")
	case policy.RewriteCookies:
		for name, r := range map[string]policy.Replacement{"rewrite-cookie-path": f.Path, "rewrite-cookie-domain": f.Domain} {
			if r.From != "" {
				a.annotation(diag.Error, a.route, name, "cannot be moved: cookies of endpoints are passed on as they are", "")
			}
		}
	default:
		a.closed = true
		a.say(diag.Error, a.route.Origin.Object, a.route.Origin.Position, fmt.Sprintf("what the compiler calls %s cannot be moved; the route is closed, and answers 500", f.Kind()), "")
	}
}

// headerName matches names that both the API and the compiler accept.
var headerName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,256}$`)

const mostEdits = 16

// edit adds a change of a header. The API defines no order of changes, so each header is changed only once.
func (a *action) edit(of policy.Message, annotation string, e policy.HeaderEdit) {
	to := &a.requests
	if of == policy.Answers {
		to = &a.answers
	}
	name := strings.ToLower(e.Name)
	switch {
	case a.named[of][name] && annotation == "auth-response-headers":
		return // it is removed or replaced already
	case e.Do == policy.Copy:
		a.closes(annotation, "a route sets headers to fixed values: "+e.Name+" would be a part of the request", "")
		return
	case a.named[of][name]:
		a.closes(annotation, "a route changes a header once, and "+e.Name+" is changed twice", "")
		return
	case !headerName.MatchString(e.Name) || e.Do != policy.Remove && (e.Value == "" || len(e.Value) > 4096):
		a.closes(annotation, "no route may set the header "+e.Name+" to this value", "")
		return
	}
	a.named[of][name] = true
	switch e.Do {
	case policy.Remove:
		to.Remove = append(to.Remove, e.Name)
	case policy.Add:
		to.Add = append(to.Add, gatewayv1.HTTPHeader{Name: gatewayv1.HTTPHeaderName(e.Name), Value: e.Value})
	default:
		to.Set = append(to.Set, gatewayv1.HTTPHeader{Name: gatewayv1.HTTPHeaderName(e.Name), Value: e.Value})
	}
	if len(to.Remove) > mostEdits || len(to.Add) > mostEdits || len(to.Set) > mostEdits {
		a.closes(annotation, fmt.Sprintf("a route has at most %d changes of headers of a kind", mostEdits), "")
	}
}

// allowOrigins moves CORS. What a route cannot express exactly is left out, so that fewer origins are allowed,
// and never more.
func (a *action) allowOrigins(f policy.CORS) {
	out := &gatewayv1.HTTPCORSFilter{MaxAge: int32(max(f.MaxAge, 1))}
	if f.Credentials {
		out.AllowCredentials = new(true)
	}
	if len(f.OriginPatterns) > 0 {
		a.annotation(diag.Error, a.route, "cors-allow-origin", "cannot be moved as it is: in a route \"*.\" stands for several labels, so that these origins are no longer allowed", "list the origins")
	}
	if len(f.Expressions) > 0 {
		a.annotation(diag.Error, a.route, "cors-allow-origin-pattern", "cannot be moved: a route has no expressions for origins, which are no longer allowed", "list the origins in cors-allow-origin")
	}
	if f.AnyOrigin {
		out.AllowOrigins = []gatewayv1.CORSOrigin{"*"}
	} else {
		for _, o := range f.Origins {
			if u, err := url.Parse(o); err != nil || u.Scheme != "http" && u.Scheme != "https" || strings.Contains(o, "*") {
				a.annotation(diag.Error, a.route, "cors-allow-origin", fmt.Sprintf("cannot be moved as it is: a route cannot allow the origin %q", o), "")
				continue
			}
			out.AllowOrigins = append(out.AllowOrigins, gatewayv1.CORSOrigin(o))
		}
	}
	for _, method := range f.Methods {
		if !slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}, method) {
			a.annotation(diag.Error, a.route, "cors-allow-methods", fmt.Sprintf("cannot be moved as it is: a route cannot allow the method %q", method), "")
			continue
		}
		out.AllowMethods = append(out.AllowMethods, gatewayv1.HTTPMethodWithWildcard(method))
	}
	for _, name := range f.Headers {
		out.AllowHeaders = append(out.AllowHeaders, gatewayv1.HTTPHeaderName(name))
	}
	for _, name := range f.Expose {
		out.ExposeHeaders = append(out.ExposeHeaders, gatewayv1.HTTPHeaderName(name))
	}
	if len(out.AllowOrigins) > 64 || len(out.AllowHeaders) > 64 || len(out.ExposeHeaders) > 64 {
		a.annotation(diag.Error, a.route, "cors-allow-origin", "cannot be moved: a route allows at most 64 origins and headers; no origin is allowed", "")
		return
	}
	if len(out.AllowOrigins) > 0 {
		a.cors = out
		if !f.AnyOrigin {
			a.annotation(diag.Warning, a.route, "cors-allow-origin", "is moved with a difference: preflight requests of other origins are answered 204 without a word that allows them, and get to no endpoint", "")
		}
	}
}

// redirects moves a redirect of all requests. A redirect of "/" applies only to a rule for exactly that path.
func (a *action) redirects(f policy.Redirect) {
	if f.Root {
		if a.route.Match.Type == routing.Exact && a.route.Match.Path == "/" {
			if a.redirect = rootRedirect(f); a.redirect == nil {
				a.closes("app-root", "no route may write this path", "")
			}
		}
		return
	}
	out := &gatewayv1.HTTPRequestRedirectFilter{StatusCode: new(f.Code)}
	u, err := url.Parse(f.Location)
	if err != nil || u.RawQuery != "" || u.Fragment != "" || u.User != nil || u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https" || (u.Scheme == "") != (u.Host == "") || u.Path != "" && !writable(u.EscapedPath()) {
		a.closes("redirect", "a route redirects to a scheme, a host, a port and a path, and this location has more, or a path that no route may write", "")
		return
	}
	if u.Scheme != "" {
		host := gatewayv1.PreciseHostname(u.Hostname())
		out.Scheme, out.Hostname = &u.Scheme, &host
		if port, err := strconv.Atoi(u.Port()); err == nil {
			number := gatewayv1.PortNumber(port)
			out.Port = &number
		}
	}
	if !f.KeepPath {
		path := u.EscapedPath()
		out.Path = &gatewayv1.HTTPPathModifier{Type: gatewayv1.FullPathHTTPPathModifier, ReplaceFullPath: &path}
		a.annotation(diag.Warning, a.route, "redirect", "is moved with a difference: a route gives the location the query of the request, and a host and a scheme where it has none", "")
	}
	a.redirect = out
}

// writable reports whether a route may have a path as a replacement. A rule with another path would not be
// served, and its requests would go to another rule.
func writable(path string) bool {
	if message, _ := routing.CheckUsable(path); message != "" || !strings.HasPrefix(path, "/") || len(path) > mostPath || strings.ContainsAny(path, `\'?#`) {
		return false
	}
	return !strings.Contains(path, "//") && !strings.Contains(strings.ToLower(path), "%2f") && !hasDots(path)
}

// rootRedirect returns the redirect of the path "/", or nil if no route can have it.
func rootRedirect(f policy.Redirect) *gatewayv1.HTTPRequestRedirectFilter {
	if !writable(f.Location) {
		return nil
	}
	return &gatewayv1.HTTPRequestRedirectFilter{StatusCode: new(f.Code), Path: &gatewayv1.HTTPPathModifier{Type: gatewayv1.FullPathHTTPPathModifier, ReplaceFullPath: &f.Location}}
}

// appRoot returns the additional rule for the path "/", or nil if the route needs none.
func (m *mover) appRoot(h routing.Host, r routing.Route, secure bool) *gatewayv1.HTTPRouteRule {
	if r.Match.PathMatch != (routing.PathMatch{Type: routing.Prefix}) {
		return nil
	}
	for _, f := range m.backends[r.Backend].Filters {
		redirect, ok := f.(policy.Redirect)
		if !ok || !redirect.Root {
			continue
		}
		exact := slices.ContainsFunc(h.Routes, func(o routing.Route) bool { return o.Match.Type == routing.Exact && o.Match.Path == "/" })
		if exact || m.protects(m.backends[r.Backend]) || redirectsWholly(m.backends[r.Backend]) != nil && !secure {
			return nil
		}
		to := rootRedirect(redirect)
		if to == nil {
			m.annotation(diag.Error, r, "app-root", "cannot be moved: no route may write this path; the rule for / is closed, and answers 500", "")
			return &gatewayv1.HTTPRouteRule{}
		}
		m.annotation(diag.Warning, r, "app-root", "is moved with a difference: a route gives the location the query of the request, and its host and scheme", "")
		return &gatewayv1.HTTPRouteRule{Filters: []gatewayv1.HTTPRouteFilter{redirectFilter(to)}}
	}
	return nil
}

// rewritePath moves a replacement of the path.
func (a *action) rewritePath(f policy.RewritePath) {
	replace := func(kind gatewayv1.HTTPPathModifierType, to string) {
		if to = orSlash(to); !writable(to) {
			a.closes("rewrite-path", "no route may write this path", "")
			return
		}
		a.rewrite.Path = &gatewayv1.HTTPPathModifier{Type: kind}
		if kind == gatewayv1.FullPathHTTPPathModifier {
			a.rewrite.Path.ReplaceFullPath = &to
		} else {
			a.rewrite.Path.ReplacePrefixMatch = &to
		}
	}
	switch match := a.route.Match; {
	case f.Pattern != "":
		a.closes("rewrite-path", "a route replaces a prefix or the whole path, and no expression", "")
	case match.Type == routing.Expression && strings.Contains(f.Whole, `\`):
		a.closes("rewrite-path", "a route refers to no group of an expression", "")
	case match.Type == routing.Expression:
		replace(gatewayv1.FullPathHTTPPathModifier, f.Whole)
	case f.HasGroups():
		replace(gatewayv1.FullPathHTTPPathModifier, f.Whole)
	case match.Type == routing.Exact:
		replace(gatewayv1.FullPathHTTPPathModifier, f.Replacement)
	default:
		replace(gatewayv1.PrefixMatchHTTPPathModifier, f.Replacement)
	}
}

func redirectFilter(r *gatewayv1.HTTPRequestRedirectFilter) gatewayv1.HTTPRouteFilter {
	return gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterRequestRedirect, RequestRedirect: r}
}

// filters returns the collected filters, each kind once.
func (a *action) filters() []gatewayv1.HTTPRouteFilter {
	var out []gatewayv1.HTTPRouteFilter
	if a.cors != nil {
		out = append(out, gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterCORS, CORS: a.cors})
	}
	if a.redirect == nil && len(a.named[policy.Requests]) > 0 {
		out = append(out, gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterRequestHeaderModifier, RequestHeaderModifier: &a.requests})
	}
	if len(a.named[policy.Answers]) > 0 {
		out = append(out, gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterResponseHeaderModifier, ResponseHeaderModifier: &a.answers})
	}
	switch {
	case a.redirect != nil:
		out = append(out, redirectFilter(a.redirect))
	case a.rewrite != (gatewayv1.HTTPURLRewriteFilter{}):
		out = append(out, gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterURLRewrite, URLRewrite: &a.rewrite})
	}
	return out
}

// servers returns the Services of the rule and their timeouts. It returns none if the rule is closed.
func (a *action) servers() ([]gatewayv1.HTTPBackendRef, *gatewayv1.HTTPRouteTimeouts) {
	var out []gatewayv1.HTTPBackendRef
	var timeouts *gatewayv1.HTTPRouteTimeouts
	if len(a.backend.Targets) == 0 {
		a.say(diag.Warning, a.route.Origin.Object, a.route.Origin.Position, "what was answered 503 is answered 500", "see the other messages on this object")
	}
	for _, t := range a.backend.Targets {
		name := types.NamespacedName{Namespace: t.Service.Namespace, Name: t.Service.Service}
		service := a.services[name]
		if t.Name != nil || service.Value == nil {
			a.say(diag.Error, a.route.Origin.Object, a.route.Origin.Position, fmt.Sprintf("Service %s has the type ExternalName, which no route leads to; the route is closed, and answers 500", name), "keep the Ingress")
			return nil, nil
		}
		i := slices.IndexFunc(service.Value.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == t.Service.Port })
		if i < 0 || !a.serves(service, service.Value.Spec.Ports[i], &timeouts) {
			return nil, nil
		}
		port := service.Value.Spec.Ports[i].Port
		ref := gatewayv1.HTTPBackendRef{BackendRef: gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{Name: gatewayv1.ObjectName(name.Name), Port: &port}}}
		if len(a.backend.Targets) > 1 {
			ref.Weight = new(int32(t.Weight))
		}
		out = append(out, ref)
	}
	return out, timeouts
}

// serves compares the options for servers of the rule's Ingress with those of the Service, which apply to
// routes. It reports whether the rule can be served.
func (a *action) serves(service inputs.Object[corev1.Service], port corev1.ServicePort, timeouts **gatewayv1.HTTPRouteTimeouts) bool {
	var app options.Values
	if port.AppProtocol != nil {
		app = options.AppProtocol(*port.AppProtocol)
	}
	offered, _ := options.Read(options.OnService, service.Value.Annotations)
	s, _, closed := options.Resolve(app, offered)
	if closed || s.ServerSecrets != (options.ServerSecrets{}) || s.Upstream.FastCGI != nil {
		a.say(diag.Error, service.Ref, service.Position("metadata", "annotations"), "its annotations are wrong or need a Secret, which routes cannot follow: routes to it are closed, and answer 503", "keep the Ingress, or remove the annotations")
		return false
	}
	asked := policy.Upstream{}
	if a.backend.Upstream != nil {
		asked = *a.backend.Upstream
	}
	const onService = "set it on the Service, for all routes to it, and on no Ingress"
	served := true
	for _, o := range []struct {
		name           string
		asked, offered any
		closes         bool
	}{
		{"backend-protocol", asked.Protocol, s.Upstream.Protocol, true}, {"backend-protocol", asked.TLS, s.Upstream.TLS, true}, {"fcgi-root", asked.FastCGI, s.Upstream.FastCGI, true},
		{"send-proxy-protocol", asked.ProxyProtocol, s.Upstream.ProxyProtocol, true},
		{"balance", asked.Balance, s.Upstream.Balance, false}, {"max-connections", asked.MaxConnections, s.Upstream.MaxConnections, false}, {"max-queue", asked.MaxQueue, s.Upstream.MaxQueue, false},
		{"retries", asked.Retries, s.Upstream.Retries, false}, {"health-check-path", asked.Check, s.Upstream.Check, false}, {"slow-start", asked.SlowStart, s.Upstream.SlowStart, false},
		{"timeout-connect", asked.Timeouts.Connect, s.Upstream.Timeouts.Connect, false}, {"timeout-queue", asked.Timeouts.Queue, s.Upstream.Timeouts.Queue, false},
		{"timeout-tunnel", asked.Timeouts.Tunnel, s.Upstream.Timeouts.Tunnel, false}, {"timeout-keep-alive", asked.Timeouts.KeepAlive, s.Upstream.Timeouts.KeepAlive, false},
	} {
		switch {
		case reflect.DeepEqual(o.asked, o.offered):
		case o.closes:
			served = false
			a.annotation(diag.Error, a.route, o.name, "cannot be moved: what is spoken to endpoints is said by the Service, and by no route; the route is closed, and answers 500", onService)
		default:
			a.annotation(diag.Error, a.route, o.name, "cannot be moved: a route does not say how endpoints are chosen and waited for", onService)
		}
	}
	if asked.Affinity != nil && s.Upstream.Affinity == nil {
		a.annotation(diag.Error, a.route, "affinity", "cannot be moved: requests of a session go to any endpoint", "keep the Ingress if they may not")
	}
	if asked.Timeouts.Server != s.Upstream.Timeouts.Server && asked.Timeouts.Server != "" {
		*timeouts = &gatewayv1.HTTPRouteTimeouts{BackendRequest: new(durationOf(asked.Timeouts.Server))}
	}
	return served
}

// durationOf returns a time in the form of the API (GEP-2257), which has no days and no numbers of more than
// five digits.
func durationOf(d policy.Duration) gatewayv1.Duration {
	t, err := time.ParseDuration(string(d))
	if err != nil { // the time is in days
		t = time.Duration(d.Seconds()) * time.Second
	}
	out := ""
	if t >= 100_000*time.Second || t%time.Hour == 0 && t > 0 {
		out, t = fmt.Sprintf("%dh", t/time.Hour), t%time.Hour
	}
	if t >= time.Second {
		out, t = out+fmt.Sprintf("%ds", t/time.Second), t%time.Second
	}
	if t > 0 || out == "" {
		out += fmt.Sprintf("%dms", (t+time.Millisecond-1)/time.Millisecond) // rounded up, since 0 would mean no timeout
	}
	return gatewayv1.Duration(out)
}
