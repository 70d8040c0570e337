package snapshots

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"strings"
)

// digestPrefix names the hash of a Digest, as OCI digests do.
const digestPrefix = "sha256:"

// shortDigest is how many hexadecimal digits of the digest an ID carries.
const shortDigest = 10

// Digest is the content digest of a snapshot: "sha256:" and 64 lower-case
// hexadecimal digits. The zero value is no digest.
type Digest string

// DigestOf returns the digest of what a SHA-256 has been given.
func DigestOf(h hash.Hash) Digest { return Digest(digestPrefix + hex.EncodeToString(h.Sum(nil))) }

// Short returns the first ten hexadecimal digits, as they stand in an [ID].
func (d Digest) Short() string {
	hex := strings.TrimPrefix(string(d), digestPrefix)
	return hex[:min(len(hex), shortDigest)]
}

// Valid reports whether d has the form of a digest.
func (d Digest) Valid() bool {
	hex, ok := strings.CutPrefix(string(d), digestPrefix)
	return ok && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}

// ID names one snapshot of one store: a revision number, which gives the
// order, and the first digits of the content digest. The zero value names no
// snapshot. An ID is comparable and may be a map key.
type ID struct {
	Revision uint64
	Short    string
}

// MaxRevision is the last revision: what a number in JSON holds exactly. A name with a
// larger one is nobody's, so that there is always a revision after one that is read.
const MaxRevision = 1<<53 - 1

// ErrBadID is returned for a text that is not the name of a snapshot.
var ErrBadID = errors.New("not a snapshot id such as r000123-9f3ac01b2d")

// NewID names the content d at the given revision.
func NewID(revision uint64, d Digest) ID {
	return ID{Revision: revision, Short: d.Short()}
}

// ParseID reads what [ID.String] wrote, or returns [ErrBadID].
func ParseID(s string) (ID, error) {
	number, short, ok := strings.Cut(strings.TrimPrefix(s, "r"), "-")
	revision, err := strconv.ParseUint(number, 10, 64)
	id := ID{Revision: revision, Short: short}
	if !ok || err != nil || revision == 0 || revision > MaxRevision || len(short) != shortDigest || id.String() != s {
		return ID{}, fmt.Errorf("%q: %w", s, ErrBadID)
	}
	if strings.Trim(short, "0123456789abcdef") != "" {
		return ID{}, fmt.Errorf("%q: %w", s, ErrBadID)
	}
	return id, nil
}

// Newest is how a person names the newest snapshot of a store.
const Newest = "head"

// FindID returns the snapshot that a person names: in full, by its revision, such as
// r12, or as [Newest]. The ids ascend.
func FindID(ids []ID, name string) (ID, bool) {
	if name == Newest {
		if len(ids) == 0 {
			return ID{}, false
		}
		return ids[len(ids)-1], true
	}
	if id, err := ParseID(name); err == nil {
		return id, slices.Contains(ids, id)
	}
	revision, err := strconv.ParseUint(strings.TrimPrefix(name, "r"), 10, 64)
	i := slices.IndexFunc(ids, func(id ID) bool { return id.Revision == revision })
	if err != nil || i < 0 {
		return ID{}, false
	}
	return ids[i], true
}

// String returns the name, such as "r000123-9f3ac01b2d", or "" for the zero ID.
func (id ID) String() string {
	if id.IsZero() {
		return ""
	}
	return fmt.Sprintf("r%06d-%s", id.Revision, id.Short)
}

// IsZero reports whether id names no snapshot.
func (id ID) IsZero() bool { return id == ID{} }

// Compare orders IDs by revision, then by digest.
func (id ID) Compare(other ID) int {
	return cmp.Or(cmp.Compare(id.Revision, other.Revision), cmp.Compare(id.Short, other.Short))
}

// Names reports whether id is the name of the content d.
func (id ID) Names(d Digest) bool { return !id.IsZero() && id.Short == d.Short() }

// MarshalText implements [encoding.TextMarshaler].
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]; the empty text is the zero ID.
func (id *ID) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*id = ID{}
		return nil
	}
	parsed, err := ParseID(string(text))
	*id = parsed
	return err
}
