package routingtest

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/snapshots/request"
)

const gatewayClass = "---\napiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: hapsnap}\nspec: {controllerName: hapsnap.dev/gateway-controller}\n"

// gatewayYAML returns a Gateway with one listener.
func gatewayYAML(namespace, name string, port int, more string) string {
	return fmt.Sprintf("---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: %s, namespace: %s}\nspec:\n  gatewayClassName: hapsnap\n  listeners:\n  - {name: http, port: %d, protocol: HTTP%s}\n", name, namespace, port, more)
}

// routeYAML returns a route to the Gateway shop/web. spec is indented by two spaces.
func routeYAML(namespace, name, host, spec string) string {
	return fmt.Sprintf("---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: %s, namespace: %s}\nspec:\n  parentRefs: [{name: web, namespace: shop}]\n  hostnames: [%s]\n%s", name, namespace, host, spec)
}

// startGateway runs manifests with the Gateway shop/web. It returns one edge for the Gateway's address and one
// for the address of Ingresses.
func startGateway(t *testing.T, yaml string) (e, ingresses edge) {
	t.Helper()
	address := ""
	e = startEdited(t, func(cfg *config.Config) string {
		cfg.GatewayAPI.Enabled = true
		port := freePort(t, cfg.Bind.Addresses[0])
		address = fmt.Sprint(cfg.Bind.Addresses[0], ":", port)
		return gatewayClass + gatewayYAML("shop", "web", port, ", allowedRoutes: {namespaces: {from: All}}") + yaml
	})
	await(t, func() error { return reachable(t, address) })
	ingresses = e
	e.http = address
	return e, ingresses
}

func reachable(t *testing.T, address string) error {
	t.Helper()
	c, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return err
	}
	r, err := http.DefaultTransport.RoundTrip(c)
	if err != nil {
		return err
	}
	return r.Body.Close()
}

// Filters change the requests and answers of their rule, and no others.
func TestGatewayFilters(t *testing.T) {
	t.Parallel()
	port := mirror(t, "web", nil)
	e, _ := startGateway(t, serviceYAML("shop", "web", port)+
		routeYAML("shop", "headers", "headers.example", `  rules:
  - filters:
    - {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Set, value: "50% #1"}], add: [{name: X-Add, value: two}], remove: [X-Remove]}}
    - {type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: X-From, value: filter}], remove: [Server]}}
    backendRefs: [{name: web, port: 80}]
`)+routeYAML("shop", "rewrite", "rewrite.example", `  rules:
  - matches: [{path: {value: /one}}, {path: {value: /two/}}]
    filters: [{type: URLRewrite, urlRewrite: {hostname: other.example, path: {type: ReplacePrefixMatch, replacePrefixMatch: /x/}}}]
    backendRefs: [{name: web, port: 80}]
  - matches: [{path: {value: /strip}}]
    filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}]
    backendRefs: [{name: web, port: 80}]
  - matches: [{path: {value: /full}}]
    filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: /all}}}]
    backendRefs: [{name: web, port: 80}]
  - backendRefs: [{name: web, port: 80}]
`))
	clean(t, e)
	got := e.send(t, false, "GET /?q HTTP/1.1\nHost: headers.example\nX-Set: a\nX-Add: one\nX-Remove: b\n\n")
	if h := got.seen.Header; h.Get("X-Set") != "50% #1" || !slices.Equal(h["X-Add"], []string{"one", "two"}) || h.Get("X-Remove") != "" {
		t.Errorf("the server got %v", got.seen.Header)
	}
	if got.Header.Get("X-From") != "filter" || got.Header.Get("Server") != "" {
		t.Errorf("the client got %v", got.Header)
	}
	for target, want := range map[string]string{
		"/one": "other.example /x", "/one/a?q=/one": "other.example /x/a?q=/one", "/two/b": "other.example /x/b", "/two": "other.example /x",
		"/strip": "rewrite.example /", "/strip/a": "rewrite.example /a", "/full/a?b": "rewrite.example /all?b", "/onetwo": "rewrite.example /onetwo",
	} {
		got := e.send(t, false, "GET "+target+" HTTP/1.1\nHost: rewrite.example\n\n")
		if s := got.seen.Host + " " + got.seen.Target; s != want {
			t.Errorf("%s: %s, want %s", target, s, want)
		}
	}
	if got := e.send(t, false, "GET / HTTP/1.1\nHost: rewrite.example\n\n"); got.Header.Get("X-From") != "server" {
		t.Errorf("a filter of another route took effect: %v", got.Header)
	}
}

// A redirect has the port of the listener, unless the rule sets another or the port is the default of the
// scheme.
func TestGatewayRedirects(t *testing.T) {
	t.Parallel()
	rule := func(path, filter string) string {
		return fmt.Sprintf("  - {matches: [{path: {value: %s}}], filters: [{type: RequestRedirect, requestRedirect: {%s}}]}\n", path, filter)
	}
	e, _ := startGateway(t, routeYAML("shop", "redirect", "a.example", "  rules:\n"+
		rule("/plain", "statusCode: 301")+rule("/host", "hostname: b.example")+rule("/scheme", "scheme: https, statusCode: 308")+rule("/port", "port: 8443, statusCode: 303")+
		rule("/standard", "port: 80, statusCode: 307")+rule("/both", "scheme: https, port: 443")+
		rule("/prefix", "path: {type: ReplacePrefixMatch, replacePrefixMatch: /to}")+rule("/full", "path: {type: ReplaceFullPath, replaceFullPath: /to}")))
	clean(t, e)
	_, port, _ := strings.Cut(e.http, ":")
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{
		"/plain/x?y": "301 http://a.example:" + port + "/plain/x?y", "/host": "302 http://b.example:" + port + "/host", "/scheme": "308 https://a.example/scheme",
		"/port": "303 http://a.example:8443/port", "/standard": "307 http://a.example/standard", "/both": "302 https://a.example/both",
		"/prefix/x": "302 http://a.example:" + port + "/to/x", "/full/x": "302 http://a.example:" + port + "/to", "/none": "404 ",
	} {
		got := e.send(t, false, "GET "+target+" HTTP/1.1\nHost: a.example:"+port+"\n\n")
		if s := fmt.Sprint(got.StatusCode, " ", got.Header.Get("Location")); s != want {
			t.Errorf("%s: %s, want %s", target, s, want)
		}
		a, err := request.Led(e.result.Draft.Files, request.Request{Port: number, Method: "GET", Host: "a.example:" + port, Target: target}, nil)
		if s := fmt.Sprint(a.Status, " ", a.Location); err != nil || s != want {
			t.Errorf("%s: the explanation says %s, %v, want %s", target, s, err, want)
		}
	}
}

// Weights share out requests. A share without a valid reference gets 500.
func TestGatewayWeights(t *testing.T) {
	t.Parallel()
	e, _ := startGateway(t, serviceYAML("shop", "a", echo(t, "a"))+serviceYAML("shop", "b", echo(t, "b"))+
		routeYAML("shop", "split", "split.example", "  rules: [{backendRefs: [{name: a, port: 80, weight: 3}, {name: b, port: 80, weight: 1}, {name: b, port: 80, weight: 0}]}]\n")+
		routeYAML("shop", "half", "half.example", "  rules: [{backendRefs: [{name: a, port: 80}, {name: gone, port: 80}]}]\n")+
		routeYAML("shop", "zero", "zero.example", "  rules: [{backendRefs: [{name: a, port: 80, weight: 0}]}]\n")+
		routeYAML("shop", "none", "none.example", "  rules: [{matches: [{path: {value: /}}]}]\n"))
	for host, want := range map[string]map[string]int{
		"split.example": {"a": 750, "b": 250}, "half.example": {"a": 500, "500": 500}, "zero.example": {"500": 1000}, "none.example": {"500": 1000},
	} {
		c, got := client{address: e.http}, map[string]int{}
		for range 1000 {
			got[c.ask(t, host, "/")]++
		}
		for answer, n := range want {
			if d := got[answer] - n; d > 100 || d < -100 || len(got) != len(want) { // six standard deviations
				t.Errorf("%s: %v, want about %v", host, got, want)
			}
		}
	}
}

// References to other namespaces need a grant. A reference without a grant, or to another kind than Service,
// gets 500, and affects nothing else.
func TestGatewayReferences(t *testing.T) {
	t.Parallel()
	grant := "---\napiVersion: gateway.networking.k8s.io/v1beta1\nkind: ReferenceGrant\nmetadata: {name: one, namespace: other}\nspec:\n  from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: shop}]\n  to: [{group: \"\", kind: Service, name: granted}]\n"
	rule := func(path, ref string) string {
		return fmt.Sprintf("  - {matches: [{path: {value: %s}}], backendRefs: [{%s}]}\n", path, ref)
	}
	e, _ := startGateway(t, grant+serviceYAML("other", "granted", echo(t, "granted"))+serviceYAML("other", "secret", echo(t, "secret"))+serviceYAML("shop", "web", echo(t, "web"))+
		routeYAML("shop", "refs", "a.example", "  rules:\n"+rule("/granted", "name: granted, namespace: other, port: 80")+rule("/secret", "name: secret, namespace: other, port: 80")+
			rule("/kind", "name: web, kind: Pod, port: 80")+rule("/port", "name: web, port: 81")+rule("/web", "name: web, port: 80"))+
		routeYAML("third", "refs", "b.example", "  rules:\n"+rule("/granted", "name: granted, namespace: other, port: 80")))
	for target, want := range map[string]string{
		"a.example/granted": "granted", "a.example/secret": "500", "a.example/kind": "500", "a.example/port": "500", "a.example/web": "web", "b.example/granted": "500",
	} {
		host, path, _ := strings.Cut(target, "/")
		if got := e.http11(t, "GET", host, "/"+path); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
	for _, r := range e.result.Verdicts.Routes {
		c := gateway.Condition(r.Parents[0].Conditions, string(gatewayv1.RouteConditionResolvedRefs))
		if c.Status != "False" || c.Reason != string(gatewayv1.RouteReasonRefNotPermitted) {
			t.Errorf("%v: %+v", r.Ref, c)
		}
	}
}

// A rule with an unsupported feature is not served, and its requests get 404 or 500. The other rules of the
// route are served.
func TestGatewayUnsupported(t *testing.T) {
	t.Parallel()
	e, _ := startGateway(t, serviceYAML("shop", "web", echo(t, "web"))+
		routeYAML("shop", "part", "part.example", `  rules:
  - {matches: [{path: {value: /mirror}}], filters: [{type: ExternalAuth}], backendRefs: [{name: web, port: 80}]}
  - {matches: [{path: {value: /ok}}], backendRefs: [{name: web, port: 80}]}
  - {matches: [{path: {value: /extension}}], filters: [{type: ExtensionRef, extensionRef: {group: a.example, kind: Thing, name: x}}], backendRefs: [{name: web, port: 80}]}
`)+routeYAML("shop", "whole", "whole.example", "  rules: [{matches: [{path: {type: RegularExpression, value: '(a'}}], backendRefs: [{name: web, port: 80}]}]\n")+
		routeYAML("shop", "retry", "retry.example", "  rules: [{retry: {backoff: 1s}, backendRefs: [{name: web, port: 80}]}]\n")+
		routeYAML("shop", "session", "session.example", "  rules: [{sessionPersistence: {}, backendRefs: [{name: web, port: 80}, {name: web, port: 80}]}]\n"))
	for target, want := range map[string]string{
		"part.example/mirror": "404", "part.example/ok": "web", "part.example/extension": "500", "whole.example/(a": "404", "retry.example/": "404", "session.example/": "404",
	} {
		host, path, _ := strings.Cut(target, "/")
		if got := e.http11(t, "GET", host, "/"+path); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
	want := map[string]string{"part": "True Accepted True UnsupportedValue", "whole": "False UnsupportedValue  ", "retry": "False UnsupportedValue  ", "session": "False UnsupportedValue  "}
	for _, r := range e.result.Verdicts.Routes {
		conditions := r.Parents[0].Conditions
		accepted, part := gateway.Condition(conditions, "Accepted"), gateway.Condition(conditions, "PartiallyInvalid")
		if got := fmt.Sprint(accepted.Status, " ", accepted.Reason, " ", part.Status, " ", part.Reason); got != want[r.Ref.Name] {
			t.Errorf("%s: %q, want %q", r.Ref.Name, got, want[r.Ref.Name])
		}
	}
}

// An answer that takes longer than the rule's timeout gives 504.
func TestGatewayTimeouts(t *testing.T) {
	t.Parallel()
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(deadline):
		}
	}))
	t.Cleanup(slow.Close)
	e, _ := startGateway(t, serviceYAML("shop", "slow", portOf(slow))+
		routeYAML("shop", "slow", "slow.example", "  rules: [{timeouts: {request: 5s, backendRequest: 500ms}, backendRefs: [{name: slow, port: 80}]}]\n"))
	clean(t, e)
	if got := e.http11(t, "GET", "slow.example", "/"); got != "504" {
		t.Errorf("%s, want 504", got)
	}
}

// Ingresses and Gateways are served together. One host has different routes at each port, and the default
// backend does not answer for a Gateway.
func TestGatewayBesideIngresses(t *testing.T) {
	t.Parallel()
	e, ingresses := startGateway(t, serviceYAML("shop", "web", echo(t, "web"))+serviceYAML("shop", "rest", echo(t, "rest"))+serviceYAML("shop", "gw", echo(t, "gw"))+
		ingress{name: "web", rules: []string{"a.example P / web", "*.wild.example P / web"}, fallback: "rest"}.yaml()+
		routeYAML("shop", "gw", "a.example, '*.wild.example'", "  rules: [{matches: [{path: {value: /gw}}], backendRefs: [{name: gw, port: 80}]}]\n"))
	clean(t, e)
	for target, want := range map[string][2]string{
		"a.example/gw": {"gw", "web"}, "a.example/": {"404", "web"}, "x.wild.example/gw": {"gw", "web"}, "y.x.wild.example/gw": {"gw", "rest"}, "other.example/gw": {"404", "rest"},
	} {
		host, path, _ := strings.Cut(target, "/")
		if got := [2]string{e.http11(t, "GET", host, "/"+path), ingresses.http11(t, "GET", host, "/"+path)}; got != want {
			t.Errorf("%s: %v by the Gateway and by Ingresses, want %v", target, got, want)
		}
	}
}

// HTTPS listeners use certificates by their hostnames. A listener whose certificate may not be referred to is
// not served.
func TestGatewayHTTPS(t *testing.T) {
	t.Parallel()
	address := ""
	e := startEdited(t, func(cfg *config.Config) string {
		cfg.GatewayAPI.Enabled = true
		port := freePort(t, cfg.Bind.Addresses[0])
		address = fmt.Sprint(cfg.Bind.Addresses[0], ":", port)
		listener := func(name, host, secret string) string {
			return fmt.Sprintf("  - {name: %s, port: %d, protocol: HTTPS%s, tls: {certificateRefs: [{name: %s}]}}\n", name, port, host, secret)
		}
		return gatewayClass + "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: web, namespace: shop}\nspec:\n  gatewayClassName: hapsnap\n  listeners:\n" +
			listener("all", "", "all") + listener("wild", ", hostname: '*.wild.example'", "wild") + listener("one", ", hostname: one.wild.example", "one") +
			listener("foreign", ", hostname: foreign.example", "foreign, namespace: other") + listener("gone", ", hostname: gone.example", "gone") +
			secretOf(t, "all") + secretOf(t, "wild") + secretOf(t, "one") + strings.Replace(secretOf(t, "foreign"), "namespace: shop", "namespace: other", 1) +
			serviceYAML("shop", "web", echo(t, "web")) + serviceYAML("shop", "one", echo(t, "one")) +
			routeYAML("shop", "all", "'*.example'", "  rules: [{backendRefs: [{name: web, port: 80}]}]\n") +
			routeYAML("shop", "one", "one.wild.example", "  rules: [{backendRefs: [{name: one, port: 80}]}]\n")
	})
	e.https = address
	for name, want := range map[string]string{
		"a.example": "all", "x.wild.example": "wild", "one.wild.example": "one", "other.test": "all", "foreign.example": "all", "gone.example": "all",
	} {
		if got := e.certificate(t, name); got != want {
			t.Errorf("%s gets the certificate %s, want %s", name, got, want)
		}
	}
	for host, want := range map[string]string{
		"a.example": "web", "x.wild.example": "web", "y.x.wild.example": "web", "one.wild.example": "one", "other.test": "404", "gone.example": "web",
	} {
		if got := e.http2(t, "GET", host, "/"); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
	for hosts, want := range map[string]int{
		"a.example b.example": 200, "a.example one.wild.example": 421, "x.wild.example y.x.wild.example": 200, "x.wild.example a.example": 421,
		"one.wild.example ONE.wild.example:443": 200, "one.wild.example x.wild.example": 421, "other.test a.example": 200,
	} {
		asked, host, _ := strings.Cut(hosts, " ")
		c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, ServerName: asked}}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		r, err := exchange(c, "GET / HTTP/1.1\nHost: "+host)
		if err != nil {
			t.Fatal(err)
		}
		if r.StatusCode != want {
			t.Errorf("a connection for %s, a request for %s: %d, want %d", asked, host, r.StatusCode, want)
		}
		c.Close()
	}
	for _, l := range e.result.Verdicts.Gateways[0].Status.Listeners {
		c := gateway.Condition(l.Conditions, string(gatewayv1.ListenerConditionResolvedRefs))
		if want := map[string]string{"foreign": "RefNotPermitted", "gone": "InvalidCertificateRef"}[string(l.Name)]; c.Reason != want && (want != "" || c.Status != "True") {
			t.Errorf("listener %s: %+v, want %q", l.Name, c, want)
		}
	}
}

// gRPC calls are routed by service and method, to servers with HTTP/2. If routes of two kinds have one host,
// the older one gets it.
func TestGatewayGRPC(t *testing.T) {
	t.Parallel()
	speaks := func(s *httptest.Server) {
		s.Config.Protocols.SetHTTP1(false)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
	}
	call := func(match, service string) string {
		return fmt.Sprintf("  - {matches: [{%s}], backendRefs: [{name: %s, port: 80}]}\n", match, service)
	}
	grpc := func(yaml string) string { return strings.Replace(yaml, "kind: HTTPRoute", "kind: GRPCRoute", 1) }
	yaml := ""
	for _, name := range []string{"all", "service", "method", "exact", "header"} {
		yaml += serviceYAML("shop", name, mirror(t, name, speaks))
	}
	e, _ := startGateway(t, yaml+
		grpc(routeYAML("shop", "calls", "calls.example", "  rules:\n"+call("", "all")+call("method: {service: a.Echo}", "service")+call("method: {method: Say}", "method")+
			call("method: {service: a.Echo, method: Say}", "exact")+call("method: {type: RegularExpression, service: 'b\\.[A-Za-z]+'}, headers: [{name: X-V, value: \"1\"}]", "header")+
			call("method: {service: gone}", "gone")))+
		routeYAML("shop", "later", "calls.example, only.example", "  rules: [{matches: [{path: {value: /web}}], backendRefs: [{name: all, port: 80}]}]\n"))
	for target, want := range map[string]string{
		"/a.Echo/Say": "exact", "/a.Echo/Hear": "service", "/d.Echo/Say": "method", "/b.Echo/Say": "header", "/b.Echo/Hear": "header", "/c.Echo/Hear": "all", "/a.EchoX/Hear": "all", "/gone/Say": "503",
	} {
		got := e.get(t, "calls.example", target, "X-V: 1")
		if s := or(got.seen.Name, fmt.Sprint(got.StatusCode)); s != want || got.seen.Name != "" && got.seen.Proto != "HTTP/2.0" {
			t.Errorf("%s: %s over %s, want %s", target, s, got.seen.Proto, want)
		}
	}
	if got := e.get(t, "only.example", "/web"); got.StatusCode != 404 {
		t.Errorf("the younger route of another kind: %d", got.StatusCode)
	}
	for _, r := range e.result.Verdicts.Routes {
		accepted := gateway.Condition(r.Parents[0].Conditions, "Accepted")
		if want := map[string]string{"calls": "Accepted", "later": "HostnameConflict"}[r.Ref.Name]; accepted.Reason != want {
			t.Errorf("%s: %+v", r.Ref.Name, accepted)
		}
	}
}

// Clients of a Gateway cannot send the headers in which an authentication service names users either.
func TestGatewayReservesHeaders(t *testing.T) {
	t.Parallel()
	auth := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Auth-User", "ann") }))
	t.Cleanup(auth.Close)
	e, ingresses := startGateway(t, serviceYAML("shop", "auth", portOf(auth))+
		serviceYAML("shop", "web", mirror(t, "web", nil))+serviceYAML("shop", "other", mirror(t, "other", nil))+
		ingress{name: "guarded", rules: []string{"guarded.example P / web"}, annotations: annotated("auth-url", "http://auth", "auth-response-headers", "X-Auth-User")}.yaml()+
		routeYAML("shop", "web", "web.example", "  rules: [{backendRefs: [{name: web, port: 80}]}]\n")+routeYAML("shop", "other", "other.example", "  rules: [{backendRefs: [{name: other, port: 80}]}]\n"))
	if got := ingresses.get(t, "guarded.example", "/", "X-Auth-User: eve").seen.Header.Get("X-Auth-User"); got != "ann" {
		t.Errorf("by the Ingress: %q", got)
	}
	for host, want := range map[string]string{"web.example": "", "other.example": "eve"} {
		if got := e.get(t, host, "/", "X-Auth-User: eve").seen.Header.Get("X-Auth-User"); got != want {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
	}
}

// ListenerSets add listeners, at the ports of a Gateway that allows it.
func TestGatewayListenerSets(t *testing.T) {
	t.Parallel()
	set := func(namespace, name, listener string, port int) string {
		return fmt.Sprintf("---\napiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: {name: %s, namespace: %s}\nspec: {parentRef: {name: web, namespace: shop}, listeners: [{name: l, port: %d, protocol: HTTP, %s}]}\n", name, namespace, port, listener)
	}
	route := func(namespace, name, parent string) string {
		return fmt.Sprintf("---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: %s, namespace: %s}\nspec: {parentRefs: [{%s}], rules: [{backendRefs: [{name: %[1]s, port: 80}]}]}\n", name, namespace, parent)
	}
	address := ""
	e := startEdited(t, func(cfg *config.Config) string {
		cfg.GatewayAPI.Enabled = true
		port := freePort(t, cfg.Bind.Addresses[0])
		address = fmt.Sprint(cfg.Bind.Addresses[0], ":", port)
		gw := strings.Replace(gatewayYAML("shop", "web", port, ""), "  listeners:", "  allowedListeners: {namespaces: {from: Selector, selector: {matchLabels: {team: a}}}}\n  listeners:", 1)
		return gatewayClass + gw + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: team, labels: {team: a}}\n" +
			set("team", "good", "hostname: '*.team.example'", port) + set("other", "bad", "hostname: other.example", port) +
			serviceYAML("shop", "main", echo(t, "main")) + serviceYAML("team", "team", echo(t, "team")) + serviceYAML("other", "other", echo(t, "other")) +
			route("shop", "main", "name: web") + route("team", "team", "kind: ListenerSet, name: good") + route("other", "other", "kind: ListenerSet, name: bad")
	})
	await(t, func() error { return reachable(t, address) })
	e.http = address
	for host, want := range map[string]string{"a.team.example": "team", "b.a.team.example": "team", "team.example": "main", "other.example": "main"} {
		if got := e.http11(t, "GET", host, "/"); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
	for _, s := range e.result.Verdicts.Sets {
		accepted := gateway.Condition(s.Status.Conditions, "Accepted")
		if want := map[string]string{"good": "Accepted", "bad": "NotAllowed"}[s.Ref.Name]; accepted.Reason != want {
			t.Errorf("%s: %+v", s.Ref.Name, accepted)
		}
	}
}

// Browsers get the CORS headers of a rule, and servers get no preflight requests.
func TestGatewayCORS(t *testing.T) {
	t.Parallel()
	rule := func(path, cors string) string {
		return fmt.Sprintf("  - {matches: [{path: {value: %s}}], filters: [{type: CORS, cors: {%s}}], backendRefs: [{name: web, port: 80}]}\n", path, cors)
	}
	e, _ := startGateway(t, serviceYAML("shop", "web", mirror(t, "web", nil))+routeYAML("shop", "cors", "a.example", "  rules:\n"+
		rule("/list", "allowOrigins: ['https://www.foo.com', 'https://*.bar.com'], allowMethods: [GET, PUT], allowHeaders: [X-A, X-B], exposeHeaders: [X-C], allowCredentials: true, maxAge: 60")+
		rule("/any", "allowOrigins: ['*'], allowMethods: ['*'], allowHeaders: ['*']")+
		rule("/echo", "allowOrigins: ['*'], allowMethods: ['*'], allowHeaders: ['*'], allowCredentials: true")))
	clean(t, e)
	for _, c := range []struct{ path, origin, want, expose string }{
		{"/list", "https://www.foo.com", "https://www.foo.com|GET, PUT|X-A, X-B|true|60", "X-C"},
		{"/list", "https://x.y.bar.com", "https://x.y.bar.com|GET, PUT|X-A, X-B|true|60", "X-C"},
		{"/list", "https://bar.com", "||||", ""}, {"/list", "http://www.foo.com", "||||", ""}, {"/list", "https://x.bar.com.evil.example", "||||", ""},
		{"/any", "https://x.example", "*|PATCH|X-Z||5", ""},
		{"/echo", "https://x.example", "https://x.example|PATCH|X-Z|true|5", ""},
	} {
		preflight := e.send(t, false, "OPTIONS "+c.path+" HTTP/1.1\nHost: a.example\nOrigin: "+c.origin+"\nAccess-Control-Request-Method: PATCH\nAccess-Control-Request-Headers: X-Z\n\n")
		var got []string
		for _, name := range []string{"Allow-Origin", "Allow-Methods", "Allow-Headers", "Allow-Credentials", "Max-Age"} {
			got = append(got, preflight.Header.Get("Access-Control-"+name))
		}
		if s := strings.Join(got, "|"); s != c.want || preflight.StatusCode != 204 {
			t.Errorf("%s from %s: %d %s, want %s", c.path, c.origin, preflight.StatusCode, s, c.want)
		}
		actual := e.get(t, "a.example", c.path, "Origin: "+c.origin)
		if actual.Header.Get("Access-Control-Allow-Origin") != got[0] || actual.Header.Get("Access-Control-Expose-Headers") != c.expose || actual.seen.Name != "web" {
			t.Errorf("%s from %s: %v", c.path, c.origin, actual.Header)
		}
	}
}

// Gateways with addresses of their own share a port with each other and with Ingresses, and none answers
// requests to another.
func TestGatewayAddresses(t *testing.T) {
	t.Parallel()
	addresses := []string{ownAddress(), ownAddress(), ownAddress()}
	port := 0
	e := startEdited(t, func(cfg *config.Config) string {
		port = cfg.HTTP.Port
		cfg.GatewayAPI.Enabled, cfg.GatewayAPI.Addresses = true, addresses
		route := func(gateway string) string {
			return fmt.Sprintf("---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: %[1]s, namespace: shop}\nspec: {parentRefs: [{name: %[1]s}], hostnames: [shop.example], rules: [{backendRefs: [{name: %[1]s, port: 80}]}]}\n", gateway)
		}
		return gatewayClass + gatewayYAML("shop", "one", port, "") + gatewayYAML("shop", "two", port, "") + gatewayYAML("shop", "empty", port, "") + route("one") + route("two") +
			serviceYAML("shop", "one", echo(t, "one")) + serviceYAML("shop", "two", echo(t, "two")) + serviceYAML("shop", "web", echo(t, "ingress")) +
			ingress{rules: []string{"shop.example P / web"}}.yaml()
	})
	own := e.http
	for i, want := range []string{"404", "one", "two"} { // by name: empty, one, two
		e.http = fmt.Sprint(addresses[i], ":", port)
		await(t, func() error { return reachable(t, e.http) })
		if got := e.http11(t, "GET", "shop.example", "/"); got != want {
			t.Errorf("%s answers %s, want %s", e.http, got, want)
		}
	}
	e.http = own
	if got := e.http11(t, "GET", "shop.example", "/"); got != "ingress" {
		t.Errorf("the address of Ingresses answers %s", got)
	}
}
