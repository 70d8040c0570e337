package dirstore

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Backend {
		t.Helper()
		path := filepath.Join(t.TempDir(), "store")
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		return storetest.Backend{
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
			Break: func() {
				if err := os.Rename(path, path+".gone"); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}

func appendTo(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("tampered\n"); err != nil {
		t.Fatal(err)
	}
}
