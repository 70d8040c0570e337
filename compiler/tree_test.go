package compiler_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/controller/controllertest"
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
	controllertest.Put(t, dir, "notes.txt", "mine")
	err := compiler.WriteTree(dir, snapshots.Draft{Files: []snapshots.File{{Path: "haproxy.cfg", Content: []byte("global\n")}}})
	if !errors.Is(err, compiler.ErrNotOurs) {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("the directory holds %v", left)
	}
}

// A reader of the directory during its replacement finds a complete one, and so does a reader after a kill at
// any moment.
func TestWriteTreeLeavesNoMomentWithoutOne(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "out")
	draft := snapshots.Draft{Files: []snapshots.File{{Path: "haproxy.cfg", Content: []byte("global\n")}}}
	if err := compiler.WriteTree(dir, draft); err != nil {
		t.Fatal(err)
	}
	done, missing := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(missing)
		for {
			select {
			case <-done:
				return
			default:
				if _, err := os.Stat(filepath.Join(dir, "haproxy.cfg")); errors.Is(err, os.ErrNotExist) {
					missing <- err
					return
				}
			}
		}
	}()
	for range 100 {
		if err := compiler.WriteTree(dir, draft); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	if err := <-missing; err != nil {
		t.Error(err)
	}
}

// The next run removes what a killed process left beside the directory.
func TestWriteTreeRemovesLeftovers(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir, left := filepath.Join(root, "out"), filepath.Join(root, ".out-123")
	if err := os.MkdirAll(filepath.Join(left, "new"), 0o755); err != nil {
		t.Fatal(err)
	}
	controllertest.Put(t, filepath.Join(left, "new"), "haproxy.cfg", "global\n")
	before := time.Now().Add(-time.Hour)
	if err := os.Chtimes(left, before, before); err != nil {
		t.Fatal(err)
	}
	draft := snapshots.Draft{Files: []snapshots.File{{Path: "haproxy.cfg", Content: []byte("global\n")}}}
	for _, want := range []bool{true, false} { // without a directory, the only copy may be there
		if err := compiler.WriteTree(dir, draft); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(left); (err == nil) != want {
			t.Errorf("%s is there: %v", left, err)
		}
	}
}
