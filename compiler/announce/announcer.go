// Package announce reports to a cluster what became of its objects: Events on objects that were left
// out, or have a fault, or are good again; the addresses at which Ingresses are served, in their
// status; the status of Gateways and their routes; and the Services of Gateways that have addresses of their own.
//
// Pure functions decide what to report from the last compile and the last publish: [Events],
// [Addresses] and the ledgers of what was written. Only the leader writes, at a bounded rate, and
// nothing twice: the name of an Event is made of its content, so that another leader, or the same one
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
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/dynamic"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryv1 "k8s.io/client-go/kubernetes/typed/discovery/v1"
	eventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	networkingv1 "k8s.io/client-go/kubernetes/typed/networking/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/events"
)

// manager is the field manager of the statuses.
const manager = "hapsnap-compiler"

// How often the statuses are written, in requests each second, and how many at once.
const statusRate, statusBurst = 10, 50

// Options are those of an [Announcer]. All fields are needed, except Dynamic and Fleet. Without Dynamic nothing of the
// Gateway API is written.
type Options struct {
	Events    eventsv1.EventsGetter
	Ingresses networkingv1.IngressesGetter
	Dynamic   dynamic.Interface
	Services  corev1.ServicesGetter
	Slices    discoveryv1.EndpointSlicesGetter
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

	mu     sync.Mutex
	bad    map[diag.Object]bool // left out by the last compile
	desire desire
	marks  marks
}

// New returns an announcer, which writes once it is run.
func New(o Options) *Announcer {
	a := &Announcer{
		options: o, metrics: newMetrics(o.Metrics), marks: marks{},
		limit: flowcontrol.NewTokenBucketRateLimiter(statusRate, statusBurst),
		events: events.New(events.Options{
			Program: "compiler", Events: o.Events, Leader: o.Leader, Instance: o.Instance, Log: o.Log, Metrics: o.Metrics,
		}),
	}
	if o.Dynamic != nil {
		a.gateways = newGatewayStatuses(o)
		a.services = newGatewayServices(o, a.gateways.again)
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
	a.marks.keep(in)
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
