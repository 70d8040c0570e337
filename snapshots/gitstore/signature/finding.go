package signature

import (
	"crypto/sha256"
	"fmt"
	"os"
)

// Finding is what there is to say of the signature of a snapshot.
type Finding struct {
	Commit string `json:"commit,omitempty"` // in git, that with the snapshot
	// State is none, unverified if nobody says who may sign, allowed or refused.
	State string `json:"state"`
	Signer
	Error string `json:"error,omitempty"` // why it is refused
}

// The states of a [Finding].
const (
	StateNone       = "none"
	StateUnverified = "unverified"
	StateAllowed    = "allowed"
	StateRefused    = "refused"
)

// Fingerprint tells apart what the files hold that say whose signatures are accepted, so
// that a verdict can be remembered for as long as they are the same.
func (a Allowed) Fingerprint() ([sha256.Size]byte, error) {
	hash := sha256.New()
	for _, file := range []string{a.SignersFile, a.KeyringFile} {
		var data []byte
		if file != "" {
			var err error
			if data, err = os.ReadFile(file); err != nil {
				return [sha256.Size]byte{}, fmt.Errorf("read who may sign: %w", err)
			}
		}
		fmt.Fprintf(hash, "%d\n", len(data))
		hash.Write(data)
	}
	return [sha256.Size]byte(hash.Sum(nil)), nil
}
