// Package cluster follows the EndpointSlices and Secrets of a Kubernetes cluster
// that snapshots name, and says what changed: one cache for all instances.
//
// The snapshots in use decide what it watches ([Plan]): the EndpointSlices of their
// namespaces, and each Secret by its name. [EndpointRules] and [SecretRules] have the permissions
// that this takes. The package keeps only the fields of objects that it uses.
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
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"

	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/kubewatch"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/live"
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
	// Each watch would keep a decompressor, which takes 47 kB, and each Secret has a watch of its own.
	config.DisableCompression = true
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

// service names a Service.
type service struct{ namespace, name string }

// index is the EndpointSlices by Service, with the endpoints that were made of
// them. A change costs what its Service has.
type index struct {
	slices    map[service]map[string]*discoveryv1.EndpointSlice // by namespace/name
	services  map[string]service                                // of each slice
	endpoints map[service]map[snapshots.ServicePort][]snapshots.Endpoint
	// dirty are the Services of which slices changed since take, and when they did.
	dirty map[service][]time.Time
	// unsaid are the Services without a slice of which the last was missing in a list:
	// nobody said that it was deleted.
	unsaid map[service]bool
}

func newIndex() *index {
	return &index{
		slices: map[service]map[string]*discoveryv1.EndpointSlice{}, services: map[string]service{},
		endpoints: map[service]map[snapshots.ServicePort][]snapshots.Endpoint{}, dirty: map[service][]time.Time{}, unsaid: map[service]bool{},
	}
}

// put takes in a slice that is new or changed.
func (x *index) put(key string, s *discoveryv1.EndpointSlice, now time.Time) {
	of := service{s.Namespace, s.Labels[discoveryv1.LabelServiceName]}
	var old *discoveryv1.EndpointSlice
	if was, known := x.services[key]; known {
		old = x.slices[was][key]
		if was != of {
			x.remove(key, now, false)
		}
	}
	delete(x.unsaid, of)
	if x.slices[of] == nil {
		x.slices[of] = map[string]*discoveryv1.EndpointSlice{}
	}
	x.slices[of][key], x.services[key] = s, of
	x.touch(of, changedAt(old, s, now))
}

// remove forgets a slice that is gone: deleted, or missing in a list.
func (x *index) remove(key string, now time.Time, missing bool) {
	of, known := x.services[key]
	if !known {
		return
	}
	delete(x.services, key)
	if delete(x.slices[of], key); len(x.slices[of]) == 0 {
		delete(x.slices, of)
		if delete(x.unsaid, of); missing {
			x.unsaid[of] = true
		}
	}
	x.touch(of, now)
}

// touch notes that a Service has other slices, since a time unless that is zero.
func (x *index) touch(of service, at time.Time) {
	times := x.dirty[of]
	if !at.IsZero() && len(times) < maxTimes {
		times = append(times, at)
	}
	x.dirty[of] = times
}

// maxTimes bounds how many changes of one Service are told apart before somebody
// asks for them.
const maxTimes = 16

// take puts into a change the endpoints of each Service port that has others than when
// take was called last, nil for one that has none any more, and when they changed.
func (x *index) take(out *Change) {
	changed, since := map[snapshots.ServicePort][]snapshots.Endpoint{}, []time.Time(nil)
	out.Seen, out.Unsaid = map[types.NamespacedName]bool{}, map[snapshots.ServicePort]bool{}
	for of, times := range x.dirty {
		if len(x.slices[of]) > 0 {
			out.Seen[types.NamespacedName{Namespace: of.namespace, Name: of.name}] = true
		}
		old, now := x.endpoints[of], live.Endpoints(slicesOf(x.slices[of]))
		differ := difference(old, now)
		if len(differ) == 0 {
			continue
		}
		maps.Copy(changed, differ)
		for port := range differ {
			if x.unsaid[of] {
				out.Unsaid[port] = true
			}
		}
		since = append(since, times...)
		if x.endpoints[of] = now; len(now) == 0 {
			delete(x.endpoints, of)
		}
	}
	clear(x.dirty)
	slices.SortFunc(since, time.Time.Compare)
	out.Endpoints, out.Since = changed, since
}

func slicesOf(of map[string]*discoveryv1.EndpointSlice) []discoveryv1.EndpointSlice {
	out := make([]discoveryv1.EndpointSlice, 0, len(of))
	for _, s := range of {
		out = append(out, *s)
	}
	return out
}

// difference returns what the ports have now that had something else before.
func difference(old, now map[snapshots.ServicePort][]snapshots.Endpoint) map[snapshots.ServicePort][]snapshots.Endpoint {
	out := map[snapshots.ServicePort][]snapshots.Endpoint{}
	for port, endpoints := range now {
		if before, known := old[port]; !known || !slices.Equal(before, endpoints) {
			out[port] = endpoints
		}
	}
	for port := range old {
		if _, still := now[port]; !still {
			out[port] = nil
		}
	}
	return out
}

// triggerAnnotation is when the pod or Service changed for the sake of which an
// EndpointSlice was written, as the cluster's controller says.
const triggerAnnotation = "endpoints.kubernetes.io/last-change-trigger-time"

// maxTriggerAge is how old the time of a change may be to be taken for that of the
// one that is just seen.
const maxTriggerAge = 10 * time.Minute

// trim returns an object with nothing but what is made of it. The API server's
// version stays, for the reflector goes on from it.
func trim(o any) (any, error) {
	switch o := o.(type) {
	case *discoveryv1.EndpointSlice:
		out := &discoveryv1.EndpointSlice{
			ObjectMeta: trimMeta(o.ObjectMeta), AddressType: o.AddressType,
			Ports: o.Ports, Endpoints: make([]discoveryv1.Endpoint, len(o.Endpoints)),
		}
		out.Labels = only(o.Labels, discoveryv1.LabelServiceName)
		out.Annotations = only(o.Annotations, triggerAnnotation)
		for i, e := range o.Endpoints {
			out.Endpoints[i] = discoveryv1.Endpoint{Addresses: e.Addresses[:min(len(e.Addresses), 1):1], Conditions: e.Conditions}
		}
		return out, nil
	case *corev1.Secret:
		return &corev1.Secret{ObjectMeta: trimMeta(o.ObjectMeta), Type: o.Type, Data: o.Data}, nil
	}
	return o, nil
}

func trimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
}

// only returns the entry of one key, if there is one.
func only(m map[string]string, key string) map[string]string {
	if value, ok := m[key]; ok {
		return map[string]string{key: value}
	}
	return nil
}

// changedAt returns when a slice changed: when the cluster says that the cause
// happened, if it says so of this change, else when it is seen; zero stays zero.
func changedAt(old, s *discoveryv1.EndpointSlice, now time.Time) time.Time {
	text := s.Annotations[triggerAnnotation]
	if now.IsZero() || text == "" || (old != nil && old.Annotations[triggerAnnotation] == text) {
		return now
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || at.After(now) || now.Sub(at) > maxTriggerAge {
		return now
	}
	return at
}
