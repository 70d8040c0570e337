package dirstore

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

func TestMain(m *testing.M) {
	storetest.Main(func(path string) (storetest.Store, error) { return Open(path, Options{}), nil })
	os.Exit(m.Run())
}

func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, newBackend)
}

func TestKilled(t *testing.T) {
	t.Parallel()
	storetest.RunKilled(t, newBackend)
}

func TestFailing(t *testing.T) {
	t.Parallel()
	storetest.RunFailing(t, newBackend)
}

func newBackend(t *testing.T) storetest.Backend {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return storetest.Backend{
		Place: path,
		Open: func(step func(string) error) storetest.Store {
			s := Open(path, Options{})
			if step != nil {
				s.step = step
			}
			return s
		},
		Tamper: func(id snapshots.ID, file string) {
			appendTo(t, filepath.Join(path, snapshotsDir, id.String(), filepath.FromSlash(file)))
		},
		SetChannel: func(data []byte) {
			if err := os.WriteFile(filepath.Join(path, channelFile), data, 0o644); err != nil {
				t.Fatal(err)
			}
		},
		RemoveChannel: func() {
			if err := os.Remove(filepath.Join(path, channelFile)); err != nil {
				t.Fatal(err)
			}
		},
		Litter: func() []string { return temporaries(t, path) },
		Break: func() {
			if err := os.Rename(path, path+".gone"); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// temporaries returns the names below a directory that belong to something being written or removed.
func temporaries(t *testing.T, path string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(entry.Name(), temporary) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
