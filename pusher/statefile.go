package pusher

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/core"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/statestore"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// StateStore keeps the state of a pusher over restarts, for one pusher at a time. One
// goroutine calls it.
type StateStore interface {
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

// secretsStore is a state store that also keeps what Secrets of a cluster held, apart from the state
// and from the people who may read that. A file is none: what Secrets hold stays in Secrets.
type secretsStore interface {
	KeepSecrets(ctx context.Context, data []byte) error
}

// remembering returns the options with a cluster that remembers what Secrets hold, if the state
// store can keep that, and the function that has to run for it.
func (o Options) remembering(k StateStore, before []byte) (Options, func(context.Context)) {
	stateStore, ok := k.(secretsStore)
	if !ok || o.Cluster == nil {
		return o, nil
	}
	memory := cluster.Remember(o.Cluster, before, func(ctx context.Context, data []byte) error {
		err := stateStore.KeepSecrets(ctx, data)
		if errors.Is(err, statestore.ErrTaken) {
			return fmt.Errorf("%w: %w", cluster.ErrReplaced, err)
		}
		return err
	}, o.Log, time.Now())
	o.Cluster = memory
	return o, memory.Keep
}

// stateStore returns the store of the state: a file if no other is set.
func (o Options) stateStore() StateStore {
	if o.StateStore != nil {
		return o.StateStore
	}
	return statestore.NewFile(o.State)
}

// cache returns the directory that keeps the snapshots in use, "" for none.
func (o Options) cache() string {
	if o.StateStore == nil && o.Cache == "" {
		return KeptFolder(o.State)
	}
	return o.Cache
}

// readState reads a state file. One that is not there is a new state; one that
// cannot be read is an error, for to forget is not safe.
func readState(file string) (core.State, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return core.ParseState(nil, file)
	}
	if err != nil {
		return core.State{}, fmt.Errorf("read state: %w", err)
	}
	return core.ParseState(data, file)
}

// saveState saves a state before there is a machine that has it saved.
func saveState(ctx context.Context, k StateStore, s core.State) error {
	data, err := s.Encoded()
	return save(ctx, k, core.SaveState{Data: data, Err: err}).Err
}

// place names the place of the state, for other machines too.
func place(k StateStore) string {
	if f, ok := k.(*statestore.File); ok {
		return f.Place()
	}
	return k.String()
}

// newStateID returns the id of a new state.
func newStateID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// ErrNoState is returned for a state that is not there: no pusher ever ran with it.
var ErrNoState = errors.New("there is no state file")

// ErrNotState is [core.ErrNotState].
var ErrNotState = core.ErrNotState

// readFile returns what is in a state file.
func readFile(file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read state from %s: %w", file, ErrNoState)
	}
	if err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	return data, nil
}

// ReadStatus reads the status from a state file, of a pusher that runs or ran.
func ReadStatus(file string) (report.Status, error) {
	data, err := readFile(file)
	if err != nil {
		return report.Status{}, err
	}
	return core.ParseStatus(data, file)
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
	s, err := core.ParseState(data, place)
	if err != nil {
		return nil, err
	}
	return s.InUse(), nil
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
	s, err := core.ParseState(data, place)
	return s.Seen, err
}

// ParseStatus returns the status in a state that was read from a place.
func ParseStatus(data []byte, place string) (report.Status, error) {
	return core.ParseStatus(data, place)
}
