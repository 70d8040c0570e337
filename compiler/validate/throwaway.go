package validate

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	stdpem "encoding/pem"
	"fmt"
	"math/big"
	"sync"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
)

// KeyType is a kind of private key. HAProxy, OpenSSL and the Dataplane API treat the kinds differently,
// so that each certificate is replaced by one of the same kind.
type KeyType string

// The kinds of keys that HAProxy serves.
const (
	ECDSA   KeyType = "ecdsa"
	RSA     KeyType = "rsa"
	Ed25519 KeyType = "ed25519"
)

// KeyTypeOf returns the kind of key that a PEM certificate is for, ECDSA if it cannot tell.
func KeyTypeOf(certificates []byte) KeyType {
	block, _ := stdpem.Decode(certificates)
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

// keyRing holds one throw-away certificate of each kind, made when it is first needed.
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
	now := time.Now()
	key, err := makeKey(t)
	if err != nil {
		return nil, fmt.Errorf("make a temporary %s certificate: %w", t, err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hapsnap.invalid"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make a temporary %s certificate: %w", t, err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("make a temporary %s certificate: %w", t, err)
	}
	var out bytes.Buffer
	out.Write(stdpem.EncodeToMemory(&stdpem.Block{Type: "CERTIFICATE", Bytes: certificate}))
	out.Write(stdpem.EncodeToMemory(&stdpem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
	made := out.Bytes()
	if k.made == nil {
		k.made = map[KeyType][]byte{}
	}
	k.made[t] = made
	return made, nil
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

// These stand for users and values of Secrets, so that HAProxy and the parser of the Dataplane API see
// the lines that they will be on. The value needs quotes, as some real ones do. The hash is of no
// password.
const (
	throwawayHash  = "$5$rounds=1000$hapsnap$..........................................." //nolint:gosec // It is no credential.
	throwawayValue = "throw away"
)

// StandIns returns live data with a throw-away value for each need, and for the fallback certificate.
// Keys gives the kinds of keys that Secrets are known to hold. It has no endpoints.
func (c *Checker) StandIns(keys map[snapshots.SecretName]KeyType, needs []bind.Need) (bind.Live, error) {
	live := bind.Live{
		Certificates: map[snapshots.SecretName][]byte{}, Authorities: map[snapshots.SecretName][]byte{},
		Users: map[snapshots.SecretName][]htpasswd.User{}, Values: map[bind.SecretKey]string{},
	}
	var err error
	if live.Fallback, err = c.keys.get(ECDSA); err != nil {
		return bind.Live{}, err
	}
	for _, need := range needs {
		switch need.Use {
		case snapshots.UseCertificate:
			live.Certificates[need.Secret], err = c.certificate(keys, need.Secret)
		case snapshots.UseCA:
			live.Authorities[need.Secret], err = pem.ParseAuthorities(live.Fallback)
		case snapshots.UseUsers:
			// Each Secret gives another name, since a list may have the users of several.
			live.Users[need.Secret] = []htpasswd.User{{Name: shortName(need.Secret), Hash: throwawayHash}}
		case snapshots.UseValue:
			live.Values[bind.SecretKey{Secret: need.Secret, Key: need.Key}] = throwawayValue
		}
		if err != nil {
			return bind.Live{}, err
		}
	}
	return live, nil
}

// certificate returns one of the kind that the Secret was seen to hold.
func (c *Checker) certificate(keys map[snapshots.SecretName]KeyType, secret snapshots.SecretName) ([]byte, error) {
	kind, ok := keys[secret]
	if !ok {
		kind = ECDSA
	}
	return c.keys.get(kind)
}

// shortName returns a name of at most 64 bytes.
func shortName(secret snapshots.SecretName) string {
	sum := sha256.Sum256([]byte(secret.String()))
	return "throw-away-" + hex.EncodeToString(sum[:16])
}
