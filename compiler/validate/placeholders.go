package validate

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
)

// What stands for users and values of Secrets, so that HAProxy and the parser of
// the Dataplane API see the lines that they will be on. The value has to be
// quoted, as some real ones have. The hash is of no password.
const (
	throwawayHash  = "$5$rounds=1000$hapsnap$..........................................." //nolint:gosec // It is no credential.
	throwawayValue = "throw away"
)

// StandIns returns live data with something to throw away for each need, and for
// the fallback certificate. Keys says what kind of key a Secret is known to hold.
// There are no endpoints among it.
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
			// The name is one that no other Secret gives, for a list may have users of several.
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
