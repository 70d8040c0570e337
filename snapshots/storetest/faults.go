package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/hapsnap/hapsnap/snapshots"
)

func testTampered(t testCase) {
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

// A damaged newest snapshot does not prevent publishing. The next snapshot follows it, also with the same
// content, or with that of the one before.
func testTamperedHead(t testCase) {
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

// A store that stays open notices that the newest snapshot was damaged after it was published or verified.
func testDamagedLater(t testCase) {
	s := t.Open(nil)
	ids := publishAll(t, s, "a")
	for _, file := range []string{snapshots.ConfigFile, "maps/host.map", snapshots.ManifestFile} {
		last := ids[len(ids)-1]
		if id, published, err := s.Publish(t.Context(), Draft("a")); err != nil || published || id != last {
			t.Errorf("the same again: %s, published %v, %v", id, published, err)
		}
		t.Tamper(last, file)
		id := publish(t, s, Draft("a"))
		if manifest := get(t, t.Open(nil), id).Manifest; id.Revision != last.Revision+1 || manifest.Spec.Parent != last {
			t.Errorf("after %s comes %s, with the parent %s", last, id, manifest.Spec.Parent)
		}
		ids = append(ids, id)
	}
	wantIDs(t, s, ids...)
}

func testBroken(t testCase) {
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

func testCancelled(t testCase) {
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

// races is how often each of the racing writers writes.
const races = 6

// publishEach publishes one snapshot for each backend, and reports any that existed already.
func publishEach(ctx context.Context, s Writer, backends []string) error {
	for _, backend := range backends {
		id, published, err := s.Publish(ctx, Draft(backend))
		if err != nil {
			return fmt.Errorf("publish %s: %w", backend, err)
		}
		if !published {
			return fmt.Errorf("%s was published already, as %s", backend, id)
		}
	}
	return nil
}

func testRacingWriters(t testCase) {
	race(t, t.Open(nil), t.Open(nil))
}

func testSharedStore(t testCase) {
	s := t.Open(nil)
	race(t, s, s)
}

func race(t testCase, one, two Store) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.Go(func() error { return publishEach(ctx, one, backends("one", races)) })
	group.Go(func() error { return publishEach(ctx, two, backends("two", races)) })
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	wantPublished(t, t.Open(nil), slices.Concat(backends("one", races), backends("two", races))...)
}

// after returns the draft of a backend that must follow a snapshot.
func after(id snapshots.ID, backend string) snapshots.Draft {
	d := Draft(backend)
	d.After = &id
	return d
}

// testAfter tests a writer that was delayed: the snapshot that it saw is not the newest any more, and its draft
// would undo what came since.
func testAfter(t testCase) {
	quick, slow := t.Open(nil), t.Open(nil)
	first := publish(t, quick, after(snapshots.ID{}, "first"))
	if _, _, err := slow.Publish(t.Context(), after(snapshots.ID{}, "late")); !errors.Is(err, snapshots.ErrMoved) {
		t.Errorf("a draft for an empty store, which it is not: %v", err)
	}
	second := publish(t, quick, after(first, "second"))
	if _, _, err := slow.Publish(t.Context(), after(first, "late")); !errors.Is(err, snapshots.ErrMoved) {
		t.Errorf("a draft that follows %s after %s: %v", first, second, err)
	}
	if id, published, err := slow.Publish(t.Context(), after(first, "second")); err != nil || published || id != second {
		t.Errorf("what the store holds: %v, published %v, %v", id, published, err)
	}
	wantPublished(t, t.Open(nil), "first", "second")
	publish(t, slow, after(second, "third"))
}

func testRacingAfter(t testCase) {
	first := publish(t, t.Open(nil), Draft("first"))
	stores := []Store{t.Open(nil), t.Open(nil), t.Open(nil)}
	results := make(chan error, len(stores))
	for i, s := range stores {
		go func() {
			_, _, err := s.Publish(t.Context(), after(first, backends("racer", len(stores))[i]))
			results <- err
		}()
	}
	won := 0
	for range stores {
		switch err := <-results; {
		case err == nil:
			won++
		case !errors.Is(err, snapshots.ErrMoved):
			t.Error(err)
		}
	}
	if ids := view(t, t.Open(nil)).IDs; won != 1 || len(ids) != 2 {
		t.Errorf("%d of %d writers won, and there are %v", won, len(stores), ids)
	}
}

func testRacingEdits(t testCase) {
	publish(t, t.Open(nil), Draft("web"))
	group, ctx := errgroup.WithContext(t.Context())
	for who := range 2 {
		s := t.Open(nil)
		group.Go(func() error {
			for i := range races {
				id := snapshots.ID{Revision: uint64(1 + who*races + i), Short: "0123456789"}
				if err := s.UpdateChannel(ctx, "approve "+id.String(), epoch, approve(id)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if approved := view(t, t.Open(nil)).Channel.Spec.Approved; len(approved) != 2*races {
		t.Errorf("of %d approvals, %d are left: %v", 2*races, len(approved), approved)
	}
}

func testReaderBesideWriter(t testCase) {
	writer, reader := t.Open(nil), t.Open(nil)
	first := publish(t, writer, Draft("web"))
	group, ctx := errgroup.WithContext(t.Context())
	finished := make(chan struct{})
	group.Go(func() error {
		defer close(finished)
		return publishEach(ctx, writer, backends("web", 2*races))
	})
	group.Go(func() error {
		head := first
		for {
			var err error
			if head, err = readHead(ctx, reader, head); err != nil {
				return err
			}
			select {
			case <-finished:
				return nil
			default:
			}
		}
	})
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// readHead reads the newest snapshot, and checks that it is not older than the one before.
func readHead(ctx context.Context, s Reader, before snapshots.ID) (snapshots.ID, error) {
	v, err := s.View(ctx)
	if err != nil {
		return snapshots.ID{}, err
	}
	head := v.Head()
	if head.Compare(before) < 0 {
		return snapshots.ID{}, fmt.Errorf("the newest snapshot was %s, and then %s", before, head)
	}
	snapshot, err := s.Get(ctx, head)
	if err != nil {
		return snapshots.ID{}, err
	}
	return head, snapshot.Verify()
}
