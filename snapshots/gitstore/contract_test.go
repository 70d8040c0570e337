package gitstore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/filelock"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

func TestMain(m *testing.M) {
	storetest.Main(openElsewhere)
	os.Exit(m.Run())
}

// openElsewhere opens a store in another process.
func openElsewhere(place string) (storetest.Store, error) {
	path, cache, _ := strings.Cut(place, "#")
	return Open(Options{URL: "file://" + path, Branch: "edge", CacheDir: cache})
}

func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, newBackend())
}

// TestContractNotAtomic is for repositories that change references one by one, as on some hosts.
func TestContractNotAtomic(t *testing.T) {
	t.Parallel()
	storetest.Run(t, newBackend("receive.advertiseAtomic=false"))
}

func TestKilled(t *testing.T) {
	t.Parallel()
	storetest.RunKilled(t, newBackend())
}

func newBackend(config ...string) func(t *testing.T) storetest.Backend {
	return func(t *testing.T) storetest.Backend {
		t.Helper()
		return newRepository(t, config...).backend(t)
	}
}

func (r repository) backend(t *testing.T, change ...func(*Options)) storetest.Backend {
	t.Helper()
	return storetest.Backend{
		Place: r.path + "#" + r.cache, Sends: true, // it also writes to its cache
		Open: func(step func(string) error) storetest.Store {
			s := r.open(t, change...)
			if step != nil {
				s.step = step
			}
			return s
		},
		Tamper: func(id snapshots.ID, path string) { r.tamper(t, id, path) },
		SetChannel: func(data []byte) {
			commit := r.commitFile(t, "", channelFile, string(data))
			r.git(t, "update-ref", "refs/heads/edge-channel", commit)
		},
		RemoveChannel: func() { r.git(t, "update-ref", "-d", "refs/heads/edge-channel") },
		Litter:        func() []string { return r.ownerless(t) },
		Break: func() {
			if err := os.Rename(r.path, r.path+".gone"); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// ownerless returns the caches of killed processes.
func (r repository) ownerless(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, path := range storesIn(t, r.cache) {
		if owner, err := filelock.Try(filepath.Join(path, ownerFile), ownerMode); err == nil {
			owner.Release()
			found = append(found, path)
		}
	}
	return found
}
