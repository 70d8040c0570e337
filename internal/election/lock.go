package election

import (
	"context"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lock is a Lease that says when it was written, and with what success. Each
// request has a time limit: one that hangs must not keep the next from being
// made before the deadline.
type lock struct {
	resourcelock.Interface
	timeout time.Duration
	// read is told what came of reading it.
	read func(err error)
	// before is asked whether the record may be written, after told what came of
	// it and when it was sent.
	before func(ctx context.Context, record resourcelock.LeaderElectionRecord) error
	after  func(sent time.Time, record resourcelock.LeaderElectionRecord, err error)
}

// Get reads the Lease.
func (l lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	record, raw, err := l.Interface.Get(ctx)
	l.read(err)
	return record, raw, err
}

// Create makes the Lease.
func (l lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update renews, takes or releases the Lease.
func (l lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Update)
}

func (l lock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	if err := l.before(ctx, record); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	sent := time.Now()
	err := write(ctx, record)
	l.after(sent, record, err)
	return err
}
