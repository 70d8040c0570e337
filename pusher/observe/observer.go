package observe

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/pusher/notify"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Events says things of objects of a cluster. What is about none is about the fleet. See
// package announce.
type Events interface {
	// Run says what is to be said until ctx is done.
	Run(ctx context.Context)
	// Say says what holds, in place of what did before, and what has happened. It waits
	// for nothing.
	Say(lasting, once []events.Event)
}

// Options say whom to tell. Log, Metrics, Notify and Tracers are set.
type Options struct {
	Log     *slog.Logger
	Metrics prometheus.Registerer
	Tracers trace.TracerProvider
	// Notify is called with what people may want to hear of, and does not block.
	Notify func(notify.Notice)
	// Events says of the objects of a cluster what becomes of them; nil: nobody does.
	Events Events
	// Status is called with each new status; nil: nobody.
	Status func(report.Status)
	// Report writes the status where others read it; nil: nobody does.
	Report func(ctx context.Context, p report.Published) error
}

// Observer tells people what the pusher knows and does. One goroutine calls it.
type Observer struct {
	options     Options
	metrics     *metrics
	propagation propagation
	tally       tally
	spans       spans
	objects     objects
	logged      map[string]loggedTrouble
	notified    map[string]bool  // of which troubles people were
	reporter    *report.Reporter // nil: nobody is to be told
}

// New returns an observer, with its metrics registered.
func New(o Options) *Observer {
	out := &Observer{
		options: o, metrics: newMetrics(o.Metrics), spans: spans{tracer: o.Tracers.Tracer(tracerName)},
		logged: map[string]loggedTrouble{}, notified: map[string]bool{},
	}
	if o.Report != nil {
		out.reporter = report.NewReporter(o.Report, o.Log)
	}
	return out
}

// Jobs returns what is to run for as long as the observer is used, each in a goroutine of
// its own.
func (o *Observer) Jobs() []func(context.Context) {
	var out []func(context.Context)
	if o.options.Events != nil {
		out = append(out, o.options.Events.Run)
	}
	if o.reporter != nil {
		out = append(out, o.reporter.Run)
	}
	return out
}

// Tell tells what has happened. What is said in Events is said with the next view.
func (o *Observer) Tell(facts ...Told) {
	for _, f := range facts {
		f.tell(o, f.At)
	}
}

// Show tells what is known at the end of a step. Status is that of the view.
func (o *Observer) Show(v View, s report.Status) {
	o.metrics.observe(v, s)
	o.propagation.observe(v.Instances, o.metrics, v.Now)
	o.tally.log(o.options.Log, v.Now)
	o.notifyOfTroubles(v.Troubles, v.Now)
	o.say(v, s)
	o.spans.follow(v.Rollout, v.Traceparent, v.TargetAtHand)
	if o.options.Status != nil {
		o.options.Status(s)
	}
	if o.reporter != nil {
		o.reporter.Offer(s)
	}
}

// Took counts a turn, by the time that it took.
func (o *Observer) Took(turn time.Duration) { o.metrics.turns.Observe(turn.Seconds()) }

// End ends what the observer had begun to tell.
func (o *Observer) End() { o.spans.end("interrupted", nil) }

// Fact is something that happened, which people are to be told. It is a value.
type Fact interface {
	// tell tells it, as what happened at a time.
	tell(o *Observer, at time.Time)
	// String says what happened. It contains no secrets.
	String() string
}

// Told is a fact and when it happened.
type Told struct {
	Fact
	At time.Time
}

// Pushed is the end of a push.
type Pushed struct {
	Instance string
	Snapshot snapshots.ID
	Why      string
	Outcome  rollout.Outcome
	Reloaded bool
	Took     time.Duration
	// Change is what it took, if that is known, and Error how it failed, "" if it did not.
	Change report.Change
	Error  string
}

func (p Pushed) tell(o *Observer, _ time.Time) { o.metrics.pushed(p) }

func (p Pushed) String() string { return fmt.Sprintf("pushed %s reloaded=%t", p.Outcome, p.Reloaded) }

// Worked is the end of another job on an instance.
type Worked struct {
	Kind   string
	Failed bool
}

func (w Worked) tell(o *Observer, _ time.Time) { o.metrics.worked(w) }

func (w Worked) String() string { return fmt.Sprintf("worked %s failed=%t", w.Kind, w.Failed) }

// EntriesLost is how many changes of map entries an instance acknowledged and did not make.
type EntriesLost int

func (n EntriesLost) tell(o *Observer, _ time.Time) { o.metrics.lost.Add(float64(n)) }

func (n EntriesLost) String() string { return fmt.Sprintf("entries of maps lost: %d", int(n)) }

// EndpointsChanged is that the endpoints of a Service are others.
type EndpointsChanged struct {
	Service   snapshots.ServicePort
	Old, Next []snapshots.Endpoint
}

func (c EndpointsChanged) tell(o *Observer, at time.Time) {
	o.tally.change(c.Service, c.Old, c.Next, at)
}

func (c EndpointsChanged) String() string {
	return fmt.Sprintf("endpoints of %s changed: %d, were %d", c.Service, len(c.Next), len(c.Old))
}

// InstanceUpdated is that the worker of an instance was brought to today's endpoints.
type InstanceUpdated struct{ Instance string }

func (u InstanceUpdated) tell(o *Observer, _ time.Time) { o.tally.changed(u.Instance) }

func (u InstanceUpdated) String() string { return "updated " + u.Instance }

// ChangesSeen is that endpoints changed, which may concern no snapshot, since these times.
type ChangesSeen struct{ Since []time.Time }

func (c ChangesSeen) tell(o *Observer, _ time.Time) { o.propagation.came(c.Since) }

func (c ChangesSeen) String() string {
	return fmt.Sprintf("changes of endpoints seen: %d", len(c.Since))
}

// ServersChanged is that those concern servers.
type ServersChanged struct{}

func (ServersChanged) tell(o *Observer, _ time.Time) { o.propagation.assigned() }

func (ServersChanged) String() string { return "servers changed" }

// SecretsChanged is that instances are to get something else of Secrets, since these times.
type SecretsChanged struct{ Since []time.Time }

func (c SecretsChanged) tell(o *Observer, _ time.Time) {
	o.propagation.begin(propagationSecrets, c.Since)
}

func (c SecretsChanged) String() string { return fmt.Sprintf("Secrets changed: %d", len(c.Since)) }

// Describe writes an event: what happened, then keys and values as the log has them. Keys
// whose value is empty are left out.
func Describe(what string, keys ...any) string {
	var b strings.Builder
	b.WriteString(what)
	for n := 0; n+1 < len(keys); n += 2 {
		value := keys[n+1]
		if err, ok := value.(error); ok {
			value = report.Brief(err)
		}
		if v := reflect.ValueOf(value); !v.IsValid() || v.IsZero() {
			continue
		}
		if text := fmt.Sprint(value); strings.ContainsAny(text, " \t\n\"=") {
			fmt.Fprintf(&b, " %s=%q", keys[n], text)
		} else {
			fmt.Fprintf(&b, " %s=%s", keys[n], text)
		}
	}
	return b.String()
}
