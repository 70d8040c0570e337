package configmapstore

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/stores/sequence"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// zeros reads n zero bytes.
func zeros(n int64) io.Reader { return io.LimitReader(zero{}, n) }

type zero struct{}

func (zero) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A few chunks that would unpack to gigabytes are refused before that.
func TestUnpackingTakesLittleMemory(t *testing.T) {
	const size = 300 << 20
	var archive bytes.Buffer
	z := gzip.NewWriter(&archive)
	w := tar.NewWriter(z)
	err := w.WriteHeader(&tar.Header{Name: "haproxy.cfg", Mode: 0o644, Size: size})
	if err == nil {
		_, err = io.Copy(w, zeros(size))
	}
	if err := errors.Join(err, w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	listed := func(sizes ...int64) snapshots.Manifest {
		m := storetest.Draft("web").Number(1, snapshots.ID{}).Manifest
		m.Spec.Files = nil
		for _, size := range sizes {
			m.Spec.Files = append(m.Spec.Files, snapshots.FileDigest{Path: "haproxy.cfg", Size: size})
		}
		return m
	}
	for name, m := range map[string]snapshots.Manifest{
		"one large file":    listed(size),
		"many files":        listed(60<<20, 60<<20, 60<<20),
		"more than is said": listed(1000),
		"too many":          listed(60<<20, 60<<20, 60<<20, 60<<20, 60<<20),
	} {
		took := allocated(func() {
			if _, err := unpackFiles(m, [][]byte{archive.Bytes()}); !errors.Is(err, snapshots.ErrCorrupt) {
				t.Errorf("%s: %v", name, err)
			}
		})
		if took > 4<<20 {
			t.Errorf("%s: %d MiB were allocated for %d KiB", name, took>>20, archive.Len()>>10)
		}
	}
	var manifest bytes.Buffer
	z = gzip.NewWriter(&manifest)
	if _, err := io.Copy(z, zeros(size)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	took := allocated(func() {
		if text, err := unpackManifest([][]byte{manifest.Bytes()}); err != nil || len(text) > snapshots.MaxManifest+1 {
			t.Errorf("manifest: %d bytes, %v", len(text), err)
		}
		if _, err := snapshots.ParseManifest(make([]byte, snapshots.MaxManifest+1)); !errors.Is(err, snapshots.ErrCorrupt) {
			t.Errorf("manifest: %v", err)
		}
	})
	if took > 8*snapshots.MaxManifest { // it unpacks to 300 MiB; a buffer grows by doubling
		t.Errorf("%d MiB were allocated for a manifest of %d KiB", took>>20, manifest.Len()>>10)
	}
}

func TestUnpackedSize(t *testing.T) {
	file := func(size int64) snapshots.FileDigest { return snapshots.FileDigest{Path: "maps/a.map", Size: size} }
	for name, test := range map[string]struct {
		files   []snapshots.FileDigest
		packed  int
		refused bool
	}{
		"nothing":                    {nil, 100, false},
		"all alike":                  {[]snapshots.FileDigest{file(60 << 20)}, 60 << 10, false},
		"large, and as large packed": {[]snapshots.FileDigest{file(60 << 20), file(60 << 20)}, 20 << 20, false},
		"large, and all alike":       {[]snapshots.FileDigest{file(60 << 20), file(60 << 20)}, 1 << 20, true},
		"a file that is too large":   {[]snapshots.FileDigest{file(65 << 20)}, 20 << 20, true},
		"too much in all":            {[]snapshots.FileDigest{file(64 << 20), file(64 << 20), file(64 << 20), file(64 << 20), file(1)}, 28 << 20, true},
	} {
		if _, err := unpackedSize(test.files, test.packed); (err != nil) != test.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What would be refused when it is unpacked is not packed either.
	large := string(make([]byte, 40<<20))
	_, err := new(compressor).pack(storetest.Draft("web", "files/a", large, "files/b", large).Number(1, snapshots.ID{}))
	if !errors.Is(err, sequence.ErrRefused) {
		t.Errorf("packed: %v", err)
	}
}

// A manifest that names a chunk repeatedly takes no more memory for it.
func TestChunksThatAreNamedAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	id := publish(t, p.open(), ten())
	manifest := p.object(manifestName("edge", 1))
	names := strings.Fields(manifest.Data[chunksKey])
	manifest.Data[chunksKey] = ""
	for range maxChunks {
		manifest.Data[chunksKey] += names[0] + "\n"
	}
	p.replace(manifest)
	if _, err := p.open().Get(t.Context(), id); !errors.Is(err, snapshots.ErrCorrupt) {
		t.Errorf("get: %v", err)
	}
}

// A chunk with the label delivered has no effect without its manifest.
func TestChunkAloneMeansNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, objects := p.delivered(7, "web")
	p.deliver(objects[1])
	if id := publish(t, p.open(), storetest.Draft("b")); id.Revision != 1 {
		t.Errorf("published as %s", id)
	}
}

// A staged manifest that somebody keeps adding to is not waited for without end.
func TestStagedManifestsThatAreFed(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s, victim := p.open(), p.open()
	victim.patience = 200 * time.Millisecond
	snapshot := storetest.Draft("web").Number(1, snapshots.ID{})
	files, err := new(compressor).pack(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := s.create(t.Context(), newDraft("edge", snapshot, files, newAttempt()).manifest)
	if err != nil {
		t.Fatal(err)
	}
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		for err == nil { // until it is removed, and its chunks are refused
			chunk := newDraft("edge", snapshot, files, newAttempt()).chunks[0]
			if _, err = s.create(t.Context(), ownedBy(chunk, manifest.Name, manifest.UID)); err == nil {
				_, err = s.get(t.Context(), manifest.Name)
			}
			if found, getErr := s.get(t.Context(), manifest.Name); getErr == nil && found.UID != manifest.UID {
				return
			}
		}
	}()
	publish(t, victim, storetest.Draft("b"))
	<-fed
}

func TestBusyEnds(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p := publication{Store: &Store{patience: 10 * time.Second}, mine: map[types.UID]bool{}, seen: map[types.UID]sighting{}}
	chunks := 0
	until := func(uid func(time.Duration) types.UID) time.Duration {
		p.waits, p.seen = time.Time{}, map[types.UID]sighting{}
		for after := time.Duration(0); after < time.Hour; after += 4 * time.Second {
			chunks++
			l := listing{staged: []stored{{uid: uid(after), created: now}}, chunks: map[types.UID][]string{uid(after): make([]string, chunks)}}
			if !p.busy(l, now.Add(after)) {
				return after
			}
		}
		return time.Hour
	}
	if got := until(func(time.Duration) types.UID { return "a" }); got != time.Minute {
		t.Errorf("one that is fed is waited for for %s", got)
	}
	if got := until(func(after time.Duration) types.UID { return types.UID(after.String()) }); got != time.Minute {
		t.Errorf("one that is made anew is waited for for %s", got)
	}
	p.waits = time.Time{}
	old := listing{staged: []stored{{uid: "b", created: now.Add(-2 * time.Minute)}}}
	if p.busy(old, now) {
		t.Error("one that was made long ago is waited for")
	}
}
