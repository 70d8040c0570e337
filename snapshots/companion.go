package snapshots

import (
	"errors"
	"fmt"

	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
)

// ErrNoCompanions is returned by a store that cannot keep private content beside a
// snapshot.
var ErrNoCompanions = errors.New("certificates cannot be kept beside the snapshot in this store")

// Companion is a certificate that is kept beside a snapshot: private content, which is
// no part of it, for a reference of [ModeCompanion].
type Companion struct {
	Version string
	Content Private // PEM, the chain and then the key
}

// hidden is written where private content was.
const hidden = "(hidden)"

// Private is content that does not show when something that holds it is printed.
type Private []byte

// String returns nothing of the content.
func (Private) String() string { return hidden }

// Format writes nothing of the content, whatever the verb.
func (Private) Format(s fmt.State, _ rune) { fmt.Fprint(s, hidden) }

// MarshalText writes nothing of the content.
func (Private) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// checkCompanions checks that the companions are those that the references name, each
// what its version says.
func checkCompanions(refs []CertificateRef, companions []Companion) error {
	named := map[string]bool{}
	for _, ref := range refs {
		if ref.Mode == ModeCompanion && ref.Version != "" {
			named[ref.Version] = false
		}
	}
	for _, c := range companions {
		there, ok := named[c.Version]
		if version, err := pem.Version(c.Content); !ok || there || err != nil || version != c.Version {
			return fmt.Errorf("companion of version %q belongs to no certificate", c.Version)
		}
		named[c.Version] = true
	}
	for _, ref := range refs {
		if there, ok := named[ref.Version]; ok && !there {
			return fmt.Errorf("certificate %s has no companion", ref.File)
		}
	}
	return nil
}
