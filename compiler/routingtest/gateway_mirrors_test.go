package routingtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/gateway"
)

// recorder is a server that keeps its requests.
type recorder struct {
	mu  sync.Mutex
	got []recorded
}

type recorded struct {
	*http.Request
	body string
}

// record starts a recorder and returns its port.
func record(t *testing.T) (*recorder, int) {
	t.Helper()
	r := &recorder{}
	return r, rawServer(t, func(c net.Conn) {
		defer c.Close()
		request, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return // a connection without a request
		}
		body, err := io.ReadAll(request.Body)
		if err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		r.got = append(r.got, recorded{request, string(body)})
		r.mu.Unlock()
		// The answer to a copy is long, and nobody gets it.
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n%s", strings.Repeat("x", 100000))
	})
}

// of returns the requests for a path.
func (r *recorder) of(path string) []recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []recorded
	for _, got := range r.got {
		if got.URL.Path == path {
			out = append(out, got)
		}
	}
	return out
}

// await waits until there are n requests for a path.
func (r *recorder) await(t *testing.T, path string, n int) []recorded {
	t.Helper()
	await(t, func() error {
		if got := len(r.of(path)); got < n {
			return fmt.Errorf("%d requests for %s were copied, want %d", got, path, n)
		}
		return nil
	})
	return r.of(path)
}

// mirroring is a HAProxy with a Gateway whose routes mirror requests, and the URL of its metrics.
type mirroring struct {
	edge
	one, two *recorder
	metrics  string
}

func startMirroring(t *testing.T) mirroring {
	t.Helper()
	one, onePort := record(t)
	two, twoPort := record(t)
	silent := rawServer(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	closed := freePort(t, "127.0.0.1")
	m := mirroring{one: one, two: two}
	address := ""
	rule := func(path string, filters ...string) string {
		return fmt.Sprintf("  - {matches: [{path: {value: %s}}], filters: [%s], backendRefs: [{name: web, port: 80}]}\n", path, strings.Join(filters, ", "))
	}
	to := func(service, more string) string {
		return fmt.Sprintf("{type: RequestMirror, requestMirror: {backendRef: {name: %s, port: 80}%s}}", service, more)
	}
	m.edge = startEdited(t, func(cfg *config.Config) string {
		cfg.GatewayAPI.Enabled = true
		cfg.HAProxyVersion = branch(t)
		cfg.Status.Port = freePort(t, cfg.Bind.Addresses[0])
		m.metrics = fmt.Sprintf("http://%s:%d/metrics", cfg.Bind.Addresses[0], cfg.Status.Port)
		port := freePort(t, cfg.Bind.Addresses[0])
		address = fmt.Sprint(cfg.Bind.Addresses[0], ":", port)
		return gatewayClass + gatewayYAML("shop", "web", port, ", allowedRoutes: {namespaces: {from: All}}") +
			serviceYAML("shop", "web", echo(t, "web")) + serviceYAML("shop", "one", onePort) + serviceYAML("shop", "two", twoPort) +
			serviceYAML("shop", "silent", silent) + serviceYAML("shop", "closed", closed) + serviceYAML("shop", "empty", closed) +
			"---\napiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: own, annotations: {gateway.hapsnap.dev/controller: x}}\nspec: {ports: [{port: 80}]}\n" +
			routeYAML("shop", "good", "a.example", "  rules:\n"+
				rule("/all", "{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Set, value: b}], remove: [X-Gone]}}", to("one", ""))+
				rule("/two", to("one", ""), to("two", ""))+
				rule("/rewritten", "{type: URLRewrite, urlRewrite: {hostname: b.example, path: {type: ReplacePrefixMatch, replacePrefixMatch: /to}}}", to("one", ""))+
				rule("/quarter", to("one", ", percent: 25"))+rule("/half", to("one", ", fraction: {numerator: 500, denominator: 1000}"))+rule("/none", to("one", ", percent: 0"))+
				rule("/silent", to("silent", ""))+rule("/closed", to("closed", ""))) +
			routeYAML("shop", "lost", "lost.example", "  rules:\n"+rule("/", to("gone", ""))) +
			routeYAML("shop", "loop", "loop.example", "  rules:\n"+rule("/", to("own", "")))
	})
	await(t, func() error { return reachable(t, address) })
	m.http = address
	return m
}

// uncopied returns how many copies did not reach a server, according to the metrics.
func (m mirroring) uncopied(t *testing.T) int {
	t.Helper()
	_, body := get(t, m.metrics)
	found := regexp.MustCompile(`haproxy_frontend_http_responses_total\{proxy="hapsnap_mirror",code="(4xx|5xx)"\} (\d+)`).FindAllStringSubmatch(body, -1)
	n := map[string]int{}
	for _, f := range found {
		n[f[1]], _ = strconv.Atoi(f[2])
	}
	if n["5xx"] != 0 {
		t.Errorf("copies count as failed requests: %v", n)
	}
	return n["4xx"]
}

func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(body)
}

// served fails unless the server of the route answers the request.
func (m mirroring) served(t *testing.T, request string) {
	t.Helper()
	if got := raw(t, m.http, request); got != "web" {
		t.Fatalf("%.200s\nis answered %s", request, got)
	}
}

// A copy has the headers, path and body that the filters made. Nothing marks it as a copy, and no header of a
// client changes where a copy goes.
func TestGatewayMirrors(t *testing.T) {
	t.Parallel()
	m := startMirroring(t)
	body := strings.Repeat("b", 8000)
	m.served(t, fmt.Sprintf("POST /all/x?y=%%20 HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nX-Gone: a\r\nX-Two: 1\r\nX-Two: 2\r\nX-Hapsnap-Mirror: shop_two_80:0\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	m.served(t, "PATCH /all HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	m.served(t, "GET /two HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
	m.served(t, "GET /rewritten/x HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
	got := m.one.await(t, "/all/x", 1)[0]
	if got.Method != "POST" || got.RequestURI != "/all/x?y=%20" || got.Host != "a.example" || got.body != body {
		t.Errorf("the copy is %s %s for %s with %d bytes", got.Method, got.RequestURI, got.Host, len(got.body))
	}
	for name, want := range map[string][]string{"X-Set": {"b"}, "X-Gone": nil, "X-Two": {"1", "2"}, "X-Hapsnap-Mirror": nil} {
		if !slices.Equal(got.Header[name], want) {
			t.Errorf("the copy has %s: %q, want %q", name, got.Header[name], want)
		}
	}
	if len(got.Header["X-Forwarded-For"]) != 1 {
		t.Errorf("the copy has %v", got.Header)
	}
	if got := m.one.await(t, "/all", 1)[0]; got.Method != "PATCH" {
		t.Errorf("the copy is %s", got.Method)
	}
	m.one.await(t, "/two", 1)
	m.two.await(t, "/two", 1)
	if got := m.one.await(t, "/to/x", 1)[0]; got.Host != "b.example" {
		t.Errorf("the copy is for %s", got.Host)
	}
	if n := len(m.two.of("/all/x")); n != 0 {
		t.Error("a client's header led a copy elsewhere")
	}
}

// A request whose body is not complete in HAProxy's buffer is not copied, not even in part. It is counted.
func TestGatewayMirrorsOfBodies(t *testing.T) {
	t.Parallel()
	m := startMirroring(t)
	long := strings.Repeat("l", 60000)
	for _, request := range []string{
		fmt.Sprintf("POST /all/long HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(long), long),
		"POST /all/chunked HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"GET /all/upgrade HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade, close\r\nUpgrade: x\r\n\r\n",
	} {
		m.served(t, request)
	}
	await(t, func() error {
		if n := m.uncopied(t); n != 3 {
			return fmt.Errorf("%d are counted, want 3", n)
		}
		return nil
	})
	m.served(t, "GET /all/last HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
	m.one.await(t, "/all/last", 1)
	if got := m.one.of("/all/long"); len(got) > 0 {
		t.Errorf("%d bytes were copied", len(got[0].body))
	}
}

// A share of the requests is copied, and none if the share is 0.
func TestGatewayMirrorsOfAShare(t *testing.T) {
	t.Parallel()
	m := startMirroring(t)
	c := client{address: m.http}
	for range 1000 {
		for _, path := range []string{"/quarter", "/half", "/none"} {
			if got := c.ask(t, "a.example", path); got != "web" {
				t.Fatalf("%s: %s", path, got)
			}
		}
	}
	for path, want := range map[string]int{"/quarter": 250, "/half": 500, "/none": 0} {
		got := len(m.one.await(t, path, want-100))
		if d := got - want; d > 100 || d < -100 || want == 0 && got > 0 { // six standard deviations
			t.Errorf("%s: %d of 1000 requests were copied, want about %d", path, got, want)
		}
	}
}

// A mirror that hangs, refuses connections or does not exist affects no request, even if there are more copies
// than HAProxy allows at a time.
func TestGatewayMirrorsHarmNobody(t *testing.T) {
	t.Parallel()
	m := startMirroring(t)
	c := client{address: m.http}
	for range 300 {
		for _, path := range []string{"/silent", "/closed"} {
			if got := c.ask(t, "a.example", path); got != "web" {
				t.Fatalf("%s: %s", path, got)
			}
		}
	}
	for _, host := range []string{"lost.example", "loop.example"} {
		if got := c.ask(t, host, "/"); got != "web" {
			t.Errorf("%s: %s", host, got)
		}
	}
	await(t, func() error {
		if m.uncopied(t) == 0 {
			return fmt.Errorf("none is counted")
		}
		return nil
	})
	want := map[string]string{"good": "ResolvedRefs", "lost": "BackendNotFound", "loop": "InvalidKind"}
	for _, r := range m.result.Verdicts.Routes {
		c := gateway.Condition(r.Parents[0].Conditions, string(gatewayv1.RouteConditionResolvedRefs))
		if c.Reason != want[r.Ref.Name] {
			t.Errorf("%v: %+v, want %s", r.Ref, c, want[r.Ref.Name])
		}
	}
}
