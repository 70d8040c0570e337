package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// pusherCommand runs a command line and returns its exit code and what it printed.
func pusherCommand(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	root := NewCommand()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errs)
	code = process.Main(root)
	return code, out.String(), errs.String()
}

// expect runs a command line that must succeed, and checks a part of its output.
func expect(t *testing.T, part string, args ...string) {
	t.Helper()
	if code, out, errs := pusherCommand(t, args...); code != process.ExitOK || !strings.Contains(out, part) {
		t.Errorf("pusher %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
}

// filledStore returns a store with three snapshots.
func filledStore(t *testing.T) (store *dirstore.Store, url string, ids []snapshots.ID) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store")
	store = dirstore.Open(path, dirstore.Options{})
	for _, text := range []string{"one", "two", "three"} {
		id, _, err := store.Publish(t.Context(), snapshots.Draft{
			Files:   []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte("# " + text + "\n")}},
			Subject: "the config " + text, Time: time.Now().Add(-time.Hour),
		})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return store, "dir:" + path, ids
}

func TestExitCodes(t *testing.T) {
	_, url, _ := filledStore(t)
	fleet := filepath.Join(t.TempDir(), "fleet.yaml")
	if err := os.WriteFile(fleet, []byte("apiVersion: hapsnap.dev/v1alpha1\nkind: Fleet\nmetadata: {name: edge}\nspec:\n  instances:\n  - {name: a}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(t.TempDir(), "state.json")
	tests := map[string]struct {
		args []string
		code int
		said string
	}{
		"no store":        {[]string{"pin", "r1"}, process.ExitUsage, "no store is named"},
		"unknown scheme":  {[]string{"pin", "r1", "--store", "s3:x"}, process.ExitUsage, "unknown scheme"},
		"no snapshot":     {[]string{"pin", "r9", "--store", url}, process.ExitUsage, "the store holds no snapshot r9"},
		"store not there": {[]string{"history", "--store", "dir:" + state}, process.ExitFailure, "no such file"},
		"no state":        {[]string{"status", "--state", state}, process.ExitFailure, "there is no state file"},
		"output":          {[]string{"history", "--store", url, "-o", "xml"}, process.ExitUsage, "want text, wide, name, json or yaml"},
		"run without":     {[]string{"run"}, process.ExitUsage, "--store is missing"},
		"waves":           {[]string{"run", "--store", url, "--instances", fleet, "--state", state, "--waves", "some"}, process.ExitUsage, "--waves: "},
		"no address":      {[]string{"run", "--store", url, "--instances", fleet, "--state", state, "--ui-advertise", "$(POD_IP)"}, process.ExitUsage, "is not the IP address of a host"},
		"no secret":       {[]string{"run", "--store", url, "--instances", fleet, "--state", "secret:edge"}, process.ExitUsage, `--state: "secret:edge" is not secret:NAMESPACE/NAME`},
		"lease of a file": {[]string{"run", "--store", url, "--instances", fleet, "--state", state, "--lease", "edge/pusher"}, process.ExitUsage, "--lease is for a state that several pushers share"},
		"lease times":     {[]string{"run", "--store", url, "--instances", fleet, "--state", "secret:edge/pusher", "--renew-deadline", "1h"}, process.ExitUsage, "not shorter than the lease duration"},
		"no cluster":      {[]string{"status", "--state", "secret:edge/pusher"}, process.ExitFailure, "name a kubeconfig file with --kubeconfig"},
		"poll interval":   {[]string{"run", "--store", url, "--instances", fleet, "--state", state, "--poll-interval", "0s"}, process.ExitUsage, "--poll-interval=0s"},
		"state for all":   {[]string{"run", "--store", url, "--instances", fleet, "--state", "configmap:edge/pusher"}, process.ExitUsage, "use secret:NAMESPACE/NAME, or a file"},
		"two fleets":      {[]string{"run", "--store", url, "--instances", "a.yaml", "--instances", "b.yaml", "--state", state}, process.ExitUsage, `"a.yaml" is named already: one file has all instances of a fleet`},
		"two folders":     {[]string{"run", "--store", url, "--live", "a", "--live", "b"}, process.ExitUsage, `"a" is named already: one directory has all manifests`},
		"fleet folder":    {[]string{"run", "--store", url, "--instances", filepath.Dir(fleet), "--state", state}, process.ExitUsage, "--instances: " + filepath.Dir(fleet) + " is a directory"},
		"checked folder":  {[]string{"check", "--instances", filepath.Dir(fleet)}, process.ExitUsage, "is a directory"},
		"no port":         {[]string{"run", "--store", url, "--instances", fleet, "--state", state, "--metrics-address", "8081"}, process.ExitUsage, `--metrics-address: "8081" is not HOST:PORT`},
		"page by URL":     {[]string{"run", "--store", url, "--instances", fleet, "--state", state, "--ui-address", "http://localhost:8090"}, process.ExitUsage, `--ui-address: "http://localhost:8090" is not HOST:PORT`},
		"compiler":        {[]string{"run", "--store", url, "--instances", fleet, "--state", state, "--ui-compiler", "compiler"}, process.ExitUsage, `--ui-compiler: "compiler" is not HOST:PORT`},
		"page":            {[]string{"ui", "--store", url, "--address", "8090"}, process.ExitUsage, `--address: "8090" is not HOST:PORT`},
		"page's host":     {[]string{"ui", "--store", url, "--ui-host", "https://hapsnap.example.com"}, process.ExitUsage, `--ui-host: "https://hapsnap.example.com" is not the name of a host`},
		"page's port":     {[]string{"ui", "--store", url, "--ui-host", "hapsnap.example.com:8090"}, process.ExitUsage, "without a port"},
		"pusher by URL":   {[]string{"status", "--address", "http://localhost:8081"}, process.ExitUsage, `--address: "http://localhost:8081" is not HOST:PORT`},
		"soak":            {[]string{"run", "--store", url, "--instances", fleet, "--state", state, "--soak", "30"}, process.ExitUsage, "want a duration such as 30m, 2h or 3d"},
		"soak before":     {[]string{"run", "--store", url, "--instances", fleet, "--state", state, "--soak", "-1s"}, process.ExitUsage, "never negative"},
		"check timeout":   {[]string{"check", "--instances", fleet, "--timeout", "5"}, process.ExitUsage, "want a duration such as 30m, 2h or 3d"},
		"loss":            {[]string{"confirm-endpoints", "shop/web", "--store", url}, process.ExitUsage, `"shop/web" is not the name of a loss`},
		"no signers":      {[]string{"verify", "--store", url, "--allowed-signers", state}, process.ExitFailure, "--allowed-signers: open " + state},
		"fleet":           {[]string{"run", "--store", url, "--instances", fleet, "--state", state}, process.ExitInvalid, "fleet.yaml:6:5: Fleet: instance a has no usable url"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if code, _, errs := pusherCommand(t, test.args...); code != test.code || !strings.Contains(errs, test.said) {
				t.Errorf("exit code %d, said %s", code, errs)
			}
		})
	}
}

// Another program can offer the commands below a command of its own, with its streams, and more than once. An
// error is returned with its exit code, and not printed.
func TestCommandsInAnotherProgram(t *testing.T) {
	t.Parallel()
	for range 2 {
		var out, errs bytes.Buffer
		root := &cobra.Command{Use: "front", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(NewCommand())
		root.SetOut(&out)
		root.SetErr(&errs)
		root.SetArgs([]string{"pusher", "version"})
		if err := root.ExecuteContext(t.Context()); err != nil || !strings.HasPrefix(out.String(), "front ") {
			t.Errorf("version: %v, printed %q", err, &out)
		}
		root.SetArgs([]string{"pusher", "history"})
		err := root.ExecuteContext(t.Context())
		if e, ok := errors.AsType[*process.ExitError](err); !ok || e.Code != process.ExitUsage || errs.Len() > 0 {
			t.Errorf("history without flags: %v, printed %q", err, &errs)
		}
	}
}

// Completion offers the instances of the state, with what they run.
func TestInstancesAreCompleted(t *testing.T) {
	t.Parallel()
	id := snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}
	state := writeState(t, report.Status{Instances: []report.Instance{{Name: "edge-1", Running: id}, {Name: "edge-2"}}})
	want := "edge-1\truns " + id.String() + "\nedge-2\truns -\n:4\n"
	if _, out, _ := pusherCommand(t, "__complete", "recover", "--state", state, "--from-instance", ""); out != want {
		t.Errorf("%q, want %q", out, want)
	}
}

// Completion for retry offers only rejected snapshots. For pin it offers one snapshot, and no second one.
func TestSnapshotsAreCompleted(t *testing.T) {
	t.Parallel()
	store, url, ids := filledStore(t)
	s, err := store.Get(t.Context(), ids[1])
	if err != nil {
		t.Fatal(err)
	}
	err = store.UpdateChannel(t.Context(), "reject", time.Now(), func(c *channel.Channel) error {
		*c = c.Reject(channel.Rejection{Digest: s.Manifest.Spec.Digest, Snapshot: ids[1], Reason: "it failed"})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	const asTheyStand = "\n:36\n" // no files, and in this order
	word := func(n int) string { return ids[n].String() + "\tthe config " + []string{"one", "two", "three"}[n] }
	all := word(2) + "\n" + word(1) + "\n" + word(0)
	for _, c := range []struct {
		want string
		args []string
	}{
		{all + asTheyStand, []string{"pin", "--store", url, ""}},
		{asTheyStand[1:], []string{"pin", "--store", url, ids[0].String(), ""}},
		{all + asTheyStand, []string{"diff", "--store", url, ids[0].String(), ""}},
		{asTheyStand[1:], []string{"diff", "--store", url, ids[0].String(), ids[1].String(), ""}},
		{asTheyStand[1:], []string{"pin", ""}},
		{asTheyStand[1:], []string{"pin", "--store", "ftp://x", ""}},
		{"snapshot=" + strings.ReplaceAll(all, "\n", "\nsnapshot=") + asTheyStand, []string{"wait", "--store", url, "--for", "snapshot="}},
		{"rollout\tno rollout is under way\nsnapshot=\tthe whole fleet runs it\ncondition=Ready\tof the fleet\ncondition=Progressing\tof the fleet\ncondition=Degraded\tof the fleet\n:38\n", []string{"wait", "--for", ""}},
		{"text\tfor people\njson\tfor programs\nyaml\tfor programs\n:36\n", []string{"verify", "-o", ""}},
		{"cluster\tall objects, as with other ingress controllers\nnamed\twhat is named now\nnamespaces=\tthe objects of some namespaces\n:4\n", []string{"rbac", "--scope", ""}},
		{word(1) + asTheyStand, []string{"retry", "--store", url, ""}},
	} {
		if _, out, _ := pusherCommand(t, append([]string{"__complete"}, c.args...)...); out != c.want {
			t.Errorf("%v: %q, want %q", c.args, out, c.want)
		}
	}
}
