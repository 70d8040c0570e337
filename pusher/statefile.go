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
	// Take makes this pusher the one that may save, and returns what was kept. If no fallback
	// certificate was kept, it calls fallback to make one.
	Take(ctx context.Context, fallback func() ([]byte, error)) (statestore.Taken, error)
	// Save keeps a state, or returns [statestore.ErrTaken] if another pusher has taken it.
	Save(ctx context.Context, state []byte) error
	// Raise raises the term above another one, on the same condition as Save.
	Raise(ctx context.Context, above int64) (term int64, err error)
	// Release lets another pusher take the state, if the store kept others from it.
	Release()
	String() string
}

// secretsStore is a state store that also keeps what Secrets of a cluster held. It keeps that apart
// from the state, which more people may read. A file is no secretsStore: what Secrets hold stays in
// Secrets.
type secretsStore interface {
	KeepSecrets(ctx context.Context, data []byte) error
}

// remembering returns the options with a cluster that remembers what Secrets hold, and the function
// that has to run for that. If the state store cannot keep Secrets, it changes nothing.
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

// stateStore returns the store of the state: a file unless another store is set.
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

// saveState saves a state before the machine exists.
func saveState(ctx context.Context, k StateStore, s core.State) error {
	data, err := s.Encoded()
	return save(ctx, k, core.SaveState{Data: data, Err: err}).Err
}

// place names the place of the state, so that it also means something on other hosts.
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

// ErrNoState is returned for a state file that does not exist: no pusher has run with it.
var ErrNoState = errors.New("there is no state file")

// ErrNotState is [core.ErrNotState].
var ErrNotState = core.ErrNotState

// readFile returns the content of a state file.
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

// ReadStatus reads the status from a state file. The pusher need not run.
func ReadStatus(file string) (report.Status, error) {
	data, err := readFile(file)
	if err != nil {
		return report.Status{}, err
	}
	return core.ParseStatus(data, file)
}

// InUse reads from a state file which snapshots the pusher may need from its store, and what for. The
// pusher need not run. It returns [ErrNoState] if the file does not exist.
func InUse(file string) (map[snapshots.ID]string, error) {
	data, err := readFile(file)
	if err != nil {
		return nil, err
	}
	return ParseInUse(data, file)
}

// ParseInUse is InUse for a state that was read from a place.
func ParseInUse(data []byte, place string) (map[snapshots.ID]string, error) {
	s, err := core.ParseState(data, place)
	if err != nil {
		return nil, err
	}
	return s.InUse(), nil
}

// rememberer is a store that detects a rewind if it knows what was seen of it before.
type rememberer interface {
	Remember(seen channel.Seen)
}

// remember gives a store what was seen of it before a restart, or by the previous leader. A pusher
// without a state accepts what it finds.
func remember(s Store, seen channel.Seen) {
	if s, ok := s.(rememberer); ok {
		s.Remember(seen)
	}
}

// ReadSeen reads from a state file what the pusher has seen of its store. The pusher need not run. It
// returns [ErrNoState] if the file does not exist.
func ReadSeen(file string) (channel.Seen, error) {
	data, err := readFile(file)
	if err != nil {
		return channel.Seen{}, err
	}
	return ParseSeen(data, file)
}

// ParseSeen is ReadSeen for a state that was read from a place.
func ParseSeen(data []byte, place string) (channel.Seen, error) {
	s, err := core.ParseState(data, place)
	return s.Seen, err
}

// ParseStatus returns the status in a state that was read from a place.
func ParseStatus(data []byte, place string) (report.Status, error) {
	return core.ParseStatus(data, place)
}
