package cli

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/gitstore"
	"github.com/hapsnap/hapsnap/snapshots/gitstore/signature"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

func TestVerify(t *testing.T) {
	t.Parallel()
	_, url, ids := filledStore(t)
	path := strings.TrimPrefix(url, "dir:")
	if code, out, errs := pusherCommand(t, "verify", "--store", url); code != process.ExitOK || out != "3 of 3 snapshots match their digests\n" {
		t.Errorf("exit code %d, printed %s%s", code, out, errs)
	}
	damage(t, path, ids[0])
	damage(t, path, ids[1])
	code, out, errs := pusherCommand(t, "verify", "--store", url)
	lines := strings.Split(out, "\n")
	if code != process.ExitInvalid || errs != "" || len(lines) != 4 || lines[2] != "1 of 3 snapshots match their digests" ||
		!strings.Contains(lines[0], ids[0].String()) || !strings.Contains(lines[1], ids[1].String()+": snapshot is corrupt: haproxy.cfg has 9 bytes, more than the ") {
		t.Errorf("exit code %d, printed %s%s", code, out, errs)
	}
	code, out, _ = pusherCommand(t, "verify", "--store", url, "-o", "json")
	var v verification
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != process.ExitInvalid || v.Snapshots != 3 || len(v.Failed) != 2 || !v.Failed[0].Damaged {
		t.Errorf("exit code %d, printed %s: %v", code, out, err)
	}
}

// shelf is a store in which some snapshots cannot be read.
type shelf struct {
	stores.Reader
	ids     [][]snapshots.ID // the IDs that it lists, one list after the other
	trouble map[snapshots.ID]error
}

func (s *shelf) IDs(context.Context) ([]snapshots.ID, error) {
	ids := s.ids[0]
	if len(s.ids) > 1 {
		s.ids = s.ids[1:]
	}
	return ids, nil
}

func (s *shelf) Get(_ context.Context, id snapshots.ID) (snapshots.Snapshot, error) {
	return snapshots.Snapshot{}, s.trouble[id]
}

func TestVerifyTellsDamageFromTrouble(t *testing.T) {
	t.Parallel()
	a, b := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}, snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}
	both, one := []snapshots.ID{a, b}, []snapshots.ID{b}
	for name, c := range map[string]struct {
		store  *shelf
		code   int
		read   int
		failed int
	}{
		"both are good":              {&shelf{ids: [][]snapshots.ID{both}}, process.ExitOK, 2, 0},
		"one is out of reach":        {&shelf{ids: [][]snapshots.ID{both}, trouble: map[snapshots.ID]error{a: errors.New("refused")}}, process.ExitFailure, 2, 1},
		"one is damaged, one is not": {&shelf{ids: [][]snapshots.ID{both}, trouble: map[snapshots.ID]error{a: errors.New("refused"), b: snapshots.ErrCorrupt}}, process.ExitInvalid, 2, 2},
		"one was deleted meanwhile":  {&shelf{ids: [][]snapshots.ID{both, one}, trouble: map[snapshots.ID]error{a: snapshots.ErrNotFound}}, process.ExitOK, 1, 0},
		"one is listed, and is not":  {&shelf{ids: [][]snapshots.ID{both}, trouble: map[snapshots.ID]error{a: snapshots.ErrNotFound}}, process.ExitFailure, 2, 1},
	} {
		v, err := verify(t.Context(), c.store)
		if code := process.Code(t.Context(), v.exit()); err != nil || code != c.code || v.Snapshots != c.read || len(v.Failed) != c.failed {
			t.Errorf("%s: %+v, exit code %d: %v", name, v, code, err)
		}
	}
	if _, err := verify(t.Context(), &shelf{ids: [][]snapshots.ID{nil}}); process.Code(t.Context(), err) != process.ExitFailure {
		t.Errorf("to verify nothing is a success: %v", err)
	}
}

// run runs a program that tests need.
func run(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
}

// TestSignaturesAreShown shows a signed snapshot, and a newer one without a signature.
func TestSignaturesAreShown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url, key, list := "git+file://"+dir+"/edge.git", filepath.Join(dir, "key"), filepath.Join(dir, "signers")
	run(t, "git", "init", "--quiet", "--bare", dir+"/edge.git")
	run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(list, append([]byte("compiler "), public...), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, draft := range []struct{ text, key string }{{"one", key}, {"two", ""}} {
		store, err := gitstore.Open(gitstore.Options{URL: dir + "/edge.git", CacheDir: dir + "/cache", Key: signature.Key{File: draft.key}})
		if err != nil {
			t.Fatal(err)
		}
		files := []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte("# " + draft.text + "\n")}}
		if _, _, err := store.Publish(t.Context(), snapshots.Draft{Files: files, Subject: draft.text}); err != nil {
			t.Fatal(err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	at := []string{"--store", url, "--cache-dir", dir + "/cache"}
	trusting := append([]string{"--allowed-signers", list}, at...)
	expect(t, "SIGNER        STATE   SUBJECT", append([]string{"history"}, at...)...)
	expect(t, "refused   wanted, untrusted", append([]string{"history"}, trusting...)...)
	expect(t, "signed    no\n", append([]string{"show", "r2"}, at...)...)
	expect(t, ", not verified\n", append([]string{"show", "r1"}, at...)...)
	expect(t, "signed    compiler (SHA256:", append([]string{"show", "r1"}, trusting...)...)
	expect(t, "2 of 2 snapshots match their digests\n", append([]string{"verify"}, at...)...)
	code, out, _ := pusherCommand(t, append([]string{"verify", "-o", "json"}, trusting...)...)
	var v verification
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != process.ExitInvalid || !v.Signatures || len(v.Failed) != 1 || !v.Failed[0].Untrusted || v.Failed[0].Damaged {
		t.Errorf("exit code %d, printed %s: %v", code, out, err)
	}
	code, _, errs := pusherCommand(t, append([]string{"show", "r2"}, trusting...)...)
	if code != process.ExitInvalid || !strings.Contains(errs, "it has no signature") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	_, out, _ = pusherCommand(t, append([]string{"history", "-o", "json"}, trusting...)...)
	var listed []revision
	if err := json.Unmarshal([]byte(out), &listed); err != nil || len(listed) != 2 ||
		listed[0].Signature.State != signature.StateRefused || listed[1].Signature.State != signature.StateAllowed || listed[1].Signature.Name != "compiler" {
		t.Errorf("printed %s: %v", out, err)
	}
	_, out, _ = pusherCommand(t, append([]string{"show", "r1", "-o", "json"}, trusting...)...)
	var s snapshotDetails
	if err := json.Unmarshal([]byte(out), &s); err != nil || s.Kind != snapshots.ManifestKind || s.Signature == nil || s.Signature.Name != "compiler" {
		t.Errorf("printed %s: %v", out, err)
	}
}
