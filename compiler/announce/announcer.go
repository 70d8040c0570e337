// Package announce reports to a cluster what became of its objects: Events on objects that were left
// out, or have a fault, or are good again; the addresses at which Ingresses are served, in their
// status; the status of Gateways and their routes; and the Services of Gateways that have addresses of their own.
//
// Pure functions decide what to report from the last compile and the last publish: [Events],
// [Addresses] and the ledgers of what was written. Only the leader writes, at a bounded rate, and
// nothing twice, and namespaces take turns: the name of an Event is made of its content, so that another leader, or the same one
// after a restart, finds the Event and leaves it; a status is written only if it differs. Objects from
// files, which have no UID, get neither.
//
// Notes are messages of package diag, which hold no values of Secrets.
//
// # Decisions
//
// An Ingress has our addresses in its status while the published snapshot has a line of it, even a line
// that keeps it closed. Otherwise a program that makes DNS records of statuses would remove a host because of
// a typing error that answers 503 now and is fixed in a minute. Statuses are written by server-side
// apply. To remove our addresses, we apply an empty status: the API server then removes what only we had
// written, however long ago, and keeps what another controller has written since. A status that somebody
// overwrites three times is reported, and left alone for an hour.
package announce

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	eventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	networkingclient "k8s.io/client-go/kubernetes/typed/networking/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/events"
)

// manager is the field manager of the statuses.
const manager = "hapsnap-compiler"

// How often the statuses of Ingresses, and those of the Gateway API, are written, in requests each second, and how many at
// once. A compiler writes one after the other. At that rate, ten thousand objects that are new to it have their statuses
// after two minutes.
const statusRate, statusBurst = 100, 200

// Options are those of an [Announcer]. All fields are needed, except Dynamic and Fleet. Without Dynamic nothing of the
// Gateway API is written.
type Options struct {
	Events    eventsv1.EventsGetter
	Ingresses networkingclient.IngressesGetter
	Dynamic   dynamic.Interface
	Services  coreclient.ServicesGetter
	Slices    discoveryclient.EndpointSlicesGetter
	Fleet     Fleet
	Leader    events.Leader
	Instance  string // this process, for the Events
	Lease     string // by which Leader leads, as NAMESPACE/NAME
	Log       *slog.Logger
	Metrics   prometheus.Registerer
}

// Announcer reports to a cluster what became of its objects. It may be used by several goroutines.
type Announcer struct {
	options Options
	metrics *metrics

	events   *events.Recorder
	statuses *events.Loop
	gateways *gatewayStatuses        // nil: none are written
	services *gatewayServices        // with gateways
	limit    flowcontrol.RateLimiter // of statuses

	mu      sync.Mutex
	bad     map[diag.Object]bool // left out by the last compile
	desire  desire
	pending pendingStatuses // of desire
}

// New returns an announcer, which writes once it is run.
func New(o Options) *Announcer {
	a := &Announcer{
		options: o, metrics: newMetrics(o.Metrics), pending: pendingStatuses{marks: marks{}},
		limit: flowcontrol.NewTokenBucketRateLimiter(statusRate, statusBurst),
		events: events.New(events.Options{
			Program: "compiler", Events: o.Events, Leader: o.Leader, Instance: o.Instance, Log: o.Log, Metrics: o.Metrics,
		}),
	}
	if o.Dynamic != nil {
		a.gateways = newGatewayStatuses(o)
		a.services = newGatewayServices(o, a.gateways.lookAgain)
		a.gateways.services = a.services
	}
	a.statuses = events.NewLoop("statuses of ingresses", o.Leader, o.Log, a.nextStatus)
	return a
}

// Compiled takes the findings of a compile. Followers call it as well, so that they know what to report
// when they lead.
func (a *Announcer) Compiled(in inputs.Inputs, found []diag.Diagnostic) {
	a.mu.Lock()
	defer a.mu.Unlock()
	bad := leftOut(found)
	a.events.Say(Events(in, found), good(in, a.bad, bad), time.Now())
	a.bad = bad
}

// Published takes the Ingresses that the published snapshot serves.
func (a *Announcer) Published(in inputs.Inputs, served map[diag.Object]bool, c config.IngressStatus) {
	a.mu.Lock()
	defer a.mu.Unlock()
	where, known := Addresses(c, in)
	if !known && c.Service != "" && (a.desire.known || a.desire.served == nil) {
		a.options.Log.Warn("cannot find the service for the status of ingresses, leaving the status as it is", "service", c.Service)
	}
	a.desire = desire{in: in, served: served, addresses: where, known: known}
	a.pending.want(a.desire.changes())
	a.pending.marks.keep(in)
	a.statuses.Kick()
}

// Run writes until ctx is done, and then returns nil. What was written stays.
func (a *Announcer) Run(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error { a.events.Run(ctx); return nil })
	group.Go(func() error { a.statuses.Run(ctx); return nil })
	if a.gateways != nil {
		group.Go(func() error { a.gateways.run(ctx); return nil })
		group.Go(func() error { a.services.loop.Run(ctx); return nil })
	}
	return group.Wait()
}

// metrics are those of one [Announcer].
type metrics struct {
	statuses *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		statuses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hapsnap_compiler_ingress_status_writes_total", Help: "Statuses of Ingresses brought to the API server, by result: written, refused (not tried again), error.",
		}, []string{"result"}),
	}
	for _, result := range []string{"written", "refused", "error"} {
		m.statuses.WithLabelValues(result)
	}
	r.MustRegister(m.statuses)
	return m
}

// StatusRules returns the permissions to write the status of Ingresses in every namespace whose objects
// are compiled, if the configuration names addresses.
func StatusRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"ingresses/status"}, Verbs: []string{"patch"}}}
}

// The reasons of Events.
const (
	// LeftOut means that the object, or the part of it that the note names, is not
	// in the configuration.
	LeftOut = "LeftOut"
	// Faulty means that it is in the configuration, and that its author should know about a fault.
	Faulty = "Faulty"
	// Accepted means that an object that had been left out no longer is.
	Accepted = "Accepted"
)

// action names what was done when the fault of an Event was found.
const action = "Compile"

// Events returns the Events for the objects of a compile, each once, in the order of the diagnostics.
func Events(in inputs.Inputs, found []diag.Diagnostic) []events.Event {
	named := make(map[diag.Object]bool, len(found))
	for _, d := range found {
		named[d.Object] = true
	}
	known := references(in, named)
	var out []events.Event
	seen := map[string]bool{}
	for _, d := range found {
		regarding, ok := known[d.Object]
		if !ok {
			continue
		}
		e := events.Event{Regarding: regarding, Action: action, Type: corev1.EventTypeWarning, Reason: Faulty, Note: note(d)}
		if d.Severity == diag.Error {
			e.Reason = LeftOut
		}
		if d.Position.File == "" {
			e.Regarding.FieldPath = d.Position.Field
		}
		if name := e.Name(); !seen[name] {
			seen[name] = true
			out = append(out, e)
		}
	}
	return out
}

// good returns the Events for objects that had been left out, still exist and are in the configuration
// again.
func good(in inputs.Inputs, before, after map[diag.Object]bool) []events.Event {
	again := maps.Clone(before)
	maps.DeleteFunc(again, func(object diag.Object, _ bool) bool { return after[object] })
	var out []events.Event
	for _, regarding := range references(in, again) {
		out = append(out, events.Event{Regarding: regarding, Action: action, Type: corev1.EventTypeNormal, Reason: Accepted, Note: "no part of it is left out any more"})
	}
	slices.SortFunc(out, func(a, b events.Event) int { return strings.Compare(a.Name(), b.Name()) })
	return out
}

// leftOut returns the objects with errors.
func leftOut(found []diag.Diagnostic) map[diag.Object]bool {
	out := map[diag.Object]bool{}
	for _, d := range found {
		if d.Severity == diag.Error {
			out[d.Object] = true
		}
	}
	return out
}

// note returns the fault, its place, and the hint.
func note(d diag.Diagnostic) string {
	text := d.Message
	if d.Position.File == "" && d.Position.Field != "" {
		text = d.Position.Field + ": " + text
	}
	if d.Hint != "" {
		text += "; hint: " + d.Hint
	}
	return events.Note(text)
}

// references returns the references by which Events name those objects of a cluster that are wanted. Few of a hundred
// thousand are.
func references(in inputs.Inputs, wanted map[diag.Object]bool) map[diag.Object]corev1.ObjectReference {
	if len(wanted) == 0 {
		return nil
	}
	r := referring{wanted, map[diag.Object]corev1.ObjectReference{}}
	networking, core := networkingv1.SchemeGroupVersion.String(), corev1.SchemeGroupVersion.String()
	refer(r, networking, in.Ingresses)
	refer(r, networking, in.Broken)
	refer(r, networking, in.Classes)
	refer(r, core, in.Services)
	refer(r, core, in.Secrets)
	refer(r, core, in.ConfigMaps)
	for _, o := range in.Gateway.Each() {
		if o.At == nil {
			r.to(inputs.GatewayVersion, o.Ref, o.Value)
		}
	}
	for _, o := range in.Others {
		refer(r, o.Value.GetAPIVersion(), []inputs.Object[unstructured.Unstructured]{o})
	}
	return r.found
}

// referring collects references to wanted objects.
type referring struct {
	wanted map[diag.Object]bool
	found  map[diag.Object]corev1.ObjectReference
}

func refer[T any](r referring, apiVersion string, objects []inputs.Object[T]) {
	for _, o := range objects {
		if m, ok := any(o.Value).(metav1.Object); ok && o.At == nil { // not from a file
			r.to(apiVersion, o.Ref, m)
		}
	}
}

func (r referring) to(apiVersion string, ref diag.Object, m metav1.Object) {
	if m.GetUID() != "" && r.wanted[ref] {
		r.found[ref] = corev1.ObjectReference{APIVersion: apiVersion, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name, UID: m.GetUID()}
	}
}
