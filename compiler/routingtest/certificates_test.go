package routingtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// secretYAML returns a Secret of type kubernetes.io/tls.
func secretYAML(name string, certificate, key []byte) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {namespace: shop, name: %s}\ndata: {tls.crt: %s, tls.key: %s}\n",
		name, base64.StdEncoding.EncodeToString(certificate), base64.StdEncoding.EncodeToString(key))
}

// secretOf returns a Secret with a certificate for its own name.
func secretOf(t *testing.T, name string) string {
	t.Helper()
	certificate, key := keyPair(t, name)
	return secretYAML(name, certificate, key)
}

// serves fails unless the server shows the expected certificate for each name.
func serves(t *testing.T, e edge, want map[string]string) {
	t.Helper()
	for name, want := range want {
		if got := e.certificate(t, name); got != want {
			t.Errorf("SNI %s: certificate of %s, want %s", name, got, want)
		}
	}
}

// SNI chooses the certificate, which the client verifies. A host without a certificate gets the fallback.
func TestRow49And50Certificates(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	i := ingress{rules: []string{"shop.example P / a", "*.foo.com P / b", "x.example P / c"}, tls: []string{"web shop.example", "wild *.foo.com", "- x.example"}}
	e := start(t, common(t)+ca.secret(t, "", "web", "shop.example")+ca.secret(t, "", "wild", "*.foo.com")+i.yaml())
	for host, want := range map[string]string{"shop.example": "a", "b.foo.com": "b", "SHOP.example": "a"} {
		for _, protocol := range []string{"http/1.1", "h2"} {
			if got, err := e.ask(t, &tls.Config{RootCAs: ca.roots(), ServerName: host, NextProtos: []string{protocol}}, host, "/x"); got != want {
				t.Errorf("%s over %s: %s %v, want %s", host, protocol, got, err, want)
			}
		}
	}
	serves(t, e, map[string]string{
		"a.b.foo.com": "fallback.invalid", "foo.com": "fallback.invalid", "x.example": "fallback.invalid", "y.example": "fallback.invalid",
	})
	if got := e.http2(t, "GET", "x.example", "/"); got != "c" {
		t.Errorf("a host whose tls entry names no Secret: %s", got)
	}
}

// ask sends one request over TLS and returns the answer. It uses HTTP/2 if cfg offers that first.
func (e edge) ask(t *testing.T, cfg *tls.Config, host, target string) (string, error) {
	t.Helper()
	c, err := (&tls.Dialer{Config: cfg}).DialContext(t.Context(), "tcp", e.https)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if len(cfg.NextProtos) > 0 && cfg.NextProtos[0] == "h2" {
		return askHTTP2(c, "GET", host, target)
	}
	r, err := exchange(c, "GET "+target+" HTTP/1.1\nHost: "+host)
	if err != nil {
		return "", err
	}
	return answer(r.Response), nil
}

// One Ingress has two tls entries for one host. Each client gets the certificate that it can verify.
func TestCertificatesOfTwoKindsForOneHost(t *testing.T) {
	t.Parallel()
	rsaOnly, ecdsaOnly := []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}
	ca := newAuthority(t, "ca")
	secrets := ca.secret(t, "RSA", "one", "shop.example") + ca.secret(t, "", "two", "shop.example") +
		ca.secret(t, "", "wild", "*.foo.com") + ca.secret(t, "RSA", "own", "a.foo.com")
	i := ingress{rules: []string{"shop.example P / a", "*.foo.com P / a"}, tls: []string{"one shop.example", "two shop.example", "wild *.foo.com", "own a.foo.com"}}
	e := start(t, common(t)+secrets+i.yaml())
	clean(t, e)
	for _, c := range []struct {
		host    string
		ciphers []uint16
		want    string
	}{
		{"shop.example", rsaOnly, "one"},
		{"shop.example", ecdsaOnly, "two"},
		{"b.foo.com", ecdsaOnly, "wild"},
		{"a.foo.com", rsaOnly, "own"},
		{"a.foo.com", append(ecdsaOnly, rsaOnly...), "own"}, // not the wildcard's certificate, though that is ECDSA
	} {
		cfg := &tls.Config{RootCAs: ca.roots(), ServerName: c.host, MaxVersion: tls.VersionTLS12, CipherSuites: c.ciphers}
		conn, err := (&tls.Dialer{Config: cfg}).DialContext(t.Context(), "tcp", e.https)
		if err != nil {
			t.Errorf("%s: %v", c.host, err)
			continue
		}
		if got := conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName; got != c.want {
			t.Errorf("%s with %x: %s, want %s", c.host, c.ciphers, got, c.want)
		}
		conn.Close()
	}
	serves(t, e, map[string]string{"shop.example": "two", "a.foo.com": "own"})
}

// A bad Secret takes the certificate from its own hosts, and affects no other host.
func TestRow51BadSecrets(t *testing.T) {
	t.Parallel()
	certificate, key := keyPair(t, "bad")
	_, otherKey := keyPair(t, "other")
	secrets := secretOf(t, "good") + secretYAML("mismatch", certificate, otherKey) + secretYAML("no-certificate", []byte("lots"), key) +
		secretYAML("no-key", certificate, []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")) + secretYAML("empty", nil, nil)
	ca := newAuthority(t, "ca")
	crt, private := ca.issue(t, "", time.Now().Add(-time.Minute), "expired", "expired.example")
	rsa, rsaKey := ca.issue(t, "RSA", time.Now().Add(-time.Minute), "one-expired", "two.example")
	secrets += secretYAML("expired", crt, private) + secretYAML("one-expired", rsa, rsaKey) + ca.secret(t, "", "one-valid", "two.example")
	bad := []string{"missing", "mismatch", "no-certificate", "no-key", "empty", "expired"}
	i := ingress{rules: []string{"good.example P / a"}, tls: []string{"good good.example", "one-expired two.example", "one-valid two.example"}}
	want := map[string]string{"good.example": "good", "x.example": "fallback.invalid", "two.example": "one-valid"}
	for _, name := range bad {
		i.rules = append(i.rules, name+".example P / b")
		i.tls = append(i.tls, name+" "+name+".example")
		want[name+".example"] = "fallback.invalid"
	}
	e := start(t, common(t)+secrets+i.yaml())
	serves(t, e, want)
	if got := e.http2(t, "GET", "good.example", "/"); got != "a" {
		t.Errorf("good.example: %s, want a", got)
	}
	for _, name := range bad {
		if got := e.http2(t, "GET", name+".example", "/"); got != "b" {
			t.Errorf("%s.example: %s, want b", name, got)
		}
		object := diag.Object{Kind: "Secret", Namespace: "shop", Name: name}
		if name == "missing" { // the Ingress is told
			object = diag.Object{Kind: "Ingress", Namespace: "shop", Name: "main"}
		}
		reportedOn(t, e, object)
	}
}

// reportedOn fails unless a compile reported something about an object.
func reportedOn(t *testing.T, e edge, object diag.Object) {
	t.Helper()
	for _, d := range e.result.Diagnostics {
		if d.Object == object {
			return
		}
	}
	t.Errorf("nothing is reported on %s: %v", object, e.result.Diagnostics)
}

func TestRow52TLSHostOverPlainHTTP(t *testing.T) {
	t.Parallel()
	i := ingress{rules: []string{"shop.example P / a"}, tls: []string{"web shop.example"}}
	e := start(t, common(t)+secretOf(t, "web")+i.yaml())
	serves(t, e, map[string]string{"shop.example": "web"})
	if got := e.http11(t, "GET", "shop.example", "/x"); got != "a" {
		t.Errorf("HTTP: %s, want a", got)
	}
	if got := e.http2(t, "GET", "shop.example", "/x"); got != "a" {
		t.Errorf("HTTPS: %s, want a", got)
	}
}

// The younger Ingress comes first by name, and in the second case also in the manifests.
func TestRow54OlderIngressHasTheCertificate(t *testing.T) {
	t.Parallel()
	services := common(t) + secretOf(t, "old") + secretOf(t, "new")
	older := ingress{name: "y", rules: []string{"shop.example P / a"}, tls: []string{"old shop.example"}}
	younger := ingress{name: "x", age: 1, rules: []string{"shop.example P /x b"}, tls: []string{"new shop.example www.example"}}
	for name, ingresses := range map[string][]ingress{"older_first": {older, younger}, "younger_first": {younger, older}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := start(t, services+all(ingresses))
			for range 3 {
				serves(t, e, map[string]string{"shop.example": "old", "www.example": "new"})
			}
			if got := e.http2(t, "GET", "shop.example", "/x"); got != "b" {
				t.Errorf("/x: %s, want b", got)
			}
			reportedOn(t, e, diag.Object{Kind: "Ingress", Namespace: "shop", Name: "x"})
		})
	}
}

// A refused Ingress keeps its certificate, so that the clients who get its 503 still see the right one.
func TestCertificateOfRefusedIngress(t *testing.T) {
	t.Parallel()
	i := optioned("shop", "allow-list", "127.0.0.0/8")
	i.rules = append(i.rules, "bad_host! P / a")
	i.tls = []string{"web shop.example bad_host!"}
	e := start(t, common(t)+secretOf(t, "web")+i.yaml())
	serves(t, e, map[string]string{"shop.example": "web"})
	if got := e.http2(t, "GET", "shop.example", "/"); got != "503" {
		t.Errorf("a closed route: %s", got)
	}
	reportedOn(t, e, diag.Object{Kind: "Ingress", Namespace: "shop", Name: "shop"})
}

// hostKeyPair returns a self-signed certificate for hosts, and its key, in PEM.
func hostKeyPair(t *testing.T, hosts ...string) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: hosts[0]}, DNSNames: hosts,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}
