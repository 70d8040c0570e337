//nolint:thelper // the checks are tests: a failure has to name their own lines
package dataplane_test

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

// exchange is a request with its expected answer. In the expected body, {MAPS} and the like stand for folders.
// In the path, V stands for the current version.
type exchange struct {
	do      string // method, path below /v3/services/haproxy
	kind    string // of the content: text (default), json, or the name of a file for a form
	content string

	status   int
	status34 int    // if it differs since 3.4
	has      string // part of the body
	has34    string
	reload   bool // a reload is due
}

// apiKind recognizes the version by its answer to an empty body.
func (s *subject) apiKind(t *testing.T) dataplanetest.API {
	t.Helper()
	status, _, _ := s.send(t, exchange{do: "POST /configuration/raw?version=1"})
	if status == http.StatusUnprocessableEntity {
		return dataplanetest.V32
	}
	return dataplanetest.V34
}

func (s *subject) send(t *testing.T, e exchange) (status int, header http.Header, body string) {
	t.Helper()
	path := strings.Replace(e.do, "version=V", "version="+itoa(s.version(t)), 1)
	method, path, _ := strings.Cut(path, " ")
	content, contentType := []byte(e.content), "text/plain"
	switch e.kind {
	case "", "text":
	case "json":
		contentType = "application/json"
	default:
		content, contentType = form(e.kind, e.content)
	}
	if !strings.HasPrefix(path, "/v") {
		path = "/v3/services/haproxy" + path
	}
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth(username, password)
	if method == http.MethodPost || method == http.MethodPut {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

func form(name, content string) (body []byte, contentType string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part, _ := w.CreateFormFile("file_upload", name) // writing to a buffer cannot fail
	_, _ = io.WriteString(part, content)
	_ = w.Close()
	return b.Bytes(), w.FormDataContentType()
}

// converse makes exchanges one after another.
func (s *subject) converse(t *testing.T, exchanges []exchange) {
	t.Helper()
	kind := s.apiKind(t)
	for _, e := range exchanges {
		want, has := e.status, e.has
		if kind == dataplanetest.V34 && e.status34 != 0 {
			want = e.status34
		}
		if kind == dataplanetest.V34 && e.has34 != "" {
			has = e.has34
		}
		has = strings.NewReplacer("{MAPS}", s.dirs.Maps, "{SSL}", s.dirs.Certificates, "{GENERAL}", s.dirs.General).Replace(has)
		status, header, body := s.send(t, e)
		if status != want || !strings.Contains(body, has) {
			t.Errorf("%s answered %d %s\nwant %d with %s", e.do, status, body, want, has)
		}
		if id := header.Get("Reload-ID"); (id != "") != e.reload {
			t.Errorf("%s answered %d with the reload %q", e.do, status, id)
		} else if id != "" {
			s.reloaded(t, id)
		}
		if panicked := strings.Contains(body, "runtime error"); (header.Get("Configuration-Version") == "") != panicked {
			t.Errorf("%s answered %d with the version %q", e.do, status, header.Get("Configuration-Version"))
		}
	}
}

func checkRawExchanges(t *testing.T, s *subject) {
	s.converse(t, []exchange{
		{do: "GET /configuration/version", status: 200, has: "1\n"},
		{do: "GET /configuration/raw?version=55", status: 404, has: `missing object: backup file for version 55 does not exist`},
		{do: "POST /configuration/raw", content: s.config("n"), status: 400, has: `specify only one`},
		{do: "POST /configuration/raw?version=abc", content: s.config("n"), status: 422, status34: 400, has: `601`, has34: `400`},
		{do: "POST /configuration/raw?version=V", content: "global", status: 400, has: `invalid configuration: no newline character found`},
		{do: "POST /configuration/raw?version=V", content: "", status: 422, status34: 400, has: `{"code":602,"message":"data in body is required"}`, has34: `value is required but missing`},
		{do: "POST /configuration/raw?version=V", kind: "a.cfg", content: s.config("n"), status: 415, has: `415`},
		{do: "POST /configuration/raw?version=V&skip_reload=true&force_reload=true", content: s.config("n"), status: 201, has: "# _version=2\n"},
		{do: "POST /configuration/raw?skip_version=true&skip_reload=true", content: "# _version=77\n" + s.config("n"), status: 201, has: "# _version=77\n"},
		{do: "POST /configuration/raw?version=V&skip_reload=true", content: "# _version=5\n" + s.config("n"), status: 201, has: "# _version=78\n"},
		{do: "POST /configuration/raw?skip_version=true&skip_reload=true", content: s.config("n"), status: 201, has: "# _version=1\n"},
		{do: "POST /configuration/raw?version=V&skip_reload=true", content: strings.ReplaceAll(strings.TrimSpace(s.config("n")), "\n", "\r\n"), status: 201, has: "# _version=2\n"},
		{do: "POST /configuration/raw?version=9", content: s.config("n"), status: 409, has: `{"code":409,"message":"version mismatch: version in configuration file is 2, given version is 9"}`},
		{do: "POST /configuration/raw?version=V&only_validate=true", content: s.config("m"), status: 202, has: "node n\n"},
		{do: "POST /configuration/raw?version=V", content: s.config("n"), status: 202, has: "# _version=3\n", reload: true},
		{do: "GET /reloads/2020-01-01-5", status: 200, has: `{"id":"2020-01-01-5","status":"succeeded"}`},
		{do: "GET /reloads/9999-01-01-5", status: 404, has: `Reload with ID 9999-01-01-5 does not exist`},
		{do: "GET /v2/info", status: 404, has: `{"code":404,"message":"path /v2/info was not found"}`},
		{do: "GET /v3/health", status: 200, has: `"haproxy":"unknown"`},
		{do: "GET /v3/info", status: 200, has: `"api":{`},
	})
}

func checkStorageExchanges(t *testing.T, s *subject) {
	cert, next := string(certificate(t, "a.example.com", 5)), string(certificate(t, "a.example.com", 6))
	s.converse(t, []exchange{
		{do: "POST /storage/maps", kind: "a.b.map", content: "k v\n", status: 201, has: `"description":"managed but not loaded map file (no runtime ID)","file":"{MAPS}/a_b.map"`},
		{do: "POST /storage/maps", kind: "a.b.map", content: "k v\n", status: 409, has: `{"code":409,"message":"object already exists: file {MAPS}/a_b.map already exists"}`},
		{do: "GET /storage/maps", status: 200, has: `[{"description":"managed map file","file":"{MAPS}/a_b.map","storage_name":"a_b.map"}]`},
		{do: "PUT /storage/maps/a_b.map", content: "k w\n", status: 202, reload: true},
		{do: "PUT /storage/maps/a_b.map?force_reload=true", content: "k w\n", status: 204},
		{do: "PUT /storage/maps/a_b.map?skip_reload=true", content: "k w\n", status: 204},
		{do: "PUT /storage/maps/a_b.map", kind: "a_b.map", content: "k w\n", status: 415},
		{do: "PUT /storage/maps/none.map", content: "k w\n", status: 404, has: `missing object: file none.map doesn't exist in dir: {MAPS}`},
		{do: "DELETE /storage/maps/none.map", status: 404, has: `missing object`},

		{do: "POST /storage/general", kind: "x.http", content: "", status: 201, has: `"file":"{GENERAL}/x.http"`},
		{do: "GET /storage/general", status: 200, has: `"description":"managed general use file","file":"{GENERAL}/x.http"`},
		{do: "PUT /storage/general/x.http", content: "x", status: 415},
		{do: "PUT /storage/general/x.http", kind: "other", content: "x", status: 202, reload: true},
		{do: "PUT /storage/general/x.http?skip_reload=true", kind: "other", content: "x", status: 204},

		{do: "POST /storage/ssl_certificates?skip_reload=true", kind: "a.b.pem", content: cert, status: 201, has: `"storage_name":"a_b.pem"`},
		{do: "GET /storage/ssl_certificates", status: 200, has: `"description":"managed SSL file","file":"{SSL}/a_b.pem"`},
		{do: "GET /storage/ssl_certificates/a.b.pem", status: 200, has: `"serial":"5"`},
		{do: "POST /storage/ssl_certificates?force_reload=true", kind: "f.pem", content: cert, status: 201},
		{do: "POST /storage/ssl_certificates", kind: "live.pem", content: cert, status: 201, has: `"file":"{SSL}/live.pem"`},
		{do: "PUT /storage/ssl_certificates/live.pem", content: next, status: 200, has: `"serial":"6"`},
		{do: "PUT /storage/ssl_certificates/a_b.pem?skip_reload=true", content: next, status: 200, has: `"serial":"6"`},
		{do: "PUT /storage/ssl_certificates/a_b.pem", content: next, status: 202, has: `"serial":"6"`, reload: true},
		{do: "PUT /storage/ssl_certificates/a_b.pem", content: "junk", status: 500, has: `failed to parse certificate`},
		{do: "DELETE /storage/ssl_certificates/a_b.pem?skip_reload=true", status: 204},
		{do: "DELETE /storage/ssl_certificates/f.pem?force_reload=true", status: 204},

		{do: "POST /storage/ssl_crt_lists?skip_reload=true", kind: "x.crtlist", content: s.dirs.Certificates + "/live.pem", status: 202, reload: true},
		{do: "POST /storage/ssl_crt_lists", kind: "l.txt", content: s.dirs.Certificates + "/live.pem", status: 202, has: `"description":"managed certificate list","file":"{SSL}/l.txt"`, reload: true},
		{do: "GET /storage/ssl_crt_lists", status: 200, has: `[{"description":"managed certificate list","file":"{SSL}/l.txt","storage_name":"l.txt"}]`},
		{do: "GET /storage/ssl_crt_lists/x.crtlist", status: 200, has: "live.pem\n"},
		{do: "PUT /storage/ssl_crt_lists/l.txt?skip_reload=true", content: s.dirs.Certificates + "/live.pem", status: 200},
		{do: "PUT /storage/ssl_crt_lists/l.txt", content: s.dirs.Certificates + "/live.pem", status: 202, reload: true},
		{do: "POST /storage/ssl_crt_lists", kind: "none.txt", content: "", status: 500, has: "runtime error: index out of range [-1]"},
		{do: "DELETE /storage/ssl_crt_lists/l.txt?skip_reload=true", status: 204},
		{do: "DELETE /storage/ssl_crt_lists/x.crtlist", status: 202, reload: true},
		{do: "DELETE /storage/ssl_crt_lists/x.crtlist", status: 404},
	})
	if content, err := os.ReadFile(filepath.Join(s.dirs.General, "x.http")); err != nil || string(content) != "x" {
		t.Errorf("the general file is %q, %v", content, err)
	}
}

func checkTransactions(t *testing.T, s *subject) {
	s.post(t, s.config("n1"), dataplane.PostOptions{ForceReload: true})
	var first, second, broken dataplane.Transaction
	s.callJSON(t, http.MethodPost, "/transactions?version=2", "", 201, &first)
	s.callJSON(t, http.MethodPost, "/transactions?version=2", "", 201, &second)
	if first.Version != 2 || first.Status != "in_progress" || first.ID == second.ID {
		t.Errorf("the transactions are %+v and %+v", first, second)
	}
	s.call(t, http.MethodPost, "/transactions?version=1", "", 409)
	in := "?transaction_id=" + first.ID
	s.call(t, http.MethodPost, "/configuration/backends"+in, `{"name":"new"}`, 202)
	s.call(t, http.MethodPost, "/configuration/backends"+in, `{"name":"new"}`, 409)
	s.call(t, http.MethodPut, "/configuration/backends/zebra/servers/s1"+in, `{"name":"s1","address":"127.0.0.1","port":81}`, 202)
	if raw := s.raw(t); strings.Contains(raw.Config.String(), "backend new") {
		t.Error("an open transaction changed the file")
	}
	s.call(t, http.MethodPut, "/transactions/"+first.ID+"?force_reload=true", "", 200)
	if raw := s.raw(t); raw.Version != 3 || !strings.Contains(raw.Config.String(), "backend new") || !strings.Contains(raw.Config.String(), "server s1 127.0.0.1:81") {
		t.Errorf("version %d is %s", raw.Version, raw.Config)
	}
	if server := s.server(t, "s1"); server.Port != 81 {
		t.Errorf("the server runs as %+v", server)
	}
	s.call(t, http.MethodPut, "/transactions/"+first.ID, "", 404)
	if text := s.call(t, http.MethodPut, "/transactions/"+second.ID, "", 406); !strings.Contains(text, "is outdated and cannot be committed") {
		t.Errorf("committing what is outdated answered %s", text)
	}
	s.callJSON(t, http.MethodPost, "/transactions?version=3", "", 201, &broken)
	s.call(t, http.MethodPut, "/configuration/backends/zebra/servers/s1?transaction_id="+broken.ID, `{"name":"s1","address":"no-such-host.invalid","port":81}`, 202)
	s.call(t, http.MethodPut, "/transactions/"+broken.ID, "", 400)
	if text := s.call(t, http.MethodPut, "/transactions/"+broken.ID, "", 406); !strings.Contains(text, "is failed and cannot be committed") {
		t.Errorf("committing what has failed answered %s", text)
	}
	states := map[string]int{}
	all, err := s.Transactions(t.Context())
	for _, left := range all {
		states[left.Status]++
	}
	if err != nil || len(all) != 2 || states["outdated"] != 1 || states["failed"] != 1 {
		t.Errorf("left behind: %+v, %v", all, err)
	}
	s.call(t, http.MethodDelete, "/transactions/"+second.ID, "", 204)
	s.call(t, http.MethodDelete, "/transactions/"+second.ID, "", 404)
	for range 20 {
		s.call(t, http.MethodPost, "/transactions?version=3", "", 201)
	}
	s.call(t, http.MethodPost, "/transactions?version=3", "", 429)
}

func checkRuntimeServersAdded(t *testing.T, s *subject) {
	s.post(t, s.config("n1"), dataplane.PostOptions{ForceReload: true})
	const servers = "/runtime/backends/zebra/servers"
	s.call(t, http.MethodPost, servers, `{"name":"d1","address":"127.0.0.1","port":8081}`, 201)
	s.call(t, http.MethodPost, servers, `{"name":"d1","address":"127.0.0.1","port":8081}`, 409)
	if server := s.server(t, "d1"); server.AdminState != dataplane.StateMaint || server.Port != 8081 {
		t.Errorf("the added server is %+v", server)
	}
	if _, err := s.SetServer(t.Context(), "zebra", "d1", dataplane.ServerChange{AdminState: dataplane.StateReady}); err != nil {
		t.Error(err)
	}
	s.call(t, http.MethodDelete, servers+"/d1", "", 204)
	s.call(t, http.MethodDelete, servers+"/d1", "", 404)
	s.call(t, http.MethodGet, servers+"/s2", "", 200)
	s.call(t, http.MethodPost, servers, `{"name":"d2","address":"127.0.0.1","port":8082}`, 201)
	s.post(t, s.config("n1"), dataplane.PostOptions{ForceReload: true})
	if all, err := s.Servers(t.Context(), "zebra"); err != nil || len(all) != 3 {
		t.Errorf("after a reload the servers are %+v, %v", all, err)
	}
}

func checkExternalEdit(t *testing.T, s *subject) {
	s.post(t, s.config("n1"), dataplane.PostOptions{ForceReload: true})
	before := s.info(t)
	file := filepath.Join(filepath.Dir(s.dirs.Maps), "haproxy.cfg")
	tmp := file + ".new"
	if err := os.WriteFile(tmp, []byte(strings.Replace(s.raw(t).Config.String(), "node n1", "node edited", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, file); err != nil {
		t.Fatal(err)
	}
	eventually.Holds(t, "the API has seen the edit", func() bool { return s.version(t) == 3 })
	eventually.Holds(t, "it has the edited file", func() bool { // the version may increase before the file is written
		raw := s.raw(t)
		return strings.Contains(raw.Config.String(), "node edited") && raw.Checksum == raw.Config.Checksum()
	})
	if after := s.info(t); after.PID != before.PID || after.Node != "n1" {
		t.Errorf("the worker was %+v and is %+v", before, after)
	}
	wantStale(t, s)
}

func wantStale(t *testing.T, s *subject) {
	t.Helper()
	_, err := s.PostRaw(t.Context(), []byte(s.config("n2")), dataplane.PostOptions{Version: 2})
	wantError(t, err, dataplane.ErrConflict)
}
