// Package cluster follows the EndpointSlices and Secrets of a Kubernetes cluster
// that snapshots name, and says what changed: one cache for all instances.
//
// The snapshots in use decide what it watches ([Plan]): the EndpointSlices of their
// namespaces, and each Secret by its name. [Rules] has the permissions that the same plan
// needs, and no others. The package keeps only the fields of objects that it uses.
//
// It promises to keep objects as they were while they cannot be reached: an object is gone
// only if the API server says so. It tells an object that was deleted from one that was
// missing in a list ([Change.Unsaid]). The caller decides which of that to believe, and
// what to do about a change or a broken Secret.
package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"

	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/kubewatch"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Cluster is the objects of a cluster. Nothing is known of them until
// [Cluster.Run] runs and [Cluster.Want] said what to look for. Its methods may be
// called at the same time.
type Cluster struct {
	name          string
	allNamespaces bool
	changed       chan struct{}
	watches       *kubewatch.Set

	// The lock of watches guards what follows.
	slices  *index
	secrets map[snapshots.SecretName]*corev1.Secret // changed since Take; nil: gone
	missing map[snapshots.SecretName]bool           // of these, since a list came without them
	since   []time.Time                             // when they did
	news    bool                                    // the status may be another one
}

// New returns the cluster that a connection leads to. With allNamespaces, one watch
// has the EndpointSlices of them all.
func New(connection Connection, allNamespaces bool) *Cluster {
	c := &Cluster{name: connection.Name, allNamespaces: allNamespaces, changed: make(chan struct{}, 1)}
	c.forget()
	c.watches = kubewatch.New(kubewatch.Options{
		Open:    connection.open,
		Convert: func(kubewatch.Query) func(any) (any, error) { return trim },
		Handle:  c.handle,
		Stands: func() {
			c.news = true
			kubewatch.Signal(c.changed)
		},
		Ended: c.forget,
	})
	return c
}

// String names the cluster.
func (c *Cluster) String() string { return c.name }

// Want says what is needed from now on, in place of what was said before. What is
// needed no longer is forgotten.
func (c *Cluster) Want(w Wanted) { c.watches.Plan(Plan(w, c.allNamespaces)) }

// Run watches what is wanted, until ctx is done. Then nothing is known any more, and it
// may run again. What is in the way is told by the status.
func (c *Cluster) Run(ctx context.Context) { c.watches.Run(ctx, slog.New(slog.DiscardHandler)) }

// forget makes the cluster one of which nothing is known.
func (c *Cluster) forget() {
	c.slices, c.news = newIndex(), false
	c.secrets, c.missing, c.since = map[snapshots.SecretName]*corev1.Secret{}, map[snapshots.SecretName]bool{}, nil
}

// handle takes in what happened to an object.
func (c *Cluster) handle(e kubewatch.Event) {
	switch object := e.Object.(type) {
	case *discoveryv1.EndpointSlice:
		c.slices.put(e.Name.String(), object, e.At)
	case *corev1.Secret:
		c.note(snapshots.SecretName(e.Name), object, e.At)
	case nil:
		if e.Query.Kind == kindSlice {
			c.slices.remove(e.Name.String(), e.At, e.Missing)
			break
		}
		c.note(snapshots.SecretName(e.Name), nil, e.At)
		c.missing[snapshots.SecretName(e.Name)] = e.Missing
	}
	kubewatch.Signal(c.changed)
}

// note notes what a Secret is now; nil: it is gone.
func (c *Cluster) note(name snapshots.SecretName, s *corev1.Secret, at time.Time) {
	c.secrets[name] = s
	delete(c.missing, name)
	if !at.IsZero() {
		c.since = append(c.since, at)
	}
}

// Changes sends when Take has something new.
func (c *Cluster) Changes() <-chan struct{} { return c.changed }

// Change is what changed since the one before.
type Change struct {
	// Endpoints are those of each Service port that has others than before, nil for
	// one that has none any more.
	Endpoints map[snapshots.ServicePort][]snapshots.Endpoint
	// Unsaid are those of them that have none any more since a list came without their
	// EndpointSlices. Nobody said that these were deleted.
	Unsaid map[snapshots.ServicePort]bool
	// Seen are the Services whose EndpointSlices changed and that still have some, with or
	// without endpoints.
	Seen map[types.NamespacedName]bool
	// Secrets are those that changed, nil for one that is not there any more.
	Secrets map[snapshots.SecretName]*corev1.Secret
	// Missing are those of them that are not there any more since a list came without them.
	Missing map[snapshots.SecretName]bool
	// Since are the times of the changes, as far as they can be told.
	Since []time.Time
	// Status is what is known now, nil if that is what was known before.
	Status *Status
}

// Take returns what changed since it was called last.
func (c *Cluster) Take() (out Change) {
	c.watches.Read(func(list []kubewatch.QueryState) {
		if c.news {
			status := statusOf(c.allNamespaces, list)
			out.Status, c.news = &status, false
		}
		c.slices.take(&out)
		out.Secrets, out.Missing, out.Since = c.secrets, c.missing, append(out.Since, c.since...)
		c.secrets, c.missing, c.since = map[snapshots.SecretName]*corev1.Secret{}, map[snapshots.SecretName]bool{}, nil
	})
	return out
}

// Connection is how an API server is reached.
type Connection struct {
	Name           string // for people
	EndpointSlices discoveryclient.EndpointSlicesGetter
	Secrets        coreclient.SecretsGetter
}

// Connect prepares a connection. Nothing is sent yet.
func Connect(o kubeconfig.Options) (Connection, error) {
	config, err := o.Load()
	if err != nil {
		return Connection{}, err
	}
	// Protobuf costs both sides less than JSON.
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	discovery, err := discoveryclient.NewForConfig(config)
	if err != nil {
		return Connection{}, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	core, err := coreclient.NewForConfig(config)
	if err != nil {
		return Connection{}, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return Connection{Name: config.Host, EndpointSlices: discovery, Secrets: core}, nil
}

// open returns how the objects of a query are listed.
func (c Connection) open(_ context.Context, q kubewatch.Query) (kubewatch.Resource, bool, error) {
	if q.Kind == kindSecret {
		return kubewatch.Typed(c.Secrets.Secrets(q.Namespace)), true, nil
	}
	return kubewatch.Typed(c.EndpointSlices.EndpointSlices(q.Namespace)), true, nil
}

// What the metrics are called, and say.
var (
	watchesDescription  = prometheus.NewDesc("hapsnap_pusher_watches", "Lists of objects of the cluster that are watched, by kind.", []string{"kind"}, nil)
	troublesDescription = prometheus.NewDesc("hapsnap_pusher_watches_interrupted", "Lists of which nothing new is heard, by kind; what was known is held.", []string{"kind"}, nil)
)

// Describe and Collect are those of [prometheus.Collector].
func (c *Cluster) Describe(out chan<- *prometheus.Desc) {
	out <- watchesDescription
	out <- troublesDescription
}

// Collect counts the queries and those that are in trouble.
func (c *Cluster) Collect(out chan<- prometheus.Metric) {
	watches := map[string]int{kindSlice: 0, kindSecret: 0}
	troubles := map[string]int{}
	c.watches.Read(func(list []kubewatch.QueryState) {
		for _, s := range list {
			if watches[s.Query.Kind]++; s.Err != nil {
				troubles[s.Query.Kind]++
			}
		}
	})
	for kind, n := range watches {
		out <- prometheus.MustNewConstMetric(watchesDescription, prometheus.GaugeValue, float64(n), kind)
		out <- prometheus.MustNewConstMetric(troublesDescription, prometheus.GaugeValue, float64(troubles[kind]), kind)
	}
}
