package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher"
	"github.com/hapsnap/hapsnap/pusher/statestore"
	"github.com/hapsnap/hapsnap/snapshots"
)

// hintState is for whoever names a state that is not there.
const hintState = "name what pusher run --state was given; it is made when that starts"

// hintNotState is for a state that is damaged, or of another version.
const hintNotState = "put back what was there, or take it away: a pusher without a state asks the instances what they run, " +
	"and forgets failures that the channel does not show, and what was uploaded"

// readStatus returns what a pusher said last, in its state: a file, or a Secret of a
// cluster.
func (f *clusterFlags) readStatus(ctx context.Context, state string) (pusher.Status, error) {
	if !inSecret(state) {
		s, err := pusher.ReadStatus(state)
		return s, hinted(err)
	}
	data, err := f.readSecret(ctx, state)
	if err != nil {
		return pusher.Status{}, hinted(err)
	}
	s, err := pusher.ParseStatus(data, state)
	return s, hinted(err)
}

// readInUse returns the snapshots that a pusher uses.
func (f *clusterFlags) readInUse(ctx context.Context, state string) (map[snapshots.ID]string, error) {
	if !inSecret(state) {
		used, err := pusher.InUse(state)
		return used, hinted(err)
	}
	data, err := f.readSecret(ctx, state)
	if err != nil {
		return nil, hinted(err)
	}
	used, err := pusher.ParseInUse(data, state)
	return used, hinted(err)
}

// readSecret returns a state that is in a Secret.
func (f *clusterFlags) readSecret(ctx context.Context, state string) ([]byte, error) {
	namespace, name, err := statestore.Parse(state)
	if err != nil {
		return nil, process.Usage("--state: %w", err)
	}
	client, err := f.client()
	if err != nil {
		return nil, err
	}
	return statestore.Read(ctx, client.CoreV1().Secrets(namespace), namespace, name)
}

func hinted(err error) error {
	if errors.Is(err, pusher.ErrNotState) {
		return process.WithHint(err, hintNotState)
	}
	if errors.Is(err, pusher.ErrNoState) || errors.Is(err, statestore.ErrNone) {
		return process.WithHint(err, hintState)
	}
	return err
}

// inSecret reports whether a state is in a Secret.
func inSecret(state string) bool { return strings.HasPrefix(state, statestore.Prefix) }
