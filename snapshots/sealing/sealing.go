// Package sealing encrypts certificates with their keys to recipients of age, and decrypts them with
// identities.
//
// It promises that a decrypted certificate is the one that the snapshot's manifest names, and that no error
// holds any part of a key. It cannot tell who encrypted a certificate, since recipients are public. age gives
// other bytes each time; [snapshots.Draft.WithSealed] keeps the bytes of certificates that did not change.
package sealing

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
)

// The reasons why a recipient cannot be used, or there is none.
var (
	ErrNoRecipient = errors.New("there is no recipient")
	ErrMixed       = errors.New("recipients that begin with age1pq1 cannot be mixed with others: the encryption would be only as strong as for the others")
)

// Recipients can open sealed data, each of them alone.
type Recipients struct {
	names []string
	keys  []age.Recipient
}

// ParseRecipient checks a recipient, such as
// age1vumrp0fh3mgp9lnp58s2l5m7m26jvck2kja0au70075qlzaapgcqgjzpf9. The error does not repeat the text,
// which may be an identity by mistake.
func ParseRecipient(text string) (age.Recipient, error) {
	if strings.ContainsAny(text, "\n\r# ") || !strings.HasPrefix(text, "age1") {
		return nil, errors.New("is not a recipient of age")
	}
	keys, err := age.ParseRecipients(strings.NewReader(text))
	if err != nil || len(keys) != 1 {
		return nil, errors.New("is not a recipient of age")
	}
	return keys[0], nil
}

// NewRecipients takes recipients in any order.
func NewRecipients(texts []string) (Recipients, error) {
	names := slices.Compact(slices.Sorted(slices.Values(texts)))
	r := Recipients{names: names}
	for _, name := range names {
		key, err := ParseRecipient(name)
		if err != nil {
			return Recipients{}, fmt.Errorf("recipient %w", err)
		}
		r.keys = append(r.keys, key)
	}
	quantum := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasPrefix(name, "age1pq1") })
	switch {
	case len(names) == 0:
		return Recipients{}, ErrNoRecipient
	case len(quantum) > 0 && len(quantum) < len(names): // age refuses it
		return Recipients{}, ErrMixed
	}
	return r, nil
}

// Names returns the recipients as they are written, sorted, each once.
func (r Recipients) Names() []string { return slices.Clone(r.names) }

// Seal encrypts data, and returns text.
func (r Recipients) Seal(plain []byte) ([]byte, error) {
	var out bytes.Buffer
	text := armor.NewWriter(&out)
	w, err := age.Encrypt(text, r.keys...)
	if err != nil {
		return nil, fmt.Errorf("encrypt: %w", err)
	}
	_, err = w.Write(plain)
	if err := errors.Join(err, w.Close(), text.Close()); err != nil {
		return nil, fmt.Errorf("encrypt: %w", err)
	}
	return out.Bytes(), nil
}

// The reasons why something cannot be opened. None holds anything of a key.
var (
	ErrIdentity  = errors.New("not a file of age identities")
	ErrNotForUs  = errors.New("no identity opens it")
	ErrCannot    = errors.New("cannot be decrypted")
	errOtherThan = errors.New("holds another certificate than the manifest says")
)

// maxPlain is more than a Secret can hold, in bytes.
const maxPlain = 2 << 20

// Identities open data that was sealed to one of their recipients.
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

// Certificates opens all sealed certificates of a snapshot, by version. If one is not what the manifest
// names, the error wraps [snapshots.ErrCorrupt]. If no identity fits, the error wraps [ErrNotForUs] and
// names the recipients.
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
