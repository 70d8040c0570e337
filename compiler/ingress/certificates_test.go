package ingress_test

import (
	"crypto/x509"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

var (
	born    = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	expires = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
)

// keyPair returns a certificate for some names, and its key.
func keyPair(t *testing.T, names ...string) (certificate, key []byte) {
	t.Helper()
	pair := pairOf(t, func(c *x509.Certificate) { c.DNSNames = names })
	return pair["tls.crt"], pair["tls.key"]
}

func secretOf(data map[string][]byte) inputs.Object[corev1.Secret] {
	return inputs.Object[corev1.Secret]{
		Ref:   diag.Object{Kind: "Secret", Namespace: "shop", Name: "web-tls"},
		Value: &corev1.Secret{Type: corev1.SecretTypeTLS, Data: data},
		At:    func(...any) diag.Position { return diag.Position{File: "secret.yaml", Line: 6, Column: 12} },
	}
}

// The model names a Secret whatever it holds, since it may be repaired before the snapshot is pushed. Findings
// about it are on the Secret, and do not show its content.
func TestCertificateOfSecret(t *testing.T) {
	good, key := keyPair(t, "h0.example.com", "*.foo.com")
	_, other := keyPair(t, "h0.example.com")
	during := born.Add(time.Hour)
	for _, c := range []struct {
		name     string
		data     map[string][]byte
		hosts    []string
		now      time.Time
		observed bool
		want     []string
	}{
		{"good", map[string][]byte{"tls.crt": good, "tls.key": key}, []string{"h0.example.com", "*.foo.com", "B.foo.com."}, during, true, nil},
		{"expired", map[string][]byte{"tls.crt": good, "tls.key": key}, []string{"h0.example.com"}, expires.Add(1), true,
			[]string{"secret.yaml:6:12: warning: Secret shop/web-tls: the certificate expired on 2025-01-01"}},
		{"expired, at no particular time", map[string][]byte{"tls.crt": good, "tls.key": key}, []string{"h0.example.com"}, time.Time{}, true, nil},
		{"for other hosts", map[string][]byte{"tls.crt": good, "tls.key": key}, []string{"foo.com", "a.b.foo.com", "*.h0.example.com"}, during, true, []string{
			"warning: Ingress shop/web: spec.tls[0].hosts[0]: the certificate in Secret shop/web-tls is not for host foo.com but for *.foo.com, h0.example.com",
			"is not for host a.b.foo.com",
			"is not for host *.h0.example.com",
		}},
		{"of another key", map[string][]byte{"tls.crt": good, "tls.key": other}, []string{"h0.example.com"}, during, false,
			[]string{"secret.yaml:6:12: Secret shop/web-tls: holds no certificate that can be served: the private key does not belong to the certificate"}},
		{"malformed", map[string][]byte{"tls.crt": []byte("hunter2"), "tls.key": key}, []string{"h0.example.com"}, during, false,
			[]string{"holds no certificate that can be served: there is no certificate"}},
		{"without key", map[string][]byte{"tls.crt": good}, []string{"h0.example.com"}, during, false, []string{"holds no certificate that can be served: tls.key"}},
		{"empty", nil, []string{"h0.example.com"}, during, false, []string{"holds no certificate that can be served: tls.crt"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ing := ingressOf("web", 0)
			ing.Value.Spec.TLS = []networkingv1.IngressTLS{{Hosts: c.hosts, SecretName: "web-tls"}}
			in := inputs.Inputs{Ingresses: []inputs.Object[networkingv1.Ingress]{ing}, Secrets: []inputs.Object[corev1.Secret]{secretOf(c.data)}}
			model, found := ingress.Translate(in, ingress.Config{Now: c.now})

			if len(model.Certificates) != 1 || model.Certificates[0].File != "certs/shop_web-tls.pem" {
				t.Fatalf("certificates are %+v", model.Certificates)
			}
			if observed := model.Certificates[0].Observed; (observed != nil) != c.observed {
				t.Errorf("observed %+v", observed)
			}
			checkSaid(t, found, c.want, c.data)
		})
	}
}

// checkSaid checks the findings, except the one about the missing Service. They must not show the content of
// the Secret.
func checkSaid(t *testing.T, found []diag.Diagnostic, want []string, secret map[string][]byte) {
	t.Helper()
	var said []string
	for _, d := range found {
		if !strings.Contains(d.Message, "Service shop/web does not exist") {
			said = append(said, d.String())
		}
	}
	all := strings.Join(said, "\n")
	if len(said) != len(want) {
		t.Errorf("said %s\nwant %d findings", all, len(want))
	}
	for _, w := range want {
		if !strings.Contains(all, w) {
			t.Errorf("said %s\nwant %s", all, w)
		}
	}
	for key, value := range secret {
		for _, form := range []string{string(value), base64.StdEncoding.EncodeToString(value)} {
			for _, line := range strings.Split(form, "\n") {
				if len(line) > 5 && strings.Contains(all, line) {
					t.Errorf("said %s, which holds a part of %s", all, key)
				}
			}
		}
	}
}

// If a host has two certificates with the same kind of key, HAProxy serves the one whose file comes first, in
// whatever order they are named.
func TestCertificatesOfOneKind(t *testing.T) {
	good, key := keyPair(t, "h0.example.com")
	for _, names := range [][]string{{"web-tls", "web-more"}, {"web-more", "web-tls"}} {
		ing := ingressOf("web", 0)
		var in inputs.Inputs
		for _, name := range names {
			ing.Value.Spec.TLS = append(ing.Value.Spec.TLS, networkingv1.IngressTLS{Hosts: []string{"h0.example.com"}, SecretName: name})
			secret := secretOf(map[string][]byte{"tls.crt": good, "tls.key": key})
			secret.Ref.Name = name
			in.Secrets = append(in.Secrets, secret)
		}
		in.Ingresses = []inputs.Object[networkingv1.Ingress]{ing}
		model, found := ingress.Translate(in, ingress.Config{})
		if len(model.Certificates) != 2 {
			t.Errorf("certificates are %+v", model.Certificates)
		}
		checkSaid(t, found, []string{"Secret shop/web-tls is not served for host h0.example.com: Secret shop/web-more holds a key of the same kind, ECDSA"}, nil)
	}
}

// pairOf returns a certificate for h0.example.com and its key.
func pairOf(t *testing.T, change func(*x509.Certificate)) map[string][]byte {
	t.Helper()
	return pemtest.TLSSecret(t, func(c *x509.Certificate) {
		c.DNSNames, c.NotBefore, c.NotAfter = []string{"h0.example.com"}, born, expires
		change(c)
	})
}

// HAProxy serves any certificate. If clients would refuse it, there is a finding on the Secret.
func TestCertificatesThatClientsRefuse(t *testing.T) {
	usage := func(usages ...x509.ExtKeyUsage) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.ExtKeyUsage = usages }
	}
	during := born.Add(time.Hour)
	const on = "secret.yaml:6:12: warning: Secret shop/web-tls: the certificate for h0.example.com "
	for name, c := range map[string]struct {
		change func(*x509.Certificate)
		now    time.Time
		want   []string
	}{
		"for anything":           {func(*x509.Certificate) {}, during, nil},
		"for servers":            {usage(x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth), during, nil},
		"for any usage":          {usage(x509.ExtKeyUsageAny), during, nil},
		"for clients":            {usage(x509.ExtKeyUsageClientAuth), during, []string{on + "is not for servers"}},
		"for code":               {usage(x509.ExtKeyUsageCodeSigning), during, []string{on + "is not for servers"}},
		"of an authority":        {func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true }, during, []string{on + "is that of a certificate authority"}},
		"of none, said so":       {func(c *x509.Certificate) { c.BasicConstraintsValid = true }, during, nil},
		"not yet":                {func(*x509.Certificate) {}, born.Add(-time.Hour), []string{on + "is not valid before " + born.UTC().Format("2006-01-02 15:04 UTC")}},
		"at no particular time":  {func(*x509.Certificate) {}, time.Time{}, nil},
		"not yet, and for mails": {usage(x509.ExtKeyUsageEmailProtection), born.Add(-time.Hour), []string{on + "is not valid before", on + "is not for servers"}},
	} {
		t.Run(name, func(t *testing.T) {
			data := pairOf(t, c.change)
			ing := ingressOf("web", 0)
			ing.Value.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"h0.example.com"}, SecretName: "web-tls"}}
			in := inputs.Inputs{Ingresses: []inputs.Object[networkingv1.Ingress]{ing}, Secrets: []inputs.Object[corev1.Secret]{secretOf(data)}}
			_, found := ingress.Translate(in, ingress.Config{Now: c.now})
			checkSaid(t, found, c.want, data)
		})
	}
}
