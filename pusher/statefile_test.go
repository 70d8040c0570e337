package pusher

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

func TestStateFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	s, err := readState(file)
	if err != nil {
		t.Fatal(err)
	}
	s.Rollout.Good = r1
	s.Slots = bind.Slots{
		{Backend: "web", Service: snapshots.ServicePort{Namespace: "shop", Service: "web"}}: {{Address: "10.0.0.1", Port: 80, State: bind.SlotReady}},
	}
	s.Status = Status{Updated: noon, Good: r1, Instances: []InstanceStatus{{Name: "a", InSync: true}}}
	if err := s.save(t.Context(), &stateFile{file: file}); err != nil {
		t.Fatal(err)
	}
	got, err := readState(file)
	if diff := cmp.Diff(s, got); err != nil || diff != "" {
		t.Errorf("read otherwise: %v (-want +got):\n%s", err, diff)
	}
	status, err := ReadStatus(file)
	if diff := cmp.Diff(s.Status, status); err != nil || diff != "" {
		t.Errorf("status is read otherwise: %v (-want +got):\n%s", err, diff)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v: %v", info.Mode(), err)
	}
}

func TestStateFileThatCannotBeRead(t *testing.T) {
	for name, text := range map[string]string{"cut short": `{"apiVersion": "hapsnap`, "empty": "", "another kind": `{"apiVersion":"v1","kind":"Pod"}`} {
		file := filepath.Join(t.TempDir(), "state.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readState(file); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: error is %v", name, err)
		}
		if _, err := ReadStatus(file); err == nil {
			t.Errorf("%s: status was read", name)
		}
	}
	if _, err := ReadStatus(filepath.Join(t.TempDir(), "none")); !errors.Is(err, ErrNoState) {
		t.Errorf("no file: %v", err)
	}
}

// Certificates that are to be removed are kept where older pushers do not look.
func TestCertificatesAreKeptApart(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "state.json")
	s, err := readState(file)
	if err != nil {
		t.Fatal(err)
	}
	s.Uploads["a"] = []upload{{Stored: stored(1)}, {push.Stored{Kind: bind.CertificateFile, Name: "web.pem"}, noon}}
	if err := s.save(t.Context(), &stateFile{file: file}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var older struct{ Uploads map[string][]upload }
	if err := json.Unmarshal(data, &older); err != nil || len(older.Uploads["a"]) != 1 || older.Uploads["a"][0].Stored != stored(1) {
		t.Errorf("an older pusher reads %v: %v", older, err)
	}
	got, err := readState(file)
	if diff := cmp.Diff(s.Uploads, got.Uploads); err != nil || diff != "" || got.Certificates != nil {
		t.Errorf("read otherwise: %v\n%s", err, diff)
	}
}
