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

// Store is what the pusher needs of a snapshot store. No method of it publishes or deletes a
// snapshot.
type Store interface {
	// View returns the names of all snapshots and the channel. It is called often.
	View(ctx context.Context) (channel.View, error)
	// Get returns a snapshot, verified.
	Get(ctx context.Context, id snapshots.ID) (snapshots.Snapshot, error)
	// UpdateChannel changes the channel. It calls edit again if another writer changed the channel
	// meanwhile.
	UpdateChannel(ctx context.Context, subject string, now time.Time, edit func(*channel.Channel) error) error
}

// Cluster is what the pusher needs of a cluster: the EndpointSlices and Secrets that
// the snapshots in use name. See [cluster.Cluster].
type Cluster interface {
	// Run watches what is wanted until ctx is done.
	Run(ctx context.Context)
	// Want says what to watch from now on.
	Want(w cluster.Wanted)
	// Changes sends when there are changes to take.
	Changes() <-chan struct{}
	// Take returns what changed since the last call.
	Take() cluster.Change
}

// Options say what a pusher works on.
type Options struct {
	Store Store
	// Fleet is the file that lists the instances; it is watched.
	Fleet string
	// Pods returns a client of the cluster in which a fleet's pods are. It is called if the fleet's
	// file has pods. Nil means that there is no cluster.
	Pods func() (kubernetes.Interface, error)
	// MakeCredentials names Secrets of the fleet's file that this pusher fills and renews. Their
	// metrics may be nil.
	MakeCredentials    []string
	CredentialsMetrics *credentials.Metrics
	// Live is the directory with the manifests of EndpointSlices and Secrets; it is
	// watched.
	Live string
	// Cluster has EndpointSlices and Secrets if Live is "". A snapshot with recorded endpoints then
	// gets those. Without Live and Cluster all snapshots get their recorded endpoints.
	Cluster Cluster
	// RefuseEndpoints are networks that no EndpointSlice of a cluster may name. If there are any, the
	// addresses of the instances' Dataplane APIs are refused, too. AllowEndpoints are exceptions.
	RefuseEndpoints, AllowEndpoints []netip.Prefix
	// RefuseInManifests refuses these networks also in manifests, and among recorded endpoints of a
	// pusher without a cluster.
	RefuseInManifests bool
	// Identity is a file of age identities that decrypt sealed certificates. It is read each time. ""
	// is none.
	Identity string
	// State is the file that holds the state; next to it is the fallback certificate.
	State string
	// StateStore keeps both elsewhere. Nil means the file.
	StateStore StateStore
	// Cache is the directory that keeps the snapshots in use, for restarts while the store is gone. ""
	// is the name of the state file with ".snapshots" appended, or no directory with a StateStore.
	Cache string
	// Leader elects one of several pushers, and needs a StateStore. Nil means that there is only one.
	Leader Leader

	// TakeOver makes this pusher take over instances of the fleet that a pusher with another state
	// leads. Without it nothing is written to these instances.
	TakeOver bool

	// Waves and Soak, if set, override the fleet's file.
	Waves []rollout.Size
	Soak  *time.Duration

	// PollInterval is how often the pusher looks into the store and probes each instance.
	PollInterval time.Duration
	// ReloadTimeout is how long a reload of HAProxy may take.
	ReloadTimeout time.Duration
	// DrainTime is how long the server of an endpoint that is gone is drained.
	DrainTime time.Duration
	// PersistInterval is the least time between two writes of servers that were changed at run time to
	// the file on an instance's disk. It is longer for an instance where a write takes long: nine times that, and two
	// minutes at most.
	PersistInterval time.Duration
	// InspectInterval is how often the pusher compares the files on an instance's disk and the servers
	// in its worker with what it left there.
	InspectInterval time.Duration
	// CollectAfter is how long an instance keeps a file that no snapshot in use needs.
	CollectAfter time.Duration

	Log     *slog.Logger
	Metrics prometheus.Registerer // nil: none
	Tracers trace.TracerProvider  // nil: none
	// Notify is called with notices for people. It must not block. It may be nil.
	Notify func(notify.Notice)
	// Events makes Events on objects of a cluster. It may be nil.
	Events observe.Events
	// Status is called with each new status. It may be nil.
	Status func(report.Status)
	// Watch is called after each step with the view, the status and the facts of the step. It must not
	// block, and must not keep parts of the view, which the next step changes. It may be nil.
	Watch func(v observe.View, s report.Status, facts []observe.TimedFact)
	// Directory gets the clients of the instances, for those who only look. It may be nil.
	Directory *instance.Directory
	// Page is the address and port at which other pushers find the page of this one, "" for none.
	Page string
	// Report writes the status of the fleet to a place where others read it. It is called after a
	// change, at most every two seconds, and once a minute. It may be nil.
	Report func(ctx context.Context, p report.Published) error

	// Journal keeps the entries about rollouts. Nothing waits for it. It may be nil.
	Journal Journal

	// EventLog is a file for the events and effects of this run, to replay them; "" is none. It
	// contains no secrets. The file of the run before is kept with ".1" appended.
	EventLog string
	// eventsTo takes the lines of the event log. It waits for nothing.
	eventsTo func(line []byte)

	// http is the client for all instances. Nil means one for each. Tests have instances in memory.
	http *http.Client
	// watch reports changes of files or directories. Nil means that it asks the kernel. Tests have a
	// clock of their own, which the kernel does not know.
	watch func(ctx context.Context, paths ...string) <-chan struct{}
}

// settings returns the settings of the machine.
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

// connectionOptions returns the options of connections to instances.
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

// observed returns the options of package observe.
func (o Options) observed() observe.Options {
	return observe.Options{Log: o.Log, Metrics: o.Metrics, Tracers: o.Tracers, Notify: o.Notify, Events: o.Events, Status: o.Status, Report: o.Report}
}
