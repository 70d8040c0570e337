package gitstore

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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

// A publish is one listing and one push of the changes, whatever the length of the history. Only the first looks for
// what is there once more. Nothing is fetched, and nothing is kept on disk. The listing has the branch, and the tag
// that is on it.
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
	if m.lists != n+1 || m.pushes != n || m.fetches != 0 {
		t.Errorf("%d snapshots took %d lists, %d pushes and %d fetches", n, m.lists, m.pushes, m.fetches)
	}
	if most := slices.Max(m.references); most != 2 {
		t.Errorf("the listings have %d references", m.references)
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

// The first publish of a process looks at the branch, fetches its tip, and looks for tags that are newer. It lists no
// other tag.
func TestFirstPublishListsFew(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	s := r.open(t)
	for i := range 12 {
		publish(t, s, storetest.Draft(fmt.Sprint("web", i)))
	}
	fresh := r.open(t)
	m := meddle(fresh)
	id := publish(t, fresh, storetest.Draft("next"))
	if id.Revision != 13 || !slices.Equal(m.references, []int{1, 2}) || m.fetches != 1 || m.pushes != 1 {
		t.Errorf("%s took lists of %d references, %d fetches, %d pushes", id, m.references, m.fetches, m.pushes)
	}
}

// The installed git shows a push the branches, and no tag that the push does not change.
func TestPushSeesFewTags(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	s := r.open(t)
	var ids []snapshots.ID
	for i := range 12 {
		ids = append(ids, publish(t, s, storetest.Draft(fmt.Sprint("web", i))))
	}
	seen := func(ids ...snapshots.ID) []string {
		var updates []update
		for _, id := range ids {
			updates = append(updates, update{name: s.names.tag(id)})
		}
		session, err := s.remote.(*wire).receivePack(t.Context(), updates)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		advertised, err := session.AdvertisedReferencesContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.Sorted(maps.Keys(advertised.References))
	}
	if got := seen(ids[3]); !slices.Equal(got, []string{"refs/heads/edge", "refs/tags/edge/" + ids[3].String()}) {
		t.Errorf("a push of one tag sees %q", got)
	}
	if got := seen(); len(got) != 13 {
		t.Errorf("a push of no tag sees %q", got)
	}
}

// A push looks at no commit of an old tag: it does not even notice that one is gone.
func TestPushLooksAtNoOldCommit(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	s := r.open(t)
	var ids []snapshots.ID
	at := storetest.Draft("").Time
	after := func(name string) snapshots.Draft { // commits in the order of their times, as always
		d := storetest.Draft(name)
		at = at.Add(time.Second)
		d.Time = at
		return d
	}
	for i := range 5 {
		ids = append(ids, publish(t, s, after(fmt.Sprint("web", i))))
	}
	commit := r.git(t, "rev-parse", "refs/tags/edge/"+ids[1].String())
	if err := os.Remove(filepath.Join(r.path, "objects", commit[:2], commit[2:])); err != nil {
		t.Fatal(err)
	}
	if id := publish(t, s, after("next")); id.Revision != 6 {
		t.Errorf("published %s", id)
	}
}

// Tags are packed now and then, on which nothing depends.
func TestTagsArePacked(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	s := r.open(t)
	fill(t, s, 2*packEvery-2)
	m := meddle(s)
	loose := func() int {
		found, err := filepath.Glob(filepath.Join(r.path, "refs", "tags", "edge", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	for i, want := range []int{2*packEvery - 1, 0, 1} {
		publish(t, s, storetest.Draft(fmt.Sprint("next", i)))
		if got := loose(); got != want {
			t.Errorf("after %d more, %d tags are not packed, want %d", i+1, got, want)
		}
	}
	if v, err := r.open(t).View(t.Context()); err != nil || len(v.IDs) != 2*packEvery+1 || m.packings != 1 {
		t.Errorf("%d snapshots, packed %d times, %v", len(v.IDs), m.packings, err)
	}
	// Where git cannot pack, it publishes.
	write(t, filepath.Join(r.path, "packed-refs.lock"), nil)
	fill(t, s, 3*packEvery-1)
	if id := publish(t, s, storetest.Draft("locked")); id.Revision != 3*packEvery {
		t.Errorf("published %s", id)
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
