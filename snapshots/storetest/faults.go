package storetest

import (
	"context"
	"errors"

	"github.com/hapsnap/hapsnap/snapshots"
)

func testTampered(t trial) {
	ids := publishAll(t, t.Open(nil), "a", "b", "c", "d")
	t.Tamper(ids[0], snapshots.ConfigFile)
	t.Tamper(ids[1], "maps/host.map")
	t.Tamper(ids[2], snapshots.ManifestFile)
	s := t.Open(nil)
	wantIDs(t, s, ids...)
	for _, id := range ids[:3] {
		if _, err := s.Get(t.Context(), id); !errors.Is(err, snapshots.ErrCorrupt) {
			t.Errorf("get %s: %v", id, err)
		}
	}
	if _, err := s.Manifest(t.Context(), ids[2]); !errors.Is(err, snapshots.ErrCorrupt) {
		t.Errorf("the manifest that was tampered with: %v", err)
	}
	get(t, s, ids[3])
	publish(t, s, Draft("e"))
}

// A newest snapshot that was damaged keeps nobody from publishing: the next comes after
// it, also with the content that it had, or that the one before it has.
func testTamperedHead(t trial) {
	damaged := publishAll(t, t.Open(nil), "a", "b")
	for _, test := range []struct{ file, backend string }{
		{snapshots.ConfigFile, "b"}, {snapshots.ManifestFile, "b"}, {"maps/host.map", "a"},
	} {
		last := damaged[len(damaged)-1]
		t.Tamper(last, test.file)
		s := t.Open(nil)
		draft := Draft(test.backend)
		draft.After = &last
		id := publish(t, s, draft)
		if manifest := get(t, t.Open(nil), id).Manifest; id.Revision != last.Revision+1 || manifest.Spec.Parent != last {
			t.Errorf("after %s comes %s, with the parent %s", last, id, manifest.Spec.Parent)
		}
		damaged = append(damaged, id)
		wantIDs(t, t.Open(nil), damaged...)
	}
	get(t, t.Open(nil), damaged[0])
}

func testBroken(t trial) {
	used := t.Open(nil)
	id := publish(t, used, Draft("a"))
	view(t, used)
	t.Break()
	for _, s := range []Store{used, t.Open(nil)} {
		if v, err := s.View(t.Context()); err == nil {
			t.Errorf("view: %+v", v)
		}
		if err := s.UpdateChannel(t.Context(), "approve", epoch, approve(id)); err == nil {
			t.Error("the channel was written")
		}
		if err := s.Delete(t.Context(), id); err == nil {
			t.Error("a snapshot was deleted")
		}
	}
	fresh := t.Open(nil)
	if _, err := fresh.Get(t.Context(), id); err == nil || errors.Is(err, snapshots.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	if _, err := fresh.Manifest(t.Context(), id); err == nil || errors.Is(err, snapshots.ErrNotFound) {
		t.Errorf("manifest: %v", err)
	}
}

func testCancelled(t trial) {
	s := t.Open(nil)
	ids := publishAll(t, s, "a", "b")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	fresh := t.Open(nil)
	calls := map[string]func() error{
		"publish":        func() error { _, _, err := s.Publish(ctx, Draft("c")); return err },
		"update channel": func() error { return s.UpdateChannel(ctx, "approve", epoch, approve(ids[0])) },
		"delete":         func() error { return s.Delete(ctx, ids[0]) },
		"view":           func() error { _, err := fresh.View(ctx); return err },
		"get":            func() error { _, err := fresh.Get(ctx, ids[0]); return err },
		"manifest":       func() error { _, err := fresh.Manifest(ctx, ids[0]); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	wantIDs(t, s, ids...)
	if approved := view(t, s).Channel.Spec.Approved; len(approved) != 0 {
		t.Errorf("approved is %v", approved)
	}
}
