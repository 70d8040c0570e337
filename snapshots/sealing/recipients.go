package sealing

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"
)

// The reasons why there is nobody to seal to, or not to all of them.
var (
	ErrNoRecipient = errors.New("there is no recipient")
	ErrMixed       = errors.New("recipients of age1pq1 and others cannot be mixed: what is sealed would be as weak as to the others alone")
)

// Recipients are those to whom is sealed; each of them can open it alone.
type Recipients struct {
	names []string
	keys  []age.Recipient
}

// ParseRecipient checks a recipient, such as age1vumrp0fh3mgp9lnp58s2l5m7m26jvck2kja0au70075qlzaapgcqgjzpf9.
// The error does not repeat it, for it may be an identity that is there by mistake.
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

// Seal encrypts, as text.
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
