package gitstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// ways are those to a repository.
var ways = []string{"file", "https", "ssh"}

// by returns what sets the options of a store for a way to the repository.
func (r repository) by(t *testing.T, way string) func(*Options) {
	t.Helper()
	switch way {
	case "https":
		return newWebServer(t, r).at
	case "ssh":
		return newSSHServer(t).at
	default:
		return func(*Options) {}
	}
}

// hook writes a hook of the repository, which git runs for each push.
func (r repository) hook(t *testing.T, name, script string) {
	t.Helper()
	folder := filepath.Join(r.path, "hooks")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
}

// incoming returns the folders in which git keeps what is sent until hooks have seen it.
func (r repository) incoming(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(r.path, "objects", "*incoming*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Whatever the way to a repository, the error of a push has the words of the server: as one line that is printable and
// not too long. What a hook declines is not pushed again and again. Once it lets the push pass, the next one succeeds,
// and its words are no error.
func TestServersSayWhyTheyDecline(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			for _, kind := range []string{"pre-receive", "update"} {
				r := newRepository(t)
				s := r.open(t, r.by(t, way))
				publish(t, s, storetest.Draft("a"))
				count := filepath.Join(r.path, "asked")
				r.hook(t, kind, fmt.Sprintf("echo x >> '%s'\nprintf 'GH006: this branch\\033[2J is protected\\n\\nAsk the team of the edge.\\n' >&2\nhead -c 4000 /dev/zero | tr '\\0' y >&2\nexit 1\n", count))
				_, _, err := s.Publish(t.Context(), storetest.Draft("b"))
				if err == nil {
					t.Fatalf("%s: published", kind)
				}
				const said = `the server says: GH006: this branch [2J is protected / Ask the team of the edge. / yyyy`
				if !errors.Is(err, ErrDeclined) || !strings.Contains(err.Error(), said) || !strings.Contains(process.Hint(err), "protected tags") {
					t.Errorf("%s: %v, hint %q", kind, err, process.Hint(err))
				}
				if n := len(err.Error()); n > 1500 || strings.Contains(err.Error(), "tries") {
					t.Errorf("%s: %d bytes: %.200s", kind, n, err)
				}
				// Git runs the hook for all references together, or until it declines one of them.
				if asked, err := os.ReadFile(count); err != nil || len(asked) > len("x\nx\n") {
					t.Errorf("%s: asked %q, %v", kind, asked, err)
				}
				eventually.Holds(t, "git removes what was sent", func() bool { return len(r.incoming(t)) == 0 })
				r.hook(t, kind, "echo >&2 'Welcome.'\n")
				if id := publish(t, s, storetest.Draft("b")); id.Revision != 2 {
					t.Errorf("%s: published %s", kind, id)
				}
			}
		})
	}
}
