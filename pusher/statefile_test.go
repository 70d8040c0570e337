package pusher

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/pusher/core"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/statestore"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// readState returns the state in a file, or a new one if there is no file.
func readState(file string) (core.State, error) {
	data, err := readFile(file)
	if err != nil && !errors.Is(err, ErrNoState) {
		return core.State{}, err
	}
	return core.ParseState(data, file)
}

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
	used, err := InUse(file)
	if diff := cmp.Diff(s.InUse(), used); err != nil || diff != "" || len(used) == 0 {
		t.Errorf("what is in use is read otherwise: %v (-want +got):\n%s", err, diff)
	}
	status, err := ReadStatus(file)
	if diff := cmp.Diff(s.Status, status); err != nil || diff != "" {
		t.Errorf("status is read otherwise: %v (-want +got):\n%s", err, diff)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v: %v", info.Mode(), err)
	}
}

// Readers of a state get an error if it cannot be read, or does not exist.
func TestStateFileThatCannotBeRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	for name, read := range map[string]func(string) error{
		"status": func(f string) error { _, err := ReadStatus(f); return err },
		"in use": func(f string) error { _, err := InUse(f); return err },
		"seen":   func(f string) error { _, err := ReadSeen(f); return err },
		"state":  func(f string) error { _, err := readState(f); return err },
	} {
		if err := os.WriteFile(file, []byte(`{"apiVersion":"v1","kind":"Pod"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := read(file); !errors.Is(err, ErrNotState) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: error is %v", name, err)
		}
		if err := read(filepath.Dir(file) + "/none"); name != "state" && !errors.Is(err, ErrNoState) {
			t.Errorf("%s: no file: %v", name, err)
		}
	}
}
