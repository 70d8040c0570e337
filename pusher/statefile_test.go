package pusher

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/pusher/core"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/pusher/statestore"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

func TestStateFile(t *testing.T) {
	r1 := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}
	file := filepath.Join(t.TempDir(), "state.json")
	s, err := readState(file)
	if err != nil {
		t.Fatal(err)
	}
	s.Rollout.Good = r1
	s.Slots = bind.Slots{
		{Backend: "web", Service: snapshots.ServicePort{Namespace: "shop", Service: "web"}}: {{Address: "10.0.0.1", Port: 80, State: bind.SlotReady}},
	}
	s.Status = report.Status{Updated: noon, Good: r1, Instances: []report.Instance{{Name: "a", InSync: true}}}
	if err := saveState(t.Context(), statestore.NewFile(file), s); err != nil {
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
	one := push.Stored{Kind: bind.MapFile, Name: "1.map"}
	s.Uploads["a"] = []core.Upload{{Stored: one}, {Stored: push.Stored{Kind: bind.CertificateFile, Name: "web.pem"}, Unneeded: noon}}
	if err := saveState(t.Context(), statestore.NewFile(file), s); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var older struct{ Uploads map[string][]core.Upload }
	if err := json.Unmarshal(data, &older); err != nil || len(older.Uploads["a"]) != 1 || older.Uploads["a"][0].Stored != one {
		t.Errorf("an older pusher reads %v: %v", older, err)
	}
	got, err := readState(file)
	if diff := cmp.Diff(s.Uploads, got.Uploads); err != nil || diff != "" || got.Certificates != nil {
		t.Errorf("read otherwise: %v\n%s", err, diff)
	}
}

func TestInUse(t *testing.T) {
	t.Parallel()
	id := func(n uint64) snapshots.ID { return snapshots.ID{Revision: n, Short: "aaaaaaaaaa"} }
	file := filepath.Join(t.TempDir(), "state.json")
	if _, err := InUse(file); !errors.Is(err, ErrNoState) {
		t.Errorf("no file: %v", err)
	}
	s, err := readState(file)
	if err != nil {
		t.Fatal(err)
	}
	s.Rollout = rollout.State{
		Good: id(1),
		Rollout: &rollout.Rollout{Target: id(2), Touched: []rollout.Touch{
			{Instance: "a", Snapshot: id(2)}, {Instance: "b", Snapshot: id(3)},
		}},
		Instances: map[string]rollout.Instance{
			"b": {Push: &rollout.Push{Snapshot: id(4)}},
			"a": {Push: &rollout.Push{Snapshot: id(4)}, Refused: id(8)},
			"c": {},
		},
	}
	s.Status = report.Status{
		Channel:   report.Channel{Wanted: id(5)},
		Instances: []report.Instance{{Name: "a", Running: id(1)}, {Name: "b", Running: id(6)}, {Name: "c"}},
	}
	if err := saveState(t.Context(), statestore.NewFile(file), s); err != nil {
		t.Fatal(err)
	}
	got, err := InUse(file)
	want := map[snapshots.ID]string{
		id(1): "last good, running on a",
		id(2): "target of the rollout, pushed to a",
		id(3): "pushed to b",
		id(4): "pushed to a, pushed to b",
		id(5): "wanted",
		id(6): "running on b",
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
