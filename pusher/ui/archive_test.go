package ui

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
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

// Snapshots that take much memory, of certificates or of files, are not all kept that somebody looked at.
func TestMemoryOfTheArchiveIsBounded(t *testing.T) {
	t.Parallel()
	var all []snapshots.Snapshot
	for n := range uint64(30) {
		d := snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: append(make([]byte, 8<<20), byte(n))}}}
		for i := range 5000 {
			d.Certificates = append(d.Certificates, snapshots.CertificateRef{File: fmt.Sprintf("certs/%d.pem", i), Secret: snapshots.SecretName{Namespace: "shop", Name: fmt.Sprint(i)}})
		}
		all = append(all, d.Number(n+1, snapshots.ID{}))
	}
	a := newArchive(t.Context(), storeOf(all...), func() {})
	for _, s := range all {
		m, err := a.manifestOf(t.Context(), s.ID())
		if _, more := a.snapshot(t.Context(), s.ID()); err != nil || more != nil || len(m.Spec.Certificates) != 5000 {
			t.Fatal(err, more, len(m.Spec.Certificates))
		}
		if m, err := a.manifest(t.Context(), s.ID()); err != nil || m.Spec.Certificates != nil {
			t.Fatal(err, len(m.Spec.Certificates))
		}
	}
	if n, whole, contents := len(a.manifests.values), len(a.whole.values), len(a.contents.values); n != 30 || whole != 8 || contents != 5 {
		t.Errorf("%d manifests are kept, %d of them with certificates, and %d snapshots", n, whole, contents)
	}
}

// A journal that cannot be read hides nothing else, and pages say so.
func TestJournalThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s := shop(1)
	store := storeOf(s)
	store.damaged = errors.New("the journal is a folder")
	h := server(t, Source{Channel: "edge", Fleet: shopFleet(s.ID()), Store: store}).Handler()
	for path, want := range map[string]string{"/routes": "shop.example.com", "/snapshots/" + s.ID().String(): "number 1", "/history": "number 1"} {
		code, body := get(t, h, path)
		if code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d, without %q: %s", path, code, want, plainText(body))
		}
		if path != "/routes" && !strings.Contains(body, store.damaged.Error()) {
			t.Errorf("%s does not say that the journal cannot be read: %s", path, plainText(body))
		}
	}
}

// A store that does not answer keeps nobody waiting for longer than they wait, and the page says so.
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

// Pages of several snapshots that are followed at once do not make room for each other as long as these are small. Of
// large ones, as many are kept as fit, and two in any case.
func TestRoutesOfSeveralSnapshotsAreKept(t *testing.T) {
	t.Parallel()
	var all []snapshots.Snapshot
	for n := range uint64(10) {
		all = append(all, shop(n+1))
	}
	a := newArchive(t.Context(), storeOf(all...), func() {})
	for _, s := range all {
		if _, err := a.routes(t.Context(), s.ID()); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range all {
		if _, err := a.routes(withoutWaiting(), s.ID()); err != nil {
			t.Errorf("%s is not kept: %v", s.ID(), err)
		}
	}
	sizes := newSizedMemory[int](10, 2, func(size int) int { return size })
	for step, c := range []struct {
		put  int
		want []int
	}{{3, []int{3}}, {4, []int{3, 4}}, {4, []int{3, 4}}, {2, []int{2, 3, 4}}, {3, []int{2, 3, 4}}, {5, []int{2, 3, 5}}, {50, []int{5, 50}}, {60, []int{50, 60}}, {1, []int{1, 60}}, {2, []int{1, 2}}} {
		sizes.put(c.put, c.put)
		if got := slices.Sorted(maps.Keys(sizes.values)); !slices.Equal(got, c.want) {
			t.Errorf("step %d: kept %v, want %v", step, got, c.want)
		}
	}
}

// A comparison that waits for another one has read no snapshot: many that wait would hold a snapshot each, of up to 256 MB.
func TestComparisonsThatWaitHoldNothing(t *testing.T) {
	t.Parallel()
	store := stored("global\n", "global\n    maxconn 1\n")
	a := newArchive(t.Context(), store, func() {})
	a.comparing <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := a.compare(ctx, store.ids[0], store.ids[1]); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ended with %v", err)
	}
	for _, id := range store.ids {
		if _, read := a.contents.get(id); read {
			t.Errorf("%s was read", id)
		}
	}
	<-a.comparing
	if c, err := a.compare(t.Context(), store.ids[0], store.ids[1]); err != nil || len(c.report.Files) != 1 {
		t.Errorf("%+v, %v", c.report, err)
	}
}
