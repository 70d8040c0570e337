// Package events writes Events on the objects of a cluster, at a bounded rate and none twice. It renews an
// Event that still holds before the API server forgets it.
//
// Callers decide what the Events say. [Recorder] writes them while its process is the leader. [Loop] is the
// part that writes, for others that write in the same manner.
//
// # Decisions
//
// The name of an Event is made of its content. client-go's recorder takes two faults of one object for one,
// forgets what it has written when the process ends, and drops what exceeds its queue. Here the object, the
// reason and the note give the name: the next leader, or the same process after a restart, finds the Event and
// leaves it. An Event that still holds is renewed each half hour, before the API server forgets it. One that
// comes and goes is renewed at most every five minutes. There are never more than five Events a second.
package events

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/util/flowcontrol"
)

// The limits of writes to the API server: requests each second, and how many at once. At that rate ten thousand
// objects with a fault get their Events in half an hour.
const rate, burst = 5, 25

// timeout is how long the API server may take for one request.
const timeout = 10 * time.Second

// Options are those of a [Recorder]. All fields are needed.
type Options struct {
	Program  string // compiler or pusher
	Events   typedeventsv1.EventsGetter
	Leader   Leader
	Instance string // this process, for the Events
	Log      *slog.Logger
	Metrics  prometheus.Registerer
}

// Recorder writes Events. It may be used by several goroutines.
type Recorder struct {
	options Options
	counter *prometheus.CounterVec
	loop    *Loop
	limit   flowcontrol.RateLimiter

	mu     sync.Mutex
	ledger ledger
}

// New returns a recorder, which writes once it is run.
func New(o Options) *Recorder {
	r := &Recorder{
		options: o, limit: flowcontrol.NewTokenBucketRateLimiter(rate, burst), ledger: newLedger(),
		counter: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "hapsnap", Subsystem: o.Program, Name: "events_total",
			Help: "Events brought to the API server, by result: written, refused (not tried again), error.",
		}, []string{"result"}),
	}
	for _, result := range []string{"written", "refused", "error"} {
		r.counter.WithLabelValues(result)
	}
	o.Metrics.MustRegister(r.counter)
	r.loop = NewLoop("events", o.Leader, o.Log, r.next)
	return r
}

// Say replaces the Events that should be there: lasting ones, which hold until Say is called without them, and
// Events to be said once. An Event to be said once that was not written yet stays for two hours, unless the same
// action has found something lasting about the object meanwhile.
func (r *Recorder) Say(lasting, once []Event, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ledger.wish(lasting, once, now)
	r.loop.Kick()
}

// Run writes until ctx is done. Events that were written stay.
func (r *Recorder) Run(ctx context.Context) { r.loop.Run(ctx) }

// next writes the Event that is due next, and reports whether there was one.
func (r *Recorder) next(ctx context.Context) (bool, error) {
	r.mu.Lock()
	w, before, ok := r.ledger.next(time.Now())
	r.mu.Unlock()
	if !ok {
		return false, nil
	}
	if err := r.limit.Wait(ctx); err != nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := r.write(ctx, w, before)
	if err != nil && !hopeless(err) {
		r.counter.WithLabelValues("error").Inc()
		r.mu.Lock()
		defer r.mu.Unlock()
		was := r.ledger.refused[w.name]
		if !OfOne(err) {
			was.Until = time.Now() // it takes turns with others
			r.ledger.refused[w.name] = was
			return false, fmt.Errorf("write Event on %s: %w", w.object(), err)
		}
		r.ledger.refused[w.name] = r.loop.Refused(was, w.object(), err, time.Now())
		return true, nil
	}
	result := "written"
	if err != nil {
		result = "refused"
		r.options.Log.Warn("event refused", "object", w.object(), "err", err)
	}
	r.counter.WithLabelValues(result).Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.loop.Accepted(r.ledger.refused[w.name], w.object())
	}
	r.ledger.wrote(w.name, time.Now())
	return true, nil
}

// hopeless reports whether the API server will never take an Event.
func hopeless(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// write creates an Event, or renews the existing one. It does not change an Event that another process has
// made.
func (r *Recorder) write(ctx context.Context, w wish, before int32) error {
	client := r.options.Events.Events(w.namespace())
	now := metav1.NowMicro()
	if before > 0 {
		data, err := json.Marshal(map[string]any{"series": eventsv1.EventSeries{Count: before + 1, LastObservedTime: now}})
		if err != nil {
			return fmt.Errorf("encode Event: %w", err)
		}
		if _, err = client.Patch(ctx, w.name, types.MergePatchType, data, metav1.PatchOptions{}); !apierrors.IsNotFound(err) {
			return err
		}
	}
	_, err := client.Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace(), Name: w.name},
		EventTime:  now, ReportingController: "hapsnap.dev/" + r.options.Program, ReportingInstance: Cut(r.options.Instance, 128),
		Action: w.Action, Type: w.Type, Reason: w.Reason, Note: w.Note, Regarding: w.Regarding,
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// retries are the times between attempts while the API server refuses, or is gone.
var retries = wait.Backoff{Duration: time.Second, Factor: 2, Steps: 10, Cap: 30 * time.Second}

// look is how often the loop checks whether an Event needs to be renewed.
const look = time.Minute

// Leader says whether this process is the one that writes.
type Leader interface {
	Term(ctx context.Context) (during context.Context, end context.CancelFunc, leading bool)
}

// Always is the leader of a process that runs alone.
type Always struct{}

// Term returns the context itself.
func (Always) Term(ctx context.Context) (context.Context, context.CancelFunc, bool) {
	return ctx, func() {}, true
}

// Loop writes due things into a cluster, one after the other, while this process leads.
type Loop struct {
	Of     string // what it writes, for the log
	Leader Leader
	Log    *slog.Logger
	// Write writes what is due next, and reports whether there was something.
	Write func(context.Context) (bool, error)

	kicked chan struct{}
	said   time.Time // when a refusal was logged last; used in Write
}

// NewLoop returns a loop that has to be run.
func NewLoop(of string, leader Leader, log *slog.Logger, write func(context.Context) (bool, error)) *Loop {
	return &Loop{Of: of, Leader: leader, Log: log, Write: write, kicked: make(chan struct{}, 1)}
}

// Kick tells the loop that something may be due.
func (l *Loop) Kick() {
	select {
	case l.kicked <- struct{}{}:
	default:
	}
}

// Run writes whenever it is kicked, and from time to time, until ctx is done. One round ends when nothing more
// is due.
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
				l.Log.Warn("cannot write to the cluster, trying again", "of", l.Of, "err", err)
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
