package routingtest

import (
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// secretYAML is a Secret of type kubernetes.io/tls.
func secretYAML(name string, certificate, key []byte) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {namespace: shop, name: %s}\ndata: {tls.crt: %s, tls.key: %s}\n",
		name, base64.StdEncoding.EncodeToString(certificate), base64.StdEncoding.EncodeToString(key))
}

// secretOf is a Secret with a certificate for its own name.
func secretOf(t *testing.T, name string) string {
	t.Helper()
	certificate, key := keyPair(t, name)
	return secretYAML(name, certificate, key)
}

// serves fails unless each name is served the certificate of another.
func serves(t *testing.T, e edge, want map[string]string) {
	t.Helper()
	for name, want := range want {
		if got := e.certificate(t, name); got != want {
			t.Errorf("SNI %s: certificate of %s, want %s", name, got, want)
		}
	}
}

// SNI chooses the certificate; a host without one gets the fallback.
func TestRow49And50Certificates(t *testing.T) {
	t.Parallel()
	i := ingress{rules: []string{"- P / a"}, tls: []string{"web shop.example", "wild *.foo.com"}}
	e := start(t, common(t)+secretOf(t, "web")+secretOf(t, "wild")+i.yaml())
	serves(t, e, map[string]string{
		"shop.example": "web", "b.foo.com": "wild", "a.b.foo.com": "fallback.invalid", "foo.com": "fallback.invalid", "x.example": "fallback.invalid",
	})
}

// A Secret that cannot be served costs its own hosts their certificate, and
// nobody anything else.
func TestRow51BadSecrets(t *testing.T) {
	t.Parallel()
	certificate, key := keyPair(t, "bad")
	_, otherKey := keyPair(t, "other")
	secrets := secretOf(t, "good") + secretYAML("mismatch", certificate, otherKey) + secretYAML("no-certificate", []byte("lots"), key) +
		secretYAML("no-key", certificate, []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")) + secretYAML("empty", nil, nil)
	bad := []string{"missing", "mismatch", "no-certificate", "no-key", "empty"}
	i := ingress{rules: []string{"good.example P / a"}, tls: []string{"good good.example"}}
	want := map[string]string{"good.example": "good", "x.example": "fallback.invalid"}
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
		if name == "missing" { // it is the Ingress that can be told
			object = diag.Object{Kind: "Ingress", Namespace: "shop", Name: "main"}
		}
		reportedOn(t, e, object)
	}
}

// reportedOn fails unless a compile had something to say of an object.
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

// The younger Ingress comes first by name, and in the second case by its place
// too.
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
