package routingtest

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"testing"
	"time"
)

// named issues a certificate for a subject that is written attribute by attribute.
func (a authority) named(t *testing.T, attributes ...pkix.AttributeTypeAndValue) *tls.Certificate {
	t.Helper()
	key := newKey(t, "")
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{ExtraNames: attributes}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func commonName(value any) pkix.AttributeTypeAndValue {
	return pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: value}
}

// Clients are served by the whole of their one common name. Nothing that looks like it in
// another part of the subject counts, and nobody gets in without a certificate.
func TestClientNames(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "clients")
	mutual := func(name string, options ...string) ingress {
		return optioned(name, append([]string{"client-ca-secret", "client-ca"}, options...)...)
	}
	e := start(t, common(t)+authoritySecret("client-ca", ca.pem)+all([]ingress{
		mutual("exact", "client-match-cn", "alice"), mutual("either", "client-match-cn", "alice|bob[0-9]+"),
		mutual("optional", "client-match-cn", "alice", "client-verify", "optional"),
		mutual("broken", "client-match-cn", "a)|(?:.*"),
		mutual("page", "client-error-page", "https://help.example/certificates?a=%20b"),
		mutual("both", "client-error-page", "/help", "client-match-cn", "alice"),
		optioned("alone", "client-match-cn", "alice"),
	}))
	unit := pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{2, 5, 4, 11}, Value: "alice"}
	forged := pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{2, 5, 4, 10}, Value: "x,CN=alice"}
	shown := map[string]*tls.Certificate{
		"none": nil, "alice": ca.named(t, commonName("alice")), "Alice": ca.named(t, commonName("Alice")), "alice.evil": ca.named(t, commonName("alice.evil")),
		"line": ca.named(t, commonName("alice\n")), "NUL": ca.named(t, commonName("alice\x00.evil")), "bob7": ca.named(t, commonName("bob7")), "bob": ca.named(t, commonName("bob")),
		"unit": ca.named(t, unit), "forged": ca.named(t, forged, commonName("mallory")), "two": ca.named(t, commonName("alice"), commonName("mallory")),
		"after": ca.named(t, commonName("mallory"), commonName("alice")), "slash": ca.named(t, commonName("mallory/CN=alice")),
	}
	want := map[string]map[string]string{
		"exact": {"none": "refused", "alice": "a"}, "either": {"none": "refused", "alice": "a", "bob7": "a"}, "optional": {"alice": "a"},
		"page": {"none": "302"}, "both": {"none": "302", "alice": "a"}, "broken": {}, "alone": {},
	}
	for host, served := range want {
		for name, certificate := range shown {
			expected, known := served[name]
			switch {
			case known:
			case host == "page":
				expected = "a"
			case host == "broken" || host == "alone":
				expected = "503"
			default:
				expected = "403"
			}
			if got := e.answerTo(t, asked(host+".example", certificate), name == "bob", host+".example", "/"); got != expected {
				t.Errorf("%s, as %s: %s, want %s", host, name, got, expected)
			}
		}
	}
	for host := range want {
		if got := e.get(t, host+".example", "/"); got.StatusCode == 200 {
			t.Errorf("%s is served in the clear", host)
		}
	}
}
