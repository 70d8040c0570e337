package routing_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// pairOf returns a certificate for h0.example.com and its key.
func pairOf(t *testing.T, change func(*x509.Certificate)) map[string][]byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"h0.example.com"}, NotBefore: born, NotAfter: expires}
	change(template)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
}

// HAProxy serves any certificate. The owner of the Secret hears of one that clients refuse.
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
			_, found := routing.Translate(in, routing.Config{Now: c.now})
			checkSaid(t, found, c.want, data)
		})
	}
}
