package gitstore

import (
	"errors"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/gitstore/signature"
	"github.com/hapsnap/hapsnap/snapshots/stores/sequence"
)

// The errors of a repository in which something happened that no store did. What
// runs is held; a person decides.
var (
	// ErrForeign means that the tip of the branch is not a snapshot.
	ErrForeign = errors.New("the branch holds a commit that is not a snapshot")
	// ErrRewound means that the branch went back, or away: it is behind what
	// its tags, or readers, have seen of it.
	ErrRewound = channel.ErrRewound
	// ErrNoRepository means that there is no repository at the URL.
	ErrNoRepository = errors.New("there is no git repository")
)

// errClosed is returned by a store that was closed.
var errClosed = errors.New("store is closed")

// errSilent means that a call was given up. The next is left to the caller.
var errSilent = errors.New("the repository does not answer")

// retryable is an error after which the repository is looked at afresh.
type retryable struct{ error }

func (e retryable) Unwrap() error { return e.error }

// again makes err retryable, unless another look would not change it.
func again(err error) error {
	if err == nil || final(err) {
		return err
	}
	return retryable{err}
}

// final reports whether only a person, or the caller, can help.
func final(err error) bool {
	_, killed := errors.AsType[stopped](err)
	return killed || isCorrupt(err) || isRefused(err) || errors.Is(err, errSilent) || errors.Is(err, ErrForeign) || errors.Is(err, ErrRewound) ||
		errors.Is(err, ErrNoRepository) || errors.Is(err, sequence.ErrRefused) || errors.Is(err, snapshots.ErrUntrusted) || errors.Is(err, signature.ErrNoKey) || errors.Is(err, snapshots.ErrMoved)
}

// stopped is the error of a step: for what follows, the process was killed.
type stopped struct{ error }

func (e stopped) Unwrap() error { return e.error }

func isCorrupt(err error) bool { return errors.Is(err, snapshots.ErrCorrupt) }
