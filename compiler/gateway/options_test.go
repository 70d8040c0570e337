package gateway_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/modeltest"
)

// backendsOf returns the backends to which a path of a host leads.
func backendsOf(m routing.Model, host, path string) []routing.Backend {
	var out []routing.Backend
	for _, h := range m.Hosts {
		for _, r := range h.Routes {
			if h.Name != host || r.Match.Path != path {
				continue
			}
			for _, b := range m.Backends {
				if b.Name == r.Backend {
					out = append(out, b)
				}
			}
		}
	}
	return out
}

// Options of a route apply only to its own backends. They do not affect other routes and namespaces with the
// same Gateway, host and Service.
func TestOptionsAreOfTheirRoute(t *testing.T) {
	t.Parallel()
	route := func(name, path string) string {
		return object("HTTPRoute", name, fmt.Sprintf("{parentRefs: [{name: one, namespace: shop}], hostnames: [a.example], rules: [{matches: [{path: {value: %s}}], backendRefs: [{name: web, namespace: shop, port: 80}]}]}", path))
	}
	one := strings.Replace(oneGateway, "protocol: HTTP", "protocol: HTTP, allowedRoutes: {namespaces: {from: All}}", 1)
	grant := object("ReferenceGrant", "g", "{from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: evil}], to: [{group: '', kind: Service}]}")
	evil := within("evil", noted(route("evil", "/evil"), "hapsnap.dev/allow-list: 10.0.0.0/8, hapsnap.dev/rate-limit: '1', hapsnap.dev/response-headers: set X-Evil yes"))
	evil = strings.Replace(evil, "namespace: evil, annotations", "namespace: evil, annotations", 1)
	in := gathered(t, class+object("Gateway", "one", one)+service("web")+grant+route("good", "/good")+strings.Replace(evil, "name: evil, namespace: shop", "name: evil, namespace: evil", 1))
	m, found, _ := gateway.Translate(in, usual)
	if err := modeltest.Check(m); err != nil || len(found) > 0 {
		t.Fatal(err, found)
	}
	good, bad := backendsOf(m, "a.example", "/good"), backendsOf(m, "a.example", "/evil")
	if len(good) != 1 || len(bad) != 1 || good[0].Name == bad[0].Name {
		t.Fatalf("%+v and %+v", good, bad)
	}
	if good[0].Protection != nil || len(good[0].Filters) > 0 || len(good[0].Targets) != 1 {
		t.Errorf("another route has the options, too: %+v", good[0])
	}
	if p := bad[0].Protection; p == nil || p.Rate == nil || len(p.Allow.Prefixes) != 1 || len(bad[0].Filters) != 1 {
		t.Errorf("the route lacks its options: %+v", bad[0])
	}
}

// If a route names protection that is missing, all of its rules are closed: also one that redirects, and one
// that is not served because of another mistake. Other routes are served.
func TestOptionsThatCannotBeHadClose(t *testing.T) {
	t.Parallel()
	const rules = "{matches: [{path: {value: /a}}], backendRefs: [{name: web, port: 80}]}, {matches: [{path: {value: /b}}], filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}]}"
	for name, c := range map[string]struct{ annotations, more, want string }{
		"a wrong value":             {"hapsnap.dev/allow-list: nonsense", "", "is not a network; the routes that it protects answer 503"},
		"not for routes":            {"hapsnap.dev/client-ca-secret: ca", "", "protects something, and is no option of HTTPRoute, GRPCRoute; the routes that it protects answer 503"},
		"a list that is not":        {"hapsnap.dev/deny-list: '@lists/bad'", "", "ConfigMap shop/lists does not exist"},
		"a list of others":          {"hapsnap.dev/allow-list: '@other/lists/bad'", "", "is of another namespace, which does not share it"},
		"a Service of others":       {"hapsnap.dev/auth-url: 'http://auth.other.svc:80/'", "", "is of another namespace, which does not share it"},
		"no such Service":           {"hapsnap.dev/auth-url: 'http://auth.shop.svc:80/'", "", "Service shop/auth does not exist"},
		"no list of countries":      {"hapsnap.dev/allow-countries: DE", "", "names no list of countries"},
		"a rule that is not served": {"hapsnap.dev/allow-list: 10.0.0.0/8", ", {matches: [{path: {value: /c}}], backendRefs: [{name: web, port: 80}], sessionPersistence: {type: Header}}", "sessions are kept by cookies only"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, found, _ := gateway.Translate(gathered(t, class+object("Gateway", "one", oneGateway)+service("web")+
				noted(object("HTTPRoute", "r", "{parentRefs: [{name: one}], hostnames: [a.example], rules: ["+rules+c.more+"]}"), c.annotations)+
				object("HTTPRoute", "open", "{parentRefs: [{name: one}], hostnames: [a.example], rules: [{backendRefs: [{name: web, port: 80}]}]}")), usual)
			if err := modeltest.Check(m); err != nil {
				t.Error(err)
			}
			if !slices.ContainsFunc(found, func(d diag.Diagnostic) bool { return d.Object.Name == "r" && strings.Contains(d.Message, c.want) }) {
				t.Errorf("said %v", found)
			}
			paths := []string{"/a", "/b"}
			if c.more != "" {
				paths = []string{"/c"}
			}
			for _, path := range paths {
				for _, b := range backendsOf(m, "a.example", path) {
					if len(b.Targets) > 0 || len(b.Filters) > 0 {
						t.Errorf("%s is served: %+v", path, b)
					}
				}
				if len(backendsOf(m, "a.example", path)) == 0 {
					t.Errorf("%s is left to other routes", path)
				}
			}
			if b := backendsOf(m, "a.example", ""); len(b) != 1 || len(b[0].Targets) != 1 {
				t.Errorf("the other route is not served: %+v", b)
			}
		})
	}
}

// A route that is left out for what it says stays closed if options protect it. If even that fails, other
// routes of its namespace are closed for its hosts.
func TestRefusedRoutesThatProtectAreClosed(t *testing.T) {
	t.Parallel()
	secret := noted(object("HTTPRoute", "secret", "{parentRefs: [{name: one}], hostnames: [a.example], rules: [{matches: [{path: {value: /a}}], backendRefs: [{name: web, port: 80}]}]}"), "hapsnap.dev/allow-list: 10.0.0.0/8")
	in := gathered(t, class+object("Gateway", "one", oneGateway)+service("web")+secret+
		object("HTTPRoute", "open", "{parentRefs: [{name: one}], hostnames: [a.example, b.example], rules: [{backendRefs: [{name: web, port: 80}]}]}"))
	ref := diag.Object{Kind: "HTTPRoute", Namespace: "shop", Name: "secret"}
	serves := func(in inputs.Inputs, cfg gateway.Config, host, path string) bool {
		m, _, _ := gateway.Translate(in, cfg)
		return slices.ContainsFunc(backendsOf(m, host, path), func(b routing.Backend) bool { return len(b.Targets) > 0 })
	}
	cfg := usual
	if !serves(in, cfg, "a.example", "/a") {
		t.Fatal("nothing is served at first")
	}
	cfg.Refused = map[diag.Object]bool{ref: true}
	if serves(in, cfg, "a.example", "/a") || !serves(in, cfg, "a.example", "") {
		t.Error("refused: it is served, or the other route is not")
	}
	cfg.Dropped = cfg.Refused
	if serves(in, cfg, "a.example", "") || !serves(in, cfg, "b.example", "") {
		t.Error("dropped: the other route is served for the host, or not for others")
	}
}

// If limits of the namespace leave out a route or one of its rules, and options protect it, its hosts are
// closed for other routes of the namespace.
func TestLimitedRoutesThatProtectAreClosed(t *testing.T) {
	t.Parallel()
	var headers []string
	for i := range 20 {
		var some []string
		for j := range 4 {
			some = append(some, fmt.Sprintf("{name: h%d, value: a}", 4*i+j))
		}
		headers = append(headers, "{headers: ["+strings.Join(some, ", ")+"]}")
	}
	costly := "{matches: [" + strings.Join(headers, ", ") + "], backendRefs: [{name: web, port: 80}]}"
	for name, c := range map[string]struct {
		rules string
		most  int
		bytes bool
	}{
		"many bytes of matches":         {"{matches: [{path: {value: /a}}, {path: {value: /" + strings.Repeat("b", 200) + "}}], backendRefs: [{name: web, port: 80}]}", 0, true},
		"many bytes of filters":         {"{matches: [{path: {value: /a}}], filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: " + strings.Repeat("b", 300) + "}]}}], backendRefs: [{name: web, port: 80}]}", 0, true},
		"a rule that looks at too much": {"{matches: [{path: {value: /a}}], backendRefs: [{name: web, port: 80}]}, " + costly, 0, false},
		"too many matches":              {"{matches: [{path: {value: /a}}, {path: {value: /b}}, {path: {value: /c}}], backendRefs: [{name: web, port: 80}]}", 3, false},
	} {
		for _, protects := range []bool{true, false} {
			secret := object("HTTPRoute", "secret", "{parentRefs: [{name: one}], hostnames: [a.example], rules: ["+c.rules+"]}")
			if protects {
				secret = noted(secret, "hapsnap.dev/allow-list: 10.0.0.0/8")
			}
			cfg := usual
			cfg.MostRoutes = c.most
			if c.bytes {
				cfg.MostRouteBytes, cfg.MostOptionBytes = 200, 300
			}
			m, found, _ := gateway.Translate(gathered(t, class+object("Gateway", "one", oneGateway)+service("web")+
				object("HTTPRoute", "open", "{parentRefs: [{name: one}], hostnames: [a.example], rules: [{backendRefs: [{name: web, port: 80}]}]}")+secret), cfg)
			open := slices.ContainsFunc(backendsOf(m, "a.example", ""), func(b routing.Backend) bool { return len(b.Targets) > 0 })
			if len(found) == 0 || open == protects {
				t.Errorf("%s, protected %v: the other route is served %v, said %v", name, protects, open, found)
			}
		}
	}
}

// A route without a served rule is not accepted. It stays closed if options protect it, so that its requests do
// not go to other routes.
func TestRoutesWithoutAnyRuleAreClosedIfTheyProtect(t *testing.T) {
	t.Parallel()
	for _, protects := range []bool{true, false} {
		secret := object("HTTPRoute", "secret", "{parentRefs: [{name: one}], hostnames: [a.example], rules: [{matches: [{path: {value: /a}}], backendRefs: [{name: web, port: 80}], sessionPersistence: {type: Header}}]}")
		if protects {
			secret = noted(secret, "hapsnap.dev/allow-list: 10.0.0.0/8")
		}
		m, _, v := gateway.Translate(gathered(t, class+object("Gateway", "one", oneGateway)+service("web")+
			object("HTTPRoute", "open", "{parentRefs: [{name: one}], hostnames: [a.example], rules: [{backendRefs: [{name: web, port: 80}]}]}")+secret), usual)
		closed := backendsOf(m, "a.example", "/a")
		if got := len(closed) == 1 && len(closed[0].Targets) == 0; got != protects || !protects && len(closed) > 0 {
			t.Errorf("protected %v: it leads to %+v", protects, closed)
		}
		for _, r := range v.Routes {
			if accepted := gateway.Condition(r.Parents[0].Conditions, "Accepted").Status == "True"; accepted != (r.Ref.Name == "open") {
				t.Errorf("%s: accepted %v", r.Ref, accepted)
			}
		}
	}
}

// An authentication service has separate backends for routes and for Ingresses. The two may remove different
// headers, and a common name would prevent publishing.
func TestAskedServicesAreApartFromThoseOfIngresses(t *testing.T) {
	t.Parallel()
	m, found, _ := gateway.Translate(gathered(t, class+object("Gateway", "one", oneGateway)+service("web")+service("auth")+
		noted(object("HTTPRoute", "r", "{parentRefs: [{name: one}], rules: [{backendRefs: [{name: web, port: 80}]}]}"), "hapsnap.dev/auth-url: 'http://auth/'")), usual)
	if !slices.ContainsFunc(m.Backends, func(b routing.Backend) bool { return b.Name == "auth_shop_auth_80:routes" && len(b.Targets) == 1 }) || len(found) > 0 {
		t.Errorf("%v, %+v", found, m.Backends)
	}
}

// If an option with protection cannot be applied, what it is on is closed: a route of connections, or a Gateway
// or ListenerSet if the value is wrong. An option that protects a listener's connections closes these.
func TestOptionsThatCannotBeFollowedClose(t *testing.T) {
	t.Parallel()
	one := strings.Replace(oneGateway, "listeners:", "allowedListeners: {namespaces: {from: All}}, listeners:", 1)
	objects := map[string]string{
		"Gateway":     object("Gateway", "one", one),
		"raw":         object("Gateway", "raw", "{gatewayClassName: hapsnap, listeners: [{name: tcp, port: 82, protocol: TCP}, {name: tls, port: 83, protocol: TLS, tls: {mode: Passthrough}}]}"),
		"ListenerSet": object("ListenerSet", "more", "{parentRef: {name: one}, listeners: [{name: b, port: 81, protocol: HTTP}]}"),
		"TCPRoute":    object("TCPRoute", "tcp", "{parentRefs: [{name: raw}], rules: [{backendRefs: [{name: web, port: 80}]}]}"),
		"TLSRoute":    object("TLSRoute", "tls", "{parentRefs: [{name: raw}], hostnames: [tls.example], rules: [{backendRefs: [{name: web, port: 80}]}]}"),
	}
	routes := object("HTTPRoute", "r", "{parentRefs: [{name: one}, {kind: ListenerSet, name: more}], rules: [{backendRefs: [{name: web, port: 80}]}]}")
	served := func(t *testing.T, on, annotation string) (out []int, found []diag.Diagnostic) {
		t.Helper()
		text := class + service("web") + routes
		for k, o := range objects {
			if k == on {
				o = noted(o, annotation)
			}
			text += o
		}
		m, found, _ := gateway.Translate(gathered(t, text), usual)
		if err := modeltest.Check(m); err != nil {
			t.Error(err)
		}
		for _, b := range m.Binds {
			if slices.ContainsFunc(m.Hosts, func(h routing.Host) bool { return h.Bind == b.Name && len(h.Routes) > 0 }) {
				out = append(out, b.Port)
			}
		}
		for _, l := range m.Listeners {
			if slices.ContainsFunc(l.Routes, func(r routing.ConnectionRoute) bool { return !strings.HasPrefix(r.Backend, "hapsnap_") }) {
				out = append(out, l.Port)
			}
		}
		slices.Sort(out)
		return out, found
	}
	all, _ := served(t, "", "")
	for _, c := range []struct {
		on, annotation, said string
		lost                 []int
	}{
		{"Gateway", "hapsnap.dev/allow-list: nonsense", "is not a network; nothing is served by it", []int{80, 81}},
		{"Gateway", "hapsnap.dev/client-ca-secret: ca", "protects something, and is no option of Gateway, ListenerSet; nothing is served by it", []int{80, 81}},
		{"Gateway", "hapsnap.dev/timeout-server: soon", "timeout-server", nil},
		{"ListenerSet", "hapsnap.dev/max-body-size: much", "nothing is served by it", []int{81}},
		{"TCPRoute", "hapsnap.dev/allow-list: 10.0.0.0/8", "allow-list protects something, and is an option of", []int{82}},
		{"TLSRoute", "hapsnap.dev/allow-list: 10.0.0.0/8", "allow-list protects something, and is an option of", []int{83}},
		{"TLSRoute", "hapsnap.dev/timeout-server: 9s", "does nothing on a TLSRoute", nil},
		{"raw", "hapsnap.dev/allow-list: 10.0.0.0/8", "routes whole connections, which its annotations protect and cannot: they are closed", []int{82, 83}},
		{"raw", "hapsnap.dev/timeout-server: 9s", "", nil},
		{"Gateway", "hapsnap.dev/allow-list: 10.0.0.0/8", "", nil},
	} {
		got, found := served(t, c.on, c.annotation)
		want := slices.DeleteFunc(slices.Clone(all), func(p int) bool { return slices.Contains(c.lost, p) })
		if !slices.Equal(got, want) || len(all) != 4 {
			t.Errorf("%s %s: ports %v are served, want %v of %v", c.on, c.annotation, got, want, all)
		}
		if !slices.ContainsFunc(found, func(d diag.Diagnostic) bool { return strings.Contains(d.Message, c.said) }) && c.said != "" || c.said == "" && len(found) > 0 {
			t.Errorf("%s %s: said %v", c.on, c.annotation, found)
		}
	}
}
