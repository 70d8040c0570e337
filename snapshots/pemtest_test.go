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
	"math/big"
	"sync"
	"testing"
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

func pemOf(kind, content string) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte(content)})
}
