package storetest

import (
	"encoding/pem"
	"errors"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/snapshots"
)

const sealedPath = "certs/shop_web-tls.pem.age"

// sealed returns a draft with a certificate that looks like what age makes of it.
func sealed(ciphertext string) snapshots.Draft {
	content := pem.EncodeToMemory(&pem.Block{Type: "AGE ENCRYPTED FILE", Bytes: []byte("age-encryption.org/v1\n" + ciphertext)})
	d := Draft("web", sealedPath, string(content))
	d.Certificates[0].Mode, d.Certificates[0].Version = snapshots.ModeSealed, strings.Repeat("3f2a91c4", 8)
	d.Recipients = []string{"age1vumrp0fh3mgp9lnp58s2l5m7m26jvck2kja0au70075qlzaapgcqgjzpf9"}
	return d
}

// The ciphertext is kept and verified like any other file, though it is no part of
// what makes two snapshots the same.
func testSealed(t trial) {
	s := t.Open(nil)
	draft := sealed("one")
	id := publish(t, s, draft)
	if again, published, err := s.Publish(t.Context(), sealed("two")); err != nil || published || again != id {
		t.Errorf("the same, sealed anew: %s, published %v, %v", again, published, err)
	}
	if diff := cmp.Diff(draft.Seal(1, snapshots.ID{}), get(t, t.Open(nil), id)); diff != "" {
		t.Errorf("what was read differs (-want +got):\n%s", diff)
	}
	plain := sealed("")
	plain.Files[2].Content = []byte("in the clear")
	plain.Certificates[0].Version = strings.Repeat("0", 64)
	if _, published, err := s.Publish(t.Context(), plain); err == nil || published {
		t.Error("what is not encrypted was published")
	}
	wantIDs(t, s, id)
	publish(t, s, Draft("next"))
	t.Tamper(id, sealedPath)
	if _, err := t.Open(nil).Get(t.Context(), id); !errors.Is(err, snapshots.ErrCorrupt) {
		t.Errorf("the ciphertext was tampered with: %v", err)
	}
}
