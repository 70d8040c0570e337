package gitstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// storesIn returns the repositories in a cache folder.
func storesIn(t *testing.T, cache string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(cache, repositoryPrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A publish is one listing and one push of the changes, whatever the length of the history. Nothing is fetched,
// and nothing is kept on disk.
func TestPublishCostsTheSameAtAnyLength(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	s := r.open(t)
	m := meddle(s)
	unchanged := strings.Repeat("a line that is the same in every snapshot\n", 1000)
	const n = 40
	for i := range n {
		publish(t, s, storetest.Draft(fmt.Sprintf("web%02d", i), "maps/path.map", unchanged))
	}
	if m.lists != n || m.pushes != n || m.fetches != 0 {
		t.Errorf("%d snapshots took %d lists, %d pushes and %d fetches", n, m.lists, m.pushes, m.fetches)
	}
	if tenth, last := m.packs[9], m.packs[n-1]; last > tenth+100 {
		t.Errorf("the pack of the tenth snapshot has %d bytes, that of the last %d", tenth, last)
	}
	if m.packs[0]-m.packs[1] < 100 {
		t.Errorf("the first pack has %d bytes, the second %d: what is there was sent again", m.packs[0], m.packs[1])
	}
	if found := storesIn(t, r.cache); len(found) != 0 {
		t.Errorf("the writer keeps %v", found)
	}
}

// A poll without changes is one listing. A snapshot is fetched once. The cache is emptied before it grows.
func TestReaderFetchesOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	writer, reader := r.open(t), r.open(t)
	m := meddle(reader)
	const n, limit = 8, 5
	reader.cache.limit = limit
	var ids []snapshots.ID
	for i := range n {
		id := publish(t, writer, storetest.Draft(fmt.Sprintf("web%d", i)))
		ids = append(ids, id)
		for range 3 {
			if v, err := reader.View(t.Context()); err != nil || v.Head() != id {
				t.Fatalf("view: %v, %v", v.Head(), err)
			}
			if _, err := reader.Get(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
	}
	if m.fetches != n || m.lists != 3*n {
		t.Errorf("%d snapshots, looked at three times, took %d lists and %d fetches", n, m.lists, m.fetches)
	}
	found := storesIn(t, r.cache)
	if len(found) != 1 {
		t.Fatalf("the reader keeps %v", found)
	}
	packs, err := filepath.Glob(filepath.Join(found[0], "objects", "pack", "*.pack"))
	if err != nil || len(packs) != n-limit {
		t.Errorf("the cache holds %d packs, %v", len(packs), err)
	}
	// For git, the cache is a shallow repository without errors.
	if got := runGit(t, found[0], nil, "fsck", "--no-dangling"); got != "" {
		t.Errorf("git fsck in the cache: %s", got)
	}
	if _, err := reader.Get(t.Context(), ids[0]); err != nil {
		t.Errorf("get what is no longer in the cache: %v", err)
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	if found := storesIn(t, r.cache); len(found) != 0 {
		t.Errorf("after Close there is %v", found)
	}
	if _, err := reader.View(t.Context()); err == nil {
		t.Error("a closed store can be used")
	}
}

// Exactly the caches of killed processes are removed.
func TestCachesOfTheDeadAreRemoved(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	id := publish(t, r.open(t), storetest.Draft("a"))
	living := r.open(t)
	if _, err := living.Get(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	alive := storesIn(t, r.cache)
	for _, name := range []string{repositoryPrefix + "dead", repositoryPrefix + "newborn", "not-ours"} {
		if err := os.Mkdir(filepath.Join(r.cache, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(r.cache, repositoryPrefix+"dead", ownerFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.open(t).Get(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	left := storesIn(t, r.cache)
	if len(left) != 2 || !slices.Contains(left, alive[0]) {
		t.Errorf("of %v and the dead, there is %v", alive, left)
	}
	if _, err := os.Stat(filepath.Join(r.cache, "not-ours")); err != nil {
		t.Error(err)
	}
}

// A cache that is damaged or removed is made again.
func TestCacheThatIsLost(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	s := r.open(t)
	one, two := publish(t, s, storetest.Draft("a")), publish(t, s, storetest.Draft("b"))
	damage := map[string]func(dir string) error{
		"removed": os.RemoveAll,
		"cut off": func(dir string) error {
			packs, err := filepath.Glob(filepath.Join(dir, "objects", "pack", "*.pack"))
			for _, pack := range packs {
				err = errors.Join(err, os.Chmod(pack, 0o600), os.Truncate(pack, 20))
			}
			return err
		},
	}
	for what, damage := range damage {
		if _, err := s.Get(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		if err := damage(storesIn(t, r.cache)[0]); err != nil {
			t.Fatal(err)
		}
		for _, id := range []snapshots.ID{one, two} {
			if _, err := s.Get(t.Context(), id); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}
