// Package cluster reads the objects of a compile from a Kubernetes cluster, and
// keeps them up to date by watching.
//
// The configuration and the names that compiles found decide what is watched ([Plan]). The RBAC rules are made from the
// same plan, so that the compiler may read exactly this (kubewatch.Rules). Objects are held as compiles read them, without the
// fields that no compile uses.
//
// The package returns no objects before all of them are known. If the API server cannot be reached any more, it keeps the
// objects as they were: only the API server says that an object is gone. Other packages write to the cluster.
//
// # Decisions
//
// Objects of a cluster are held by reflectors, one for each query, not by shared
// informers, of which they are the core: nothing here handles single events, and the
// Secrets that are read by name may be thousands. What the API server sends is converted
// and trimmed before it is held. A change that no compile can see, such as that of a
// status, makes no compile.
package cluster

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/kubewatch"
	"github.com/hapsnap/hapsnap/internal/printable"
)

// Cluster is the objects of a cluster. Nothing is known of them until [Cluster.Run]
// runs. Its methods may be called at the same time.
type Cluster struct {
	name    string
	watches *kubewatch.Set

	mu     sync.Mutex
	config config.Config
	next   *config.Config // the one of Prepare
	asked  routing.Asked
	orders map[kubewatch.Query]*order // of queries for many objects
}

// New returns the cluster that a connection leads to.
func New(c Connection) *Cluster {
	return &Cluster{name: c.Name, watches: newSet(c), orders: map[kubewatch.Query]*order{}}
}

// newSet returns watches whose objects are converted for compiles.
func newSet(c Connection) *kubewatch.Set {
	return kubewatch.New(kubewatch.Options{
		Open:    resolver{c.Discovery, c.Dynamic, c.Lists, c.Single}.open,
		Convert: func(q kubewatch.Query) func(any) (any, error) { return converterFor(q).object },
		Equal:   equal,
	})
}

// String names the cluster.
func (c *Cluster) String() string { return c.name }

// Run watches what the calls of Read and Complete ask for, until ctx is done.
func (c *Cluster) Run(ctx context.Context, log *slog.Logger) { c.watches.Run(ctx, log) }

// Read returns the objects that the configuration asks for, those of each query by namespace and name. The error wraps
// [inputs.ErrIncomplete] and says what is waited for until all of them are known.
func (c *Cluster) Read(_ context.Context, cfg config.Config) (inputs.Gathered, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil && reflect.DeepEqual(*c.next, cfg) {
		c.next = nil
	}
	c.plan(cfg, c.asked)
	var in inputs.Inputs
	var incomplete error
	c.watches.Read(func(list []kubewatch.QueryState) {
		list = c.askedBy(cfg, list)
		if incomplete = unsettled(list); incomplete != nil {
			return
		}
		before := c.orders
		c.orders = make(map[kubewatch.Query]*order, len(before))
		for _, s := range list {
			objects := maps.Values(s.Objects)
			if s.Query.Name == "" {
				known := cmp.Or(before[s.Query], &order{})
				c.orders[s.Query] = known
				objects = known.of(s.Objects)
			}
			for o := range objects {
				add(&in, s.Query, o)
			}
			if !s.Synced && !s.Absent { // settled, since it may not be read
				in.Unread = append(in.Unread, inputs.RefOf(s.Query.APIVersion, s.Query.Kind, s.Query.Namespace, s.Query.Name))
			}
		}
	})
	if incomplete != nil {
		return inputs.Gathered{}, incomplete
	}
	selector := inputs.NewSelector(cfg, in.Namespaces)
	return inputs.Gathered{Objects: selector.Objects(in)}, nil
}

// Prepare watches what another configuration asks for, too. The error wraps [inputs.ErrIncomplete] and says what is
// waited for until all of that is known. A Read with that configuration ends the preparation, as nil does.
func (c *Cluster) Prepare(next *config.Config) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = next
	c.plan(c.config, c.asked)
	if next == nil {
		return nil
	}
	var incomplete error
	c.watches.Read(func(list []kubewatch.QueryState) { incomplete = unsettled(c.askedBy(*next, list)) })
	return incomplete
}

// askedBy returns the queries that a configuration asks for. Only while another one is prepared, there may be more.
func (c *Cluster) askedBy(cfg config.Config, list []kubewatch.QueryState) []kubewatch.QueryState {
	if c.next == nil {
		return list
	}
	wanted := Plan(cfg, c.asked)
	return slices.DeleteFunc(list, func(s kubewatch.QueryState) bool {
		_, found := slices.BinarySearchFunc(wanted, s.Query, kubewatch.Query.Compare)
		return !found
	})
}

// unsettled returns an error that names the queries of which not everything is known, or nil.
func unsettled(list []kubewatch.QueryState) error {
	var missing []string
	for _, s := range list {
		if !settled(s) {
			missing = append(missing, s.Text())
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", inputs.ErrIncomplete, printable.Few(missing, maxShown))
}

// Complete records the names that a compile looked for, and reports whether all of these objects were known.
func (c *Cluster) Complete(named routing.Asked) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.plan(c.config, named)
}

// Await records more names that a compile looked for, and reports whether all of these objects were known.
func (c *Cluster) Await(named routing.Asked) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return named.Within(c.asked) || !c.plan(c.config, c.asked.And(named))
}

// Changes returns a channel that sends when the objects may differ from those read last.
func (c *Cluster) Changes(context.Context, *slog.Logger) <-chan struct{} { return c.watches.Changes() }

// plan makes a new plan, and reports whether it watches anything new.
func (c *Cluster) plan(cfg config.Config, asked routing.Asked) (added bool) {
	c.config, c.asked = cfg, asked
	queries := Plan(cfg, asked)
	if c.next != nil {
		queries = append(queries, Plan(*c.next, asked)...)
	}
	return c.watches.Plan(queries)
}

// settled reports whether nothing more can be known: all objects are known, or an optional kind does not exist, or the
// API server forbids reading a single object. The latter only harms the objects that name it.
func settled(s kubewatch.QueryState) bool {
	return s.Synced || s.Absent && s.Query.Optional || s.Query.Name != "" && s.Forbidden()
}

// maxShown is how many things a message lists.
const maxShown = 5

// What the metrics are called, and say.
var (
	watchesDescription  = prometheus.NewDesc("hapsnap_compiler_watches", "Lists of objects of the cluster that are watched, by kind.", []string{"kind"}, nil)
	troublesDescription = prometheus.NewDesc("hapsnap_compiler_watches_interrupted", "Lists of which nothing new is heard, by kind; what was known is held.", []string{"kind"}, nil)
)

// Describe and Collect are those of [prometheus.Collector]. Both metrics are there
// for every kind that is watched.
func (c *Cluster) Describe(out chan<- *prometheus.Desc) {
	out <- watchesDescription
	out <- troublesDescription
}

// Collect counts the queries and those that are in trouble.
func (c *Cluster) Collect(out chan<- prometheus.Metric) {
	watches, troubles := map[string]int{}, map[string]int{}
	c.watches.Read(func(list []kubewatch.QueryState) {
		for _, s := range list {
			if watches[s.Query.Kind]++; s.Trouble() != nil {
				troubles[s.Query.Kind]++
			}
		}
	})
	for kind, n := range watches {
		out <- prometheus.MustNewConstMetric(watchesDescription, prometheus.GaugeValue, float64(n), kind)
		out <- prometheus.MustNewConstMetric(troublesDescription, prometheus.GaugeValue, float64(troubles[kind]), kind)
	}
}

// Trouble is a query that gets no news. Its objects are kept as they were.
type Trouble struct {
	Query kubewatch.Query
	Err   error
	Since time.Time
}

// Troubles returns what is not heard of at present, in the order of the plan.
// Optional kinds that the cluster does not know are no trouble.
func (c *Cluster) Troubles() []Trouble {
	var out []Trouble
	c.watches.Read(func(list []kubewatch.QueryState) {
		for _, s := range list {
			if err := s.Trouble(); err != nil {
				out = append(out, Trouble{s.Query, err, s.Since})
			}
		}
	})
	return out
}

// Connection is how an API server is reached.
type Connection struct {
	Name      string // for people
	Config    *rest.Config
	Dynamic   dynamic.Interface
	Discovery discovery.DiscoveryInterface
	// Lists and Single read objects of the kinds that every cluster has: many, or one by its name. If they are nil, Dynamic
	// reads these too.
	Lists, Single kubernetes.Interface
}

// Connect prepares a connection. Nothing is sent yet.
func Connect(o kubeconfig.Options) (Connection, error) {
	config, err := o.Load()
	if err != nil {
		return Connection{}, err
	}
	out := Connection{Name: config.Host, Config: config}
	if out.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return Connection{}, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	if out.Discovery, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		return Connection{}, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	fast := rest.CopyConfig(config) // its values need no conversion from maps, either
	kubeconfig.Protobuf(fast)
	if out.Lists, err = kubernetes.NewForConfig(fast); err != nil {
		return Connection{}, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	// Each watch would keep a decompressor, which takes 47 kB, and each Secret has a watch of its own.
	fast.DisableCompression = true
	if out.Single, err = kubernetes.NewForConfig(fast); err != nil {
		return Connection{}, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return out, nil
}

// resolver finds the resource of a kind.
type resolver struct {
	discovery     discovery.DiscoveryInterface
	dynamic       dynamic.Interface
	lists, single kubernetes.Interface
}

// open returns how the objects of a query are listed, if the cluster knows the kind.
func (r resolver) open(_ context.Context, q kubewatch.Query) (kubewatch.Resource, bool, error) {
	if client := r.typed(q); client != nil {
		return client, true, nil
	}
	resource, found, err := r.resolve(q.APIVersion, q.Kind)
	if err != nil || !found {
		return nil, found, err
	}
	if q.Namespace == "" {
		return kubewatch.Typed(r.dynamic.Resource(resource)), true, nil
	}
	return kubewatch.Typed(r.dynamic.Resource(resource).Namespace(q.Namespace)), true, nil
}

// typed returns how the objects of a query are listed as values of their type, nil if they are not.
func (r resolver) typed(q kubewatch.Query) kubewatch.Resource {
	client := r.lists
	if q.Name != "" {
		client = r.single
	}
	if _, known := kubewatch.BuiltIn(q.APIVersion, q.Kind); client == nil || q.Content || !known {
		return nil
	}
	switch q.Kind {
	case "Ingress":
		return kubewatch.Typed(client.NetworkingV1().Ingresses(q.Namespace))
	case "IngressClass":
		return kubewatch.Typed(client.NetworkingV1().IngressClasses())
	case "Service":
		return kubewatch.Typed(client.CoreV1().Services(q.Namespace))
	case "EndpointSlice":
		return kubewatch.Typed(client.DiscoveryV1().EndpointSlices(q.Namespace))
	case "Secret":
		return kubewatch.Typed(client.CoreV1().Secrets(q.Namespace))
	case "ConfigMap":
		return kubewatch.Typed(client.CoreV1().ConfigMaps(q.Namespace))
	case "Namespace":
		return kubewatch.Typed(client.CoreV1().Namespaces())
	}
	return nil
}

// resolve asks the cluster for the resource of a kind. Without an error it knows for
// certain whether there is one.
func (r resolver) resolve(apiVersion, kind string) (resource schema.GroupVersionResource, found bool, err error) {
	if resource, known := kubewatch.BuiltIn(apiVersion, kind); known {
		return resource, true, nil
	}
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return resource, false, fmt.Errorf("resolve %s of %s: %w", kind, apiVersion, err)
	}
	list, err := r.discovery.ServerResourcesForGroupVersion(apiVersion)
	if apierrors.IsNotFound(err) {
		return resource, false, nil
	}
	if err != nil {
		return resource, false, fmt.Errorf("resolve %s of %s: %w", kind, apiVersion, err)
	}
	for _, served := range list.APIResources {
		if served.Kind == kind && !strings.Contains(served.Name, "/") {
			return version.WithResource(served.Name), true, nil
		}
	}
	return resource, false, nil
}

// Resource returns the resource of a kind, for RBAC rules. Without a cluster, or if the cluster does not know the kind, it
// is guessed from the name of the kind.
func (c Connection) Resource(apiVersion, kind string) string {
	if c.Discovery != nil {
		if found, ok, err := (resolver{discovery: c.Discovery}).resolve(apiVersion, kind); ok && err == nil {
			return found.Resource
		}
	}
	if last := len(kind) - 1; last > 0 && kind[last] == 'y' && strings.ContainsRune("aeiou", rune(kind[last-1])) {
		return strings.ToLower(kind) + "s" // gateways, of which the guess makes gatewaies
	}
	version, _ := schema.ParseGroupVersion(apiVersion) // of a configuration that was checked
	plural, _ := meta.UnsafeGuessKindToResource(version.WithKind(kind))
	return plural.Resource
}
