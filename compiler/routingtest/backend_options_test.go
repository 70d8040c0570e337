package routingtest

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// served is a Service of its own for each case, with annotations on it, and an
// Ingress for it.
func served(t *testing.T, name string, ports []int, options ...string) string {
	t.Helper()
	var slices strings.Builder
	for i, port := range ports {
		fmt.Fprintf(&slices, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: %[1]s-%[2]d, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: "", port: %[3]d, protocol: TCP}]
endpoints: [{addresses: [127.0.0.1]}]
`, name, i, port)
	}
	service := fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata:\n  namespace: shop\n  name: %s\n  annotations:\n    %s\nspec: {ports: [{port: 80}]}\n", name, annotated(options...))
	return service + slices.String() + ingress{name: name, rules: []string{name + ".example P / " + name}}.yaml()
}

// overTLS makes a mirror speak TLS, and HTTP/2 if it is to.
func overTLS(h2 bool) func(*httptest.Server) {
	return func(s *httptest.Server) {
		s.TLS = &tls.Config{}
		s.EnableHTTP2 = h2
		s.Config.Protocols.SetHTTP2(h2)
	}
}

func TestBackendProtocols(t *testing.T) {
	t.Parallel()
	onlyH2 := func(s *httptest.Server) {
		s.Config.Protocols.SetHTTP1(false)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
	}
	var yaml strings.Builder
	for _, c := range []struct {
		name      string
		configure func(*httptest.Server)
		options   []string
	}{
		{"h1", nil, []string{"backend-protocol", "h1"}},
		{"h1tls", overTLS(false), []string{"backend-protocol", "h1-tls", "backend-sni", "web.internal"}},
		{"h2", onlyH2, []string{"backend-protocol", "h2"}},
		{"h2tls", overTLS(true), []string{"backend-protocol", "h2-tls", "backend-sni", "request-host"}},
		{"grpc", onlyH2, []string{"backend-protocol", "grpc"}},
		{"grpctls", overTLS(true), []string{"backend-protocol", "grpc-tls", "backend-verify", "none"}},
		{"verified", overTLS(true), []string{"backend-protocol", "h2-tls", "backend-verify", "system", "backend-sni", "example.com"}},
	} {
		yaml.WriteString(served(t, c.name, []int{mirror(t, c.name, c.configure)}, c.options...))
	}
	e := start(t, yaml.String())
	clean(t, e)
	for name, want := range map[string]seen{
		"h1": {Proto: "HTTP/1.1"}, "h1tls": {Proto: "HTTP/1.1", TLS: true, SNI: "web.internal"},
		"h2": {Proto: "HTTP/2.0"}, "h2tls": {Proto: "HTTP/2.0", TLS: true, SNI: "h2tls.example"},
		"grpc": {Proto: "HTTP/2.0"}, "grpctls": {Proto: "HTTP/2.0", TLS: true},
	} {
		got := e.get(t, name+".example", "/").seen
		if got.Name != name || got.Proto != want.Proto || got.TLS != want.TLS || got.SNI != want.SNI {
			t.Errorf("%s: server saw %+v, want %+v", name, got, want)
		}
	}
	if got := e.get(t, "verified.example", "/"); got.StatusCode != 503 {
		t.Errorf("a certificate that nobody vouches for: %d", got.StatusCode)
	}
}

// The PROXY protocol's first line tells the client's address.
func TestSendProxyProtocol(t *testing.T) {
	t.Parallel()
	heads := map[string]chan string{"v1": make(chan string, 100), "v2": make(chan string, 100)}
	var yaml strings.Builder
	for version, head := range heads {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				start := make([]byte, 12)
				if _, err := io.ReadFull(c, start); err == nil {
					select {
					case head <- string(start):
					default:
					}
				}
				c.Close()
			}
		}()
		yaml.WriteString(served(t, version, []int{l.Addr().(*net.TCPAddr).Port}, "send-proxy-protocol", version))
	}
	e := start(t, yaml.String())
	clean(t, e)
	for version, want := range map[string]string{"v1": "PROXY ", "v2": "\r\n\r\n\x00\r\nQUIT\n"} {
		e.get(t, version+".example", "/")
		if got := <-heads[version]; !strings.HasPrefix(got, want) {
			t.Errorf("%s: connection begins with %q", version, got)
		}
	}
}

func TestServerLimits(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var running, most atomic.Int32
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n := running.Add(1)
		defer running.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-release
	}))
	t.Cleanup(slow.Close)
	open := sync.OnceFunc(func() { close(release) })
	t.Cleanup(open)
	port := slow.Listener.Addr().(*net.TCPAddr).Port
	e := start(t, served(t, "queue", []int{port}, "max-connections", "1", "timeout-queue", "50ms", "max-queue", "9")+
		served(t, "late", []int{port}, "timeout-server", "50ms", "retries", "0"))
	clean(t, e)
	if got := e.get(t, "late.example", "/"); got.StatusCode != 504 {
		t.Errorf("timeout-server: %d", got.StatusCode)
	}
	running.Store(0)
	most.Store(0)
	first := make(chan int)
	go func() { first <- e.get(t, "queue.example", "/").StatusCode }()
	await(t, func() error {
		if most.Load() < 1 {
			return fmt.Errorf("the first request has not arrived")
		}
		return nil
	})
	if got := e.get(t, "queue.example", "/"); got.StatusCode != 503 {
		t.Errorf("beyond max-connections: %d", got.StatusCode)
	}
	open()
	if got := <-first; got != 200 {
		t.Errorf("the first request: %d", got)
	}
	if most.Load() != 1 {
		t.Errorf("%d requests at once", most.Load())
	}
}

func TestHealthChecks(t *testing.T) {
	t.Parallel()
	var asked atomic.Value
	var ill atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			asked.Store(r.Host)
			if ill.Load() {
				w.WriteHeader(404)
			}
			return
		}
		w.WriteHeader(204)
	}))
	t.Cleanup(s.Close)
	e := start(t, served(t, "checked", []int{s.Listener.Addr().(*net.TCPAddr).Port}, "health-check-path", "/healthz", "health-check-host", "web.internal",
		"health-check-interval", "20ms", "health-check-rise", "1", "health-check-fall", "1", "health-check-timeout", "2s", "health-check-status", "200-299", "slow-start", "1s"))
	clean(t, e)
	becomes := func(want int) {
		await(t, func() error {
			if got := e.get(t, "checked.example", "/").StatusCode; got != want {
				return fmt.Errorf("status %d, want %d", got, want)
			}
			return nil
		})
	}
	becomes(204)
	ill.Store(true)
	becomes(503)
	ill.Store(false)
	becomes(204)
	if got := asked.Load(); got != "web.internal" {
		t.Errorf("checks ask for host %q", got)
	}
}

func TestBalance(t *testing.T) {
	t.Parallel()
	ports := []int{mirror(t, "one", nil), mirror(t, "two", nil), mirror(t, "three", nil)}
	keyed := map[string]string{"header": "header X-User", "query": "query user", "uri": "uri", "source": "source"}
	var yaml strings.Builder
	for name, value := range keyed {
		yaml.WriteString(served(t, name, ports, "balance", value))
	}
	for _, name := range []string{"roundrobin", "leastconn", "random", "first"} {
		yaml.WriteString(served(t, name, ports, "balance", name))
	}
	e := start(t, yaml.String())
	clean(t, e)
	answers := func(name string, same bool) map[string]bool {
		out := map[string]bool{}
		for i := range 30 {
			if same {
				i = 7
			}
			out[e.get(t, name+".example", fmt.Sprintf("/%d?user=%d", i, i), fmt.Sprintf("X-User: %d", i)).seen.Name] = true
		}
		return out
	}
	for name := range keyed {
		if n := len(answers(name, true)); n != 1 {
			t.Errorf("balance %s: one key, %d servers", name, n)
		}
		if n := len(answers(name, false)); name != "source" && n < 2 {
			t.Errorf("balance %s: many keys, %d server", name, n)
		}
	}
	for name, want := range map[string]int{"roundrobin": 3, "random": 3, "first": 1} {
		if n := len(answers(name, true)); n != want {
			t.Errorf("balance %s: %d servers, want %d", name, n, want)
		}
	}
}

// What the Service says wins over what the Ingress says.
func TestServiceWins(t *testing.T) {
	t.Parallel()
	port := mirror(t, "a", func(s *httptest.Server) {
		s.Config.Protocols.SetHTTP1(false)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
	})
	yaml := served(t, "won", []int{port}, "backend-protocol", "h2") +
		ingress{name: "other", annotations: annotated("backend-protocol", "h1-tls"), rules: []string{"lost.example P / won"}}.yaml()
	e := start(t, yaml)
	clean(t, e)
	for _, host := range []string{"won.example", "lost.example"} {
		if got := e.get(t, host, "/"); got.seen.Proto != "HTTP/2.0" {
			t.Errorf("%s: %d %+v", host, got.StatusCode, got.seen)
		}
	}
}
