package signature

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

const edDSA = packet.PubKeyAlgoEdDSA

func ringOf(t *testing.T, keys ...*openpgp.Entity) []byte {
	t.Helper()
	var all []byte
	for _, key := range keys {
		all = append(all, armored(t, openpgp.PublicKeyType, func(w io.Writer) error { return key.Serialize(w) })...)
	}
	return all
}

func keyOf(t *testing.T, key *openpgp.Entity) Key {
	t.Helper()
	return Key{File: file(t, "key", armored(t, openpgp.PrivateKeyType, func(w io.Writer) error { return key.SerializePrivateWithoutSigning(w, nil) }))}
}

// A key ring may have several blocks, or no armor. An unreadable part is an error, and does not shorten the
// list.
func TestKeyrings(t *testing.T) {
	t.Parallel()
	one, two := newEntity(t, edDSA), newEntity(t, edDSA)
	var binary bytes.Buffer
	if err := errors.Join(one.Serialize(&binary), two.Serialize(&binary)); err != nil {
		t.Fatal(err)
	}
	made := signed(t, keyOf(t, two), noon)
	for name, test := range map[string]struct {
		ring []byte
		want string
	}{
		"armor":           {ringOf(t, two), ""},
		"two blocks":      {ringOf(t, one, two), ""},
		"binary":          {binary.Bytes(), ""},
		"with a comment":  {append([]byte("# the compiler's\n"), ringOf(t, two)...), ""},
		"another's":       {ringOf(t, one), "is not among those of the key ring"},
		"empty":           {nil, "it holds no key"},
		"text":            {[]byte("ann ssh-ed25519 AAAA\n"), "read key 1"},
		"a block is torn": {append(ringOf(t, two), ringOf(t, one)[:200]...), "read "},
		"private":         {armored(t, openpgp.PrivateKeyType, func(w io.Writer) error { return two.SerializePrivateWithoutSigning(w, nil) }), ""},
	} {
		_, err := Allowed{KeyringFile: file(t, "ring", test.ring)}.Verify(made, noon)
		fails := test.want != "" || name == "private"
		if (err != nil) != fails || (err != nil && !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A revocation of a key counts from when it is known, whatever time a commit claims. The expiry of a key is
// compared with the time of the commit.
func TestKeysOfOpenPGPEnd(t *testing.T) {
	t.Parallel()
	revoked := newEntity(t, edDSA)
	made := signed(t, keyOf(t, revoked), noon)
	if _, err := (Allowed{KeyringFile: file(t, "ring", ringOf(t, revoked))}).Verify(made, noon); err != nil {
		t.Fatal(err)
	}
	later := &packet.Config{Time: func() time.Time { return noon.Add(time.Hour) }}
	if err := revoked.RevokeKey(packet.KeyRetired, "", later); err != nil {
		t.Fatal(err)
	}
	if _, err := (Allowed{KeyringFile: file(t, "ring", ringOf(t, revoked))}).Verify(made, noon); err == nil || !strings.Contains(err.Error(), "is revoked") {
		t.Errorf("a key that was revoked later: %v", err)
	}
	short, err := openpgp.NewEntity("Ann", "", "ann@example.com", &packet.Config{
		Algorithm: edDSA, KeyLifetimeSecs: 3600, Time: func() time.Time { return noon.Add(-time.Minute) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ring := Allowed{KeyringFile: file(t, "ring", ringOf(t, short))}
	made = signed(t, keyOf(t, short), noon)
	if _, err := ring.Verify(made, noon); err != nil {
		t.Errorf("a key that had not expired then: %v", err)
	}
	if _, err := ring.Verify(made, noon.Add(2*time.Hour)); err == nil {
		t.Error("a commit after the key has expired is accepted")
	}
}
