package routingtest

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
)

// authServer is an authentication service. It answers with the status in the header X-Want, and keeps the
// requests.
type authServer struct {
	mu  sync.Mutex
	got []http.Request
}

func (a *authServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.got = append(a.got, *r)
	a.mu.Unlock()
	status := http.StatusOK
	if want, err := strconv.Atoi(r.Header.Get("X-Want")); err == nil {
		status = want
	}
	w.Header().Set("Www-Authenticate", `Bearer realm="x"`)
	w.Header().Add("Set-Cookie", "one=1")
	w.Header().Add("Set-Cookie", "two=2, too")
	w.Header().Set("Location", "/elsewhere")
	w.Header().Set("X-Auth-User", "user of "+r.Header.Get("Authorization"))
	w.Header().Add("X-Auth-Group", "a, b")
	w.Header().Add("X-Auth-Group", "c")
	w.WriteHeader(status)
}

// last returns the last request to the service.
func (a *authServer) last() http.Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.got[len(a.got)-1]
}

// startAuth starts an authServer and returns its port.
func startAuth(t *testing.T) (*authServer, int) {
	t.Helper()
	a := &authServer{}
	s := httptest.NewServer(a)
	t.Cleanup(s.Close)
	return a, s.Listener.Addr().(*net.TCPAddr).Port
}

func TestExternalAuth(t *testing.T) {
	t.Parallel()
	auth, port := startAuth(t)
	yaml := serviceYAML("shop", "a", mirror(t, "a", nil)) + serviceYAML("shop", "auth", port) + all([]ingress{
		optioned("plain", "auth-url", "http://auth/check?a=%20b"),
		optioned("full", "auth-url", "http://auth.shop.svc.cluster.local:80/full", "auth-method", "HEAD", "auth-request-headers", "Authorization, X-Want",
			"auth-response-headers", "X-Auth-User, X-Auth-Group, X-None"),
		optioned("signin", "auth-url", "http://auth.shop", "auth-signin", "https://login.example/start?a=b"),
		optioned("local", "auth-url", "http://auth.shop", "auth-signin", "/oauth2/start"),
		optioned("named", "auth-url", "http://auth", "auth-host", "login.example:8443"),
		optioned("asked", "auth-url", "http://auth/x", "auth-host", "request-host"),
		{name: "open", rules: []string{"open.example P / a"}},
	})
	e := start(t, yaml)
	clean(t, e)
	for host, want := range map[string]string{"named.example": "login.example:8443", "asked.example:81": "asked.example:81"} {
		if got := e.get(t, host, "/"); got.StatusCode != 200 || auth.last().Host != want {
			t.Errorf("%s: %d, the service got Host %q", host, got.StatusCode, auth.last().Host)
		}
	}
	got := e.get(t, "plain.example", "/x?y=%20z", "X-Original-URL: forged", "X-Other: kept", "X-Forwarded-For: forged")
	asked := auth.last()
	if got.StatusCode != 200 || got.seen.Target != "/x?y=%20z" || asked.RequestURI != "/check?a=%20b" || asked.Method != "GET" || asked.Host != "auth" {
		t.Errorf("%d of %q, asked %s %s of %s", got.StatusCode, got.seen.Target, asked.Method, asked.RequestURI, asked.Host)
	}
	for name, want := range map[string]string{
		"X-Original-Url": "http://plain.example/x?y=%20z", "X-Original-Method": "GET", "X-Original-Host": "plain.example", "X-Other": "kept",
		"X-Auth-Request-Redirect": "/x?y=%20z",
		"X-Forwarded-Host":        "plain.example", "X-Forwarded-Proto": "http", "X-Forwarded-Uri": "/x?y=%20z", "X-Forwarded-Method": "GET",
	} {
		if h := strings.Join(asked.Header[name], "|"); h != want {
			t.Errorf("the service got %s: %q, want %q", name, h, want)
		}
	}
	if h := asked.Header.Values("X-Forwarded-For"); len(h) != 1 || !strings.HasPrefix(h[0], "127.") {
		t.Errorf("the service got X-Forwarded-For: %q", h)
	}
	if c := got.Header.Values("Set-Cookie"); len(c) != 2 || c[0] != "one=1" || c[1] != "two=2, too" {
		t.Errorf("cookies of the service: %q", c)
	}
	if got := e.getTLS(t, "plain.example", "/t"); got.StatusCode != 200 || auth.last().Header.Get("X-Original-Url") != "https://plain.example/t" {
		t.Errorf("over TLS: %d, asked about %q", got.StatusCode, auth.last().Header.Get("X-Original-Url"))
	}
	if n := len(auth.got); e.get(t, "open.example", "/").StatusCode != 200 || len(auth.got) != n {
		t.Error("an open route is asked about")
	}
}

// The endpoint gets the headers of the service's answer. Clients cannot send them themselves.
func TestExternalAuthHeaders(t *testing.T) {
	t.Parallel()
	auth, port := startAuth(t)
	yaml := serviceYAML("shop", "a", mirror(t, "a", nil)) + serviceYAML("shop", "b", mirror(t, "b", nil)) + serviceYAML("shop", "auth", port) + all([]ingress{
		optioned("full", "auth-url", "http://auth.shop.svc.cluster.local:80/full", "auth-method", "HEAD", "auth-request-headers", "Authorization, X-Want",
			"auth-response-headers", "X-Auth-User, X-Auth-Group, X-None"),
		optioned("token", "auth-url", "http://auth", "auth-response-headers", "Authorization"),
		{name: "open", rules: []string{"open.example P / a", "open.example P /b b"}},
		optioned("edited", "request-headers", "set X-Auth-User nobody"),
	})
	e := start(t, yaml)
	clean(t, e)
	// Clients cannot send them on another route to the same endpoints either, since an endpoint does not see
	// which route a request took.
	for host, want := range map[string]string{"open.example": "", "edited.example": "nobody"} {
		h := e.get(t, host, "/", "Authorization: me", "X-Auth-User: admin", "x_auth_user: root", "X-Auth-Group: wheel", "X-Auth-Users: kept").seen.Header
		if h.Get("X-Auth-User") != want || len(h["X-Auth-Group"]) > 0 || h.Get("X-Auth-Users") != "kept" || h.Get("Authorization") != "me" {
			t.Errorf("%s: the endpoint got %v", host, h)
		}
	}
	if h := e.get(t, "open.example", "/b", "X-Auth-User: admin").seen.Header; h.Get("X-Auth-User") != "admin" {
		t.Errorf("the endpoint of another Service got %v", h)
	}
	got := e.get(t, "full.example", "/", "Authorization: me", "Cookie: c=d", "X-Auth-User: admin", "x-auth-user: root", "X_Auth_User: root",
		"X-Auth_Group: wheel", "X-None: forged", "X_NONE: forged", "X-Auth-Users: kept")
	h, asked := got.seen.Header, auth.last()
	if u, g := strings.Join(h["X-Auth-User"], "|"), strings.Join(h["X-Auth-Group"], "|"); u != "user of me" || g != "a, b|c" || h.Get("X-Auth-Users") != "kept" {
		t.Errorf("the endpoint got user %q, groups %q of %v", u, g, h)
	}
	for name := range h {
		if strings.Contains(name, "_") || strings.EqualFold(name, "x-none") {
			t.Errorf("the endpoint got %s: %q", name, h[name])
		}
	}
	if asked.Method != "HEAD" || asked.Header.Get("Authorization") != "me" || asked.Header.Get("Cookie") != "" || asked.Host != "auth.shop.svc.cluster.local:80" {
		t.Errorf("asked %s of %s with %v", asked.Method, asked.Host, asked.Header)
	}
}

func TestExternalAuthRefuses(t *testing.T) {
	t.Parallel()
	_, port := startAuth(t)
	yaml := serviceYAML("shop", "a", mirror(t, "a", nil)) + serviceYAML("shop", "auth", port) + all([]ingress{
		optioned("plain", "auth-url", "http://auth"),
		optioned("signin", "auth-url", "http://auth", "auth-signin", "https://login.example/start?a=b"),
		optioned("local", "auth-url", "http://auth", "auth-signin", "/oauth2/start"),
		optioned("path", "auth-url", "http://auth", "auth-signin", "/start", "auth-signin-return", "path", "auth-signin-parameter", "next"),
		optioned("none", "auth-url", "http://auth", "auth-signin", "/start?rd=/home", "auth-signin-return", "none"),
	})
	e := start(t, yaml)
	clean(t, e)
	const challenge, cookies = `Bearer realm="x"`, "one=1|two=2, too"
	for _, c := range []struct {
		host, want                   string
		status                       int
		challenge, location, cookies string
	}{
		{"plain", "204", 200, "", "", cookies},
		{"plain", "401", 401, challenge, "/elsewhere", cookies},
		{"plain", "403", 403, challenge, "/elsewhere", cookies},
		{"plain", "302", 503, "", "", ""}, {"plain", "404", 503, "", "", ""}, {"plain", "500", 503, "", "", ""}, {"plain", "503", 503, "", "", ""},
		{"signin", "401", 302, "", "https://login.example/start?a=b&rd=http%3A%2F%2Fsignin.example%2Fx%3Fa%3Db%26c%3D%2520%2B", cookies},
		{"local", "401", 302, "", "/oauth2/start?rd=http%3A%2F%2Flocal.example%2Fx%3Fa%3Db%26c%3D%2520%2B", cookies},
		{"path", "401", 302, "", "/start?next=%2Fx%3Fa%3Db%26c%3D%2520%2B", cookies},
		{"none", "401", 302, "", "/start?rd=/home", cookies},
		{"local", "403", 403, challenge, "/elsewhere", cookies},
	} {
		got := e.get(t, c.host+".example", "/x?a=b&c=%20+", "X-Want: "+c.want)
		h := got.Header
		if got.StatusCode != c.status || h.Get("Www-Authenticate") != c.challenge || h.Get("Location") != c.location || strings.Join(h["Set-Cookie"], "|") != c.cookies {
			t.Errorf("%s of %s: %d %v, want %+v", c.want, c.host, got.StatusCode, h, c)
		}
		if (got.seen.Name == "a") != (c.status == 200) {
			t.Errorf("%s of %s: answered by %q", c.want, c.host, got.seen.Name)
		}
	}
}

// If the service cannot be reached, its routes are closed, and the compiler says why.
func TestExternalAuthFailsClosed(t *testing.T) {
	t.Parallel()
	_, port := startAuth(t)
	yaml := serviceYAML("shop", "a", mirror(t, "a", nil)) + serviceYAML("shop", "auth", port) + serviceYAML("other", "auth", port) + serviceYAML("shared", "auth", port) +
		strings.Replace(serviceYAML("shop", "tls", port), "name: tls}\nspec", "name: tls, annotations: {hapsnap.dev/backend-protocol: h1-tls}}\nspec", 1) +
		"---\napiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: far}\nspec: {type: ExternalName, externalName: localhost, ports: [{port: 80}]}\n"
	wrong := map[string]struct{ url, message string }{
		"gone":     {"http://gone/", "Service shop/gone does not exist"},
		"port":     {"http://auth:81/", "Service shop/auth has no TCP port 81"},
		"other":    {"http://auth.other.svc/", "Service other/auth is of another namespace, which does not share it"},
		"tls":      {"http://tls/", "Service shop/tls is spoken to in another way than HTTP/1.1 in the clear"},
		"far":      {"http://far/", "leads to the machine of HAProxy"},
		"https":    {"https://auth/", "asks for TLS"},
		"host":     {"http://auth.shop.example.com/", "is not a Service of the cluster"},
		"address":  {"http://10.0.0.1/", "is not a Service of the cluster"},
		"fragment": {"http://auth/#a", "is not the URL of a Service"},
		"user":     {"http://me@auth/", "is not the URL of a Service"},
		"scheme":   {"ftp://auth/", "is not the URL of a Service"},
	}
	ingresses := []ingress{{name: "open", rules: []string{"open.example P / a"}}, optioned("shared", "auth-url", "http://auth.shared")}
	for name, w := range wrong {
		ingresses = append(ingresses, optioned(name, "auth-url", w.url))
	}
	ingresses = append(ingresses, optioned("header", "auth-url", "http://auth", "auth-response-headers", "Host"),
		optioned("signin", "auth-url", "http://auth", "auth-signin", "javascript:alert(1)"))
	e := startWith(t, yaml+all(ingresses), func(c *config.Config) { c.Shared.AuthServices = []string{"shared/auth"} })
	said := map[string]string{}
	for _, d := range e.result.Diagnostics {
		if d.Severity == diag.Error {
			said[d.Object.Name] += d.Message
		}
	}
	for name, w := range wrong {
		if !strings.Contains(said[name], w.message) || !strings.Contains(said[name], "answer 503") {
			t.Errorf("%s: want %q, got %q", name, w.message, said[name])
		}
		if got := e.get(t, name+".example", "/"); got.StatusCode != 503 {
			t.Errorf("%s: %d", name, got.StatusCode)
		}
	}
	for name, want := range map[string]int{"open": 200, "shared": 200, "header": 503, "signin": 503} {
		if got := e.get(t, name+".example", "/"); got.StatusCode != want {
			t.Errorf("%s: %d, want %d: %s", name, got.StatusCode, want, said[name])
		}
	}
}
