package dataplane

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/haproxytech/client-native/v6/misc"
)

func TestNewChecksTheURL(t *testing.T) {
	for url, ok := range map[string]bool{
		"http://127.0.0.1:5555":   true,
		"https://edge-1:5555/":    true,
		"http://proxy/instance-1": true,
		"127.0.0.1:5555":          false,
		"edge-1":                  false,
		"ftp://edge-1":            false,
		"http://":                 false,
		"http://a:b@edge-1:5555":  false,
		"http://edge-1:%zz":       false,
	} {
		if _, err := New(Options{URL: url}); (err == nil) != ok {
			t.Errorf("New(%q): %v, want ok=%v", url, err, ok)
		}
	}
}

func TestNewKeepsPasswordsOutOfErrors(t *testing.T) {
	for _, url := range []string{"ftp://admin:hunter2@edge-1", "http://admin:hunter2@edge-1"} {
		if _, err := New(Options{URL: url}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("New(%q): %v", url, err)
		}
	}
}

func TestEntriesThatHAProxyCounts(t *testing.T) {
	const from = "pattern loaded from file '/maps/a b.map' used by map at file '/etc/haproxy.cfg' line 7. "
	for description, want := range map[string]int{
		from + "curr_ver=0 next_ver=0 entry_cnt=12": 12,
		from + "curr_ver=3 next_ver=3 entry_cnt=0":  0,
		from + "curr_ver=0 next_ver=1 entry_cnt=12": -1, // another version is being made
		from + "curr_ver=0 next_ver=0 entry_cnt=-2": -1,
		from + "curr_ver=0 next_ver=0 entry_cnt=x":  -1,
		"pattern loaded from file 'entry_cnt=12":    -1,
		"":                                          -1,
	} {
		if n := entryCount(description); n != want {
			t.Errorf("%q: %d", description, n)
		}
	}
}

// The exact requests decide what the API does, so they are spelled out.
func TestRequests(t *testing.T) {
	action := SetServerAddr("be", "s2", "127.0.0.1", 8401)
	tests := []struct {
		name string
		call func(*Client) error
		want string
	}{
		{"post", func(c *Client) error {
			_, err := c.PostRaw(t.Context(), []byte("global\n"), PostOptions{Version: 7})
			return err
		}, "POST /v3/services/haproxy/configuration/raw?version=7 text/plain"},
		{"forced post", func(c *Client) error {
			_, err := c.PostRaw(t.Context(), []byte("global\n"), PostOptions{Version: 7, ForceReload: true})
			return err
		}, "POST /v3/services/haproxy/configuration/raw?force_reload=true&version=7 text/plain"},
		{"post with actions", func(c *Client) error {
			_, err := c.PostRaw(t.Context(), []byte("global\n"), PostOptions{
				Version: 7, SkipReload: true, Actions: []RuntimeAction{action, SetServerState("be", "s2", StateReady)},
			})
			return err
		}, "POST /v3/services/haproxy/configuration/raw?skip_reload=true&version=7 text/plain" +
			" SetServerAddr be s2 127.0.0.1 8401;SetServerState be s2 ready"},
		{"runtime certificate", func(c *Client) error {
			_, err := c.RuntimeCertificate(t.Context(), "/etc/haproxy/ssl/a.pem")
			return err
		}, "GET /v3/services/haproxy/runtime/ssl_certs/%2Fetc%2Fhaproxy%2Fssl%2Fa.pem"},
		{"replace map", func(c *Client) error { return c.ReplaceFile(t.Context(), Maps, "a.map", []byte("x y\n")) },
			"PUT /v3/services/haproxy/storage/maps/a.map?skip_reload=true text/plain"},
		{"replace empty file", func(c *Client) error { return c.ReplaceFile(t.Context(), Certificates, "a.pem", nil) },
			"PUT /v3/services/haproxy/storage/ssl_certificates/a.pem?skip_reload=true text/plain"},
		{"delete map", func(c *Client) error { return c.DeleteFile(t.Context(), Maps, "a.map") },
			"DELETE /v3/services/haproxy/storage/maps/a.map"},
		{"delete certificate", func(c *Client) error { return c.DeleteFile(t.Context(), Certificates, "a.pem") },
			"DELETE /v3/services/haproxy/storage/ssl_certificates/a.pem?skip_reload=true"},
		{"set server", func(c *Client) error {
			_, err := c.SetServer(t.Context(), "be", "s1", ServerChange{AdminState: StateDrain})
			return err
		}, "PUT /v3/services/haproxy/runtime/backends/be/servers/s1 application/json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got string
			c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
				if user, password, _ := r.BasicAuth(); user != "admin" || password != "secret" {
					t.Errorf("credentials %q %q", user, password)
				}
				got = strings.TrimSpace(r.Method + " " + r.URL.RequestURI() + " " +
					r.Header.Get("Content-Type") + " " + r.Header.Get("X-Runtime-Actions"))
				w.WriteHeader(http.StatusTeapot)
			})
			checkClass(t, tt.call(c), ErrRejected)
			if got != tt.want {
				t.Errorf("sent %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestPostsThatWouldNotDoWhatTheySay(t *testing.T) {
	action := SetServerWeight("be", "s1", 10)
	c := clientOf(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") })
	for name, o := range map[string]PostOptions{
		"skip and force":               {SkipReload: true, ForceReload: true},
		"actions with a reload":        {Actions: []RuntimeAction{action}},
		"actions when only validating": {SkipReload: true, OnlyValidate: true, Actions: []RuntimeAction{action}},
		"semicolon in a name":          {SkipReload: true, Actions: []RuntimeAction{SetServerState("be;x", "s1", StateReady)}},
		"space in a state":             {SkipReload: true, Actions: []RuntimeAction{SetServerState("be", "s1", "ready; x")}},
		"empty address":                {SkipReload: true, Actions: []RuntimeAction{SetServerAddr("be", "s1", "", 1)}},
		"line break in a header":       {SkipReload: true, Actions: []RuntimeAction{SetServerState("be\r\n", "s1", "ready")}},
	} {
		_, err := c.PostRaw(t.Context(), []byte("global\n"), o)
		if err == nil {
			t.Errorf("%s: was sent", name)
		}
		checkClass(t, err, ErrRejected)
	}
}

func TestRuntimeInfoTellsADeadHAProxyFromADeadAPI(t *testing.T) {
	for name, answer := range map[string]string{
		"no socket":        `{"error":"dial unix /run/m.sock: connect: no such file or directory","runtimeAPI":"/run/m.sock"}`,
		"an empty answer":  `{"info":{},"runtimeAPI":"/run/m.sock"}`, // a worker that is being replaced
		"only the version": `{"info":{"version":"3.2.0"},"runtimeAPI":"/run/m.sock"}`,
	} {
		t.Run(name, func(t *testing.T) {
			c := clientOf(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })
			info, err := c.RuntimeInfo(t.Context())
			checkClass(t, err, ErrRuntime)
			if info != (RuntimeInfo{}) {
				t.Errorf("a worker is known: %+v", info)
			}
		})
	}
}

// What callers keep in the state of the whole fleet, and show, is as short as that of a HAProxy.
func TestTextsOfWorkersAreBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<19)
	c := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"info":{"node":%q,"pid":7}}`, long)
	})
	info, err := c.RuntimeInfo(t.Context())
	checkClass(t, err, ErrUnavailable)
	if info != (RuntimeInfo{}) || !strings.Contains(err.Error(), "its node and version have 524288 bytes") {
		t.Errorf("a node of %d bytes: %v", len(info.Node), err)
	}
	c = clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `[{"name":"s1","address":%q,"admin_state":%q}]`, long, long)
	})
	servers, err := c.Servers(t.Context(), "web")
	if err != nil || len(servers) != 1 || len(servers[0].Address)+len(servers[0].AdminState) > 1000 {
		t.Errorf("%d servers, %v", len(servers), err)
	}
}

func TestCertificatesCannotBeRead(t *testing.T) {
	_, err := newClient(t, "http://"+closedPort(t)).ReadFile(t.Context(), Certificates, "a.pem")
	checkClass(t, err, ErrUnsupported)
}

func TestChecksumLeavesOutTheFirstLine(t *testing.T) {
	const empty = "d41d8cd98f00b204e9800998ecf8427e" // MD5 of nothing
	for config, want := range map[string]string{
		"":                empty,
		"# _md5hash=x\n":  empty,
		"# _md5hash=y\na": "0cc175b9c0f1b6a831c399e269772661",
	} {
		if got := Checksum([]byte(config)); got != want {
			t.Errorf("Checksum(%q) = %s, want %s", config, got, want)
		}
	}
}

func TestSanitizeFilename(t *testing.T) {
	for name, want := range map[string]string{
		"host-3f2a91c4.map": "host-3f2a91c4.map",
		"a.example.com.pem": "a_example_com.pem",
		"my.host-x.map":     "my_host-x.map",
		"../../evil.map":    "_evil.map",
		"plain":             "plain",
		".pem":              "_pem",
		"ü b.m p":           "_b.m_p",
		"":                  "",
	} {
		if got := SanitizeFilename(name); got != want {
			t.Errorf("SanitizeFilename(%q) = %q, want %q", name, got, want)
		}
	}
}

// The mapping of names is the API's, so its own library checks it.
func FuzzSanitizeFilename(f *testing.F) {
	for _, seed := range []string{"a.b.c", "../../evil.map", "a/b", "a/.b", "a.b/", "//", "ä.ö", "\xff.\xfe", ".", "..", "x."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if got, want := SanitizeFilename(name), misc.SanitizeFilename(name); got != want {
			t.Errorf("SanitizeFilename(%q) = %q, want %q", name, got, want)
		}
	})
}

func TestVersionsThatAreWorkedWith(t *testing.T) {
	t.Parallel()
	tests := []struct {
		what, version string
		check         func(string) error
		want          string // "" means no error
	}{
		{"api", "v3.2.5 1a2b3c4", checkAPI, ""},
		{"api", "v3.4.2 1a2b3c4", checkAPI, ""},
		{"api", "v3.10.0", checkAPI, ""},
		{"api, of which a build from source says nothing", " dev.dirty", checkAPI, ""},
		{"api", "v3.1.9 1a2b3c4", checkAPI, "the Dataplane API is v3.1.9 1a2b3c4: want 3.2 or a later 3"},
		{"api", "v2.9.2 1a2b3c4", checkAPI, "the Dataplane API is v2.9.2"},
		{"api", "v4.0.0", checkAPI, "the Dataplane API is v4.0.0"},
		{"haproxy", "2.6.12-1+deb12u1", CheckHAProxy, ""},
		{"haproxy", "3.2-dev1", CheckHAProxy, ""},
		{"haproxy", "10.0.0", CheckHAProxy, ""},
		{"haproxy that does not say", "", CheckHAProxy, ""},
		{"haproxy", "2.5.14-1a2b3c4", CheckHAProxy, "HAProxy is 2.5.14-1a2b3c4: want 2.6 or later"},
		{"haproxy", "1.8.30", CheckHAProxy, "HAProxy is 1.8.30"},
	}
	for _, test := range tests {
		err := test.check(test.version)
		if unsupported := new(UnsupportedError); err != nil && !errors.As(err, unsupported) {
			t.Errorf("%s %q: %v is no UnsupportedError", test.what, test.version, err)
		}
		if (err == nil) != (test.want == "") || (err != nil && !strings.HasPrefix(err.Error(), test.want)) {
			t.Errorf("%s %q: %v, want %q", test.what, test.version, err, test.want)
		}
	}
}

// An API of version 2 has no paths of version 3.
func TestAPIOfAnotherMajorVersion(t *testing.T) {
	t.Parallel()
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"code":404,"message":"path ` + r.URL.Path + ` was not found"}`))
	}))
	t.Cleanup(old.Close)
	c, err := New(Options{URL: old.URL})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Supported(t.Context()); !errors.As(err, new(UnsupportedError)) {
		t.Errorf("Supported is %v, want an UnsupportedError", err)
	}
}
