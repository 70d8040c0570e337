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
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/kubewatch"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Cluster is the objects of a cluster. Nothing is known of them until [Cluster.Run]
// runs. Its methods may be called at the same time.
type Cluster struct {
	name    string
	watches *kubewatch.Set

	mu     sync.Mutex
	config config.Config
	asked  routing.Asked
}

// New returns the cluster that a connection leads to.
func New(c Connection) *Cluster { return &Cluster{name: c.Name, watches: newSet(c)} }

// newSet returns watches whose objects are converted for compiles.
func newSet(c Connection) *kubewatch.Set {
	return kubewatch.New(kubewatch.Options{
		Open:    resolver{c.Discovery, c.Dynamic}.open,
		Convert: func(q kubewatch.Query) func(any) (any, error) { return converterFor(q).object },
		Equal:   equal,
	})
}

// String names the cluster.
func (c *Cluster) String() string { return c.name }

// Run watches what the calls of Read and Complete ask for, until ctx is done.
func (c *Cluster) Run(ctx context.Context, log *slog.Logger) { c.watches.Run(ctx, log) }

// Read returns the objects that the configuration asks for. The error wraps
// [inputs.ErrIncomplete] and says what is waited for until all of them are known.
func (c *Cluster) Read(_ context.Context, cfg config.Config) (inputs.Gathered, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plan(cfg, c.asked)
	var in inputs.Inputs
	var missing []string
	c.watches.Read(func(list []kubewatch.QueryState) {
		for _, s := range list {
			if !settled(s) {
				missing = append(missing, waits(s))
			}
		}
		if len(missing) > 0 {
			return
		}
		for _, s := range list {
			for _, o := range s.Objects {
				add(&in, s.Query, o)
			}
			if !s.Synced && !s.Absent { // settled, since it may not be read
				in.Unread = append(in.Unread, inputs.RefOf(s.Query.APIVersion, s.Query.Kind, s.Query.Namespace, s.Query.Name))
			}
		}
	})
	if len(missing) > 0 {
		return inputs.Gathered{}, fmt.Errorf("%w: %s", inputs.ErrIncomplete, some(missing))
	}
	selector := inputs.NewSelector(cfg, in.Namespaces)
	return inputs.Gathered{Objects: selector.Objects(in)}, nil
}

// Complete records the names that a compile looked for, and reports whether all of these objects were known.
func (c *Cluster) Complete(named routing.Asked) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.plan(c.config, named)
}

// Changes returns a channel that sends when the objects may differ from those read last.
func (c *Cluster) Changes(context.Context, *slog.Logger) <-chan struct{} { return c.watches.Changes() }

// plan makes a new plan, and reports whether it watches anything new.
func (c *Cluster) plan(cfg config.Config, asked routing.Asked) (added bool) {
	c.config, c.asked = cfg, asked
	return c.watches.Plan(Plan(cfg, asked))
}

// settled reports whether nothing more can be known: all objects are known, or an optional kind does not exist, or the
// API server forbids reading a single object. The latter only harms the objects that name it.
func settled(s kubewatch.QueryState) bool {
	return s.Synced || s.Absent && s.Query.Optional || s.Query.Name != "" && s.Forbidden()
}

// waits says what the compiler waits for.
func waits(s kubewatch.QueryState) string {
	if s.Err == nil {
		return s.Query.String()
	}
	return fmt.Sprintf("%s (%v)", s.Query, s.Err)
}

// maxShown is how many things a message lists.
const maxShown = 5

// some lists the first of many things.
func some(texts []string) string {
	if more := len(texts) - maxShown; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(texts[:maxShown], ", "), more)
	}
	return strings.Join(texts, ", ")
}

// Plan returns what is watched for a configuration after a compile looked for these names, sorted.
func Plan(c config.Config, asked routing.Asked) []kubewatch.Query {
	var out []kubewatch.Query
	add := func(namespaces []string, q kubewatch.Query) {
		if len(namespaces) == 0 {
			namespaces = []string{""}
		}
		for _, q.Namespace = range namespaces {
			out = append(out, q)
		}
	}
	if c.GatewayAPI.Fleet == "" {
		add(c.Namespaces, kubewatch.Query{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"})
		add(nil, kubewatch.Query{APIVersion: "networking.k8s.io/v1", Kind: "IngressClass"})
	}
	add(c.Namespaces, kubewatch.Query{APIVersion: "v1", Kind: "Service"})
	if c.Endpoints == config.Recorded {
		add(c.Namespaces, kubewatch.Query{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"})
	}
	if c.NamespaceSelector != "" || slices.ContainsFunc(c.Kinds, func(k kinds.Kind) bool { return k.NamespaceSelector != "" }) {
		add(nil, kubewatch.Query{APIVersion: "v1", Kind: "Namespace"})
	}
	if c.GatewayAPI.Enabled {
		for _, kind := range inputs.GatewayKinds() {
			q := kubewatch.Query{APIVersion: inputs.GatewayVersion, Kind: kind.Name, Optional: true}
			if kind.EveryNamespace {
				add(nil, q)
			} else {
				add(c.Namespaces, q)
			}
		}
		for _, name := range inputs.GatewayDefinitions() {
			add(nil, kubewatch.Query{APIVersion: inputs.DefinitionVersion, Kind: inputs.DefinitionKind, Name: name})
		}
		add(nil, kubewatch.Query{APIVersion: "v1", Kind: "Namespace"}) // by whose labels listeners let routes in
	}
	out = append(out, watched(c, "Secret", c.Secrets, asked.Secrets)...)
	out = append(out, watched(c, "ConfigMap", c.ConfigMaps, asked.ConfigMaps)...)
	for _, k := range c.Kinds {
		add(k.Namespaces, kubewatch.Query{
			APIVersion: k.APIVersion, Kind: k.Kind, Labels: k.LabelSelector, Fields: k.FieldSelector,
			Optional: k.Optional, Content: true, Drop: strings.Join(k.Drop, " "),
		})
	}
	slices.SortFunc(out, kubewatch.Query.Compare)
	return slices.Compact(out)
}

// Concern says what a query of a plan is for, as the name of a role does.
func Concern(q kubewatch.Query) string {
	if q.APIVersion == inputs.GatewayVersion && !q.Content {
		if kind, _ := inputs.GatewayKindOf(q.Kind); kind.EveryNamespace {
			return "classes"
		}
		return "gateways"
	}
	if q.APIVersion == inputs.DefinitionVersion && q.Name != "" {
		return "definitions"
	}
	switch q.Kind {
	case "IngressClass":
		return "classes"
	case "Ingress", "Service", "EndpointSlice":
		return "routes"
	case "Namespace", "Secret", "ConfigMap":
		if q.APIVersion == "v1" {
			return strings.ToLower(q.Kind) + "s"
		}
	}
	return "kinds"
}

// watched returns the queries for a kind of which not all objects are read.
func watched(c config.Config, kind string, w kinds.Watched, names []types.NamespacedName) []kubewatch.Query {
	var out []kubewatch.Query
	if w.Watch == kinds.WatchNamed {
		for _, name := range names {
			if len(c.Namespaces) == 0 || slices.Contains(c.Namespaces, name.Namespace) {
				out = append(out, kubewatch.Query{APIVersion: "v1", Kind: kind, Namespace: name.Namespace, Name: name.Name})
			}
		}
		return out
	}
	namespaces := c.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, namespace := range namespaces {
		out = append(out, kubewatch.Query{APIVersion: "v1", Kind: kind, Namespace: namespace, Labels: w.LabelSelector})
	}
	return out
}

// SettingKey is the key of a ConfigMap under which a configuration is.
const SettingKey = "config.yaml"

// ConfigMapQuery is what is watched of a single ConfigMap.
func ConfigMapQuery(name types.NamespacedName) kubewatch.Query {
	return kubewatch.Query{APIVersion: "v1", Kind: "ConfigMap", Namespace: name.Namespace, Name: name.Name}
}

// configMap is a ConfigMap that is watched. Nothing is known about it until Run runs.
type configMap struct {
	query   kubewatch.Query
	watches *kubewatch.Set
}

func newConfigMap(c Connection, name types.NamespacedName) configMap {
	m := configMap{query: ConfigMapQuery(name), watches: newSet(c)}
	m.watches.Plan([]kubewatch.Query{m.query})
	return m
}

// Run follows the ConfigMap until ctx is done.
func (m configMap) Run(ctx context.Context, log *slog.Logger) { m.watches.Run(ctx, log) }

// state returns the ConfigMap, or nil if none exists or is known; whether that is certain; and the error that prevents it.
func (m configMap) state() (object *corev1.ConfigMap, synced bool, trouble error) {
	m.watches.Read(func(list []kubewatch.QueryState) {
		for _, state := range list { // the one, or none once Run has ended
			synced, trouble = state.Synced, state.Err
			object, _ = state.Objects[types.NamespacedName{Namespace: m.query.Namespace, Name: m.query.Name}].(*corev1.ConfigMap)
		}
	})
	return object, synced, trouble
}

// Setting is a ConfigMap that holds the configuration of a compiler. Nothing is known
// of it until its Run runs.
type Setting struct{ configMap }

// NewSetting returns the Setting in a ConfigMap of a cluster.
func NewSetting(c Connection, name types.NamespacedName) *Setting {
	return &Setting{newConfigMap(c, name)}
}

// Read returns the configuration, and the name that it has in diagnostics. The error
// wraps [inputs.ErrIncomplete] while nothing is known of the ConfigMap yet, or
// [fs.ErrNotExist] if there is none, or none with the key.
func (s *Setting) Read(context.Context) (name string, data []byte, err error) {
	name = s.query.String() + " " + SettingKey
	object, synced, trouble := s.state()
	if !synced {
		return name, nil, fmt.Errorf("read configuration: %s: %w", s.query, errors.Join(inputs.ErrIncomplete, trouble))
	}
	if object == nil {
		return name, nil, fmt.Errorf("read configuration: %s: %w", s.query, fs.ErrNotExist)
	}
	text, exists := object.Data[SettingKey]
	if !exists {
		return name, nil, fmt.Errorf("read configuration: %s: key %s: %w", s.query, SettingKey, fs.ErrNotExist)
	}
	return name, []byte(text), nil
}

// First waits until something is known of the ConfigMap, and returns it as Read does.
func (s *Setting) First(ctx context.Context) (name string, data []byte, err error) {
	for {
		name, data, err = s.Read(ctx)
		if !errors.Is(err, inputs.ErrIncomplete) {
			return name, data, err
		}
		select {
		case <-ctx.Done():
			return name, nil, errors.Join(ctx.Err(), err)
		case <-s.watches.Changes():
		}
	}
}

// Changes sends when the ConfigMap may be different from what was read.
func (s *Setting) Changes(context.Context, *slog.Logger) <-chan struct{} { return s.watches.Changes() }

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

// FleetStatus is the ConfigMap in which a pusher says what the workers of its fleet run. Nothing is
// known of it until its Run runs.
type FleetStatus struct{ configMap }

// NewFleetStatus returns the FleetStatus in a ConfigMap of a cluster.
func NewFleetStatus(c Connection, name types.NamespacedName) *FleetStatus {
	return &FleetStatus{newConfigMap(c, name)}
}

// Changes sends when the ConfigMap may be different from what was read.
func (s *FleetStatus) Changes() <-chan struct{} { return s.watches.Changes() }

// fresh is how old a status may be. A pusher writes one each minute, whatever happens.
const fresh = 5 * time.Minute

// FleetReport is what a pusher has said.
type FleetReport struct {
	Workers snapshots.Workers
	// Stopped says that the pusher rolls nothing out until somebody acts.
	Stopped bool
}

// Read returns what a pusher has said lately. The error says why nothing is known.
func (s *FleetStatus) Read(now time.Time) (FleetReport, error) {
	object, _, trouble := s.state()
	text, told := "", false
	if object != nil {
		text, told = object.Data[snapshots.WorkersKey]
	}
	switch {
	case !told && trouble != nil:
		return FleetReport{}, fmt.Errorf("%s cannot be read: %w", s.query, trouble)
	case !told:
		return FleetReport{}, fmt.Errorf("no pusher has written yet what the instances run into %s", s.query)
	}
	if updated, err := time.Parse(time.RFC3339, object.Data["updated"]); err != nil || now.Sub(updated) > fresh {
		return FleetReport{}, fmt.Errorf("no pusher has written lately what the instances run into %s", s.query)
	}
	workers, err := snapshots.ParseWorkers(text)
	if err != nil {
		return FleetReport{}, fmt.Errorf("%s: %w", s.query, err)
	}
	return FleetReport{Workers: workers, Stopped: object.Data["phase"] == "Degraded"}, nil
}

// Connection is how an API server is reached.
type Connection struct {
	Name      string // for people
	Config    *rest.Config
	Dynamic   dynamic.Interface
	Discovery discovery.DiscoveryInterface
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
	return out, nil
}

// resolver finds the resource of a kind.
type resolver struct {
	discovery discovery.DiscoveryInterface
	dynamic   dynamic.Interface
}

// open returns how the objects of a query are listed, if the cluster knows the kind.
func (r resolver) open(_ context.Context, q kubewatch.Query) (kubewatch.Resource, bool, error) {
	resource, found, err := r.resolve(q.APIVersion, q.Kind)
	if err != nil || !found {
		return nil, found, err
	}
	if q.Namespace == "" {
		return kubewatch.Typed(r.dynamic.Resource(resource)), true, nil
	}
	return kubewatch.Typed(r.dynamic.Resource(resource).Namespace(q.Namespace)), true, nil
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
