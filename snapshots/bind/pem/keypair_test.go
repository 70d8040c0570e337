package pem

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestCheckKeyPair(t *testing.T) {
	ec := pemtest.Certify(t, "a.example", pemtest.ECKey(), nil)
	for _, tt := range []struct {
		name string
		pem  []byte
		want error
	}{
		{"ECDSA", pemtest.SelfSigned(t, "a.example", pemtest.ECKey()), nil},
		{"RSA", pemtest.SelfSigned(t, "a.example", pemtest.RSAKey()), nil},
		{"Ed25519", pemtest.SelfSigned(t, "a.example", pemtest.EdKey), nil},
		{"the key before the certificate", append(pemtest.KeyPEM(t, pemtest.ECKey()), ec...), nil},
		{"with a chain", bytes.Join([][]byte{pemtest.Certify(t, "a.example", pemtest.ECKey(), pemtest.ECKey2()), pemtest.Certify(t, "issuer", pemtest.ECKey2(), nil), pemtest.KeyPEM(t, pemtest.ECKey())}, nil), nil},
		{"empty", nil, ErrNoCertificate},
		{"not PEM", []byte("hello"), ErrNoCertificate},
		{"only a key", pemtest.KeyPEM(t, pemtest.ECKey()), ErrNoCertificate},
		{"only a certificate", ec, ErrNoKey},
		{"the key of another", append(bytes.Clone(ec), pemtest.KeyPEM(t, pemtest.ECKey2())...), ErrKeyMismatch},
		{"a key of another kind", append(bytes.Clone(ec), pemtest.KeyPEM(t, pemtest.EdKey)...), ErrKeyMismatch},
		{"a malformed leaf", append(pemtest.Block("CERTIFICATE", "junk"), pemtest.KeyPEM(t, pemtest.ECKey())...), ErrBadCertificate},
		{"a malformed chain", bytes.Join([][]byte{ec, pemtest.Block("CERTIFICATE", "junk"), pemtest.KeyPEM(t, pemtest.ECKey())}, nil), ErrBadCertificate},
		{"a malformed key", append(bytes.Clone(ec), pemtest.Block("PRIVATE KEY", "junk")...), ErrBadKey},
		{"an encrypted key", append(bytes.Clone(ec), pemtest.Block("ENCRYPTED PRIVATE KEY", "junk")...), ErrEncryptedKey},
		{"a key encrypted as of old", append(bytes.Clone(ec), "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n"...), ErrEncryptedKey},
		{"a short RSA key", pemtest.SelfSigned(t, "a.example", pemtest.WeakKey()), ErrWeak},
		{"a chain with a short RSA key", bytes.Join([][]byte{ec, pemtest.Certify(t, "issuer", pemtest.WeakKey(), nil), pemtest.KeyPEM(t, pemtest.ECKey())}, nil), ErrWeak},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := CheckKeyPair(tt.pem); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestWeakSignatures(t *testing.T) {
	c := &x509.Certificate{SignatureAlgorithm: x509.SHA1WithRSA, RawSubject: []byte("a"), RawIssuer: []byte("b")}
	if err := checkStrength(c); !errors.Is(err, ErrWeak) || !strings.Contains(err.Error(), "SHA1-RSA") {
		t.Errorf("signed with SHA-1: %v", err)
	}
	c.RawIssuer = c.RawSubject
	if err := checkStrength(c); err != nil {
		t.Errorf("a root signed with SHA-1: %v", err)
	}
}

func TestLeaf(t *testing.T) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ignored.example"},
		DNSNames: []string{"b.example", "a.example", "a.example"}, IPAddresses: []net.IP{net.IPv6loopback},
		NotBefore: noon, NotAfter: noon.Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, pemtest.EdKey.Public(), pemtest.EdKey)
	if err != nil {
		t.Fatal(err)
	}
	got, err := CheckKeyPair(append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pemtest.KeyPEM(t, pemtest.EdKey)...))
	want := Leaf{Fingerprint: got.Fingerprint, Names: []string{"::1", "a.example", "b.example"}, NotAfter: noon.Add(time.Hour), Version: got.Version}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || len(got.Fingerprint) != 64 {
		t.Errorf("%v, fingerprint %q (-want +got):\n%s", err, got.Fingerprint, diff)
	}
}

// The joined PEM is canonical: HAProxy, which refuses some of what Go accepts, gets no text around the blocks,
// no other blocks, and no wrong name of the key's form.
func TestJoinKeyPair(t *testing.T) {
	leaf, issuer := pemtest.Certify(t, "a.example", pemtest.RSAKey(), pemtest.ECKey2()), pemtest.Certify(t, "issuer", pemtest.ECKey2(), nil)
	pkcs1 := x509.MarshalPKCS1PrivateKey(pemtest.RSAKey().(*rsa.PrivateKey))
	certificates := bytes.Join([][]byte{[]byte("subject=a.example\n"), leaf, pemtest.KeyPEM(t, pemtest.ECKey2()), pemtest.Block("DH PARAMETERS", "weak"), issuer}, nil)
	key := append([]byte("Bag Attributes\n"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs1})...)
	got, err := JoinKeyPair(certificates, key)
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Join([][]byte{leaf, issuer, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: pkcs1})}, nil)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("joined (-want +got):\n%s", diff)
	}
	if _, err := JoinKeyPair(certificates, nil); !errors.Is(err, ErrNoKey) {
		t.Errorf("without a key: %v", err)
	}
}
