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

func testTamperedHead(t trial) {
	ids := publishAll(t, t.Open(nil), "a", "b")
	t.Tamper(ids[1], snapshots.ConfigFile)
	s := t.Open(nil)
	for _, backend := range []string{"b", "c"} {
		if id, published, err := s.Publish(t.Context(), Draft(backend)); !errors.Is(err, snapshots.ErrCorrupt) || published {
			t.Errorf("publish %s: %s, published %v, %v", backend, id, published, err)
		}
	}
	get(t, s, ids[0])
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

var errKilled = errors.New("killed")

// killEverywhere runs do on a fresh backend with a writer that is killed at its
// first step, then at its second, and so on until it outlives all of them. After
// each, check gets what do returned.
func killEverywhere(t trial, do func(s Writer) error, check func(err error)) {
	t.Helper()
	for n := 1; n < 1000; n++ {
		steps := 0
		doomed := t.Open(func(string) error {
			if steps++; steps >= n {
				return errKilled
			}
			return nil
		})
		err := do(doomed)
		if killed := steps >= n; killed != errors.Is(err, errKilled) {
			t.Fatalf("killed at step %d of %d: %v", n, steps, err)
		}
		check(err)
		if err == nil {
			if n < 3 {
				t.Errorf("there were only %d steps to be killed at", n-1)
			}
			return
		}
	}
	t.Fatal("the writer never outlived its steps")
}

func testKilledPublish(t trial) {
	next := publish(t, t.Open(nil), Draft("web", "files/0.txt", "")).Revision
	text := "a"
	draft := func() snapshots.Draft { return Draft("web", "files/0.txt", text) }
	killEverywhere(t, func(s Writer) error {
		text += "a"
		_, _, err := s.Publish(t.Context(), draft())
		return err
	}, func(error) {
		next++
		s := t.Open(nil)
		wantHistory(t, s)
		if head := view(t, s).Head(); head.Revision != next && head.Revision != next-1 {
			t.Errorf("the newest snapshot is %s, want revision %d or the one before", head, next)
		}
		// The writer's successor finishes the work, or finds it done.
		id, _, err := s.Publish(t.Context(), draft())
		if err != nil || id != snapshots.NewID(next, draft().Digest()) {
			t.Errorf("published again as %s, want revision %d: %v", id, next, err)
		}
		wantHistory(t, s)
	})
}

func testKilledEdit(t trial) {
	publish(t, t.Open(nil), Draft("web"))
	var id snapshots.ID
	var revision uint64
	killEverywhere(t, func(s Writer) error {
		revision++
		id = snapshots.ID{Revision: revision, Short: "0123456789"}
		return s.UpdateChannel(t.Context(), "approve", epoch, approve(id))
	}, func(error) {
		s := t.Open(nil)
		if err := s.UpdateChannel(t.Context(), "approve", epoch, approve(id)); err != nil {
			t.Error(err)
		}
		if got := view(t, s).Channel.Spec.Approved; uint64(len(got)) != revision {
			t.Errorf("%d snapshots are approved, want %d", len(got), revision)
		}
	})
}

func testKilledDelete(t trial) {
	keep := publish(t, t.Open(nil), Draft("first"))
	head, other := "web", "shop"
	killEverywhere(t, func(s Writer) error {
		head, other = other, head
		fresh := t.Open(nil)
		doomed := publish(t, fresh, Draft(head))
		last := publish(t, fresh, Draft(head, "files/last.txt", "x"))
		t.Logf("delete %s, below %s", doomed, last)
		return s.Delete(t.Context(), doomed)
	}, func(error) {
		s := t.Open(nil)
		ids := view(t, s).IDs
		for _, id := range ids {
			get(t, s, id)
		}
		if err := s.Delete(t.Context(), ids[1:len(ids)-1]...); err != nil {
			t.Error(err)
		}
		wantIDs(t, s, keep, ids[len(ids)-1])
	})
}
