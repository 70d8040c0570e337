package gitstore

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/stores/sequence"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// Thousands of snapshots take no more requests than some do, and no more memory except for their names, which
// are released when old snapshots are deleted. The test is not parallel, as it measures the whole process.
func TestThousandsOfSnapshots(t *testing.T) {
	r := newRepository(t, "core.fsync=none")
	writer, reader := r.open(t), r.open(t)
	m := meddle(writer)
	history := map[int]snapshots.ID{}
	used := map[int]uint64{} // bytes by the number of snapshots
	for _, n := range []int{500, 3000} {
		last := fill(t, writer, n)
		history[n] = last
		m.lists, m.pushes, m.fetches, m.packs, m.references = 0, 0, 0, nil, nil
		use(t, writer, reader, fmt.Sprintf("at%d", n))
		if m.lists != rounds || m.pushes != rounds || m.fetches > 1 {
			t.Errorf("at %d: %d snapshots took %d lists, %d pushes and %d fetches", n, rounds, m.lists, m.pushes, m.fetches)
		}
		if most := slices.Max(m.references); most > 2 {
			t.Errorf("at %d a listing has %d references", n, most)
		}
		if pack := m.packs[len(m.packs)-1]; pack > 2000 {
			t.Errorf("at %d the pack of a snapshot has %d bytes", n, pack)
		}
		used[n] = heap()
	}
	// The last listing of both stores has a name and a hash for each.
	if grown := int64(used[3000]) - int64(used[500]); grown > 2*2500*512 {
		t.Errorf("%d bytes are in use at 500 snapshots, and %d more at 3000", used[500], grown)
	}
	v, err := reader.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := 3000 + rounds; len(v.IDs) != want {
		t.Errorf("there are %d snapshots, want %d", len(v.IDs), want)
	}
	if err := writer.Delete(t.Context(), v.IDs[:len(v.IDs)-50]...); err != nil {
		t.Fatal(err)
	}
	use(t, writer, reader, "kept")
	if now := heap(); now > used[500]+256<<10 {
		t.Errorf("%d bytes are in use at 500 snapshots, and %d once 50 are left", used[500], now)
	}
	if _, err := reader.Get(t.Context(), history[3000]); err != nil {
		t.Errorf("get %s: %v", history[3000], err)
	}
}

// rounds is how often a store is used before its memory is measured.
const rounds = 10

// use publishes snapshots. A reader sees and reads each.
func use(t *testing.T, writer, reader *Store, name string) {
	t.Helper()
	for i := range rounds {
		id := publish(t, writer, storetest.Draft(fmt.Sprintf("%s_%d", name, i)))
		if v, err := reader.View(t.Context()); err != nil || v.Head() != id {
			t.Fatalf("view: %v, %v", v.Head(), err)
		}
		if _, err := reader.Get(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
}

// fill pushes as many snapshots at once as needed until there are n.
func fill(t *testing.T, s *Store, n int) snapshots.ID {
	t.Helper()
	parent := s.tip
	b := newBuilder(parent.files)
	updates := []update{{name: s.names.branch(), old: parent.commit}}
	for parent.ID.Revision < uint64(n) {
		next := storetest.Draft(fmt.Sprintf("web_%d", parent.ID.Revision)).Number(parent.ID.Revision+1, parent.ID)
		manifest, err := next.Manifest.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		tree, all, err := b.files(append(next.Files, snapshots.File{Path: snapshots.ManifestFile, Content: manifest}))
		if err != nil {
			t.Fatal(err)
		}
		commit, err := b.commit(tree, parent.commit, s.author(storetest.Draft("").Time), snapshotMessage("edge", next.Manifest), s.sign)
		if err != nil {
			t.Fatal(err)
		}
		parent = tip{Head: sequence.HeadOf(next), commit: commit, files: all}
		updates = append(updates, update{name: s.names.tag(parent.ID), new: commit})
	}
	pack, err := b.pack()
	if err != nil {
		t.Fatal(err)
	}
	updates[0].new = parent.commit
	if err := s.remote.Push(t.Context(), updates, pack); err != nil {
		t.Fatal(err)
	}
	s.tip, s.seen = parent, parent.ID
	return parent.ID
}

// heap returns the bytes in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // for what finalizers kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
