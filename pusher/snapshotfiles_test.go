package pusher

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

func TestSnapshotsAreKeptOnDiskVerified(t *testing.T) {
	dir := t.TempDir()
	s := snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte("global\n")}}, Time: noon}.Number(3, snapshots.ID{})
	if err := keepOnDisk(dir, s); err != nil {
		t.Fatal(err)
	}
	got, err := readKept(dir, s.ID())
	if diff := cmp.Diff(s, got); err != nil || diff != "" {
		t.Errorf("read otherwise: %v (-want +got):\n%s", err, diff)
	}
	tampered := s
	tampered.Files = []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte("global\n    daemon\n")}}
	data, err := json.Marshal(tampered)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(keptFile(dir, s.ID()), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readKept(dir, s.ID()); !errors.Is(err, snapshots.ErrCorrupt) {
		t.Errorf("a changed file was read: %v", err)
	}
	forget(dir, map[snapshots.ID]bool{})
	if _, err := os.Stat(keptFile(dir, s.ID())); err == nil {
		t.Error("it was not forgotten")
	}
}

// A snapshot that could not be written to disk is written later. Until then that is reported.
func TestSnapshotIsKeptOnceThereIsSpace(t *testing.T) {
	t.Parallel()
	store := dirstore.Open(t.TempDir(), dirstore.Options{})
	folder := filepath.Join(t.TempDir(), "cache")
	if err := os.WriteFile(folder, nil, 0o600); err != nil { // the file is in the way of the folder
		t.Fatal(err)
	}
	id, _, err := store.Publish(t.Context(), snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte("global\n")}}, Time: noon})
	if err != nil {
		t.Fatal(err)
	}
	cache := binding.NewCache(folder)
	read, err := fetch(t.Context(), store, folder, id)
	cache.Take(id, read, err, noon)
	if err := cache.Trouble(); err == nil || !strings.Contains(err.Error(), folder) {
		t.Fatalf("trouble is %v", err)
	}
	if _, ok := cache.Get(id); !ok {
		t.Fatal("it is not at hand")
	}
	if again := cache.KeepAgain(noon); len(again) > 0 {
		t.Error("it is tried again at once")
	}
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	later := noon.Add(binding.KeepRetry)
	again := cache.KeepAgain(later)
	if len(again) != 1 || len(cache.KeepAgain(later)) > 0 {
		t.Fatalf("%d are tried again", len(again))
	}
	cache.Take(id, again[0], keep(folder, again[0]), later)
	if err := cache.Trouble(); err != nil {
		t.Error(err)
	}
	if s, err := readKept(folder, id); err != nil || s.ID() != id {
		t.Errorf("it is not kept: %v", err)
	}
}
