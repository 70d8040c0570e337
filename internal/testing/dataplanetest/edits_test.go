package dataplanetest_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

// A label can be copied: a text that is loaded past the API keeps the node of the former one.
func TestConfigurationEditedAndLoadedByHand(t *testing.T) {
	t.Parallel()
	for name, load := range map[string]func(*dataplanetest.Instance) error{
		"reloaded":  func(i *dataplanetest.Instance) error { _, err := i.ReloadHAProxy(); return err },
		"restarted": (*dataplanetest.Instance).RestartHAProxy,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, c := start(t, dataplanetest.Options{})
			if _, err := c.PostRaw(t.Context(), renamed(t, i, "ours"), dataplane.PostOptions{Version: 1, ForceReload: true}); err != nil {
				t.Fatal(err)
			}
			text, err := i.Config()
			if err != nil {
				t.Fatal(err)
			}
			before, err := i.WorkerPID()
			if err != nil {
				t.Fatal(err)
			}
			if err := i.EditConfig(text + "\nbackend foreign\n  server s1 127.0.0.1:1\n"); err != nil {
				t.Fatal(err)
			}
			if err := load(i); err != nil {
				t.Fatal(err)
			}
			if servers, err := c.Servers(t.Context(), "foreign"); err != nil || len(servers) != 1 {
				t.Errorf("the worker has %v, %v", servers, err)
			}
			if pid, err := i.WorkerPID(); err != nil || pid == before || node(t, c) != "ours" {
				t.Errorf("worker %d after %d runs %s, %v", pid, before, node(t, c), err)
			}
			if n := i.Count("POST", "/configuration/raw"); n != 1 {
				t.Errorf("%d posts", n)
			}
		})
	}
}

func TestReloadByHandThatFailsLeavesTheWorker(t *testing.T) {
	t.Parallel()
	i, c := start(t, dataplanetest.Options{})
	if err := i.EditConfig("global\n  bogus\n"); err != nil {
		t.Fatal(err)
	}
	if said, err := i.ReloadHAProxy(); err == nil || !strings.Contains(said, "unknown keyword 'bogus'") {
		t.Errorf("reloaded: %v, %s", err, said)
	}
	if got := node(t, c); got != "bootstrap" {
		t.Errorf("the worker runs %s", got)
	}
}

func TestFoldersOfOtherPackagings(t *testing.T) {
	t.Parallel()
	elsewhere := shortDir(t)
	i, c := start(t, dataplanetest.Options{Folders: dataplanetest.Folders{Certificates: "certs", General: elsewhere}})
	if filepath.Base(i.Dirs.Certificates) != "certs" || filepath.Base(i.Dirs.Maps) != "maps" || i.Dirs.General != elsewhere {
		t.Errorf("the folders are %+v", i.Dirs)
	}
	if err := c.CreateFile(t.Context(), dataplane.General, "list", []byte("x\n")); err != nil {
		t.Fatal(err)
	}
	if files, err := c.Files(t.Context(), dataplane.General); err != nil || len(files) != 1 || files[0].Path != filepath.Join(elsewhere, "list") {
		t.Errorf("listed %+v, %v", files, err)
	}
}

// If the users are in haproxy.cfg, the first whole text removes them. The API continues until it has to read
// them again.
func TestUsersInTheConfigurationVanish(t *testing.T) {
	t.Parallel()
	ends := map[string]func(*testing.T, *dataplanetest.Instance){
		"when it starts again": func(t *testing.T, i *dataplanetest.Instance) {
			t.Helper()
			if err := i.Restart(); err == nil || !strings.Contains(err.Error(), "no users configured") {
				t.Errorf("it started: %v", err)
			}
		},
		"when somebody else edits the file": func(t *testing.T, i *dataplanetest.Instance) {
			t.Helper()
			text, err := i.Config()
			if err != nil {
				t.Fatal(err)
			}
			if err := i.EditConfig(text + "# edited\n"); err != nil {
				t.Fatal(err)
			}
			eventually.Holds(t, "the API is gone", func() bool { return !i.APIRuns() })
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, c := start(t, dataplanetest.Options{UsersInConfig: true})
			if err := i.Restart(); err != nil { // all is well before the first post
				t.Fatal(err)
			}
			config := strings.NewReplacer("node bootstrap", "node pushed", "userlist controller", "userlist others").Replace(text(t, i))
			if _, err := c.PostRaw(t.Context(), []byte(config), dataplane.PostOptions{Version: 1, ForceReload: true}); err != nil {
				t.Fatal(err)
			}
			if got := node(t, c); got != "pushed" { // it goes on
				t.Errorf("the worker runs %s", got)
			}
			end(t, i)
			if _, err := c.Version(t.Context()); !errors.Is(err, dataplane.ErrUnreachable) && !errors.Is(err, dataplane.ErrUnavailable) {
				t.Errorf("it answers: %v", err)
			}
		})
	}
}

func text(t *testing.T, i *dataplanetest.Instance) string {
	t.Helper()
	text, err := i.Config()
	if err != nil {
		t.Fatal(err)
	}
	return text
}
