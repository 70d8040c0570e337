// Package pemtest makes keys and certificates for tests.
package pemtest

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"
)

// noon is when the certificates become valid; they are valid for a year.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// Keys for tests, made when they are first asked for.
var (
	ECKey   = sync.OnceValue(func() crypto.Signer { return newKey(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) })
	ECKey2  = sync.OnceValue(func() crypto.Signer { return newKey(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) })
	RSAKey  = sync.OnceValue(func() crypto.Signer { return newKey(rsa.GenerateKey(rand.Reader, 2048)) })
	WeakKey = sync.OnceValue(func() crypto.Signer { return newKey(rsa.GenerateKey(rand.Reader, 1024)) })
	// EdKey is always the same, since the name of its file is in golden files.
	EdKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
)

func newKey[K crypto.Signer](key K, err error) crypto.Signer {
	if err != nil {
		panic(err)
	}
	return key
}

// Certify returns a certificate for the name, signed with the issuer's key or its own.
func Certify(tb testing.TB, name string, key, issuer crypto.Signer) []byte {
	tb.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: noon, NotAfter: noon.AddDate(1, 0, 0),
	}
	parent := template
	if issuer == nil {
		issuer = key
	} else {
		parent = &x509.Certificate{Subject: pkix.Name{CommonName: "issuer"}}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), issuer)
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// KeyPEM returns the key in PKCS #8.
func KeyPEM(tb testing.TB, key crypto.Signer) []byte {
	tb.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// SelfSigned returns a certificate and its key.
func SelfSigned(tb testing.TB, name string, key crypto.Signer) []byte {
	tb.Helper()
	return append(Certify(tb, name, key, nil), KeyPEM(tb, key)...)
}

// TLSSecret returns the content of a Secret with a new EC key and a certificate that is signed with it. The function says
// what the certificate is for.
func TLSSecret(tb testing.TB, describe func(*x509.Certificate)) map[string][]byte {
	tb.Helper()
	key := newKey(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	describe(template)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		tb.Fatal(err)
	}
	return map[string][]byte{
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		"tls.key": KeyPEM(tb, key),
	}
}

// Block returns PEM data of one block, whose content need not be what its type says.
func Block(kind, content string) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte(content)})
}

// Authority signs certificates. It is valid from an hour ago, for two hours.
type Authority struct {
	Certificate *x509.Certificate
	PEM         string
	key         *ecdsa.PrivateKey
}

// NewAuthority returns an authority with a key of its own.
func NewAuthority(tb testing.TB) Authority {
	tb.Helper()
	return certified(tb, "authority", nil)
}

// Authority returns an intermediate authority with its own key, signed by this one.
func (a Authority) Authority(tb testing.TB, name string) Authority {
	tb.Helper()
	return certified(tb, name, &a)
}

// certified returns an authority signed by another one, or by itself.
func certified(tb testing.TB, name string, by *Authority) Authority {
	tb.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	key := newECKey(tb)
	if by == nil {
		by = &Authority{Certificate: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.Certificate, key.Public(), by.key)
	if err != nil {
		tb.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return Authority{certificate, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), key}
}

// Client returns a certificate of a client, which is valid as long as the authority.
func (a Authority) Client(tb testing.TB, name string) tls.Certificate {
	tb.Helper()
	return a.Sign(tb, name, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
}

// Sign returns a certificate for a name, with a key of its own. It is valid as long as the authority, for
// clients and for servers at 127.0.0.1, unless edit changes that.
func (a Authority) Sign(tb testing.TB, name string, edit func(*x509.Certificate)) tls.Certificate {
	tb.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: a.Certificate.NotBefore, NotAfter: a.Certificate.NotAfter, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if edit != nil {
		edit(template)
	}
	key := newECKey(tb)
	der, err := x509.CreateCertificate(rand.Reader, template, a.Certificate, key.Public(), a.key)
	if err != nil {
		tb.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// PEMOf returns a certificate that [Authority.Sign] made, and its key.
func PEMOf(tb testing.TB, c tls.Certificate) (certificate, key string) {
	tb.Helper()
	private, ok := c.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		tb.Fatalf("the key is a %T", c.PrivateKey)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})), string(KeyPEM(tb, private))
}

func newECKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}
