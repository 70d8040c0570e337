package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// A snapshot that is kept beside the state is published once, and only if its digests are right.
func TestRecover(t *testing.T) {
	t.Parallel()
	old, _, ids := filledStore(t)
	state := writeState(t, report.Status{Instances: []report.Instance{
		{Name: "edge-1", Node: ids[1].String() + "_12345678"}, {Name: "edge-2", Node: "bootstrap"}, {Name: "edge-3", Node: ids[2].String() + "_12345678"},
	}})
	s, err := old.Get(t.Context(), ids[1])
	if err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(state+".snapshots", ids[1].String()+".json")
	write := func() {
		data, err := json.Marshal(s)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(kept), 0o700)
		}
		if err == nil {
			err = os.WriteFile(kept, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write()
	path := t.TempDir()
	fails := func(code int, said string, args ...string) {
		t.Helper()
		got, _, errs := pusherCommand(t, append([]string{"recover", "--store", "dir:" + path, "--state", state}, args...)...)
		if got != code || !strings.Contains(errs, said) {
			t.Errorf("%v: exit code %d, said %s", args, got, errs)
		}
	}
	fails(process.ExitUsage, "--from-instance is missing")
	fails(process.ExitUsage, "--state is missing", "--from-instance", "edge-1", "--state", "")
	fails(process.ExitUsage, "--snapshots-dir is missing", "--from-instance", "edge-1", "--state", "secret:edge/pusher")
	fails(process.ExitFailure, "the pusher has not kept it", "--from-instance", "edge-1", "--snapshots-dir", t.TempDir())
	fails(process.ExitFailure, "does not name a snapshot", "--from-instance", "edge-2")
	fails(process.ExitFailure, "the pusher has not kept it", "--from-instance", "edge-3")
	fails(process.ExitUsage, "there is no instance edge-4", "--from-instance", "edge-4")
	// What is wrong with the files of another instance does not matter.
	instances := filepath.Join(t.TempDir(), "fleet.yaml")
	text := "apiVersion: hapsnap.dev/v1alpha1\nkind: Fleet\nmetadata: {name: edge}\nspec:\n  instances:\n  - {name: edge-1, url: 'http://127.0.0.1:1'}\n  - {name: edge-2, url: 'https://x', tls: {caFile: none}}\n"
	if err := os.WriteFile(instances, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	fails(process.ExitFailure, "ask instance edge-1: ", "--from-instance", "edge-1", "--instances", instances)
	fails(process.ExitFailure, "its credentials are not known: read none", "--from-instance", "edge-2", "--instances", instances)
	fails(process.ExitFailure, "instance edge-2: read none", "--from-instance", "edge-4", "--instances", instances)

	for _, published := range []string{"published: edge-1 runs it as", "the store holds it: edge-1 runs it as"} {
		expect(t, published+" "+ids[1].String(), "recover", "--from-instance", "edge-1", "--store", "dir:"+path, "--state", state)
	}
	view, err := dirstore.Open(path, dirstore.Options{}).View(t.Context())
	if err != nil || len(view.IDs) != 1 || view.IDs[0].Short != ids[1].Short {
		t.Errorf("the store holds %v, %v", view.IDs, err)
	}

	// A snapshot that was changed on disk is not published.
	path = t.TempDir()
	s.Files[0].Content = append(s.Files[0].Content, "# more\n"...)
	write()
	fails(process.ExitFailure, "snapshot is corrupt", "--from-instance", "edge-1")
}
