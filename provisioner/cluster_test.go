package provisioner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hapsnap/hapsnap/internal/election"
	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

var shared kubetest.Shared

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m, &shared)) }

var definitions sync.Once

// A rig is a class of its own with a provisioner for it, in the API server that all tests share.
type rig struct {
	*testing.T
	server     *kubetest.Server
	own, class string // the provisioner's namespace, and the name of the class
	values     string // the path of the operator's
	options    Options
	said       *said
	records    records
	fault      atomic.Pointer[func(*http.Request) error]
	end        func()
}

// said is a log.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) { s.mu.Lock(); defer s.mu.Unlock(); return s.text.Write(p) }

func (s *said) String() string { s.mu.Lock(); defer s.mu.Unlock(); return s.text.String() }

func begin(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	server := shared.Server(t)
	definitions.Do(func() {
		for _, kind := range []string{"gatewayclasses", "gateways", "listenersets"} {
			text, err := os.ReadFile(filepath.Join(kubetest.GatewayAPI(t), "gateway.networking.k8s.io_"+kind+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			server.Apply(t, string(text))
		}
	})
	own := server.Namespace(t)
	r := &rig{T: t, server: server, own: own, class: own[max(0, len(own)-18):], values: filepath.Join(t.TempDir(), "values.yaml"), said: &said{}}
	r.class = "c" + strings.Trim(r.class, "-")
	server.Apply(t, fmt.Sprintf("{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: %[1]s}, spec: {controllerName: example.com/%[1]s}}", r.class))
	r.operators("{}")
	config := server.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return tripper{r, next} })
	config.QPS = -1
	ports, err := ParsePorts([]string{"1-65535"})
	if err != nil {
		t.Fatal(err)
	}
	r.options = Options{
		Config: config, Lease: types.NamespacedName{Namespace: own, Name: "provisioner"},
		Times:  election.Times{LeaseDuration: 20 * time.Second, RenewDeadline: 15 * time.Second, RetryPeriod: time.Second},
		Rules:  Rules{Controller: "example.com/" + r.class, MaxFleets: 5, MaxPorts: 16, Ports: ports},
		Values: []string{r.values}, MaxRemovals: 3, Resync: time.Second, Log: slog.New(slog.NewTextHandler(r.said, nil)),
	}
	if change != nil {
		change(&r.options)
	}
	admin, err := kubernetes.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	r.records = records{admin.CoreV1().ConfigMaps(own), r.options.Lease.Name, Mark(r.options.Lease)}
	r.run()
	t.Cleanup(func() {
		r.end()
		if t.Failed() {
			text := r.said.String()
			t.Log(text[max(0, len(text)-4000):])
		}
	})
	return r
}

// run runs a provisioner until end is called.
func (r *rig) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, r.options) }()
	r.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.Error(err)
		}
	})
}

// tripper makes requests fail as the test wants.
type tripper struct {
	r    *rig
	next http.RoundTripper
}

func (t tripper) RoundTrip(q *http.Request) (*http.Response, error) {
	if fault := t.r.fault.Load(); fault != nil {
		if err := (*fault)(q); errors.Is(err, errForbidden) {
			body := `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"it is forbidden","reason":"Forbidden","code":403}`
			return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: q}, nil
		} else if err != nil {
			return nil, err
		}
	}
	return t.next.RoundTrip(q)
}

var errForbidden = errors.New("forbidden")

func (r *rig) fails(fault func(*http.Request) error) {
	if fault == nil {
		r.fault.Store(nil)
		return
	}
	r.fault.Store(&fault)
}

func (r *rig) operators(values string) {
	r.Helper()
	if err := os.WriteFile(r.values, []byte(values), 0o600); err != nil {
		r.Fatal(err)
	}
}

// ask makes or changes a Gateway that names a fleet.
func (r *rig) ask(namespace, name, fleet string, ports ...int) string {
	r.Helper()
	var listeners []string
	for _, p := range ports {
		listeners = append(listeners, fmt.Sprintf("{name: p%[1]d, port: %[1]d, protocol: HTTP}", p))
	}
	text := fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: %s, namespace: %s}, spec: {gatewayClassName: %s, listeners: [%s], infrastructure: {parametersRef: {group: hapsnap.dev, kind: Fleet, name: %s}}}}`,
		name, namespace, r.class, strings.Join(listeners, ", "), fleet)
	r.server.Apply(r.T, text)
	return text
}

// get returns an object of the cluster, nil if there is none.
func (r *rig) get(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	r.Helper()
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	err := r.server.Client().Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, o)
	if client.IgnoreNotFound(err) != nil {
		r.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return o
}

// name is the prefix of a fleet's object names.
func (r *rig) name(fleet string) string { return nameOf(fleet, r.class) }

func (r *rig) deployment(namespace, fleet string) *unstructured.Unstructured {
	r.Helper()
	return r.get("apps/v1", "Deployment", namespace, r.name(fleet)+"-haproxy")
}

// ports are those of the Service of a fleet.
func (r *rig) ports(namespace, fleet string) (out []int64) {
	r.Helper()
	o := r.get("v1", "Service", namespace, r.name(fleet)+"-haproxy")
	if o == nil {
		return nil
	}
	list, _, _ := unstructured.NestedSlice(o.Object, "spec", "ports")
	for _, p := range list {
		out = append(out, p.(map[string]any)["port"].(int64))
	}
	return out
}

// record returns the provisioner's record of a fleet.
func (r *rig) record(namespace, fleet string) (Record, bool) {
	r.Helper()
	all, err := r.records.list(context.Background())
	if err != nil {
		r.Fatal(err)
	}
	out, ok := all[named(namespace, fleet)]
	return out, ok
}

func (r *rig) eventually(what string, holds func() bool) {
	r.Helper()
	eventually.Holds(r, what, holds)
}

// turns waits until the provisioner has looked at everything once more.
func (r *rig) turns(n int64) {
	r.Helper()
	var seen atomic.Int64
	before := r.fault.Load()
	r.fails(func(q *http.Request) error {
		// Each list of the records begins a turn that looks at everything.
		if q.Method == http.MethodGet && strings.HasSuffix(q.URL.Path, "/namespaces/"+r.own+"/configmaps") {
			seen.Add(1)
		}
		if before != nil {
			return (*before)(q)
		}
		return nil
	})
	r.eventually("the provisioner looks again", func() bool { return seen.Load() > n })
	r.fault.Store(before)
}

func (r *rig) whole(namespace, fleet string) {
	r.Helper()
	r.eventually("the fleet "+fleet+" is whole", func() bool {
		record, ok := r.record(namespace, fleet)
		for _, ref := range record.Objects {
			if r.get(ref.APIVersion, ref.Kind, ref.Namespace, ref.Name) == nil {
				return false
			}
		}
		return ok && len(record.Objects) > 50
	})
}

// condition returns a condition of a Gateway's status.
func (r *rig) condition(namespace, gateway, kind string) metav1.Condition {
	r.Helper()
	o := r.get("gateway.networking.k8s.io/v1", "Gateway", namespace, gateway)
	if o == nil {
		return metav1.Condition{}
	}
	all, err := conditionsOf(o)
	if err != nil {
		r.Fatal(err)
	}
	if c := meta.FindStatusCondition(all, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// told reports whether a Gateway has an Event with this reason and text.
func (r *rig) told(namespace, gateway, reason, text string) bool {
	r.Helper()
	var list eventsv1.EventList
	if err := r.server.Client().List(context.Background(), &list, client.InNamespace(namespace)); err != nil {
		r.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Regarding.Name == gateway && e.Reason == reason && strings.Contains(e.Note, text) {
			return true
		}
	}
	return false
}

func (r *rig) delete(o *unstructured.Unstructured) {
	r.Helper()
	if err := r.server.Client().Delete(context.Background(), o); err != nil {
		r.Fatal(err)
	}
}

// A Gateway gets its fleet, which is changed and mended. Another Gateway joins it. Objects that the operator's
// values do not have any more are deleted.
func TestFleetIsMade(t *testing.T) {
	t.Parallel()
	r := begin(t, nil)
	shop := r.server.Namespace(t)
	r.ask(shop, "pay", "pay", 80)
	r.whole(shop, "pay")
	if said := r.said.String(); strings.Contains(said, "cannot make fleets") { // it only starts
		t.Errorf("the start is logged as trouble:\n%s", said)
	}
	if got := fmt.Sprint(r.ports(shop, "pay")); got != "[80]" {
		t.Errorf("the Service has the ports %s", got)
	}
	if got := r.deployment(shop, "pay").GetLabels()["gateway.networking.k8s.io/gateway-name"]; got != "pay" {
		t.Errorf("the Deployment is that of the Gateway %q", got)
	}
	r.eventually("the status says that the fleet is made", func() bool {
		c := r.condition(shop, "pay", "Accepted")
		return c.Status == metav1.ConditionUnknown && strings.Contains(c.Message, "its compiler has not answered yet")
	})
	r.eventually("an Event says so too", func() bool { return r.told(shop, "pay", reasonMade, "pay-"+r.class) })

	r.ask(shop, "more", "pay", 8443)
	r.eventually("the port of another Gateway is opened", func() bool { return fmt.Sprint(r.ports(shop, "pay")) == "[80 8443]" })
	r.eventually("the fleet is nobody's alone", func() bool {
		return r.deployment(shop, "pay").GetLabels()["gateway.networking.k8s.io/gateway-name"] == ""
	})

	budget := func() bool { return r.get("policy/v1", "PodDisruptionBudget", shop, r.name("pay")+"-haproxy") != nil }
	if !budget() {
		t.Error("there is no PodDisruptionBudget to take away")
	}
	r.operators("haproxy: {replicas: 7, podDisruptionBudget: {enabled: false}}")
	r.eventually("the operator's values are those of the fleet", func() bool {
		replicas, _, _ := unstructured.NestedInt64(r.deployment(shop, "pay").Object, "spec", "replicas")
		return replicas == 7 && !budget()
	})
	r.delete(r.deployment(shop, "pay"))
	r.eventually("what was deleted is made again", func() bool { return r.deployment(shop, "pay") != nil })

	// The provisioner does not change the conditions that the compiler of the fleet writes.
	theirs := metav1.Condition{Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Accepted", Message: "theirs", LastTransitionTime: metav1.Now()}
	r.says(shop, "pay", theirs)
	r.operators("haproxy: {kind: Nonsense}")
	r.eventually("values that are wrong are said", func() bool { return r.told(shop, "more", reasonFailed, "haproxy/kind") })
	r.eventually("where nobody else speaks, the status says it", func() bool {
		return r.condition(shop, "more", "Programmed").Reason == "NoResources"
	})
	if c := r.condition(shop, "pay", "Accepted"); c.Message != "theirs" {
		t.Errorf("the condition of the compiler is %v", c)
	}
	if r.deployment(shop, "pay") == nil {
		t.Error("values that are wrong took the fleet away")
	}
}

// says writes a condition as another controller would.
func (r *rig) says(namespace, gateway string, c metav1.Condition) {
	r.Helper()
	r.eventually("the status is written", func() bool {
		o := r.get("gateway.networking.k8s.io/v1", "Gateway", namespace, gateway)
		all, err := conditionsOf(o)
		if err != nil {
			r.Fatal(err)
		}
		meta.SetStatusCondition(&all, c)
		var list []any
		for _, c := range all {
			list = append(list, map[string]any{"type": c.Type, "status": string(c.Status), "reason": c.Reason, "message": c.Message, "lastTransitionTime": c.LastTransitionTime.UTC().Format(time.RFC3339), "observedGeneration": c.ObservedGeneration})
		}
		if err := unstructured.SetNestedSlice(o.Object, list, "status", "conditions"); err != nil {
			r.Fatal(err)
		}
		return r.server.Client().Status().Update(context.Background(), o) == nil
	})
}

// The provisioner neither changes nor deletes an object that somebody else has made, and makes nothing else of
// that fleet. It makes other fleets all the same.
func TestForeignObjectsStay(t *testing.T) {
	t.Parallel()
	r := begin(t, nil)
	shop, blog := r.server.Namespace(t), r.server.Namespace(t)
	theirs := fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s-haproxy, namespace: %s, labels: {hapsnap.dev/fleet: pay, hapsnap.dev/fleet-namespace: %s}}, spec: {ports: [{port: 1}]}}", r.name("pay"), shop, blog)
	r.server.Apply(t, theirs)
	before := r.get("v1", "Service", shop, r.name("pay")+"-haproxy")
	r.ask(shop, "pay", "pay", 80)
	r.ask(blog, "pay", "pay", 80)
	r.whole(blog, "pay")
	r.eventually("it is said", func() bool { return r.told(shop, "pay", reasonFailed, "is not the fleet's") })
	r.eventually("the status says it", func() bool {
		c := r.condition(shop, "pay", "Programmed")
		return c.Status == metav1.ConditionFalse && strings.Contains(c.Message, "Service "+shop+"/"+r.name("pay")+"-haproxy is not the fleet's")
	})
	if after := r.get("v1", "Service", shop, r.name("pay")+"-haproxy"); after.GetResourceVersion() != before.GetResourceVersion() {
		t.Error("the Service of somebody else was changed")
	}
	if r.deployment(shop, "pay") != nil || r.get("v1", "Namespace", "", storeOf(shop, r.name("pay"))) != nil {
		t.Error("something of the fleet was made")
	}
	r.server.Delete(t, theirs)
	r.whole(shop, "pay")

	// An object that has lost its labels belongs to somebody else from then on.
	config := r.get("v1", "ConfigMap", shop, r.name("pay")+"-haproxy")
	config.SetLabels(nil)
	r.fails(func(q *http.Request) error { return errors.New("the API server is out of reach") })
	if err := r.server.Client().Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	r.delete(r.get("gateway.networking.k8s.io/v1", "Gateway", shop, "pay"))
	r.fails(nil)
	r.eventually("the fleet goes", func() bool { return r.deployment(shop, "pay") == nil })
	r.turns(1)
	if r.get("v1", "ConfigMap", shop, r.name("pay")+"-haproxy") == nil {
		t.Error("an object of somebody else was deleted")
	}
}

// A fleet that no Gateway names is deleted, with everything that was made for it and nothing else. Its store
// stays, counts as a fleet, and is used again by the same fleet.
func TestFleetGoes(t *testing.T) {
	t.Parallel()
	r := begin(t, func(o *Options) { o.Rules.MaxFleets = 1 })
	shop := r.server.Namespace(t)
	gateway := r.ask(shop, "pay", "pay", 80)
	r.whole(shop, "pay")
	record, _ := r.record(shop, "pay")
	r.server.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s-else, namespace: %s}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: snapshot, namespace: %s}}", r.name("pay"), shop, record.Store))
	r.server.Delete(t, gateway)
	r.eventually("only the store is left", func() bool {
		left, _ := r.record(shop, "pay")
		return left.Gone && len(left.Objects) == 1
	})
	for _, ref := range record.Objects {
		if there := r.get(ref.APIVersion, ref.Kind, ref.Namespace, ref.Name) != nil; there != (ref.Kind == "Namespace") {
			t.Errorf("%s: there: %v", ref, there)
		}
	}
	if r.get("v1", "ConfigMap", shop, r.name("pay")+"-else") == nil || r.get("v1", "ConfigMap", record.Store, "snapshot") == nil {
		t.Error("something else went with the fleet")
	}
	r.ask(shop, "other", "other", 80)
	r.eventually("the store counts", func() bool { return r.condition(shop, "other", "Accepted").Reason == "InvalidParameters" })
	r.server.Apply(t, gateway)
	r.whole(shop, "pay")
	r.server.Delete(t, gateway)
	r.eventually("it goes again", func() bool {
		left, _ := r.record(shop, "pay")
		return left.Gone
	})
	// Without a controller of namespaces a namespace is never gone, so the test takes it away from the
	// provisioner.
	store := r.get("v1", "Namespace", "", record.Store)
	store.SetLabels(nil)
	if err := r.server.Client().Update(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	r.whole(shop, "other")
}

// A grace passes before a fleet is deleted, also if another provisioner takes over. A Gateway that comes back
// finds its fleet.
func TestGrace(t *testing.T) {
	t.Parallel()
	r := begin(t, func(o *Options) { o.Grace = time.Hour })
	shop := r.server.Namespace(t)
	gateway := r.ask(shop, "pay", "pay", 80)
	r.whole(shop, "pay")
	r.server.Delete(t, gateway)
	r.eventually("it is written down", func() bool { record, _ := r.record(shop, "pay"); return record.Since != nil })
	r.server.Apply(t, gateway)
	r.eventually("it is named again", func() bool { record, _ := r.record(shop, "pay"); return record.Since == nil })
	r.server.Delete(t, gateway)
	r.eventually("it is written down once more", func() bool { record, _ := r.record(shop, "pay"); return record.Since != nil })
	r.end()
	if r.deployment(shop, "pay") == nil {
		t.Fatal("the fleet went at once")
	}
	r.options.Grace = 0
	r.run()
	r.eventually("the fleet goes", func() bool { return r.deployment(shop, "pay") == nil })
}

// listsOf matches requests that list a kind.
func listsOf(resource string) func(*http.Request) error {
	return func(q *http.Request) error {
		if q.Method == http.MethodGet && strings.HasSuffix(q.URL.Path, "/"+resource) && (q.URL.Query().Get("watch") == "" || q.URL.Query().Get("sendInitialEvents") != "") {
			return errors.New("the list is out of reach")
		}
		return nil
	}
}

// While Gateways cannot be listed, no fleet is deleted, neither by a provisioner that knew them nor by a new
// one.
func TestNothingGoesBlindly(t *testing.T) {
	t.Parallel()
	r := begin(t, nil)
	shop := r.server.Namespace(t)
	gateway := r.ask(shop, "pay", "pay", 80)
	r.whole(shop, "pay")
	r.fails(listsOf("gateways"))
	r.server.Delete(t, gateway)
	r.eventually("the second list fails", func() bool { return strings.Contains(r.said.String(), "once more: ") })
	r.end()
	r.run()
	r.eventually("the first list fails", func() bool {
		return strings.Contains(r.said.String(), "cannot follow Gateways")
	})
	if r.deployment(shop, "pay") == nil {
		t.Fatal("the fleet went")
	}
	r.fails(nil)
	r.eventually("the fleet goes once the list is there", func() bool { return r.deployment(shop, "pay") == nil })
}

// If too many fleets would be deleted at once, none is, whether their Gateways or their class are missing.
func TestManyStay(t *testing.T) {
	t.Parallel()
	r := begin(t, func(o *Options) { o.MaxRemovals = 1 })
	shop := r.server.Namespace(t)
	one, two := r.ask(shop, "one", "one", 80), r.ask(shop, "two", "two", 80)
	r.whole(shop, "one")
	r.whole(shop, "two")
	ofClass := r.get("gateway.networking.k8s.io/v1", "GatewayClass", "", r.class)
	r.delete(ofClass.DeepCopy())
	r.eventually("it is said that the class is missing", func() bool { return r.told(shop, "two", reasonRefused, "there is no GatewayClass") })
	r.fails(func(*http.Request) error { return errors.New("the API server is out of reach") })
	r.server.Delete(t, one+"\n---\n"+two)
	ofClass.SetResourceVersion("")
	ofClass.SetUID("")
	if err := r.server.Client().Create(t.Context(), ofClass); err != nil {
		t.Fatal(err)
	}
	r.fails(nil)
	r.eventually("it is said that none goes", func() bool { return strings.Contains(r.said.String(), "all stay") })
	r.turns(2)
	if r.deployment(shop, "one") == nil || r.deployment(shop, "two") == nil {
		t.Fatal("a fleet went")
	}
	r.server.Apply(t, two)
	r.eventually("one alone goes", func() bool { return r.deployment(shop, "one") == nil })
	if r.deployment(shop, "two") == nil {
		t.Error("the other one went")
	}
}

// If an object may not be made, that is reported. The rest of the fleet and other fleets are made, and nothing
// is deleted meanwhile.
func TestForbidden(t *testing.T) {
	t.Parallel()
	r := begin(t, nil)
	shop, blog := r.server.Namespace(t), r.server.Namespace(t)
	r.fails(func(q *http.Request) error {
		if q.Method == http.MethodPost && strings.Contains(q.URL.Path, "/namespaces/"+shop+"/networkpolicies") {
			return errForbidden
		}
		return nil
	})
	r.ask(shop, "pay", "pay", 80)
	r.ask(blog, "pay", "pay", 80)
	r.whole(blog, "pay")
	r.eventually("it is said", func() bool {
		return r.told(shop, "pay", reasonFailed, "create NetworkPolicy "+shop+"/") && r.condition(shop, "pay", "Programmed").Status == metav1.ConditionFalse
	})
	if r.deployment(shop, "pay") == nil {
		t.Error("the rest of the fleet was not made")
	}
	r.fails(nil)
	r.whole(shop, "pay")
}

// When a provisioner is killed, the next one completes the fleet, and deletes it whole.
func TestKilledAtAnyWrite(t *testing.T) {
	t.Parallel()
	r := begin(t, nil)
	r.end()
	for _, writes := range []int64{1, 2, 3, 30, 70} {
		shop := r.server.Namespace(t)
		var begun atomic.Int64
		die := func(q *http.Request) error {
			if q.Method == http.MethodGet || strings.Contains(q.URL.Path, "/leases") || strings.Contains(q.URL.Path, "/events") || strings.HasSuffix(q.URL.Path, "/status") {
				return nil
			}
			if begun.Add(1) > writes {
				return errors.New("killed")
			}
			return nil
		}
		r.fails(die)
		gateway := r.ask(shop, "pay", "pay", 80)
		r.run()
		r.eventually("it is killed while it makes the fleet", func() bool { return begun.Load() > writes })
		r.end()
		r.fails(nil)
		r.run()
		r.whole(shop, "pay")
		r.end()
		begun.Store(0)
		r.fails(die)
		r.server.Delete(t, gateway)
		record, _ := r.record(shop, "pay")
		r.run()
		r.eventually("it is killed while it takes the fleet away", func() bool { return begun.Load() > writes })
		r.end()
		r.fails(nil)
		r.run()
		r.eventually("the next one takes it away", func() bool { left, _ := r.record(shop, "pay"); return left.Gone })
		r.end()
		for _, ref := range record.Objects {
			if r.get(ref.APIVersion, ref.Kind, ref.Namespace, ref.Name) != nil && ref.Kind != "Namespace" {
				t.Errorf("after %d writes: %s is left", writes, ref)
			}
		}
	}
	if !strings.Contains(r.said.String(), "killed") {
		t.Error("nothing was killed")
	}
}

// A provisioner is killed while it makes a fleet, and the Gateway is deleted before the next one starts. The
// next one deletes what was made.
func TestKilledAndNamedByNobody(t *testing.T) {
	t.Parallel()
	r := begin(t, nil)
	whole := r.server.Namespace(t)
	r.ask(whole, "pay", "pay", 80)
	r.whole(whole, "pay")
	kinds := map[Ref]bool{}
	record, _ := r.record(whole, "pay")
	for _, ref := range record.Objects {
		kinds[Ref{APIVersion: ref.APIVersion, Kind: ref.Kind}] = true
	}
	r.end()
	made := func(namespace string) (out []string) {
		for kind := range kinds {
			var list unstructured.UnstructuredList
			list.SetAPIVersion(kind.APIVersion)
			list.SetKind(kind.Kind + "List")
			if err := r.server.Client().List(t.Context(), &list, client.MatchingLabels(Record{Fleet: named(namespace, "pay")}.marks(Mark(r.options.Lease)))); err != nil {
				t.Fatal(err)
			}
			for i := range list.Items {
				o := &list.Items[i]
				data, _ := o.Object["data"].(map[string]any) // an object without data is no record
				if _, is := data[recordKey]; !is && o.GetAnnotations()[keepAnnotation] != "keep" && o.GetDeletionTimestamp() == nil {
					out = append(out, refOf(o).String())
				}
			}
		}
		return out
	}
	for _, writes := range []int64{2, 20} {
		shop := r.server.Namespace(t)
		var begun atomic.Int64
		r.fails(func(q *http.Request) error {
			if q.Method == http.MethodGet || !strings.Contains(q.URL.Path, shop) && !strings.HasSuffix(q.URL.Path, "/configmaps") || strings.HasSuffix(q.URL.Path, "/status") {
				return nil
			}
			if begun.Add(1) > writes {
				return errors.New("killed")
			}
			return nil
		})
		gateway := r.ask(shop, "pay", "pay", 80)
		r.run()
		r.eventually("it is killed", func() bool { return begun.Load() > writes })
		r.end()
		if len(made(shop)) == 0 {
			t.Fatalf("after %d writes nothing was made", writes)
		}
		r.server.Delete(t, gateway)
		r.fails(nil)
		r.run()
		r.eventually("the next one has taken the fleet away", func() bool { left, there := r.record(shop, "pay"); return !there || left.Gone })
		r.end()
		if left := made(shop); len(left) > 0 {
			t.Errorf("after %d writes these are left: %q", writes, left)
		}
	}
}

// If somebody replaces an object between a read and a write of the provisioner, the new object stays.
func TestReplacedMeanwhile(t *testing.T) {
	t.Parallel()
	r := begin(t, nil)
	shop := r.server.Namespace(t)
	gateway := r.ask(shop, "pay", "pay", 80)
	r.whole(shop, "pay")
	name := r.name("pay") + "-haproxy"
	replaced := func(method string) string {
		r.Helper()
		var version atomic.Pointer[string]
		var once sync.Once
		r.fails(func(q *http.Request) error {
			// The preparation for applying is a patch of another type.
			if q.Method == method && q.Header.Get("Content-Type") != string(types.JSONPatchType) && strings.HasSuffix(q.URL.Path, "/namespaces/"+shop+"/services/"+name) {
				once.Do(func() {
					r.delete(r.get("v1", "Service", shop, name))
					r.server.Apply(r.T, fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: %s}, spec: {ports: [{name: theirs, port: 1}]}}", name, shop))
					now := r.get("v1", "Service", shop, name).GetResourceVersion()
					version.Store(&now)
				})
			}
			return nil
		})
		if method == http.MethodDelete {
			r.server.Delete(r.T, gateway)
		}
		r.eventually("it is replaced before "+method, func() bool { return version.Load() != nil })
		r.turns(1)
		return *version.Load()
	}
	if version := replaced(http.MethodPatch); r.get("v1", "Service", shop, name).GetResourceVersion() != version {
		t.Error("somebody else's Service was overwritten")
	}
	r.fails(nil)
	r.delete(r.get("v1", "Service", shop, name))
	r.eventually("the fleet has its Service again", func() bool {
		o := r.get("v1", "Service", shop, name)
		return o != nil && o.GetLabels()[fleetLabel] == "pay"
	})
	version := replaced(http.MethodDelete)
	if o := r.get("v1", "Service", shop, name); o == nil || o.GetResourceVersion() != version {
		t.Error("somebody else's Service was deleted")
	}
}

// A Gateway of another controller's class keeps no fleet alive, whatever it names.
func TestForeignClassKeepsNoFleet(t *testing.T) {
	t.Parallel()
	r := begin(t, nil)
	shop := r.server.Namespace(t)
	gateway := r.ask(shop, "pay", "pay", 80)
	r.server.Apply(t, fmt.Sprintf("{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: %[1]s-other}, spec: {controllerName: example.com/other}}", r.class))
	r.server.Apply(t, strings.NewReplacer("name: pay, namespace", "name: theirs, namespace", "gatewayClassName: "+r.class, "gatewayClassName: "+r.class+"-other").Replace(gateway))
	r.whole(shop, "pay")
	r.server.Delete(t, gateway)
	r.eventually("the fleet goes", func() bool { left, _ := r.record(shop, "pay"); return left.Gone })
	if r.get("gateway.networking.k8s.io/v1", "Gateway", shop, "theirs") == nil {
		t.Error("the other controller's Gateway is gone")
	}
}

// A provisioner that is started for another controller, as by a misspelled flag, deletes no fleet.
func TestAnotherController(t *testing.T) {
	t.Parallel()
	r := begin(t, nil)
	shop := r.server.Namespace(t)
	gateway := r.ask(shop, "pay", "pay", 80)
	r.whole(shop, "pay")
	r.end()
	ours := r.options.Rules.Controller
	r.options.Rules.Controller = "example.com/misspelled"
	r.run()
	r.eventually("it is said that no class is ours, and why the fleet stays", func() bool {
		return strings.Contains(r.said.String(), "no GatewayClass has the controller") && strings.Contains(r.said.String(), "the Gateway pay names it, which is for the controller "+ours)
	})
	if r.deployment(shop, "pay") == nil {
		t.Fatal("the fleet went")
	}
	r.server.Delete(t, gateway)
	r.eventually("without its Gateway the fleet goes", func() bool { return r.deployment(shop, "pay") == nil })
}
