package ui

import (
	"context"
	"sync/atomic"
)

// Latest holds what was known of a fleet last, between who finds it out and who looks. Neither
// waits for the other.
type Latest struct {
	fleet   atomic.Pointer[Fleet]
	changed chan struct{}
}

// NewLatest returns one that knows nothing yet.
func NewLatest() *Latest {
	l := &Latest{changed: make(chan struct{}, 1)}
	l.fleet.Store(&Fleet{Trouble: "nothing is known of the fleet yet"})
	return l
}

// Set replaces what is known. Nobody changes the value from now on.
func (l *Latest) Set(f Fleet) {
	l.fleet.Store(&f)
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// Fleet returns what is known.
func (l *Latest) Fleet() Fleet { return *l.fleet.Load() }

// Follow calls changed after each change, until ctx is done. One goroutine calls it.
func (l *Latest) Follow(ctx context.Context, changed func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.changed:
			changed()
		}
	}
}
