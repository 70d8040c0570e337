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
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

func testEmpty(t testCase) {
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

func testPublish(t testCase) {
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
	want := draft.Number(1, snapshots.ID{})
	if diff := cmp.Diff(want, get(t, s, id)); diff != "" {
		t.Errorf("what was read differs (-want +got):\n%s", diff)
	}
	manifest, err := s.Manifest(t.Context(), id)
	if diff := cmp.Diff(want.Manifest, manifest); err != nil || diff != "" {
		t.Errorf("manifest: %v (-want +got):\n%s", err, diff)
	}
}

func testUnchanged(t testCase) {
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

func testOrder(t testCase) {
	s := t.Open(nil)
	names := backends("web", 12)
	ids := publishAll(t, s, names...)
	wantIDs(t, s, ids...)
	wantPublished(t, s, names...)
	if head := view(t, s).Head(); head != ids[11] {
		t.Errorf("the newest is %s, want %s", head, ids[11])
	}
}

func testRevert(t testCase) {
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

func testFileRemoved(t testCase) {
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

func testNames(t testCase) {
	s := t.Open(nil)
	draft := Draft("web", "maps/aux.map", "a b\n", "maps/CON.map", "c d\n", "files/git-1.txt", "e", "files/maps.map", "f")
	id := publish(t, s, draft)
	if diff := cmp.Diff(draft.Number(1, snapshots.ID{}), get(t, t.Open(nil), id)); diff != "" {
		t.Errorf("what was read differs (-want +got):\n%s", diff)
	}
}

func testLarge(t testCase) {
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

func testRefused(t testCase) {
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

func testReopen(t testCase) {
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

func testDelete(t testCase) {
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
		// Deleting a missing snapshot is no error. A call that includes the newest one fails.
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

// sealed returns a draft with a certificate that looks like age's output.
func sealed(ciphertext string) snapshots.Draft {
	content := pem.EncodeToMemory(&pem.Block{Type: "AGE ENCRYPTED FILE", Bytes: []byte("age-encryption.org/v1\n" + ciphertext)})
	d := Draft("web", sealedPath, string(content))
	d.Certificates[0].Mode, d.Certificates[0].Version = snapshots.ModeSealed, strings.Repeat("3f2a91c4", 8)
	d.Recipients = []string{"age1vumrp0fh3mgp9lnp58s2l5m7m26jvck2kja0au70075qlzaapgcqgjzpf9"}
	return d
}

// The ciphertext is stored and verified like any other file, though it does not count when snapshots are
// compared.
func testSealed(t testCase) {
	s := t.Open(nil)
	draft := sealed("one")
	id := publish(t, s, draft)
	if again, published, err := s.Publish(t.Context(), sealed("two")); err != nil || published || again != id {
		t.Errorf("the same, sealed anew: %s, published %v, %v", again, published, err)
	}
	if diff := cmp.Diff(draft.Number(1, snapshots.ID{}), get(t, t.Open(nil), id)); diff != "" {
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

func testChannel(t testCase) {
	s := t.Open(nil)
	ids := publishAll(t, s, "a", "b")
	pin := func(c *channel.Channel) error {
		*c = c.Pinned(channel.Pin{Snapshot: ids[0], By: "ops", Reason: "it is slow", At: epoch})
		return nil
	}
	for range 2 { // the second time changes nothing
		if err := s.UpdateChannel(t.Context(), "pin "+ids[0].String(), epoch, pin); err != nil {
			t.Fatal(err)
		}
	}
	no := errors.New("no")
	err := s.UpdateChannel(t.Context(), "unpin", epoch, func(c *channel.Channel) error {
		*c = c.Unpinned()
		return no
	})
	if !errors.Is(err, no) {
		t.Errorf("an edit that fails: %v", err)
	}
	for _, s := range []Reader{s, t.Open(nil)} {
		got := view(t, s).Channel.Spec.Pin
		if got == nil || *got != (channel.Pin{Snapshot: ids[0], By: "ops", Reason: "it is slow", At: epoch}) {
			t.Errorf("the pin is %+v", got)
		}
	}
	// The channel is not a snapshot, and publishing does not change it.
	publish(t, s, Draft("c"))
	if view(t, s).Channel.Spec.Pin == nil {
		t.Error("publishing lost the pin")
	}
}

// Removing a channel does not withdraw it: a reader that has seen it holds, also after a restart, and writes no
// other one in its place.
func testChannelGone(t testCase) {
	used := t.Open(nil)
	id := publish(t, used, Draft("a"))
	if seen := view(t, used).Seen; seen.Store == "" { // a channel may be there from the start
		t.Errorf("%+v was seen", seen)
	}
	if err := used.UpdateChannel(t.Context(), "approve", epoch, approve(id)); err != nil {
		t.Fatal(err)
	}
	seen := view(t, used).Seen
	restarted, elsewhere := t.Open(nil), t.Open(nil)
	restarted.Remember(seen)
	seen.Store += "-other"
	elsewhere.Remember(seen)
	t.RemoveChannel()
	var gone *channel.RewoundError
	for _, s := range []Store{used, restarted} {
		_, err := s.View(t.Context())
		if !errors.As(err, &gone) || gone.Channel == "" || len(gone.Snapshots) > 0 {
			t.Fatalf("the channel is gone: %v", err)
		}
		if err := s.UpdateChannel(t.Context(), "approve", epoch, approve(id)); !errors.Is(err, channel.ErrRewound) {
			t.Errorf("a new channel was written: %v", err)
		}
		wantListed(t, s, id)
	}
	for _, s := range []Store{elsewhere, t.Open(nil)} { // they have not seen it
		if got := view(t, s).Channel.Spec.Approved; len(got) != 0 {
			t.Errorf("approved: %v", got)
		}
	}
	err := t.Open(nil).UpdateChannel(t.Context(), "accept", epoch, func(c *channel.Channel) error {
		*c = c.RewindAccepted(channel.AcceptedRewind{Channels: []string{gone.Channel}, By: "ann", Reason: "it is so", At: epoch})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []Store{used, restarted, t.Open(nil)} {
		v := view(t, s)
		if got := v.Channel.Spec.AcceptedRewind; got == nil || got.By != "ann" || got.Reason != "it is so" || v.Seen.Channel == "" {
			t.Errorf("accepted %+v, seen %+v", got, v.Seen)
		}
		if err := s.UpdateChannel(t.Context(), "approve", epoch, approve(id)); err != nil {
			t.Errorf("after it was accepted: %v", err)
		}
	}
}

// wantListed checks what the store lists if its channel cannot be read.
func wantListed(t testCase, s Reader, want ...snapshots.ID) {
	t.Helper()
	if got, err := s.IDs(t.Context()); err != nil || !slices.Equal(got, want) {
		t.Errorf("the store lists %v, want %v: %v", got, want, err)
	}
}

// twoChannels are two documents in one file. Their author meant the second one, or both.
const twoChannels = "apiVersion: hapsnap.dev/v1alpha1\nkind: Channel\nspec: {requireApproval: true}\n---\napiVersion: hapsnap.dev/v1alpha1\nkind: Channel\nspec: {pause: {by: ops}}\n"

func testChannelUnreadable(t testCase) {
	s := t.Open(nil)
	publish(t, s, Draft("a"))
	for _, text := range []string{"", "spec: [", "kind: Channel\n", "apiVersion: hapsnap.dev/v1alpha1\nkind: Channel\nspec: {pinn: {}}\n", twoChannels} {
		t.SetChannel([]byte(text))
		for _, s := range []Store{s, t.Open(nil)} {
			if v, err := s.View(t.Context()); err == nil {
				t.Errorf("the channel %q is read as %+v", text, v.Channel)
			}
			if ids, err := s.IDs(t.Context()); err != nil || len(ids) != 1 {
				t.Errorf("the channel %q: the snapshots are %v, %v", text, ids, err)
			}
			if err := s.UpdateChannel(t.Context(), "approve", epoch, approve(snapshots.ID{Revision: 1, Short: "0123456789"})); err == nil {
				t.Errorf("the channel %q was written over", text)
			}
		}
	}
	t.SetChannel([]byte("# by hand\nkind: Channel\napiVersion: hapsnap.dev/v1alpha1\nmetadata: {name: edge}\nspec: {pause: {by: ops}}\n"))
	if pause := view(t, s).Channel.Spec.Pause; pause == nil || pause.By != "ops" {
		t.Errorf("the channel that was mended pauses %+v", pause)
	}
}
