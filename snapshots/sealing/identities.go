package sealing

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
)

// The reasons why something cannot be opened. None says anything of a key.
var (
	ErrIdentity  = errors.New("not a file of age identities")
	ErrNotForUs  = errors.New("no identity opens it")
	ErrCannot    = errors.New("cannot be decrypted")
	errOtherThan = errors.New("holds another certificate than the manifest says")
)

// maxPlain is more than a Secret can hold, in bytes.
const maxPlain = 2 << 20

// Identities open what was sealed to one of their recipients.
type Identities struct{ keys []age.Identity }

// ReadIdentities reads a file as age-keygen writes it, with any number of identities.
func ReadIdentities(path string) (Identities, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Identities{}, fmt.Errorf("read identities: %w", err)
	}
	keys, err := age.ParseIdentities(bytes.NewReader(data))
	if err != nil { // it may quote what it read
		return Identities{}, fmt.Errorf("read identities from %s: %w", path, ErrIdentity)
	}
	return Identities{keys}, nil
}

// Open decrypts what [Recipients.Seal] returned.
func (i Identities) Open(sealed []byte) ([]byte, error) {
	if len(i.keys) == 0 {
		return nil, ErrNotForUs
	}
	r, err := age.Decrypt(armor.NewReader(bytes.NewReader(sealed)), i.keys...)
	if _, other := errors.AsType[*age.NoIdentityMatchError](err); other {
		return nil, ErrNotForUs
	}
	if err != nil {
		return nil, ErrCannot
	}
	plain, err := io.ReadAll(io.LimitReader(r, maxPlain+1))
	if err != nil || len(plain) > maxPlain {
		return nil, ErrCannot
	}
	return plain, nil
}

// Certificates opens all sealed certificates of a snapshot, by version. Each is the
// one that the manifest names, or the error wraps [snapshots.ErrCorrupt]. That no
// identity fits, the error wraps [ErrNotForUs] and says whose would.
func (i Identities) Certificates(s snapshots.Snapshot) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, ref := range s.Manifest.Spec.Certificates {
		path := ref.SealedFile()
		if path == "" {
			continue
		}
		sealed, _ := s.File(path)
		plain, err := i.Open(sealed)
		if errors.Is(err, ErrNotForUs) {
			return nil, fmt.Errorf("%s was sealed to %s: %w", s.ID(), strings.Join(s.Manifest.Spec.Recipients, ", "), err)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %s: %w", s.ID(), snapshots.ErrCorrupt, path, err)
		}
		if version, err := pem.Version(plain); err != nil || version != ref.Version {
			return nil, fmt.Errorf("%s: %w: %s %w", s.ID(), snapshots.ErrCorrupt, path, errOtherThan)
		}
		out[ref.Version] = plain
	}
	return out, nil
}
