package routingtest

import (
	"crypto/tls"
	"encoding/pem"
	"net/url"
	"testing"
)

// An endpoint behind ingress-nginx finds a client's certificate where it did, and nothing
// that a client made up.
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
