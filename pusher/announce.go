package pusher

import (
	"context"
	"log/slog"
	"time"
)

const (
	announceInterval = 2 * time.Second // between two reports, at least
	announceTimeout  = 10 * time.Second
)

// announcer tells the condition of the fleet to whoever is to know, the newest one only
// and none twice.
type announcer struct {
	report   func(ctx context.Context, fields map[string]string) error
	log      *slog.Logger
	interval time.Duration
	newest   chan Condition // of one
}

func newAnnouncer(report func(context.Context, map[string]string) error, log *slog.Logger) *announcer {
	return &announcer{report: report, log: log, interval: announceInterval, newest: make(chan Condition, 1)}
}

// offer hands a condition on. It replaces one that was not told yet. One goroutine
// calls it.
func (a *announcer) offer(c Condition) {
	select {
	case <-a.newest:
	default:
	}
	a.newest <- c
}

// run tells conditions until ctx is done. What could not be told is tried again, unless
// a newer one comes: that it cannot be told must not keep the pusher from its work.
func (a *announcer) run(ctx context.Context) {
	var told Condition
	silent := false
	for {
		var c Condition
		select {
		case <-ctx.Done():
			return
		case c = <-a.newest:
		}
		if c == told {
			continue
		}
		once, cancel := context.WithTimeout(ctx, announceTimeout)
		err := a.report(once, c.fields(time.Now()))
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			told = c
			if silent {
				a.log.Info("status is reported again")
			}
		case !silent:
			a.log.Warn("status not reported", "err", err)
		}
		silent = err != nil
		select {
		case <-ctx.Done():
			return
		case <-time.After(a.interval):
		}
	}
}
