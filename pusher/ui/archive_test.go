package ui

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// stored returns a store with a snapshot for each config.
func stored(configs ...string) *fakeStore {
	f := &fakeStore{stored: map[snapshots.ID]snapshots.Snapshot{}}
	var parent snapshots.ID
	for n, config := range configs {
		s := snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(config)}}, Subject: "change " + short(snapshots.ID{Revision: uint64(n + 1)})}.Number(uint64(n+1), parent)
		parent = s.ID()
		f.ids = append(f.ids, parent)
		f.stored[parent] = s
	}
	return f
}

// A snapshot is read only once. A missing snapshot is an error.
func TestArchiveKeepsWhatItRead(t *testing.T) {
	t.Parallel()
	store := stored("global\n")
	a := newArchive(t.Context(), store, func() {})
	if _, err := a.snapshot(t.Context(), store.ids[0]); err != nil {
		t.Fatal(err)
	}
	store.err = errors.New("the store is gone")
	if s, err := a.snapshot(t.Context(), store.ids[0]); err != nil || s.ID() != store.ids[0] {
		t.Errorf("%v, %v", s.ID(), err)
	}
	if _, err := a.snapshot(t.Context(), snapshots.ID{Revision: 9, Short: "0123456789"}); !errors.Is(err, snapshots.ErrNotFound) {
		t.Error(err)
	}
}

// If a store does not answer, pages wait only for a limited time, and say so.
func TestStoreThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	store := stored("global\n")
	store.wait = make(chan struct{})
	defer close(store.wait)
	s := server(t, Source{Fleet: says(oneInstance()), Store: store})
	h := s.Handler()
	if code, body := get(t, h, "/"); code != 200 || !strings.Contains(body, "edge-1") {
		t.Errorf("the fleet: %d %s", code, body)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if l := s.archive.listing(ctx); l.err == nil || !l.at.IsZero() {
		t.Errorf("%+v", l)
	}
	// A caller that does not wait must not learn that the store is empty.
	if of, err := choose(withoutWaiting(), query{archive: s.archive}, ""); !errors.Is(err, errNotRead) {
		t.Errorf("%+v, %v", of, err)
	}
}

func (inCommits) Commit(context.Context, snapshots.ID) (string, error) { return "abc123", nil }
