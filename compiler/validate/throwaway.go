package validate

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
	"fmt"
	"math/big"
	"sync"
	"time"
)

// KeyType is a kind of private key. HAProxy, OpenSSL and the Dataplane API
// treat the kinds differently, so that certificates are stood in for by those
// of the same kind.
type KeyType string

// The kinds of keys that HAProxy serves.
const (
	ECDSA   KeyType = "ecdsa"
	RSA     KeyType = "rsa"
	Ed25519 KeyType = "ed25519"
)

// KeyTypeOf returns the kind of key that a PEM certificate is for. It is ECDSA
// where that cannot be told.
func KeyTypeOf(certificates []byte) KeyType {
	block, _ := pem.Decode(certificates)
	if block == nil {
		return ECDSA
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return ECDSA
	}
	switch leaf.PublicKeyAlgorithm {
	case x509.RSA:
		return RSA
	case x509.Ed25519:
		return Ed25519
	}
	return ECDSA
}

// keyRing keeps one throw-away certificate of each kind, made when it is first
// needed.
type keyRing struct {
	mu   sync.Mutex
	made map[KeyType][]byte
}

// get returns the PEM of a certificate and its key.
func (k *keyRing) get(t KeyType) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if made, ok := k.made[t]; ok {
		return made, nil
	}
	made, err := makeThrowaway(t, time.Now())
	if err != nil {
		return nil, fmt.Errorf("make a throw-away %s certificate: %w", t, err)
	}
	if k.made == nil {
		k.made = map[KeyType][]byte{}
	}
	k.made[t] = made
	return made, nil
}

func makeThrowaway(t KeyType, now time.Time) ([]byte, error) {
	key, err := makeKey(t)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hapsnap.invalid"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}))
	out.Write(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
	return out.Bytes(), nil
}

func makeKey(t KeyType) (crypto.Signer, error) {
	switch t {
	case RSA:
		return rsa.GenerateKey(rand.Reader, 2048)
	case Ed25519:
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}
