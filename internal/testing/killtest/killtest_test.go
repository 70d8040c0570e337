package killtest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestMain(m *testing.M) {
	Main(func(args []string) (string, error) { return twoFiles(args[0]) })
	os.Exit(m.Run())
}

// twoFiles makes six writes.
func twoFiles(dir string) (string, error) {
	for _, name := range []string{"a", "b"} {
		err := os.WriteFile(filepath.Join(dir, "new"), []byte(name), 0o600)
		if errors.Is(err, syscall.ENOSPC) {
			return "full", nil
		}
		if err != nil {
			return "", err
		}
		if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	return "done", nil
}

func TestEveryWrite(t *testing.T) {
	t.Parallel()
	for n, want := range [][]string{{}, {"new:"}, {"new:a"}, {"a:a"}, {"a:a", "new:"}, {"a:a", "new:b"}, {"a:a", "b:b"}} {
		dir := t.TempDir()
		o := Run(t, Kill, n+1, dir)
		if last := n == 6; o.Killed == last || o.Met == last || (o.Said == "done") != last {
			t.Errorf("write %d: %+v", n+1, o)
		}
		if got := files(t, dir); !slices.Equal(got, want) {
			t.Errorf("a process that was killed at write %d (%s) left %q, want %q", n+1, o.Point, got, want)
		}
	}
}

func TestWriteThatFails(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{1: "full", 2: "full", 3: "error", 6: "error", 7: "done"} {
		o := Run(t, Fail, n, t.TempDir())
		if o.Killed || o.Met != (n < 7) || !strings.HasPrefix(o.Said, want) || o.Failed != (want == "error") {
			t.Errorf("write %d failed: %+v, want %s", n, o, want)
		}
	}
}

// files returns names and contents, in order.
func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := []string{}
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, entry.Name()+":"+string(data))
	}
	return found
}
