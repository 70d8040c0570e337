package manifests

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	never  = time.Hour
	asSoon = 10 * time.Millisecond
)

// wait waits for a signal.
func wait(t *testing.T, changed <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-changed:
	case <-time.After(time.Minute):
		t.Fatalf("no signal after %s", what)
	}
}

// drain receives signals until Read returns the given objects. There may be more signals than changes, but the
// last one comes after the last change.
func drain(t *testing.T, changed <-chan struct{}, dir, want string) {
	t.Helper()
	for {
		set, err := Read(dir)
		if err == nil && names(set) == want {
			return
		}
		wait(t, changed, "a change to "+want+", read "+names(set))
	}
}

// Watch reports each change without the poll, which would hide a missing notification.
func TestWatchIsNotified(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), service("a"))
	changed := watch(t.Context(), []string{dir}, slog.New(slog.DiscardHandler), never)

	write(t, filepath.Join(dir, "a.yaml"), service("a2"))
	drain(t, changed, dir, "a2")

	write(t, filepath.Join(dir, ".new"), service("a3"))
	if err := os.Rename(filepath.Join(dir, ".new"), filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	drain(t, changed, dir, "a3")

	write(t, filepath.Join(dir, "v1.2", "deep", "b.yaml"), service("b"))
	drain(t, changed, dir, "a3 b")
	write(t, filepath.Join(dir, "v1.2", "deep", "b.yaml"), service("b2"))
	drain(t, changed, dir, "a3 b2")

	if err := os.RemoveAll(filepath.Join(dir, "v1.2")); err != nil {
		t.Fatal(err)
	}
	drain(t, changed, dir, "a3")
}

// A ConfigMap volume changes by a rename of its hidden link.
func TestWatchSeesConfigMapUpdate(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "..1", "a.yaml"), service("old"))
	write(t, filepath.Join(dir, "..2", "a.yaml"), service("new"))
	link(t, "..1", filepath.Join(dir, "..data"))
	link(t, "..data/a.yaml", filepath.Join(dir, "a.yaml"))
	changed := watch(t.Context(), []string{dir}, slog.New(slog.DiscardHandler), never)
	link(t, "..2", filepath.Join(dir, "..data_tmp"))
	if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	drain(t, changed, dir, "new")
}

// git-sync replaces the link that is the root itself.
func TestWatchSeesRootReplaced(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "1", "a.yaml"), service("old"))
	write(t, filepath.Join(dir, "2", "a.yaml"), service("new"))
	root := filepath.Join(dir, "root")
	link(t, "1", root)
	changed := watch(t.Context(), []string{root}, slog.New(slog.DiscardHandler), never)
	link(t, "2", root+"_tmp")
	if err := os.Rename(root+"_tmp", root); err != nil {
		t.Fatal(err)
	}
	drain(t, changed, root, "new")
	write(t, filepath.Join(dir, "2", "a.yaml"), service("newer"))
	drain(t, changed, root, "newer")
}

func TestWatchSingleFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	write(t, file, service("a"))
	changed := watch(t.Context(), []string{file}, slog.New(slog.DiscardHandler), never)
	write(t, filepath.Join(dir, "b.yaml"), service("b"))
	write(t, file+"_new", service("a2"))
	if err := os.Rename(file+"_new", file); err != nil {
		t.Fatal(err)
	}
	drain(t, changed, file, "a2")
}

// Without notifications the poll finds every change, also of a directory that comes and goes.
func TestWatchPolls(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later", "still")
	w := &watcher{dirs: []string{dir}, log: slog.New(slog.DiscardHandler), changed: make(chan struct{}, 1)}
	w.look()
	go w.run(t.Context(), asSoon)

	write(t, filepath.Join(dir, "a.yaml"), service("a"))
	drain(t, w.changed, dir, "a")
	write(t, filepath.Join(dir, "a.yaml"), service("longer"))
	drain(t, w.changed, dir, "longer")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := Read(dir); err != nil {
			break
		}
		wait(t, w.changed, "the directory's removal")
	}
}

// Neither an editor's scratch files nor the neighbours of the root, whose parent is watched too, make a signal.
func TestWatchIgnoresScratchFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), service("a"))
	w := &watcher{dirs: []string{dir}}
	w.look()
	for path, want := range map[string]bool{
		"a.yaml": true, "new": true, ".a.yaml.swp": false, "a.yaml~": false, "..data": true, "..2024": false,
		"../other.yaml": false, "sub/x.yaml": false,
	} {
		if got := w.isRelevant(event(filepath.Join(dir, path))); got != want {
			t.Errorf("%s: relevant is %v, want %v", path, got, want)
		}
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func event(path string) fsnotify.Event { return fsnotify.Event{Name: path, Op: fsnotify.Write} }
