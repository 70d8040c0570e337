package routingtest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"
)

// authority is a certificate authority.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	pem         []byte // the certificate
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	return certified(t, name, nil)
}

// intermediate returns an authority whose certificate this one signed.
func (a authority) intermediate(t *testing.T, name string) authority {
	t.Helper()
	return certified(t, name, &a)
}

// certified returns an authority whose certificate is signed by another one, or by itself.
func certified(t *testing.T, name string, by *authority) authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:  x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	key := newKey(t, "")
	if by == nil {
		by = &authority{certificate: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.certificate, key.Public(), by.key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{certificate, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// roots returns a pool that trusts this authority.
func (a authority) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// issue returns a certificate for names, with a subject, and its key. It is valid until the given time.
func (a authority) issue(t *testing.T, kind string, until time.Time, subject string, names ...string) (certificate, private []byte) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: subject}, DNSNames: names,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore:   time.Now().Add(-2 * time.Hour), NotAfter: until,
	}
	key := newKey(t, kind)
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// secret returns a Secret with a certificate of this authority for names. The name of the Secret is the
// subject.
func (a authority) secret(t *testing.T, kind, name string, names ...string) string {
	t.Helper()
	certificate, key := a.issue(t, kind, time.Now().Add(time.Hour), name, names...)
	return secretYAML(name, certificate, key)
}

// newKey returns an ECDSA or RSA key.
func newKey(tb testing.TB, kind string) crypto.Signer {
	tb.Helper()
	var key crypto.Signer
	var err error
	if kind == "RSA" {
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	} else {
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func serial(t *testing.T) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// client returns a client certificate of this authority.
func (a authority) client(t *testing.T, name string) *tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(a.issue(t, "", time.Now().Add(time.Hour), name))
	if err != nil {
		t.Fatal(err)
	}
	return &pair
}

// authoritySecret returns a Secret with certificate authorities in PEM.
func authoritySecret(name string, pem []byte) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata: {namespace: shop, name: %s}\ndata: {ca.crt: %s}\n", name, base64.StdEncoding.EncodeToString(pem))
}
