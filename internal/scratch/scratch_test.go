package scratch

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/killtest"
)

func TestMain(m *testing.M) {
	killtest.Main(func(args []string) (string, error) {
		f, err := Make(args[0], "test-")
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(f.Path, "key.pem"), []byte("secret"), 0o600); err != nil {
			return "", err
		}
		f.Remove()
		return "done", nil
	})
	os.Exit(m.Run())
}

// Whenever a process is killed, the next sweep removes all its folders.
func TestFoldersOfKilledProcessesAreSwept(t *testing.T) {
	left := 0
	for n := 1; ; n++ {
		dir := t.TempDir()
		o := killtest.Run(t, killtest.Kill, n, dir)
		if entries, err := os.ReadDir(dir); err != nil {
			t.Fatal(err)
		} else if len(entries) > 0 {
			left++
		}
		Sweep(dir, "test-")
		if entries, _ := os.ReadDir(dir); o.Killed && len(entries) == 0 && left > 0 && n == 2 {
			t.Error("a folder that was just made is swept at once")
		}
		sweep(dir, 0, []string{"test-"})
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("killed at %q, %v is left: %v", o.Point, entries, err)
		}
		if !o.Met {
			break
		}
	}
	if left < 3 {
		t.Errorf("%d kills left something: the test tests little", left)
	}
}

func TestWhatIsNotSwept(t *testing.T) {
	dir := t.TempDir()
	f, err := Make(dir, "test-")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	if err := os.Symlink(elsewhere, filepath.Join(dir, "test-link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"other-1", "tes"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "test-file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-24 * time.Hour)
	if err := os.Chtimes(f.Path, old, old); err != nil {
		t.Fatal(err)
	}
	Sweep(dir, "test-") // f is in use, however old
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 5 {
		t.Errorf("left are %v: %v", entries, err)
	}
	f.Remove()
	if _, err := os.Stat(f.Path); err == nil {
		t.Error("it is not removed")
	}
}
