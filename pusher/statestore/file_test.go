package statestore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/filelock"
	"github.com/hapsnap/hapsnap/internal/wholefile"
)

func TestLeftoversOfStatesAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mine := []string{".state.json.123", ".fallback.pem.4567"}
	others := []string{"state.json", ".state.json.", ".state.json.1a", ".state.json.old", ".other.json.123", "state.json.123", ".state.json.lock", ".r000001-0123456789.json.77"}
	for _, name := range append(mine, others...) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, ".state.json.999"), 0o700); err != nil { // it belongs to nobody
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "state.json")); err != nil {
		t.Fatal(err)
	}
	k := NewFile(filepath.Join(dir, "state.json"))
	if _, err := k.Take(t.Context(), made("a certificate")); err != nil {
		t.Fatal(err)
	}
	defer k.Release()
	for _, name := range mine {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	for _, name := range append(others[1:], ".state.json.999") {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s is gone", name)
		}
	}
	wholefile.RemoveTemporaries(dir, time.Hour, "*.json") // in the folder of the cache, others may write
	if _, err := os.Stat(filepath.Join(dir, ".r000001-0123456789.json.77")); err != nil {
		t.Error("what may be another's is gone")
	}
	old := time.Now().Add(-2 * time.Hour)
	for _, name := range []string{".r000001-0123456789.json.77", ".other.json.123"} {
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	wholefile.RemoveTemporaries(dir, time.Hour, "*.json")
	if _, err := os.Stat(filepath.Join(dir, ".r000001-0123456789.json.77")); err == nil {
		t.Error("what is left of a snapshot is still there")
	}
}

// Somebody who takes the lock for a leftover and removes it lets a second pusher in. The first one learns that from its next save.
func TestLockOfTheStateIsRemoved(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "state.json")
	one, two := NewFile(file), NewFile(file)
	take := func(f *File) error {
		_, err := f.Take(t.Context(), made("a certificate"))
		t.Cleanup(f.Release)
		return err
	}
	remove := func() {
		t.Helper()
		if err := os.Remove(file + ".lock"); err != nil {
			t.Fatal(err)
		}
	}
	if err := take(one); err != nil {
		t.Fatal(err)
	}
	remove()
	if err := one.Save(t.Context(), []byte("one")); err != nil {
		t.Fatalf("nobody else has taken it: %v", err)
	}
	if err := NewFile(file).lockIt(); !errors.Is(err, filelock.ErrHeld) {
		t.Fatalf("a second pusher after that save: %v", err)
	}
	remove()
	if err := os.Remove(filepath.Join(filepath.Dir(file), fallbackFile)); err != nil { // it is no usable certificate
		t.Fatal(err)
	}
	if err := take(two); err != nil {
		t.Fatal(err)
	}
	if err := one.Save(t.Context(), []byte("one again")); !errors.Is(err, ErrTaken) {
		t.Errorf("the first one saves: %v", err)
	}
	if data, _ := os.ReadFile(file); string(data) != "one" {
		t.Errorf("the state is %q", data)
	}
}

// An empty file of the fallback certificate, as after a crash of the machine, keeps no pusher from starting. One that is
// damaged may be somebody's own, and stays.
func TestFallbackFileIsDamaged(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), fallbackFile)
	for content, want := range map[string]string{"": "made", "-----BEGIN": ""} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := fallbackIn(file, made("made"))
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("of %q: %q, %v", content, got, err)
		}
		if data, _ := os.ReadFile(file); string(data) != content+want {
			t.Errorf("the file has %q", data)
		}
	}
}
