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
	"cmp"
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
	kubeconfig.Protobuf(config)
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

// index is the EndpointSlices by Service, as the endpoints that were made of them. A change costs
// what its Service has. It keeps no objects: there may be many thousands.
type index struct {
	slices    map[service][]known
	services  map[string]service // of each slice, by namespace/name
	endpoints map[service][]portEndpoints
	// dirty are the Services of which slices changed since take, and when they did.
	dirty map[service][]time.Time
	// unsaid are the Services without a slice of which the last was missing in a list:
	// nobody said that it was deleted.
	unsaid map[service]bool
}

// known is what is kept of a slice.
type known struct {
	key       string // namespace/name
	trigger   string // see changedAt
	endpoints []portEndpoints
}

// portEndpoints are the endpoints of a Service port. Lists of them are sorted by the port. They take
// a tenth of the memory of a map with one port.
type portEndpoints struct {
	port      snapshots.ServicePort
	endpoints []snapshots.Endpoint
}

func newIndex() *index {
	return &index{
		slices: map[service][]known{}, services: map[string]service{},
		endpoints: map[service][]portEndpoints{}, dirty: map[service][]time.Time{}, unsaid: map[service]bool{},
	}
}

// put takes in a slice that is new or changed.
func (x *index) put(key string, s *discoveryv1.EndpointSlice, now time.Time) {
	of := service{s.Namespace, s.Labels[discoveryv1.LabelServiceName]}
	trigger := ""
	if was, there := x.services[key]; there {
		trigger = x.slices[was][x.at(was, key)].trigger
		if was != of {
			x.remove(key, now, false)
		}
	}
	delete(x.unsaid, of)
	k := known{key, s.Annotations[triggerAnnotation], sortedPorts(live.Endpoints([]discoveryv1.EndpointSlice{*s}))}
	if n := x.at(of, key); n < 0 {
		x.slices[of] = append(x.slices[of], k)
	} else {
		x.slices[of][n] = k
	}
	x.services[key] = of
	x.touch(of, changedAt(trigger, k.trigger, now))
}

// at returns the place of a slice among those of its Service, -1 for none.
func (x *index) at(of service, key string) int {
	return slices.IndexFunc(x.slices[of], func(k known) bool { return k.key == key })
}

// remove forgets a slice that is gone: deleted, or missing in a list.
func (x *index) remove(key string, now time.Time, missing bool) {
	of, there := x.services[key]
	if !there {
		return
	}
	delete(x.services, key)
	n := x.at(of, key)
	if x.slices[of] = slices.Delete(x.slices[of], n, n+1); len(x.slices[of]) == 0 {
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
		old, now := x.endpoints[of], joined(x.slices[of])
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

// sortedPorts returns endpoints as a list.
func sortedPorts(endpoints map[snapshots.ServicePort][]snapshots.Endpoint) []portEndpoints {
	out := make([]portEndpoints, 0, len(endpoints))
	for _, port := range slices.SortedFunc(maps.Keys(endpoints), snapshots.ServicePort.Compare) {
		out = append(out, portEndpoints{port, endpoints[port]})
	}
	return out
}

// joined returns the endpoints of slices of a Service, as [live.Endpoints] does for all of them together: sorted and each
// once, and draining if no slice calls it ready.
func joined(of []known) []portEndpoints {
	if len(of) == 1 {
		return of[0].endpoints // nearly always
	}
	all := map[snapshots.ServicePort][]snapshots.Endpoint{}
	for _, k := range of {
		for _, p := range k.endpoints {
			all[p.port] = append(all[p.port], p.endpoints...)
		}
	}
	for port, list := range all {
		slices.SortFunc(list, func(a, b snapshots.Endpoint) int {
			return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port), ready(a)-ready(b))
		})
		all[port] = slices.CompactFunc(list, func(a, b snapshots.Endpoint) bool { return a.Address == b.Address && a.Port == b.Port })
	}
	return sortedPorts(all)
}

// ready orders endpoints, those that are ready first.
func ready(e snapshots.Endpoint) int {
	if e.Draining {
		return 1
	}
	return 0
}

// difference returns what the ports have now that had something else before.
func difference(old, now []portEndpoints) map[snapshots.ServicePort][]snapshots.Endpoint {
	out := map[snapshots.ServicePort][]snapshots.Endpoint{}
	for _, p := range old {
		out[p.port] = nil
	}
	for _, p := range now {
		out[p.port] = p.endpoints
	}
	for _, p := range old {
		if list, still := out[p.port]; still && list != nil && slices.Equal(p.endpoints, list) {
			delete(out, p.port)
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

// changedAt returns when a slice changed: when the cluster says that the cause happened, if it says so of this change and
// not of the one before, else when it is seen; zero stays zero.
func changedAt(before, text string, now time.Time) time.Time {
	if now.IsZero() || text == "" || before == text {
		return now
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || at.After(now) || now.Sub(at) > maxTriggerAge {
		return now
	}
	return at
}
