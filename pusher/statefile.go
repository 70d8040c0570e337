package pusher

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hapsnap/hapsnap/internal/filelock"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
)

// stateKind is the kind of the state file.
const stateKind = "PusherState"

// state is what the pusher keeps in a file.
type state struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Status     Status          `json:"status"`
	Rollout    rollout.State   `json:"rollout"`
	Slots      snapshots.Slots `json:"slots,omitempty"`
	// Uploads lists what was uploaded to each instance, apart from certificates.
	Uploads map[string][]upload `json:"uploads,omitempty"`
	// Instances holds what else is remembered of each.
	Instances map[string]kept `json:"instances,omitempty"`
}

// upload is a file on an instance. Unneeded is since when no snapshot in use
// needs it, zero while one does.
type upload struct {
	push.Stored
	Unneeded time.Time `json:"unneeded,omitzero"`
}

// readState reads a state file. One that is not there is a new state; one that
// cannot be read is an error, for to forget is not safe.
func readState(file string) (state, error) {
	s := state{APIVersion: snapshots.APIVersion, Kind: stateKind, Uploads: map[string][]upload{}}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return state{}, fmt.Errorf("read state: %w", err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return state{}, fmt.Errorf("read state %s: %w", file, err)
	}
	if s.APIVersion != snapshots.APIVersion || s.Kind != stateKind {
		return state{}, fmt.Errorf("read state %s: it is %q %q, not %s %s", file, s.APIVersion, s.Kind, snapshots.APIVersion, stateKind)
	}
	if s.Uploads == nil {
		s.Uploads = map[string][]upload{}
	}
	return s, nil
}

func (s state) save(file string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	if err := replaceFile(file, append(data, '\n')); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return nil
}

// replaceFile writes a file as a whole: after a crash there is the old one or the
// new one. Only the owner can read it.
func replaceFile(file string, data []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // does nothing once it was renamed
	_, err = temporary.Write(data)
	if err == nil {
		err = temporary.Sync()
	}
	if closeErr := temporary.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temporary.Name(), file)
	}
	if err == nil {
		err = syncDirectory(filepath.Dir(file))
	}
	return err
}

func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// lockState keeps a second pusher from using the same state, until release is
// called or the process ends.
func lockState(file string) (release func(), err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, fmt.Errorf("lock state: %w", err)
	}
	lock, err := filelock.Try(file+".lock", 0o600)
	switch {
	case errors.Is(err, filelock.ErrHeld):
		return nil, fmt.Errorf("lock state %s: another pusher is using it: %w", file, err)
	case err != nil:
		return nil, fmt.Errorf("lock state: %w", err)
	}
	return lock.Release, nil
}
