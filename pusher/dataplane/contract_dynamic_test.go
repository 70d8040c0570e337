//nolint:thelper // the checks are tests: a failure has to name their own lines
package dataplane_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

// checkDynamicServers adds servers with all settings of the client to a backend of the worker. One of them must
// serve requests.
func checkDynamicServers(t *testing.T, s *subject) {
	ctx := t.Context()
	requests, release := make(chan struct{}, 1), make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/zebra/slow" {
			requests <- struct{}{}
			<-release
		}
		_, _ = io.WriteString(w, "web")
	}))
	t.Cleanup(web.Close)
	let := sync.OnceFunc(func() { close(release) })
	t.Cleanup(let)
	addr := web.Listener.Addr().(*net.TCPAddr)
	socket := s.run + "/dynamic.sock"
	front := []string{"frontend dynamic", "  mode http", "  bind unix@" + socket + " mode 600", "  default_backend added"}
	section := []string{
		"backend added", "  mode http", "  balance roundrobin",
		"  server s1 192.0.2.1:1 check disabled",
	}
	s.post(t, s.config("n1", append(append(front, section...), "backend hashed", "  mode http", "  balance source", "  server s1 192.0.2.1:1 disabled")...), dataplane.PostOptions{ForceReload: true})
	add := func(backend string, d dataplane.DynamicServer) error {
		d.Address, d.Port = addr.IP.String(), addr.Port
		return s.AddServer(ctx, backend, d)
	}
	const name = "hapsnap-s1-127.0.0.1-8080"
	if err := add("added", dataplane.DynamicServer{Name: name, Maxconn: 10}); err != nil {
		t.Fatal(err)
	}
	wantError(t, add("added", dataplane.DynamicServer{Name: name}), dataplane.ErrConflict)
	wantError(t, add("none", dataplane.DynamicServer{Name: name}), dataplane.ErrNotFound)
	if err := add("hashed", dataplane.DynamicServer{Name: name}); err == nil {
		t.Error("a server was added to a backend with a static algorithm")
	}
	ready, err := s.SetServer(ctx, "added", name, dataplane.ServerChange{AdminState: dataplane.StateReady})
	if err != nil || ready.AdminState != dataplane.StateReady || ready.Port != addr.Port {
		t.Errorf("the server is %+v, %v", ready, err)
	}
	ask := func(path string) *bufio.Reader {
		t.Helper()
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		return bufio.NewReader(c)
	}
	answer := func(r *bufio.Reader) int {
		t.Helper()
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	if status := answer(ask("/zebra")); status != 200 {
		t.Errorf("the added server answered %d", status)
	}
	// A server with a request in progress is not deleted, and gets no new requests.
	slow := ask("/zebra/slow")
	<-requests
	wantError(t, s.DeleteServer(ctx, "added", name), dataplane.ErrUnavailable)
	if status := answer(ask("/zebra")); status != 503 {
		t.Errorf("the server that is to be deleted answered %d", status)
	}
	// The slot takes over.
	s.post(t, strings.Replace(s.raw(t).Config.String(), "server s1 192.0.2.1:1 check disabled", "server s1 "+addr.String()+" check", 1),
		dataplane.PostOptions{SkipReload: true, Actions: []dataplane.RuntimeAction{
			dataplane.SetServerAddr("added", "s1", addr.IP.String(), addr.Port), dataplane.SetServerState("added", "s1", dataplane.StateReady),
		}})
	eventually.Holds(t, "the backend answers", func() bool { return answer(ask("/zebra")) == 200 })
	let()
	if status := answer(slow); status != 200 {
		t.Errorf("the request in flight was answered %d", status)
	}
	eventually.Holds(t, "the server is deleted", func() bool { return s.DeleteServer(ctx, "added", name) == nil })
	wantError(t, s.DeleteServer(ctx, "added", name), dataplane.ErrNotFound)
	checkDynamicSettings(t, s, add)
}

// checkDynamicSettings checks that HAProxy accepts each setting.
func checkDynamicSettings(t *testing.T, s *subject, add func(backend string, d dataplane.DynamicServer) error) {
	ctx := t.Context()
	for what, d := range map[string]dataplane.DynamicServer{
		"numbers": {Weight: new(int), Maxconn: 5, Minconn: 2, Maxqueue: 7},
		"tls":     {SSL: "enabled", ALPN: "h2", Verify: "none", SNI: "str(a.example)"},
		"proxy":   {SendProxy: "enabled"},
		"proxy2":  {SendProxyV2: "enabled"},
		"proto":   {Proto: "h2"},
	} {
		d.Name = what
		if err := add("added", d); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	err := s.AddServer(ctx, "added", dataplane.DynamicServer{Name: "six", Address: "[fd00::1]", Port: 80})
	servers, listErr := s.Servers(ctx, "added")
	six := false
	for _, server := range servers {
		six = six || server.Name == "six" && server.Address == "fd00::1" && server.Port == 80
	}
	if err != nil || listErr != nil || !six {
		t.Errorf("with an IPv6 address: %v, %v; %+v", err, listErr, servers)
	}
}
