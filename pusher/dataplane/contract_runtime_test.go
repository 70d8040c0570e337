//nolint:thelper // the checks are tests: a failure has to name their own lines
package dataplane_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

// fetch makes a request, and returns the answer.
func fetch(t *testing.T, c *http.Client, method, url string, prepare func(*http.Request)) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if prepare != nil {
		prepare(req)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// call makes a request for which the client has no method.
func (s *subject) call(t *testing.T, method, path, body string, want int) string {
	t.Helper()
	status, text := fetch(t, http.DefaultClient, method, s.url+"/v3/services/haproxy"+path, func(r *http.Request) {
		r.SetBasicAuth(username, password)
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		}
	})
	if status != want {
		t.Errorf("%s %s answered %d, want %d: %s", method, path, status, want, text)
	}
	return text
}

func (s *subject) callJSON(t *testing.T, method, path, body string, want int, into any) {
	t.Helper()
	if text := s.call(t, method, path, body, want); !t.Failed() {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatalf("%s %s answered %s: %v", method, path, text, err)
		}
	}
}

func (s *subject) server(t *testing.T, name string) dataplane.Server {
	t.Helper()
	servers, err := s.Servers(t.Context(), "zebra")
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range servers {
		if server.Name == name {
			return server
		}
	}
	t.Fatalf("no server %s in %+v", name, servers)
	return dataplane.Server{}
}

func checkServers(t *testing.T, s *subject) {
	ctx := t.Context()
	s.post(t, s.config("n1"), dataplane.PostOptions{ForceReload: true})
	servers, err := s.Servers(ctx, "zebra")
	if err != nil || len(servers) != 3 {
		t.Fatalf("the servers are %+v, %v", servers, err)
	}
	first := servers[0]
	if first.Name != "s1" || first.Address != "192.0.2.1" || first.Port != 1 || first.AdminState != dataplane.StateMaint {
		t.Errorf("the first server is %+v", first)
	}
	changed, err := s.SetServer(ctx, "zebra", "s1", dataplane.ServerChange{Address: "127.0.0.1", Port: 8401, AdminState: dataplane.StateReady})
	if err != nil || changed.AdminState != dataplane.StateReady || changed != withWeight(s.server(t, "s1"), changed.Weight) {
		t.Errorf("the changed server is %+v, %v", changed, err)
	}
	// APIs from 3.4 on show weights. Before, addresses are ignored.
	want := "192.0.2.1"
	if first.Weight != nil {
		want = "127.0.0.1"
	}
	if changed.Address != want {
		t.Errorf("the changed server has the address %s, want %s", changed.Address, want)
	}
	if drained, err := s.SetServer(ctx, "zebra", "s3", dataplane.ServerChange{AdminState: dataplane.StateDrain}); err != nil || drained.AdminState != dataplane.StateDrain {
		t.Errorf("the drained server is %+v, %v", drained, err)
	}
	// The API reads HAProxy's decimal state as hexadecimal. So it reports a server as in maintenance that is
	// "disabled" in haproxy.cfg and drained now.
	if drained, err := s.SetServer(ctx, "zebra", "s1", dataplane.ServerChange{AdminState: dataplane.StateDrain}); err != nil || drained.AdminState != dataplane.StateMaint {
		t.Errorf("the drained slot is %+v, %v", drained, err)
	}
	if server := s.server(t, "s2"); server.AdminState != dataplane.StateMaint {
		t.Errorf("the other server became %+v", server)
	}
	_, err = s.Servers(ctx, "none")
	wantError(t, err, dataplane.ErrNotFound)
	_, err = s.SetServer(ctx, "zebra", "none", dataplane.ServerChange{AdminState: dataplane.StateReady})
	wantError(t, err, dataplane.ErrNotFound)
	_, err = s.SetServer(ctx, "zebra", "s1", dataplane.ServerChange{AdminState: "asleep"})
	wantError(t, err, dataplane.ErrRejected)
	s.checkStructured(t)
}

func withWeight(server dataplane.Server, weight *int) dataplane.Server {
	server.Weight = weight
	return server
}

// checkStructured changes a server of the configuration. If the worker can be changed too, there is no reload.
func (s *subject) checkStructured(t *testing.T) {
	t.Helper()
	before := s.info(t)
	v := s.version(t)
	path := "/configuration/backends/zebra/servers/s2?version=" + itoa(v)
	s.call(t, http.MethodPut, path, `{"name":"s2","address":"127.0.0.1","port":8402,"maintenance":"enabled"}`, 200)
	if server := s.server(t, "s2"); server.Address != "127.0.0.1" || server.Port != 8402 {
		t.Errorf("the server runs as %+v", server)
	}
	if got := s.version(t); got != v+1 {
		t.Errorf("the version is %d after %d", got, v)
	}
	if raw := s.raw(t); !strings.Contains(raw.Config.String(), "server s2 127.0.0.1:8402 disabled") {
		t.Errorf("the file is %s", raw.Config)
	}
	s.call(t, http.MethodPut, path, `{"name":"s2","address":"127.0.0.1","port":8403}`, 409)
	if after := s.info(t); after.PID != before.PID {
		t.Error("changing an address reloaded")
	}
	path = "/configuration/backends/zebra/servers/s2?version=" + itoa(v+1)
	s.call(t, http.MethodPut, path, `{"name":"s2","address":"127.0.0.1","port":8402,"maintenance":"enabled","check":"enabled"}`, 202)
	eventually.Holds(t, "the worker is replaced", func() bool {
		after, err := s.RuntimeInfo(t.Context())
		return err == nil && after.PID != before.PID
	})
}

func itoa(v int64) string { return strconv.FormatInt(v, 10) }

func jsonOf(v any) string {
	text, _ := json.Marshal(v) // they can always be encoded
	return string(text)
}

func checkRuntimeActions(t *testing.T, s *subject) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "web") }))
	t.Cleanup(web.Close)
	addr := web.Listener.Addr().(*net.TCPAddr)
	host, port := addr.IP.String(), addr.Port
	s.post(t, s.config("n1"), dataplane.PostOptions{ForceReload: true})
	before := s.info(t)
	wanted := strings.Replace(s.config("n1"), "server s2 192.0.2.1:1 disabled", "server s2 "+addr.String(), 1)
	s.post(t, wanted, dataplane.PostOptions{SkipReload: true, Actions: []dataplane.RuntimeAction{
		dataplane.SetServerAddr("zebra", "s2", host, port),
		dataplane.SetServerState("zebra", "s2", dataplane.StateReady),
		dataplane.SetServerWeight("zebra", "s2", 7),
	}})
	if server := s.server(t, "s2"); server.Address != host || server.Port != port || server.AdminState != dataplane.StateReady {
		t.Errorf("the server is %+v", server)
	}
	if status, body := s.get(t, "/zebra"); status != 200 || body != "web" {
		t.Errorf("the listener answered %d %q", status, body)
	}
	if after := s.info(t); after.PID != before.PID {
		t.Error("runtime actions reloaded")
	}
	if raw := s.raw(t); !strings.Contains(raw.Config.String(), addr.String()) {
		t.Errorf("the file is %s", raw.Config)
	}
}

func checkFailingAction(t *testing.T, s *subject) {
	s.post(t, s.config("n1"), dataplane.PostOptions{ForceReload: true})
	v := s.version(t)
	_, err := s.tryPost(t, s.config("n1"), dataplane.PostOptions{SkipReload: true, Actions: []dataplane.RuntimeAction{
		dataplane.SetServerState("zebra", "s1", dataplane.StateReady),
		dataplane.SetServerState("zebra", "none", dataplane.StateReady),
		dataplane.SetServerState("zebra", "s2", dataplane.StateReady),
	}})
	wantError(t, err, dataplane.ErrUnavailable)
	if first, last := s.server(t, "s1"), s.server(t, "s2"); first.AdminState != dataplane.StateReady || last.AdminState != dataplane.StateMaint {
		t.Errorf("around the failing action are %+v and %+v", first, last)
	}
	if got := s.version(t); got != v+1 {
		t.Errorf("the version is %d after %d", got, v)
	}
}

func checkStatistics(t *testing.T, s *subject) {
	s.post(t, s.config("n1"), dataplane.PostOptions{ForceReload: true})
	eventually.Holds(t, "the worker has node n1", func() bool { _, body := s.get(t, "/node"); return body == "n1" })
	var body struct {
		Stats []struct {
			Type    string
			Name    string
			Backend string `json:"backend_name"`
			Stats   struct {
				Status  string
				Req     *int `json:"req_tot"`
				Ok      *int `json:"hrsp_2xx"`
				Errors  *int `json:"hrsp_5xx"`
				Address string
			}
		}
	}
	// HAProxy counts a response when it is finished, after the client has it.
	eventually.Holds(t, "the response is counted", func() bool {
		s.callJSON(t, http.MethodGet, "/stats/native?type=frontend&name=main", "", 200, &body)
		if len(body.Stats) != 1 {
			t.Fatalf("the statistics are %+v", body)
		}
		req, ok := body.Stats[0].Stats.Req, body.Stats[0].Stats.Ok
		return req != nil && *req >= 1 && ok != nil && *ok >= 1
	})
	if main := body.Stats[0]; main.Type != "frontend" || main.Name != "main" || main.Stats.Status != "OPEN" {
		t.Errorf("the listener's are %s", jsonOf(main))
	}
	s.callJSON(t, http.MethodGet, "/stats/native?type=server&parent=zebra", "", 200, &body)
	if len(body.Stats) != 3 || body.Stats[0].Name != "s1" || body.Stats[0].Backend != "zebra" || body.Stats[0].Stats.Status != "MAINT" {
		t.Errorf("the servers' are %s", jsonOf(body))
	}
}

func checkCredentials(t *testing.T, s *subject) {
	for _, c := range []dataplane.Options{{URL: s.url, Username: username, Password: "wrong"}, {URL: s.url}} {
		client, err := dataplane.New(c)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Version(t.Context())
		wantError(t, err, dataplane.ErrUnauthorized)
		_, err = client.PostRaw(t.Context(), []byte(s.config("n1")), dataplane.PostOptions{Version: 1})
		wantError(t, err, dataplane.ErrUnauthorized)
	}
	if v := s.version(t); v != 1 {
		t.Errorf("the version is %d", v)
	}
}

// checkCounters makes a frontend count requests, and a backend lose its last server.
func checkCounters(t *testing.T, s *subject) {
	socket := s.run + "/counted.sock"
	s.post(t, s.config("n1", `
frontend counting
  mode http
  bind unix@`+socket+` mode 600
  http-request return status 500 if { path /fails }
  use_backend counted if { path /passed }
  http-request return status 200 unless { path /passed }

backend counted
  mode http
  http-request return status 503
`), dataplane.PostOptions{ForceReload: true})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	for _, path := range []string{"/", "/fails", "/fails", "/passed"} {
		fetch(t, client, http.MethodGet, "http://counted"+path, nil)
	}
	var frontends []dataplane.FrontendStatistics
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the frontends were %+v", frontends)
		}
	})
	// HAProxy counts a response when it is finished, after the client has it.
	eventually.Holds(t, "the responses are counted for frontends", func() bool {
		var err error
		frontends, err = s.FrontendStatistics(t.Context())
		return err == nil && slices.Contains(frontends, dataplane.FrontendStatistics{Name: "counting", Requests: 4, Errors: 3, Connections: 4})
	})
	eventually.Holds(t, "the responses are counted for backends", func() bool {
		backends, err := s.BackendStatistics(t.Context())
		return err == nil && slices.ContainsFunc(backends, func(b dataplane.BackendStatistics) bool {
			return b.Name == "counted" && b.Requests == 1 && b.Errors == 1
		})
	})
	// s3 is the only server that is not in maintenance. ant has no servers.
	for state, down := range map[string]bool{dataplane.StateMaint: true, dataplane.StateReady: false} {
		if _, err := s.SetServer(t.Context(), "zebra", "s3", dataplane.ServerChange{AdminState: state}); err != nil {
			t.Fatal(err)
		}
		backends, err := s.BackendStatistics(t.Context())
		for i := range backends { // these have counts from before, and seconds
			backends[i].Downs, backends[i].Since = 0, 0
		}
		for _, want := range []dataplane.BackendStatistics{{Name: "zebra", Down: down, Up: map[bool]int{true: 0, false: 1}[down]}, {Name: "ant"}} {
			if err != nil || !slices.Contains(backends, want) {
				t.Errorf("with s3 in %s the backends are %+v, %v, want one as %+v", state, backends, err, want)
			}
		}
	}
}

// checkClosed closes two frontends on the worker's socket, and takes a certificate out of a crt-list.
func checkClosed(t *testing.T, s *subject) {
	ctx := t.Context()
	if err := s.CreateFile(ctx, dataplane.Certificates, "listed.pem", certificate(t, "a.example.com", 0x11)); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateFile(ctx, dataplane.Certificates, "default.pem", certificate(t, "b.example.com", 0x12)); err != nil {
		t.Fatal(err)
	}
	listed, list := filepath.Join(s.dirs.Certificates, "listed.pem"), filepath.Join(s.dirs.General, "tls.crtlist")
	if err := s.CreateFile(ctx, dataplane.General, "tls.crtlist", []byte(listed+" a.example.com\n")); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, name := range []string{"open", "paused", "shut"} {
		fmt.Fprintf(&text, "\nfrontend %s\n  mode http\n  bind unix@%s/%s.sock ssl crt %s crt-list %s\n", name, s.run, name, filepath.Join(s.dirs.Certificates, "default.pem"), list)
	}
	s.post(t, s.config("n1", text.String()), dataplane.PostOptions{ForceReload: true})
	if c, err := s.RuntimeCertificate(ctx, listed); err != nil || c.Unused {
		t.Errorf("before: %+v, %v", c, err)
	}
	for _, command := range []string{"disable frontend paused", "shutdown frontend shut", "del ssl crt-list " + list + " " + listed} {
		if answer, err := s.command(command); err != nil {
			t.Fatalf("%s: %s: %v", command, answer, err)
		}
	}
	frontends, err := s.FrontendStatistics(ctx)
	for _, want := range []dataplane.FrontendStatistics{{Name: "open"}, {Name: "paused", Paused: true}, {Name: "shut", Shut: true}} {
		if err != nil || !slices.Contains(frontends, want) {
			t.Errorf("the frontends are %+v, %v, want one as %+v", frontends, err, want)
		}
	}
	if c, err := s.RuntimeCertificate(ctx, listed); err != nil || !c.Unused {
		t.Errorf("out of the list: %+v, %v", c, err)
	}
	if answer, err := s.command("del ssl cert " + listed); err != nil {
		t.Fatalf("%s: %v", answer, err)
	}
	_, err = s.RuntimeCertificate(ctx, listed)
	wantError(t, err, dataplane.ErrNotFound)
	if loaded, err := s.RuntimeCertificates(ctx); err != nil || len(loaded) != 1 || filepath.Base(loaded[0]) != "default.pem" {
		t.Errorf("the worker has %q, %v", loaded, err)
	}
}
