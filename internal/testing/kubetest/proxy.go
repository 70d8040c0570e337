package kubetest

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Proxy stands before an API server, as a load balancer does. It answers requests itself when a test says so.
type Proxy struct {
	kubeconfig string
	own        atomic.Pointer[Answer]
	answered   atomic.Int64
	front      *httptest.Server
}

// Answer answers a request in place of the API server, or returns false.
type Answer func(w http.ResponseWriter, r *http.Request) bool

// Before starts a proxy before the API server for a test.
func (s *Server) Before(tb testing.TB) *Proxy {
	tb.Helper()
	p, err := s.NewProxy()
	must(tb, err)
	tb.Cleanup(p.Close)
	return p
}

// NewProxy starts a proxy before the API server, which forwards every request as the administrator's. Close ends it.
func (s *Server) NewProxy() (*Proxy, error) {
	config := s.Config()
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	}
	p := &Proxy{}
	p.front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if own := p.own.Load(); own != nil && *own != nil && (*own)(w, r) {
			p.answered.Add(1)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	content, err := clientcmd.Write(api.Config{
		Clusters:       map[string]*api.Cluster{"test": {Server: p.front.URL}},
		Contexts:       map[string]*api.Context{"test": {Cluster: "test"}},
		CurrentContext: "test",
	})
	p.kubeconfig = filepath.Join(s.dir, fmt.Sprintf("proxy-%d", p.front.Listener.Addr().(*net.TCPAddr).Port))
	if err == nil {
		err = os.WriteFile(p.kubeconfig, content, 0o600)
	}
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	return p, nil
}

// Close ends the proxy.
func (p *Proxy) Close() {
	p.Interrupt()
	p.front.Close()
}

// Interrupt ends all connections to the proxy, and so all watches.
func (p *Proxy) Interrupt() { p.front.CloseClientConnections() }

// Kubeconfig returns the path of a kubeconfig that leads to the proxy.
func (p *Proxy) Kubeconfig() string { return p.kubeconfig }

// Answers has the proxy answer requests itself from now on; nil forwards all of them. The watches that were forwarded go on.
func (p *Proxy) Answers(own Answer) { p.own.Store(&own) }

// Answered returns how many requests the proxy has answered itself.
func (p *Proxy) Answered() int { return int(p.answered.Load()) }

// ForeignAnswers are what load balancers, gateways and pages of maintenance answer, by name. None of them says anything about
// the objects of a cluster.
func ForeignAnswers() map[string]Answer {
	answer := func(code int, kind, body string) Answer {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			if w.Header().Set("Content-Type", kind); kind == "" {
				w.Header()["Content-Type"] = nil
			}
			w.WriteHeader(code)
			_, _ = fmt.Fprint(w, body)
			return true
		}
	}
	const page = "<!doctype html><title>Back soon</title>"
	return map[string]Answer{
		"404 text":         answer(http.StatusNotFound, "text/plain; charset=utf-8", "404 page not found\n"),
		"404 nothing":      answer(http.StatusNotFound, "", ""),
		"404 page":         answer(http.StatusNotFound, "text/html", page),
		"404 JSON":         answer(http.StatusNotFound, "application/json", `{"type": "error", "status": "404", "message": "clusters.management.cattle.io not found"}`),
		"404 no cluster":   answer(http.StatusNotFound, "application/json", `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound", "message": "cluster not found"}`),
		"403 page":         answer(http.StatusForbidden, "text/html", page),
		"409 text":         answer(http.StatusConflict, "text/plain", "conflict"),
		"410 page":         answer(http.StatusGone, "text/html", page),
		"200 page":         answer(http.StatusOK, "text/html", page),
		"200 nothing":      answer(http.StatusOK, "", ""),
		"200 JSON":         answer(http.StatusOK, "application/json", `{"status": "maintenance"}`),
		"200 empty object": answer(http.StatusOK, "application/json", `{}`),
	}
}
