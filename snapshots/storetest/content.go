package storetest

import (
	"bytes"
	"encoding/pem"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/snapshots"
)

func testEmpty(t trial) {
	s := t.Open(nil)
	v := view(t, s)
	if len(v.IDs) != 0 || v.Channel.Spec.Pin != nil {
		t.Errorf("an empty store shows %+v", v)
	}
	for _, id := range []snapshots.ID{{}, {Revision: 1, Short: "0123456789"}, {Revision: 1, Short: "../../../x"}} {
		if _, err := s.Get(t.Context(), id); !errors.Is(err, snapshots.ErrNotFound) {
			t.Errorf("get %+v: %v", id, err)
		}
		if _, err := s.Manifest(t.Context(), id); !errors.Is(err, snapshots.ErrNotFound) {
			t.Errorf("manifest of %+v: %v", id, err)
		}
	}
}

func testPublish(t trial) {
	s := t.Open(nil)
	draft := Draft("web", "files/errors.http", "HTTP/1.0 503 no\r\n\r\n", "maps/empty.map", "")
	draft.Certificates = append(draft.Certificates, snapshots.CertificateRef{
		File: "certs/ca__shop_clients.pem", Secret: snapshots.SecretName{Namespace: "shop", Name: "clients"}, Use: snapshots.UseCA,
	})
	id := publish(t, s, draft)
	if want := snapshots.NewID(1, draft.Digest()); id != want {
		t.Errorf("published as %s, want %s", id, want)
	}
	wantIDs(t, s, id)
	want := draft.Seal(1, snapshots.ID{})
	if diff := cmp.Diff(want, get(t, s, id)); diff != "" {
		t.Errorf("what was read differs (-want +got):\n%s", diff)
	}
	manifest, err := s.Manifest(t.Context(), id)
	if diff := cmp.Diff(want.Manifest, manifest); err != nil || diff != "" {
		t.Errorf("manifest: %v (-want +got):\n%s", err, diff)
	}
}

func testUnchanged(t trial) {
	s := t.Open(nil)
	first := publish(t, s, Draft("web"))
	again := Draft("web")
	again.Subject, again.Provenance.CompilerVersion, again.Time = "nothing", "v0.2.0", epoch.AddDate(0, 0, 1)
	slices.Reverse(again.Files)
	for _, s := range []Store{s, t.Open(nil)} {
		id, published, err := s.Publish(t.Context(), again)
		if err != nil || published || id != first {
			t.Errorf("the same content: %s, published %v, %v", id, published, err)
		}
	}
	wantIDs(t, s, first)
}

func testOrder(t trial) {
	s := t.Open(nil)
	names := backends("web", 12)
	ids := publishAll(t, s, names...)
	wantIDs(t, s, ids...)
	wantPublished(t, s, names...)
	if head := view(t, s).Head(); head != ids[11] {
		t.Errorf("the newest is %s, want %s", head, ids[11])
	}
}

func testRevert(t trial) {
	s := t.Open(nil)
	ids := publishAll(t, s, "a", "b", "a")
	if ids[2].Revision != 3 || ids[2].Short != ids[0].Short {
		t.Errorf("published %v, then went back to the first as %s", ids[:2], ids[2])
	}
	wantIDs(t, s, ids...)
	if first, last := get(t, s, ids[0]), get(t, s, ids[2]); !bytes.Equal(first.Config(), last.Config()) {
		t.Error("the old content is not that of the new revision")
	}
}

func testFileRemoved(t trial) {
	s := t.Open(nil)
	with := publish(t, s, Draft("web", "maps/path.map", "/ web\n", "files/a.txt", "a"))
	without := publish(t, s, Draft("web"))
	for _, s := range []Reader{s, t.Open(nil)} {
		if _, ok := get(t, s, with).File("maps/path.map"); !ok {
			t.Error("the file is not in the revision that has it")
		}
		for _, path := range []string{"maps/path.map", "files/a.txt"} {
			if _, ok := get(t, s, without).File(path); ok {
				t.Errorf("%s is still there", path)
			}
		}
	}
}

func testNames(t trial) {
	s := t.Open(nil)
	draft := Draft("web", "maps/aux.map", "a b\n", "maps/CON.map", "c d\n", "files/git-1.txt", "e", "files/maps.map", "f")
	id := publish(t, s, draft)
	if diff := cmp.Diff(draft.Seal(1, snapshots.ID{}), get(t, t.Open(nil), id)); diff != "" {
		t.Errorf("what was read differs (-want +got):\n%s", diff)
	}
}

func testLarge(t trial) {
	s := t.Open(nil)
	large := make([]byte, 5<<20)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range large {
		large[i] = byte(random.Uint32())
	}
	id := publish(t, s, Draft("web", "maps/large.map", string(large)))
	if got, _ := get(t, t.Open(nil), id).File("maps/large.map"); !bytes.Equal(got, large) {
		t.Error("the large file came back different")
	}
}

func testRefused(t trial) {
	s := t.Open(nil)
	first := publish(t, s, Draft("web"))
	for name, draft := range map[string]snapshots.Draft{
		"nothing":                {Time: epoch},
		"an empty configuration": {Time: epoch, Files: []snapshots.File{{Path: snapshots.ConfigFile}}},
		"a path out of it":       Draft("other", "../../outside", "x"),
		"a manifest of its own":  Draft("other", snapshots.ManifestFile, "x"),
	} {
		if id, published, err := s.Publish(t.Context(), draft); err == nil || published {
			t.Errorf("%s: published as %s", name, id)
		}
	}
	wantIDs(t, s, first)
}

func testReopen(t trial) {
	s := t.Open(nil)
	ids := publishAll(t, s, "a", "b")
	if err := s.UpdateChannel(t.Context(), "approve", epoch, approve(ids[0])); err != nil {
		t.Fatal(err)
	}
	before := view(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = t.Open(nil)
	if diff := cmp.Diff(before, view(t, s)); diff != "" {
		t.Errorf("reopened (-before +after):\n%s", diff)
	}
	publish(t, s, Draft("c"))
	wantPublished(t, s, "a", "b", "c")
}

func testDelete(t trial) {
	s := t.Open(nil)
	ids := publishAll(t, s, "a", "b", "c", "d")
	if err := s.Delete(t.Context(), ids[0], ids[2]); err != nil {
		t.Fatal(err)
	}
	for _, s := range []Store{s, t.Open(nil)} {
		wantIDs(t, s, ids[1], ids[3])
		if _, err := s.Get(t.Context(), ids[0]); !errors.Is(err, snapshots.ErrNotFound) {
			t.Errorf("get what was deleted: %v", err)
		}
		// To delete what is gone is no error; the newest takes all with it.
		if err := s.Delete(t.Context(), ids[0], ids[0]); err != nil {
			t.Errorf("delete again: %v", err)
		}
		if err := s.Delete(t.Context(), ids[1], ids[3]); err == nil {
			t.Error("the newest was deleted")
		}
	}
	if id := publish(t, s, Draft("e")); id.Revision != 5 {
		t.Errorf("the next snapshot is %s", id)
	}
}

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
