package compiler_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/snapshots"
)

func TestWriteTreeReplacesTheWhole(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "deep", "out")
	draft := func(path string, at time.Time) snapshots.Draft {
		return snapshots.Draft{Files: []snapshots.File{{Path: "haproxy.cfg", Content: []byte("global\n")}, {Path: path, Content: []byte("x y\n")}}, Time: at}
	}
	if err := compiler.WriteTree(dir, draft("maps/old.map", now)); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(filepath.Join(dir, "snapshot.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := compiler.WriteTree(dir, draft("maps/new.map", now)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "maps", "old.map")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("maps/old.map is still there: %v", err)
	}
	if err := compiler.WriteTree(dir, draft("maps/old.map", now.Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	if again, _ := os.ReadFile(filepath.Join(dir, "snapshot.yaml")); string(again) != string(first) {
		t.Errorf("the same draft at another time gives another manifest:\n%s\n%s", first, again)
	}
	if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) != 1 {
		t.Errorf("left beside it: %v", left)
	}
}

func TestWriteTreeKeepsWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "notes.txt", "mine")
	err := compiler.WriteTree(dir, snapshots.Draft{Files: []snapshots.File{{Path: "haproxy.cfg", Content: []byte("global\n")}}})
	if !errors.Is(err, compiler.ErrNotOurs) {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("the directory holds %v", left)
	}
}
