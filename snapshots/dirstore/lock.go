package dirstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockInterval is how often a lock that is held by another is tried again. The
// kernel can wake a waiter, but not one that may also give up.
const lockInterval = 10 * time.Millisecond

// lock waits until no other writer holds the store, and removes what the last
// one left if it was killed. The lock goes with the process that holds it.
func (s *Store) lock(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("lock %s: %w", s, err)
	}
	f, err := os.OpenFile(s.in(lockFile), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", s, err)
	}
	if err := flock(ctx, f); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", s, err)
	}
	if err := s.sweep(); err != nil {
		f.Close()
		return nil, fmt.Errorf("clean up %s: %w", s, err)
	}
	return func() { f.Close() }, nil
}

// flock takes the lock of an open file, which is given back when it is closed.
func flock(ctx context.Context, f *os.File) error {
	tick := time.NewTicker(lockInterval)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
