package pusher

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// Journal keeps the entries about rollouts, such as began, wave and failed, beside what people do to the
// channel. A store is one.
type Journal interface {
	Record(ctx context.Context, now time.Time, entries ...channel.Entry) error
}

const (
	// journalQueue is how many entries may wait for a journal that does not answer. A rollout has about ten.
	journalQueue = 256
	// journalTimeout is how long one write of the journal may take.
	journalTimeout = 30 * time.Second
	// journalLast is how long a pusher that ends waits until its last entries are written.
	journalLast = 2 * time.Second
	// journalRetry and journalRetries are the first and the longest wait after a write that failed.
	journalRetry, journalRetries = time.Second, time.Minute
)

// recorder writes entries about rollouts into a journal. A journal that does not answer stops nothing; the
// recorder counts and logs the entries that it drops. A killed pusher loses its last entries, which are in its
// log and in its state.
type recorder struct {
	journal Journal
	log     *slog.Logger
	from    string // which pusher
	queue   chan channel.Entry
	dropped atomic.Int64 // since it was last logged
	total   prometheus.Counter
}

// newRecorder returns a recorder, nil without a journal.
func newRecorder(o Options, from string) *recorder {
	r := &recorder{journal: o.Journal, log: o.Log, from: from, queue: make(chan channel.Entry, journalQueue), total: prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "hapsnap", Subsystem: "pusher", Name: "journal_dropped_total",
		Help: "Entries about rollouts that are not in the journal, because the store did not take them in time.",
	})}
	o.Metrics.MustRegister(r.total)
	if o.Journal == nil {
		return nil
	}
	return r
}

// note queues the entries that facts lead to. It waits for nothing.
func (r *recorder) note(facts []observe.TimedFact, fleet string) {
	if r == nil {
		return
	}
	for _, t := range facts {
		event, ok := t.Fact.(observe.Event)
		if !ok {
			continue
		}
		e, ok := entryOf(event)
		if !ok {
			continue
		}
		e.At, e.Turn, e.By, e.From, e.Fleet = t.At.UTC().Truncate(time.Second), true, "pusher", r.from, fleet
		select {
		case r.queue <- e:
		default:
			r.dropped.Add(1)
			r.total.Inc()
		}
	}
}

// recorded are the verbs of the entries that a journal has about rollouts, by the reasons of their events.
var recorded = map[string]channel.Verb{
	"RolloutBegins": channel.TurnBegan, "RolloutWave": channel.TurnWave, "RolloutPaused": channel.TurnPaused, "RolloutGoesOn": channel.TurnGoesOn,
	"RolloutFailed": channel.TurnFailed, "RolloutUndone": channel.TurnUndone, "RolloutDone": channel.TurnDone,
	"OverrideExpired": channel.TurnExpired,
}

// entryOf returns the entry about a rollout for an event, and false for other events.
func entryOf(e observe.Event) (channel.Entry, bool) {
	verb, ok := recorded[e.Reason]
	return channel.Entry{Verb: verb, Snapshot: e.Snapshot, Text: e.Text}, ok
}

// run writes the queued entries until ctx is done, and then tries once to write the rest.
func (r *recorder) run(ctx context.Context) {
	var batch []channel.Entry
	silent, wait := false, journalRetry
	for ctx.Err() == nil {
		if len(batch) == 0 {
			select {
			case <-ctx.Done():
				continue
			case e := <-r.queue:
				batch = append(batch, e)
			}
		}
		batch = r.gather(batch)
		err := r.write(ctx, batch, journalTimeout)
		switch {
		case ctx.Err() != nil:
			continue
		case err == nil:
			if batch = nil; silent {
				r.log.Info("the journal of rollouts is written again")
			}
			if n := r.dropped.Swap(0); n > 0 {
				r.log.Warn("entries about rollouts are not in the journal, the store did not take them in time", "dropped", n)
			}
			silent, wait = false, journalRetry
			continue
		case !silent:
			r.log.Warn("cannot write the journal of rollouts, trying again; nothing waits for it", "err", err)
			silent = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, journalRetries)
	}
	if batch = r.gather(batch); len(batch) > 0 {
		if err := r.write(context.WithoutCancel(ctx), batch, journalLast); err != nil {
			r.log.Warn("the last entries about rollouts are not in the journal", "dropped", len(batch), "err", err)
		}
	}
}

// gather adds queued entries to a batch, as far as they fit.
func (r *recorder) gather(batch []channel.Entry) []channel.Entry {
	for len(batch) < journalQueue {
		select {
		case e := <-r.queue:
			batch = append(batch, e)
			continue
		default:
		}
		break
	}
	return batch
}

func (r *recorder) write(ctx context.Context, batch []channel.Entry, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return r.journal.Record(ctx, time.Now(), batch...)
}
