// Package observe reports what a pusher does: its status, metrics, log lines, Kubernetes Events,
// notifications and spans.
//
// The machine of package core decides; this package reports. At the end of a turn, the machine makes a [View], which is
// a plain value. [View.Status] turns it into a status of package report. Facts say what happened within a turn. No
// decision depends on this package, and nothing in it changes what an instance gets.
// instance gets.
package observe

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
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

// Events makes Kubernetes Events on objects of a cluster. An Event without an object is about the fleet. See package
// announce.
type Events interface {
	// Run makes Events until ctx is done.
	Run(ctx context.Context)
	// Say replaces the lasting states, and adds what has happened once. It waits for nothing.
	Say(lasting, once []events.Event)
}

// Options say where to report. Log, Metrics, Notify and Tracers have to be set.
type Options struct {
	Log     *slog.Logger
	Metrics prometheus.Registerer
	Tracers trace.TracerProvider
	// Notify is called with notices for people. It must not block.
	Notify func(notify.Notice)
	// Events makes Events on objects of a cluster. It may be nil.
	Events Events
	// Status is called with each new status. It may be nil.
	Status func(report.Status)
	// Report writes the status to a place where others read it. It may be nil.
	Report func(ctx context.Context, p report.Published) error
}

// Observer reports to people what the pusher knows and does. One goroutine calls it.
type Observer struct {
	options     Options
	metrics     *metrics
	propagation propagation
	tally       tally
	spans       spans
	objects     objects
	logged      map[string]loggedTrouble
	notified    map[string]bool  // troubles about which people were notified
	reporter    *report.Reporter // nil without Options.Report
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

// Jobs returns functions that have to run as long as the observer is used. Each needs a goroutine of its own.
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

// Record reports facts. Kubernetes Events about them follow with the next view.
func (o *Observer) Record(facts ...TimedFact) {
	for _, f := range facts {
		f.record(o, f.At)
	}
}

// Show reports the view at the end of a step, and its status.
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

// Took records how long a turn took.
func (o *Observer) Took(turn time.Duration) { o.metrics.turns.Observe(turn.Seconds()) }

// End ends the spans that are open.
func (o *Observer) End() { o.spans.end("interrupted", nil) }

// Fact is something that happened and that people should know. It is a value.
type Fact interface {
	// record reports the fact.
	record(o *Observer, at time.Time)
	// String says what happened. It contains no secrets.
	String() string
}

// TimedFact is a fact with the time when it happened.
type TimedFact struct {
	Fact
	At time.Time
}

// Pushed says that a push has ended.
type Pushed struct {
	Instance string
	Snapshot snapshots.ID
	Why      string
	Outcome  rollout.Outcome
	Reloaded bool
	Took     time.Duration
	// Change is what the push changed, if that is known. Error says why it failed, "" if it succeeded.
	Change report.Change
	Error  string
}

func (p Pushed) record(o *Observer, _ time.Time) {
	o.metrics.pushes.WithLabelValues(string(p.Outcome)).Inc()
	o.metrics.took.WithLabelValues(string(p.Outcome)).Observe(p.Took.Seconds())
	if p.Reloaded {
		o.metrics.reloads.Inc()
	}
}

func (p Pushed) String() string { return fmt.Sprintf("pushed %s reloaded=%t", p.Outcome, p.Reloaded) }

// Worked says that another job on an instance has ended.
type Worked struct {
	Kind   string
	Failed bool
}

func (w Worked) record(o *Observer, _ time.Time) {
	result := "done"
	if w.Failed {
		result = "failed"
	}
	o.metrics.updates.WithLabelValues(w.Kind, result).Inc()
}

func (w Worked) String() string { return fmt.Sprintf("worked %s failed=%t", w.Kind, w.Failed) }

// EntriesLost is how many changes of map entries an instance confirmed but did not make.
type EntriesLost int

func (n EntriesLost) record(o *Observer, _ time.Time) { o.metrics.lost.Add(float64(n)) }

func (n EntriesLost) String() string { return fmt.Sprintf("entries of maps lost: %d", int(n)) }

// EndpointsChanged says that the endpoints of a Service changed.
type EndpointsChanged struct {
	Service   snapshots.ServicePort
	Old, Next []snapshots.Endpoint
}

func (c EndpointsChanged) record(o *Observer, at time.Time) {
	o.tally.change(c.Service, c.Old, c.Next, at)
}

func (c EndpointsChanged) String() string {
	return fmt.Sprintf("endpoints of %s changed: %d, were %d", c.Service, len(c.Next), len(c.Old))
}

// InstanceUpdated says that the worker of an instance got the current endpoints.
type InstanceUpdated struct{ Instance string }

func (u InstanceUpdated) record(o *Observer, _ time.Time) { o.tally.changed(u.Instance) }

func (u InstanceUpdated) String() string { return "updated " + u.Instance }

// ChangesSeen has the times of changes of endpoints. Some of them may concern no snapshot.
type ChangesSeen struct{ Since []time.Time }

func (c ChangesSeen) record(o *Observer, _ time.Time) {
	o.propagation.seen = append(o.propagation.seen, c.Since...)
}

func (c ChangesSeen) String() string {
	return fmt.Sprintf("changes of endpoints seen: %d", len(c.Since))
}

// ServersChanged says that the changes of the last ChangesSeen concern servers of a snapshot.
type ServersChanged struct{}

func (ServersChanged) record(o *Observer, _ time.Time) {
	o.propagation.begin(propagationEndpoints, o.propagation.seen)
	o.propagation.seen = nil
}

func (ServersChanged) String() string { return "servers changed" }

// SecretsChanged has the times of changes of Secrets that instances should get.
type SecretsChanged struct{ Since []time.Time }

func (c SecretsChanged) record(o *Observer, _ time.Time) {
	o.propagation.begin(propagationSecrets, c.Since)
}

func (c SecretsChanged) String() string { return fmt.Sprintf("Secrets changed: %d", len(c.Since)) }

// Describe returns the text of an event or effect: what happened, then keys and values as in the log. It leaves out
// keys with an empty value.
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

// Troubles are the current troubles, by topic.
type Troubles map[string]report.Trouble

// Set notes a trouble, or its end if err is nil. It returns the change, and whether there is one.
func (t Troubles) Set(about string, err error, now time.Time) (TroubleChanged, bool) {
	was, known := t[about]
	text := report.Brief(err)
	switch {
	case err == nil && known:
		delete(t, about)
		return TroubleChanged{About: about, Since: was.Since}, true
	case err != nil && (!known || was.Error != text):
		since := now.UTC().Truncate(time.Second)
		if known {
			since = was.Since
		}
		t[about] = report.Trouble{About: about, Error: text, Since: since}
		return TroubleChanged{About: about, Error: text, Since: since}, true
	}
	return TroubleChanged{}, false
}

// list returns the troubles sorted by topic.
func (t Troubles) list() []report.Trouble {
	var out []report.Trouble
	for _, about := range slices.Sorted(maps.Keys(t)) {
		out = append(out, t[about])
	}
	return out
}

// TroubleChanged says that a trouble has begun, has a new reason, or is over.
type TroubleChanged struct {
	About string
	Error string // "" if it is over
	Since time.Time
}

// troubleMessages are log messages that say what the pusher cannot do, and what it does meanwhile.
var troubleMessages = map[string]string{
	report.AboutAnotherStore: "the store was replaced, instances keep what they run",
	report.AboutCache:        "cannot keep snapshots on this machine, trying again",
	report.AboutCertificates: "cannot open the certificates of a snapshot, it is not rolled out",
	report.AboutChannel:      "cannot write the channel, trying again",
	report.AboutCluster:      "cannot watch the cluster, the endpoints and Secrets known so far stay in use",
	report.AboutCredentials:  "Secrets with credentials of instances cannot be made or used, those known so far stay in use",
	report.AboutElection:     "nobody can be elected, this pusher stands by",
	report.AboutFleet:        "cannot use the file of the fleet, or a file that it names: what was known of it so far stays",
	report.AboutKept:         "many endpoints are gone, those known so far stay in use",
	report.AboutLive:         "cannot read endpoints and Secrets, those known so far stay in use",
	report.AboutLiveObjects:  "some endpoints or Secrets cannot be used",
	report.AboutNamed:        "the snapshot that people named cannot run, instances keep what they run",
	report.AboutNeeds:        "a snapshot needs what the pusher may not read, its rollout waits",
	report.AboutPods:         "cannot read the pods, the instances known so far stay",
	report.AboutPusher:       "another pusher leads instances, nothing is written to them",
	report.AboutReach:        "no instance of the fleet can be reached, nothing can be pushed",
	report.AboutRefused:      "endpoints are refused, their Services go without them",
	report.AboutSecrets:      "some Secrets that snapshots name cannot be used",
	report.AboutSigned:       "the newest snapshot is not signed by anybody on the lists, it is not run",
	report.AboutSnapshots:    "cannot read a snapshot, it is not rolled out",
	report.AboutState:        "cannot save the state: rollouts wait, endpoints and certificates are still followed",
	report.AboutStateSize:    "the state is too large for where it is kept, a part of it is not saved",
	report.AboutStatus:       "cannot write the status where people read it",
	report.AboutStore:        "cannot read the store, instances keep what they run",
}

// TroubleMessage returns the log message for a trouble.
func TroubleMessage(about string) string { return cmp.Or(troubleMessages[about], "something is wrong") }

// troubleRepeats is the shortest time between two log lines about a trouble whose reason changes.
const troubleRepeats = time.Minute

// record logs that a trouble has begun or is over, and, not too often, that its reason has changed.
func (t TroubleChanged) record(o *Observer, at time.Time) {
	logged, known := o.logged[t.About]
	switch {
	case t.Error == "":
		delete(o.logged, t.About)
		o.options.Log.Info("works again", "about", t.About, "since", t.Since)
	case known && at.Sub(logged.at) < troubleRepeats && logged.sameAs(t.Error):
	default:
		o.logged[t.About] = loggedTrouble{at, t.Error}
		o.options.Log.Warn(TroubleMessage(t.About), "err", t.Error) //nolint:sloglint // it is constant for each
	}
}

func (t TroubleChanged) String() string {
	if t.Error == "" {
		return "trouble is over: " + t.About
	}
	return fmt.Sprintf("trouble: %s: %s", t.About, t.Error)
}

// loggedTrouble is the last trouble that was logged for a topic.
type loggedTrouble struct {
	at   time.Time
	text string
}

// sameAs reports whether a text is the same apart from numbers, such as times or names of temporary files.
func (l loggedTrouble) sameAs(text string) bool {
	return withoutNumbers(l.text) == withoutNumbers(text)
}

func withoutNumbers(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, text)
}

// tellAfter is how long a trouble lasts before people are notified. Most troubles are over by then.
const tellAfter = time.Minute

// notifyOfTroubles notifies people of troubles that have lasted for a while.
func (o *Observer) notifyOfTroubles(all Troubles, now time.Time) {
	for _, about := range slices.Sorted(maps.Keys(all)) {
		if t := all[about]; !o.notified[about] && now.Sub(t.Since) >= tellAfter {
			o.notified[about] = true
			Event{Notice: notify.Trouble, Text: fmt.Sprintf("%s: %s", about, report.FirstLine(t.Error, report.LongestMessage))}.record(o, now)
		}
	}
	for _, about := range slices.Sorted(maps.Keys(o.notified)) {
		if _, still := all[about]; !still {
			delete(o.notified, about)
			Event{Notice: notify.TroubleOver, Text: about + ": the trouble is over"}.record(o, now)
		}
	}
}
