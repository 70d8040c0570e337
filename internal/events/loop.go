package events

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// retries are the times between attempts while the API server refuses, or is gone.
var retries = wait.Backoff{Duration: time.Second, Factor: 2, Steps: 10, Cap: 30 * time.Second}

// look is how often it is looked whether something is to be said again.
const look = time.Minute

// Leader says whether this process is the one that writes.
type Leader interface {
	Term(ctx context.Context) (during context.Context, end context.CancelFunc, leading bool)
}

// Always is the leader of a process that has nobody beside it.
type Always struct{}

// Term returns the context itself.
func (Always) Term(ctx context.Context) (context.Context, context.CancelFunc, bool) {
	return ctx, func() {}, true
}

// Loop writes into a cluster what is due, one thing after the other, each while
// leading.
type Loop struct {
	Of     string // what it writes, for the log
	Leader Leader
	Log    *slog.Logger
	// Write writes what is due next, and reports whether there was something.
	Write func(context.Context) (bool, error)

	kicked chan struct{}
}

// NewLoop returns a loop that has to be run.
func NewLoop(of string, leader Leader, log *slog.Logger, write func(context.Context) (bool, error)) *Loop {
	return &Loop{Of: of, Leader: leader, Log: log, Write: write, kicked: make(chan struct{}, 1)}
}

// Kick says that something may be due.
func (l *Loop) Kick() {
	select {
	case l.kicked <- struct{}{}:
	default:
	}
}

// Run writes whenever it is kicked, and at times, until ctx is done. One round ends
// when nothing more is due.
func (l *Loop) Run(ctx context.Context) {
	pause, pauses := look, retries
	failing := false
	for {
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-l.kicked:
		case <-timer.C:
		}
		timer.Stop()
		err := l.round(ctx)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			pause, pauses, failing = look, retries, false
		default:
			if !failing {
				l.Log.Warn("cluster not told, trying again", "of", l.Of, "err", err)
			}
			pause, failing = pauses.Step(), true
		}
	}
}

// round writes one thing after the other.
func (l *Loop) round(ctx context.Context) error {
	for ctx.Err() == nil {
		during, end, leading := l.Leader.Term(ctx)
		if !leading {
			return nil
		}
		more, err := l.Write(during)
		ended := during.Err() != nil
		end()
		if ended || !more || err != nil {
			return err
		}
	}
	return nil
}
