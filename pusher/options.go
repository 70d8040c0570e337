package pusher

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/client-go/kubernetes"

	"github.com/hapsnap/hapsnap/internal/credentials"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/core"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/notify"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// Store is what the pusher needs of a snapshot store. It holds no method that
// could publish or delete one.
type Store interface {
	// View returns the names of all snapshots and the channel. It is called often.
	View(ctx context.Context) (channel.View, error)
	// Get returns a snapshot, verified.
	Get(ctx context.Context, id snapshots.ID) (snapshots.Snapshot, error)
	// UpdateChannel changes the channel, with edit called until no other writer
	// came in between.
	UpdateChannel(ctx context.Context, subject string, now time.Time, edit func(*channel.Channel) error) error
}

// Cluster is what the pusher needs of a cluster: the EndpointSlices and Secrets that
// the snapshots in use name. See [cluster.Cluster].
type Cluster interface {
	// Run follows what is wanted until ctx is done.
	Run(ctx context.Context)
	// Want says what is needed from now on.
	Want(w cluster.Wanted)
	// Changes sends when Take has something new, which is what changed since.
	Changes() <-chan struct{}
	Take() cluster.Change
}

// Options say what a pusher works on.
type Options struct {
	Store Store
	// Fleet is the file that lists the instances; it is watched.
	Fleet string
	// Pods returns a client of the cluster in which a fleet's pods are. It is asked for
	// one where the fleet's file speaks of pods; nil: there is no cluster.
	Pods func() (kubernetes.Interface, error)
	// MakeCredentials are the names of Secrets that the fleet's file names for its pods, and
	// that this pusher fills and renews; their metrics may be nil.
	MakeCredentials    []string
	CredentialsMetrics *credentials.Metrics
	// Live is the directory with the manifests of EndpointSlices and Secrets; it is
	// watched.
	Live string
	// Cluster is where they come from if there is no such directory. Snapshots with
	// endpoints recorded in them get those; so do all where there is neither.
	Cluster Cluster
	// RefuseEndpoints are the networks that no EndpointSlice of a cluster may name, besides
	// the addresses of the instances' Dataplane APIs; none: nothing is refused.
	// AllowEndpoints are used all the same.
	RefuseEndpoints, AllowEndpoints []netip.Prefix
	// RefuseInManifests has these networks refused in manifests and among recorded endpoints of a
	// pusher without a cluster, too.
	RefuseInManifests bool
	// Identity is a file of age identities, which open what certificates are sealed in;
	// it is read whenever something is to be opened. "" is none.
	Identity string
	// State is the file that holds the state; next to it is the fallback certificate.
	State string
	// StateStore keeps both elsewhere; nil: there is the file.
	StateStore StateStore
	// Cache is the directory that keeps the snapshots in use, so that they are at hand
	// when the store is gone. "" is the name of the state file with ".snapshots" appended,
	// and none where there is no such file.
	Cache string
	// Leader says whether this pusher, of several, is the one that pushes; nil: there is
	// only one. It takes a StateStore.
	Leader Leader

	// TakeOver has this pusher take the place of another one with a state of its own that
	// leads instances of the fleet, when it meets them. Without it nothing is written to
	// these.
	TakeOver bool

	// Waves and Soak, where set, come before what the fleet's file says.
	Waves []rollout.Size
	Soak  *time.Duration

	// PollInterval is how often the store and each instance are asked.
	PollInterval time.Duration
	// ReloadTimeout is how long a reload of HAProxy may take.
	ReloadTimeout time.Duration
	// DrainTime is how long the server of an endpoint that is gone is drained.
	DrainTime time.Duration
	// PersistInterval is how often at most the file on an instance's disk is
	// brought up to date with servers that were changed at run time.
	PersistInterval time.Duration
	// InspectInterval is how often the files on an instance's disk and the servers in
	// its worker are compared with what was left there.
	InspectInterval time.Duration
	// CollectAfter is how long a file on an instance is kept that no snapshot in
	// use needs.
	CollectAfter time.Duration

	Log     *slog.Logger
	Metrics prometheus.Registerer // nil: none
	Tracers trace.TracerProvider  // nil: none
	// Notify is called with what people may want to hear of, and must not block; nil:
	// nobody.
	Notify func(notify.Notice)
	// Events says of the objects of a cluster what becomes of them; nil: nobody does.
	Events observe.Events
	// Status is called with each new status; nil: nobody.
	Status func(report.Status)
	// Watch is called after each step with what is known then, and what has happened. It must not
	// block, and keep nothing of the view, which the next step changes; nil: nobody watches.
	Watch func(v observe.View, s report.Status, told []observe.Told)
	// Directory learns whom to ask about workers; nil: nobody asks.
	Directory *instance.Directory
	// Page is where other pushers find the page of this one, an address and a port; "" for nowhere.
	Page string
	// Report writes the status of the fleet where others read it. It is called when
	// something differs, at most every two seconds, and once a minute; nil: nobody.
	Report func(ctx context.Context, p report.Published) error

	// Journal keeps the turns of rollouts; nil: nobody does. Nothing waits for it.
	Journal Journal

	// EventLog is a file for what is heard and decided, to be replayed; "" is none. It has no
	// secrets. What it had from the run before is in another with ".1" appended.
	EventLog string
	// eventsTo gets its lines, and waits for nothing.
	eventsTo func(line []byte)

	// http is what instances are asked with; nil: a client of its own for each. Tests have
	// instances in memory.
	http *http.Client
	// watch says when files or directories change; nil: the kernel is asked. Tests have a
	// clock of their own, which the kernel does not know.
	watch func(ctx context.Context, paths ...string) <-chan struct{}
}

// settings returns those of the machine.
func (o Options) settings() core.Settings {
	return core.Settings{
		Source: o.endpointsFrom(), StateElsewhere: o.StateStore != nil, Cache: o.cache(), Page: o.Page, Identity: o.Identity != "",
		RefuseEndpoints: o.RefuseEndpoints, AllowEndpoints: o.AllowEndpoints, RefuseInManifests: o.RefuseInManifests,
		Waves: o.Waves, Soak: o.Soak, PollInterval: o.PollInterval, DrainTime: o.DrainTime, PersistInterval: o.PersistInterval,
		InspectInterval: o.InspectInterval, CollectAfter: o.CollectAfter,
	}
}

// endpointsFrom returns where endpoints come from.
func (o Options) endpointsFrom() binding.Source {
	switch {
	case o.Live != "":
		return binding.FromDirectory
	case o.Cluster != nil:
		return binding.FromCluster
	}
	return binding.FromSnapshots
}

// connectionOptions returns those of connections to instances.
func (o Options) connectionOptions() instance.Options {
	return instance.Options{PollInterval: o.PollInterval, ReloadTimeout: o.ReloadTimeout, HTTP: o.http, Directory: o.Directory}
}

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, usual time.Duration) {
		if *d <= 0 {
			*d = usual
		}
	}
	set(&o.PollInterval, time.Second)
	set(&o.ReloadTimeout, 30*time.Second)
	set(&o.DrainTime, 30*time.Second)
	set(&o.PersistInterval, 5*time.Second)
	set(&o.InspectInterval, time.Minute)
	set(&o.CollectAfter, time.Hour)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.watch == nil {
		o.watch = func(ctx context.Context, paths ...string) <-chan struct{} { return manifests.Watch(ctx, paths, o.Log) }
	}
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	if o.Notify == nil {
		o.Notify = func(notify.Notice) {}
	}
	if o.Tracers == nil {
		o.Tracers = noop.NewTracerProvider()
	}
	return o
}

// observed says whom the pusher tells what.
func (o Options) observed() observe.Options {
	return observe.Options{Log: o.Log, Metrics: o.Metrics, Tracers: o.Tracers, Notify: o.Notify, Events: o.Events, Status: o.Status, Report: o.Report}
}
