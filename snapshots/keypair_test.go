package snapshots

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
)

func TestCheckKeyPair(t *testing.T) {
	ec := certify(t, "a.example", ecKey(), nil)
	for _, tt := range []struct {
		name string
		pem  []byte
		want error
	}{
		{"ECDSA", selfSigned(t, "a.example", ecKey()), nil},
		{"RSA", selfSigned(t, "a.example", rsaKey()), nil},
		{"Ed25519", selfSigned(t, "a.example", edKey), nil},
		{"the key before the certificate", append(keyPEM(t, ecKey()), ec...), nil},
		{"with a chain", bytes.Join([][]byte{certify(t, "a.example", ecKey(), ecKey2()), certify(t, "issuer", ecKey2(), nil), keyPEM(t, ecKey())}, nil), nil},
		{"empty", nil, ErrNoCertificate},
		{"not PEM", []byte("hello"), ErrNoCertificate},
		{"only a key", keyPEM(t, ecKey()), ErrNoCertificate},
		{"only a certificate", ec, ErrNoKey},
		{"the key of another", append(bytes.Clone(ec), keyPEM(t, ecKey2())...), ErrKeyMismatch},
		{"a key of another kind", append(bytes.Clone(ec), keyPEM(t, edKey)...), ErrKeyMismatch},
		{"a malformed leaf", append(pemOf("CERTIFICATE", "junk"), keyPEM(t, ecKey())...), ErrBadCertificate},
		{"a malformed chain", bytes.Join([][]byte{ec, pemOf("CERTIFICATE", "junk"), keyPEM(t, ecKey())}, nil), ErrBadCertificate},
		{"a malformed key", append(bytes.Clone(ec), pemOf("PRIVATE KEY", "junk")...), ErrBadKey},
		{"an encrypted key", append(bytes.Clone(ec), pemOf("ENCRYPTED PRIVATE KEY", "junk")...), ErrEncryptedKey},
		{"a key encrypted as of old", append(bytes.Clone(ec), "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n"...), ErrEncryptedKey},
		{"a short RSA key", selfSigned(t, "a.example", weakKey()), ErrWeak},
		{"a chain with a short RSA key", bytes.Join([][]byte{ec, certify(t, "issuer", weakKey(), nil), keyPEM(t, ecKey())}, nil), ErrWeak},
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
	der, err := x509.CreateCertificate(rand.Reader, template, template, edKey.Public(), edKey)
	if err != nil {
		t.Fatal(err)
	}
	got, err := CheckKeyPair(append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM(t, edKey)...))
	want := Leaf{Fingerprint: got.Fingerprint, Names: []string{"::1", "a.example", "b.example"}, NotAfter: noon.Add(time.Hour), Version: got.Version}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || len(got.Fingerprint) != 64 {
		t.Errorf("%v, fingerprint %q (-want +got):\n%s", err, got.Fingerprint, diff)
	}
}

// What is joined is canonical: neither text around the blocks, nor other
// blocks, nor a wrong name of the key's form reaches HAProxy, which refuses
// some of what Go accepts.
func TestJoinKeyPair(t *testing.T) {
	leaf, issuer := certify(t, "a.example", rsaKey(), ecKey2()), certify(t, "issuer", ecKey2(), nil)
	pkcs1 := x509.MarshalPKCS1PrivateKey(rsaKey().(*rsa.PrivateKey))
	certificates := bytes.Join([][]byte{[]byte("subject=a.example\n"), leaf, keyPEM(t, ecKey2()), pemOf("DH PARAMETERS", "weak"), issuer}, nil)
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
