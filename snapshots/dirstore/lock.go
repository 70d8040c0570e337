package dirstore

import (
	"context"
	"fmt"

	"github.com/hapsnap/hapsnap/internal/filelock"
)

// lock waits until no other writer holds the store, and removes what the last
// one left if it was killed. The lock goes with the process that holds it.
func (s *Store) lock(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("lock %s: %w", s, err)
	}
	lock, err := filelock.Wait(ctx, s.in(lockFile), 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", s, err)
	}
	if err := s.sweep(); err != nil {
		lock.Release()
		return nil, fmt.Errorf("clean up %s: %w", s, err)
	}
	return lock.Release, nil
}
