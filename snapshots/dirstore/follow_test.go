package dirstore

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// A store can be followed before it exists, and after it was made again.
func TestFollow(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "not", "yet")
	changes := storetest.Followed(t, Open(path, Options{}))
	for range 2 {
		storetest.RunFollowing(t, changes, Open(path, Options{}), Open(path, Options{}))
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
}

// Readers see nothing of the temporary files of writers.
func TestShows(t *testing.T) {
	t.Parallel()
	s := Open("/store", Options{})
	for name, want := range map[string]bool{
		"/store/channel.yaml": true, "/store/.tmp-channel.yaml": false, "/store/.lock": false, "/store/snapshots": true,
		"/store/snapshots/r000001-9f3ac01b2d": true, "/store/snapshots/.tmp-r000001-9f3ac01b2d": false, "/other/channel.yaml": false,
	} {
		if got := s.shows(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
