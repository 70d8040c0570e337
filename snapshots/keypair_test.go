package snapshots

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Keys for tests, made when they are first asked for.
var (
	ecKey   = sync.OnceValue(func() crypto.Signer { return newKey(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) })
	ecKey2  = sync.OnceValue(func() crypto.Signer { return newKey(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) })
	rsaKey  = sync.OnceValue(func() crypto.Signer { return newKey(rsa.GenerateKey(rand.Reader, 2048)) })
	weakKey = sync.OnceValue(func() crypto.Signer { return newKey(rsa.GenerateKey(rand.Reader, 1024)) })
	// edKey is always the same: the name of its file is in golden files.
	edKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
)

func newKey[K crypto.Signer](key K, err error) crypto.Signer {
	if err != nil {
		panic(err)
	}
	return key
}

// certify returns a certificate for the name: by the issuer's key, or its own.
func certify(tb testing.TB, name string, key, issuer crypto.Signer) []byte {
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

// keyPEM returns the key in PKCS #8.
func keyPEM(tb testing.TB, key crypto.Signer) []byte {
	tb.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// selfSigned returns a certificate and its key.
func selfSigned(tb testing.TB, name string, key crypto.Signer) []byte {
	tb.Helper()
	return append(certify(tb, name, key, nil), keyPEM(tb, key)...)
}

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

func pemOf(kind, content string) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte(content)})
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

func TestObservedCertificate(t *testing.T) {
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
	want := ObservedCertificate{Fingerprint: got.Fingerprint, Names: []string{"::1", "a.example", "b.example"}, NotAfter: noon.Add(time.Hour), Version: got.Version}
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

func TestVerdictsAreRemembered(t *testing.T) {
	v := verdicts{judge: judgeKeyPair, known: map[[32]byte]verdict{}}
	good, bad := selfSigned(t, "a.example", edKey), []byte("bad")
	for range 2 {
		if got := v.verdict(good); got != (verdict{storable: false}) {
			t.Errorf("good: %v", got)
		}
		if got := v.verdict(bad); !errors.Is(got.err, ErrNoCertificate) {
			t.Errorf("bad: %v", got)
		}
	}
	if len(v.known) != 2 {
		t.Errorf("remembers %d", len(v.known))
	}
}
