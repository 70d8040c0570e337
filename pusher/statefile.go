package pusher

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/pusher/binding"

	"github.com/hapsnap/hapsnap/internal/filelock"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/pusher/statestore"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// Keeper keeps the state of a pusher over restarts, for one pusher at a time. One
// goroutine calls it.
type Keeper interface {
	// Take makes this pusher the one that saves, and returns what was kept. Fallback
	// makes the fallback certificate, if none was.
	Take(ctx context.Context, fallback func() ([]byte, error)) (statestore.Taken, error)
	// Save keeps a state, or returns [statestore.ErrTaken] if another pusher has taken it.
	Save(ctx context.Context, state []byte) error
	// Raise makes the term higher than one that was met, on the same condition.
	Raise(ctx context.Context, above int64) (term int64, err error)
	// Release lets another pusher take the state, where one could not before.
	Release()
	String() string
}

// keeper returns what keeps the state.
func (o Options) keeper() Keeper {
	if o.Keeper != nil {
		return o.Keeper
	}
	return &stateFile{file: o.State}
}

// cache returns the directory that keeps the snapshots in use, "" for none.
func (o Options) cache() string {
	if o.Keeper == nil && o.Cache == "" {
		return KeptFolder(o.State)
	}
	return o.Cache
}

// stateKind is the kind of the state file.
const stateKind = "PusherState"

// state is what the pusher keeps, in a file or with a [Keeper].
type state struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// ID tells this state from any other. It is random, and stands on each instance that
	// the pusher with this state leads.
	ID      string         `json:"id,omitempty"`
	Status  observe.Status `json:"status"`
	Rollout rollout.State  `json:"rollout"`
	Slots   bind.Slots     `json:"slots,omitempty"`
	// Seen is what was seen of the store, and believed.
	Seen channel.Seen `json:"seen,omitzero"`
	// Kept are the Service ports whose endpoints are kept in the slots, though the source
	// has none of them.
	Kept *binding.KeptEndpoints `json:"kept,omitempty"`
	// Uploads lists what was uploaded to each instance; of certificates only those that
	// some snapshot in use does not need. They are saved as Certificates: older pushers take
	// none of their own uploads for a certificate, and would remove it while it is in use.
	// They are no part of Instances: those of an instance that is not in the fleet are
	// remembered for a day, and it is forgotten at once.
	Uploads      map[string][]upload `json:"uploads,omitempty"`
	Certificates map[string][]upload `json:"certificates,omitempty"`
	// Instances holds what else is remembered of each.
	Instances map[string]kept `json:"instances,omitempty"`
}

// readState reads a state file. One that is not there is a new state; one that
// cannot be read is an error, for to forget is not safe.
func readState(file string) (state, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return parseState(nil, file)
	}
	if err != nil {
		return state{}, fmt.Errorf("read state: %w", err)
	}
	return parseState(data, file)
}

// ErrNotState is returned for what lies where a state should, and is none that can be read.
// It is never taken for a new one: that would forget what failed and what is under way.
var ErrNotState = errors.New("it is no state that this pusher can read")

// parseState reads what was kept in a place; nil is a new state. Fields that are not known
// are passed over, and are gone with the next save: a pusher can be set back to an older
// one. What that must not read has another version.
func parseState(data []byte, place string) (state, error) {
	if data == nil {
		return state{APIVersion: snapshots.APIVersion, Kind: stateKind, Uploads: map[string][]upload{}}, nil
	}
	if err := checkState(data, place); err != nil {
		return state{}, err
	}
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return state{}, fmt.Errorf("read state %s: %w: %w", place, ErrNotState, err)
	}
	if err := s.Kept.Check(); err != nil {
		return state{}, fmt.Errorf("read state %s: %w", place, err)
	}
	if s.Uploads == nil {
		s.Uploads = map[string][]upload{}
	}
	for name, list := range s.Certificates {
		s.Uploads[name] = append(s.Uploads[name], list...)
	}
	s.Certificates = nil
	return s, nil
}

// checkState returns an error for what is no state.
func checkState(data []byte, place string) error {
	var head struct{ APIVersion, Kind string }
	switch err := json.Unmarshal(data, &head); {
	case len(bytes.TrimSpace(data)) == 0:
		return fmt.Errorf("read state %s: %w: it is empty", place, ErrNotState)
	case err != nil:
		return fmt.Errorf("read state %s: %w: %w", place, ErrNotState, err)
	case head.APIVersion == "" || head.Kind == "":
		return fmt.Errorf("read state %s: %w: it does not say apiVersion: %s and kind: %s", place, ErrNotState, snapshots.APIVersion, stateKind)
	case head.Kind != stateKind:
		return fmt.Errorf("read state %s: %w: it is a %.50q, not a %s", place, ErrNotState, head.Kind, stateKind)
	case head.APIVersion != snapshots.APIVersion:
		return fmt.Errorf("read state %s: %w: its version is %.50q, not %s", place, ErrNotState, head.APIVersion, snapshots.APIVersion)
	}
	return nil
}

// encoded returns the state as it is kept.
func (s state) encoded() ([]byte, error) {
	s.Uploads, s.Certificates = splitUploads(s.Uploads)
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("save state: %w", err)
	}
	return append(data, '\n'), nil
}

func (s state) save(ctx context.Context, k Keeper) error {
	data, err := s.encoded()
	return save(ctx, k, SaveState{data, err})
}

// fallbackFile is the name of the file next to the state with the fallback certificate.
const fallbackFile = "fallback.pem"

// stateFile keeps the state in a file, and the fallback certificate in one next to it.
type stateFile struct {
	file    string
	release func()
}

// Take keeps other pushers of this machine away. There are no terms.
func (f *stateFile) Take(_ context.Context, fallback func() ([]byte, error)) (statestore.Taken, error) {
	release, err := lockState(f.file)
	if err != nil {
		return statestore.Taken{}, err
	}
	f.release = release
	removeTemporaries(filepath.Dir(f.file), 0, filepath.Base(f.file), fallbackFile) // nobody else writes there
	data, err := os.ReadFile(f.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return statestore.Taken{}, fmt.Errorf("read state: %w", err)
	}
	certificate, err := fallbackCertificate(filepath.Join(filepath.Dir(f.file), fallbackFile), fallback)
	return statestore.Taken{State: data, Fallback: certificate}, err
}

// Save replaces the file.
func (f *stateFile) Save(_ context.Context, data []byte) error {
	if err := replaceFile(f.file, data); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return nil
}

// Raise is for states with terms.
func (f *stateFile) Raise(context.Context, int64) (int64, error) {
	return 0, errors.New("a state in a file has no term")
}

// Release lets others have the file.
func (f *stateFile) Release() {
	if f.release != nil {
		f.release()
	}
}

func (f *stateFile) String() string { return f.file }

// place names where a keeper keeps the state, for other machines too.
func place(k Keeper) string {
	f, ok := k.(*stateFile)
	if !ok {
		return k.String()
	}
	file, err := filepath.Abs(f.file)
	if err != nil {
		file = f.file
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return "file:" + host + ":" + file
}

// newStateID returns the id of a new state.
func newStateID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// replaceFile writes a file as a whole: after a crash there is the old one or the
// new one. Only the owner can read it.
func replaceFile(file string, data []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return ofFile(file, err)
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
	return ofFile(file, err)
}

// ofFile returns an error of a temporary file as one of the file that it is for, so that it
// is the same each time.
func ofFile(file string, err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return &fs.PathError{Op: path.Op, Path: file, Err: path.Err}
	}
	if link, ok := errors.AsType[*os.LinkError](err); ok {
		return &fs.PathError{Op: link.Op, Path: file, Err: link.Err}
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

// InUse returns the snapshots that a pusher may need of its store, and what for,
// from its state file: it need not run. [ErrNoState] is returned for a file that
// is not there.
func InUse(file string) (map[snapshots.ID]string, error) {
	data, err := readFile(file)
	if err != nil {
		return nil, err
	}
	return ParseInUse(data, file)
}

// ParseInUse is InUse of a state that was read from a place.
func ParseInUse(data []byte, place string) (map[snapshots.ID]string, error) {
	s, err := parseState(data, place)
	if err != nil {
		return nil, err
	}
	return s.inUse(), nil
}

// inUse is InUse of a state. An instance that a rollout or a push was begun on may
// run that snapshot by now, whatever is known of it.
func (s state) inUse() map[snapshots.ID]string {
	reasons := map[snapshots.ID][]string{}
	add := func(id snapshots.ID, reason string, args ...any) {
		reason = fmt.Sprintf(reason, args...)
		if !id.IsZero() && !slices.Contains(reasons[id], reason) {
			reasons[id] = append(reasons[id], reason)
		}
	}
	add(s.Rollout.Good, "last good")
	add(s.Status.Channel.Wanted, "wanted")
	for _, i := range s.Status.Instances {
		add(i.Running, "running on %s", i.Name)
	}
	if r := s.Rollout.Rollout; r != nil {
		add(r.Target, "target of the rollout")
		for _, t := range r.Touched {
			add(t.Snapshot, "pushed to %s", t.Instance)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Rollout.Instances)) {
		if p := s.Rollout.Instances[name].Push; p != nil {
			add(p.Snapshot, "pushed to %s", name)
		}
	}
	out := map[snapshots.ID]string{}
	for id, list := range reasons {
		out[id] = strings.Join(list, ", ")
	}
	return out
}

// rememberer is a store that finds out when it went back, if it is told what was seen of it.
type rememberer interface {
	Remember(seen channel.Seen)
}

// remember gives a store what was seen of it before a restart, or by the pusher that led
// before. A pusher without a state believes what it finds.
func remember(s Store, seen channel.Seen) {
	if s, ok := s.(rememberer); ok {
		s.Remember(seen)
	}
}

// ReadSeen returns what a pusher has seen of its store, from its state file: it need not
// run. [ErrNoState] is returned for a file that is not there.
func ReadSeen(file string) (channel.Seen, error) {
	data, err := readFile(file)
	if err != nil {
		return channel.Seen{}, err
	}
	return ParseSeen(data, file)
}

// ParseSeen is ReadSeen of a state that was read from a place.
func ParseSeen(data []byte, place string) (channel.Seen, error) {
	s, err := parseState(data, place)
	return s.Seen, err
}
