package routingtest

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// asked is the configuration of a client that asks for a name. It shows a certificate whatever authorities the
// server names, or none if shows is nil.
func asked(name string, shows *tls.Certificate) *tls.Config {
	return &tls.Config{
		InsecureSkipVerify: true, ServerName: name,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if shows == nil {
				return &tls.Certificate{}, nil
			}
			return shows, nil
		},
	}
}

// answerTo asks for a host over TLS, with HTTP/2 if h2 is set, and returns the answer, or "refused" if there is
// no connection.
func (e edge) answerTo(t *testing.T, cfg *tls.Config, h2 bool, host, target string) string {
	t.Helper()
	if h2 {
		cfg.NextProtos = []string{"h2"}
	}
	got, err := e.ask(t, cfg, host, target)
	if err != nil {
		return "refused"
	}
	return got
}

// Row 53: the name in the TLS handshake decides who may connect. The test sends requests for the same host and
// for others.
func TestRow53ClientCertificates(t *testing.T) {
	t.Parallel()
	ca, stranger := newAuthority(t, "clients"), newAuthority(t, "clients")
	mutual := func(name string, options ...string) ingress {
		i := optioned(name, append([]string{"client-ca-secret", "client-ca"}, options...)...)
		i.tls = []string{"web " + name + ".example"}
		return i
	}
	bare := mutual("bare")
	bare.tls = nil
	wild := mutual("wild")
	wild.rules, wild.tls = []string{"*.wild.example P / a"}, []string{"web *.wild.example"}
	shared, both := mutual("shared"), mutual("both")
	shared.rules, both.rules = []string{"shared.example P /admin a"}, []string{"required.example P /both b"}
	wildOpen := ingress{name: "wildopen", rules: []string{"*.open.example P / b"}, tls: []string{"web *.open.example"}}
	below := mutual("below")
	below.rules, below.tls = []string{"below.open.example P / a"}, []string{"rsa below.open.example"}
	secrets := ca.secret(t, "", "web", "*.example", "*.wild.example", "*.open.example") + ca.secret(t, "RSA", "rsa", "*.open.example") + authoritySecret("client-ca", ca.pem)
	e := start(t, common(t)+secrets+all([]ingress{
		mutual("required"), both, mutual("optional", "client-verify", "optional"), bare, wild, shared, wildOpen, below,
		{name: "sharedopen", rules: []string{"shared.example P / b"}},
		{name: "open", rules: []string{"open.example P / b", "free.wild.example P / b"}, tls: []string{"web open.example"}},
	}))
	clean(t, e)
	good, bad := ca.client(t, "alice"), stranger.client(t, "mallory")
	for _, c := range []struct {
		sni, host, target   string
		none, good, unknown string // the answers without a certificate, with a good one, and with one of an unknown authority
	}{
		{"required.example", "required.example", "/", "refused", "a", "refused"},
		{"required.example", "REQUIRED.example:8443", "/", "refused", "a", "refused"},
		{"REQUIRED.example", "required.example", "/", "refused", "a", "refused"},
		{"required.example", "required.example", "/both", "refused", "b", "refused"},
		{"optional.example", "optional.example", "/", "a", "a", "refused"},
		{"bare.example", "bare.example", "/", "refused", "a", "refused"},
		{"x.wild.example", "x.wild.example", "/", "refused", "a", "refused"},
		{"free.wild.example", "free.wild.example", "/", "b", "b", "b"},
		{"below.open.example", "below.open.example", "/", "refused", "a", "refused"},
		{"other.open.example", "other.open.example", "/", "b", "b", "b"},
		{"shared.example", "shared.example", "/", "b", "b", "refused"},
		{"shared.example", "shared.example", "/admin", "403", "a", "refused"},
		{"open.example", "open.example", "/", "b", "b", "b"},
		{"open.example", "free.wild.example", "/", "b", "b", "b"},
		{"open.example", "required.example", "/", "421", "421", "421"},
		{"open.example", "optional.example", "/", "421", "421", "421"},
		{"", "required.example", "/", "421", "421", "421"},
		{"unknown.example", "bare.example", "/", "421", "421", "421"},
		{"free.wild.example", "x.wild.example", "/", "421", "421", "421"},
		{"optional.example", "required.example", "/", "421", "421", "refused"},
		{"required.example", "x.wild.example", "/", "refused", "421", "refused"},
		{"required.example", "open.example", "/", "refused", "b", "refused"},
	} {
		for shows, want := range map[*tls.Certificate]string{nil: c.none, good: c.good, bad: c.unknown} {
			for _, h2 := range []bool{false, true} {
				if got := e.answerTo(t, asked(c.sni, shows), h2, c.host, c.target); got != want {
					t.Errorf("SNI %s, %s%s, HTTP/2 %v, as none %v, as stranger %v: %s, want %s", c.sni, c.host, c.target, h2, shows == nil, shows == bad, got, want)
				}
			}
		}
	}
	serves(t, e, map[string]string{"optional.example": "web", "free.wild.example": "web", "shared.example": "web"})
	if got := e.get(t, "required.example", "/"); got.StatusCode != 403 {
		t.Errorf("plain HTTP: %d", got.StatusCode)
	}
	if got := e.get(t, "shared.example", "/admin"); got.StatusCode != 403 {
		t.Errorf("plain HTTP of a shared host: %d", got.StatusCode)
	}
}

// The endpoint gets headers about the certificate. Clients cannot send them themselves.
func TestClientCertificateHeaders(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "clients")
	mutual := func(name string, options ...string) ingress {
		return optioned(name, append([]string{"client-ca-secret", "client-ca", "client-verify", "optional"}, options...)...)
	}
	redirected := optioned("redirected", "client-ca-secret", "client-ca", "ssl-redirect", "true")
	e := start(t, serviceYAML("shop", "a", mirror(t, "a", nil))+authoritySecret("client-ca", ca.pem)+all([]ingress{
		mutual("default"), mutual("some", "client-cert-headers", "issuer-dn, sha1, sha256, cert"), mutual("none", "client-cert-headers", "none"), redirected,
	}))
	clean(t, e)
	alice := ca.client(t, "Alice, \r\nX-Evil: \"1\" é")
	whole := base64.StdEncoding.EncodeToString(alice.Certificate[0])
	forged := []string{"X-SSL-Client-Verify: SUCCESS", "x-ssl-client-dn: CN=root", "X-Ssl-Client-Cert: forged", "X-SSL-CLIENT-OTHER: forged", "X-SSL-Client-SHA1: 1"}
	for _, c := range []struct {
		host  string
		shows *tls.Certificate
		want  map[string]string
	}{
		{"default.example", nil, map[string]string{"Verify": "NONE"}},
		{"default.example", alice, map[string]string{"Verify": "SUCCESS", "Dn": `CN=Alice\, \0D\0AX-Evil: \"1\" \C3\A9`}},
		{"some.example", nil, nil},
		{"some.example", alice, map[string]string{
			"Issuer-Dn": "CN=clients", "Cert": whole, "Sha256": fmt.Sprintf("%X", sha256.Sum256(alice.Certificate[0])), "Sha1": "*",
		}},
		{"none.example", alice, nil},
	} {
		conn, err := (&tls.Dialer{Config: asked(c.host, c.shows)}).DialContext(t.Context(), "tcp", e.https)
		if err != nil {
			t.Fatal(err)
		}
		got, err := exchange(conn, "GET / HTTP/1.1\nHost: "+c.host+"\n"+strings.Join(forged, "\n"))
		conn.Close()
		if err != nil || got.StatusCode != 200 {
			t.Errorf("%s: %v %+v", c.host, err, got.Response)
			continue
		}
		for name, values := range got.seen.Header {
			field, ours := strings.CutPrefix(name, "X-Ssl-Client-")
			if want, told := c.want[field]; ours && (!told || len(values) != 1 || (values[0] != want && want != "*")) {
				t.Errorf("%s, with a certificate: %v: %s is %q, want %q", c.host, c.shows != nil, name, values, want)
			}
			if name == "X-Evil" {
				t.Error("a subject wrote a header of its own")
			}
		}
		for field := range c.want {
			if got.seen.Header.Get("X-SSL-Client-"+field) == "" {
				t.Errorf("%s: no %s", c.host, field)
			}
		}
	}
	if got := e.get(t, "redirected.example", "/x"); got.StatusCode != 308 || got.Header.Get("Location") != "https://redirected.example/x" {
		t.Errorf("plain HTTP with ssl-redirect: %d %s", got.StatusCode, got.Header.Get("Location"))
	}
}

// What cannot be verified is not served. Without authorities, no client can connect. Options that contradict
// another Ingress, or an Ingress without a host, give 503.
func TestClientCertificatesFailClosed(t *testing.T) {
	t.Parallel()
	one, two := newAuthority(t, "one"), newAuthority(t, "two")
	mutual := func(name, secret string, options ...string) ingress {
		return optioned(name, append([]string{"client-ca-secret", secret}, options...)...)
	}
	younger := mutual("younger", "two")
	younger.age, younger.rules = 1, []string{"older.example P /x a", "alone.example P / a"}
	hostless := mutual("hostless", "one")
	hostless.rules = append(hostless.rules, "- P /hostless a")
	fallback := mutual("fallback", "one")
	fallback.fallback = "a"
	served := mutual("served", "missing")
	served.tls = []string{"gone served.example"}
	e := start(t, common(t)+authoritySecret("one", one.pem)+authoritySecret("two", two.pem)+authoritySecret("broken", []byte("lots"))+all([]ingress{
		mutual("missing", "missing"), mutual("broken", "broken"), served, mutual("older", "one"), younger, hostless, fallback,
		mutual("verify", "one", "client-verify", "maybe"), optioned("alone", "client-verify", "required"), mutual("name", "other/one"),
		{name: "open", rules: []string{"hostless.example P /y b", "older.example P / b"}},
	}))
	for _, c := range []struct{ host, target, want string }{
		{"missing.example", "/", "refused"},
		{"broken.example", "/", "refused"},
		{"served.example", "/", "refused"},
		{"older.example", "/x", "503"},
		{"alone.example", "/", "503"},
		{"hostless.example", "/", "503"},
		{"nobodys.example", "/hostless", "503"},
		{"fallback.example", "/", "503"},
		{"nobodys.example", "/", "503"},
		{"verify.example", "/", "503"},
		{"name.example", "/", "503"},
	} {
		for _, shows := range []*tls.Certificate{nil, one.client(t, "alice")} {
			if c.host == "older.example" && shows == nil {
				continue // the older Ingress asks for one
			}
			if got := e.answerTo(t, asked(c.host, shows), true, c.host, c.target); got != c.want && (shows != nil || got != "refused") {
				t.Errorf("%s%s, with a certificate %v: %s, want %s", c.host, c.target, shows != nil, got, c.want)
			}
		}
	}
	for _, name := range []string{"younger", "hostless", "fallback", "verify", "alone", "name"} {
		reportedOn(t, e, diag.Object{Kind: "Ingress", Namespace: "shop", Name: name})
	}
	reportedOn(t, e, diag.Object{Kind: "Secret", Namespace: "shop", Name: "broken"})
	if got := e.answerTo(t, asked("older.example", one.client(t, "alice")), true, "older.example", "/"); got != "a" && got != "b" {
		t.Errorf("the older Ingress: %s", got)
	}
}

// An endpoint gets a client's certificate in the headers of ingress-nginx, which clients cannot send
// themselves.
func TestClientCertificateHeadersOfNginx(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "clients")
	e := start(t, serviceYAML("shop", "a", mirror(t, "a", nil))+authoritySecret("client-ca", ca.pem)+optioned("nginx", "client-ca-secret", "client-ca",
		"client-verify", "optional", "client-cert-headers", "ssl-client-verify, ssl-client-subject-dn, ssl-client-issuer-dn, ssl-client-cert").yaml())
	clean(t, e)
	alice := ca.client(t, "Alice, of Shop")
	for name, c := range map[string]struct {
		shows *tls.Certificate
		want  map[string]string
	}{
		"nobody": {nil, map[string]string{"verify": "NONE"}},
		"alice": {alice, map[string]string{
			"verify": "SUCCESS", "subject-dn": `CN=Alice\, of Shop`, "issuer-dn": "CN=clients",
			"cert": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: alice.Certificate[0]})),
		}},
	} {
		conn, err := (&tls.Dialer{Config: asked("nginx.example", c.shows)}).DialContext(t.Context(), "tcp", e.https)
		if err != nil {
			t.Fatal(err)
		}
		got, err := exchange(conn, "GET / HTTP/1.1\nHost: nginx.example\nssl-client-verify: SUCCESS\nSSL-Client-Subject-DN: CN=root\nssl-client-issuer-dn: CN=root\nssl-client-cert: x\nssl-client-other: x")
		conn.Close()
		if err != nil || got.StatusCode != 200 {
			t.Fatal(name, err, got.Response)
		}
		for _, field := range []string{"verify", "subject-dn", "issuer-dn", "cert", "other"} {
			value, err := url.PathUnescape(got.seen.Header.Get("ssl-client-" + field))
			if err != nil || value != c.want[field] {
				t.Errorf("%s, ssl-client-%s: %q %v, want %q", name, field, value, err, c.want[field])
			}
		}
	}
}
