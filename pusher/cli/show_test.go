package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/difference"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// The output names the version of a versioned certificate, and the recipients of a sealed one.
func TestPrintVersions(t *testing.T) {
	t.Parallel()
	secret := snapshots.SecretName{Namespace: "shop", Name: "tls"}
	var m snapshots.Manifest
	m.Spec.Certificates = []snapshots.CertificateRef{
		{File: "certs/a.pem", Secret: secret, Mode: snapshots.ModeSealed, Version: strings.Repeat("3f2a91c4", 8)},
		{File: "certs/b.pem", Secret: secret, Mode: snapshots.ModeExact},
	}
	m.Spec.Recipients = []string{"age1x"}
	var out strings.Builder
	if err := printShown(&out, snapshotDetails{Manifest: m}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"needs     certs/a.pem: certificate of Secret shop/tls, sealed, version 3f2a91c43f\n",
		"needs     certs/b.pem: certificate of Secret shop/tls, exact, which did not exist or could not be served\n",
		"sealed to age1x\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// fullStore returns a store with a snapshot that has some of everything.
func fullStore(t *testing.T) (path string, id snapshots.ID) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "store")
	id, _, err := dirstore.Open(path, dirstore.Options{}).Publish(t.Context(), snapshots.Draft{
		Files: []snapshots.File{
			{Path: snapshots.ConfigFile, Content: []byte("global\n")},
			{Path: "maps/prefix.map", Content: []byte("/ web\n")},
		},
		Certificates: []snapshots.CertificateRef{
			{File: "certs/fallback.pem"},
			{File: "certs/shop_tls.pem", Secret: snapshots.SecretName{Namespace: "shop", Name: "tls"}},
		},
		Quarantined: []snapshots.Quarantined{{Kind: "Ingress", Namespace: "shop", Name: "typo", Reason: "a space\nin it"}},
		Provenance: snapshots.Provenance{
			CompilerVersion: "v1", HAProxyVersion: "2.6.12", Trigger: "files", Author: "ann",
			Inputs: []snapshots.Input{{APIVersion: "v1", Kind: "Service", Namespace: "shop", Name: "web"}},
		},
		Subject: "+1 route", Time: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
	})
	if err != nil {
		t.Fatal(err)
	}
	return path, id
}

func TestPrintShown(t *testing.T) {
	t.Parallel()
	path, id := fullStore(t)
	m, err := dirstore.Open(path, dirstore.Options{}).Manifest(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	want := `snapshot  ` + id.String() + `
subject   +1 route
time      2026-11-21T12:00:00Z, 3h ago
digest    ` + string(m.Spec.Digest) + `
compiler  v1
haproxy   2.6.12
trigger   files
author    ann
inputs    1
needs     certs/fallback.pem: the fallback certificate
needs     certs/shop_tls.pem: certificate of Secret shop/tls
left out  Ingress shop/typo: a space\nin it

FILE             BYTES  SHA256
haproxy.cfg      7      ` + m.Spec.Files[0].SHA256 + `
maps/prefix.map  6      ` + m.Spec.Files[1].SHA256 + "\n"
	var out strings.Builder
	if err := printShown(&out, snapshotDetails{Manifest: m}, m.Provenance.Time.Add(3*time.Hour)); err != nil || out.String() != want {
		t.Errorf("printed (%v)\n%s\nwant\n%s", err, out.String(), want)
	}
}

func TestShow(t *testing.T) {
	t.Parallel()
	path, id := fullStore(t)
	expect(t, "subject   +1 route\n", "show", "r1", "--store", path)
	expect(t, "/ web\n", "show", id.String(), "--store", path, "--file", "maps/prefix.map")
	expect(t, "kind: Snapshot\n", "show", "1", "--store", path, "--file", "snapshot.yaml")
	_, out, _ := pusherCommand(t, "show", "r1", "--store", path, "-o", "json")
	var m snapshots.Manifest
	if err := json.Unmarshal([]byte(out), &m); err != nil || m.Metadata.Name != id.String() || len(m.Spec.Files) != 2 {
		t.Errorf("printed %s: %v", out, err)
	}
	for _, c := range []struct {
		code int
		said string
		args []string
	}{
		{process.ExitUsage, "holds no snapshot r2", []string{"show", "r2"}},
		{process.ExitUsage, "its files are: haproxy.cfg, maps/prefix.map\n", []string{"show", "r1", "--file", "x"}},
		{process.ExitUsage, "--file and -o json exclude each other", []string{"show", "r1", "--file", "x", "-o", "json"}},
	} {
		if code, _, errs := pusherCommand(t, append(c.args, "--store", path)...); code != c.code || !strings.Contains(errs, c.said) {
			t.Errorf("%v: exit code %d, said %s", c.args, code, errs)
		}
	}
	const asTheyStand = "haproxy.cfg\nmaps/prefix.map\nsnapshot.yaml\n:4\n"
	if _, out, _ := pusherCommand(t, "__complete", "show", "r1", "--store", path, "--file", ""); out != asTheyStand {
		t.Errorf("completed %q", out)
	}
}

// A file of a damaged snapshot is not printed as if it had been published.
func TestShowOfADamagedSnapshot(t *testing.T) {
	t.Parallel()
	path, id := fullStore(t)
	damage(t, path, id)
	if code, out, errs := pusherCommand(t, "show", "r1", "--store", path, "--file", "maps/prefix.map"); code != process.ExitInvalid || out != "" || !strings.Contains(errs, "haproxy.cfg has 9 bytes, more than the ") {
		t.Errorf("exit code %d, printed %q, said %s", code, out, errs)
	}
}

// damage changes haproxy.cfg of a snapshot in a directory.
func damage(t *testing.T, path string, id snapshots.ID) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(path, "snapshots", id.String(), snapshots.ConfigFile), []byte("# edited\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	_, url, ids := filledStore(t)
	want := "--- a/haproxy.cfg\t" + ids[0].String() + "\n+++ b/haproxy.cfg\t" + ids[2].String() + "\n@@ -1,1 +1,1 @@\n-# one\n+# three\n"
	expect(t, want+"reload: haproxy.cfg:1: +# three\n", "diff", "r1", ids[2].String(), "--store", url)
	expect(t, "nothing\n", "diff", "r1", "1", "--store", url, "--exit-code")
	code, out, _ := pusherCommand(t, "diff", "r2", "r1", "--store", url, "--exit-code", "-o", "json")
	var r difference.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != differ || r.A != ids[1].String() || r.Verdict != "reload" || len(r.Files) != 1 || r.Decides.Text != "# one" {
		t.Errorf("exit code %d, printed %s: %v", code, out, err)
	}
	if code, _, errs := pusherCommand(t, "diff", "r1", "r4", "--store", url); code != process.ExitUsage || !strings.Contains(errs, "holds no snapshot r4") {
		t.Errorf("exit code %d, said %s", code, errs)
	}
	damage(t, strings.TrimPrefix(url, "dir:"), ids[1])
	if code, out, errs := pusherCommand(t, "diff", "r1", "r2", "--store", url); code != process.ExitInvalid || out != "" || !strings.Contains(errs, "snapshot is corrupt") {
		t.Errorf("exit code %d, printed %s, said %s", code, out, errs)
	}
}
