// Package filelock locks files, so that only one of several processes, or of several parts of one process, does
// the work that the lock guards. The locks are those of flock(2), and of LockFileEx on Windows: the kernel
// releases them when the process that holds them ends.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// ErrHeld is returned if another process or part holds the lock.
var ErrHeld = errors.New("another holds the lock")

// interval is how often [Wait] tries a lock that is held. The kernel can wake a waiter, but not one that may
// also give up.
const interval = 10 * time.Millisecond

// Lock is a lock that is held.
type Lock struct{ file *os.File }

// Try makes the file if it is missing, with this mode, and locks it. The error wraps
// [ErrHeld] if another holds the lock.
func Try(path string, mode os.FileMode) (*Lock, error) {
	f, err := open(path, mode)
	if err != nil {
		return nil, err
	}
	if err := try(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &Lock{f}, nil
}

// Wait is like [Try], and waits while another holds the lock, until ctx is done.
func Wait(ctx context.Context, path string, mode os.FileMode) (*Lock, error) {
	f, err := open(path, mode)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err = try(f); err == nil {
			return &Lock{f}, nil
		}
		if !errors.Is(err, ErrHeld) {
			break
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-tick.C:
			continue
		}
		break
	}
	_ = f.Close()
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

func open(path string, mode os.FileMode) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, mode)
}

// At reports whether the file that is locked is still the one at the path. If somebody removed it, another may hold a lock there.
func (l *Lock) At(path string) bool {
	mine, err := l.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(mine, there)
}

// Release gives the lock back. Closing the file alone would not always do that: a process that is being started
// holds a copy of every open file, and with it the lock, until it executes its program.
func (l *Lock) Release() {
	unlock(l.file)
	_ = l.file.Close()
}
