package provisioner

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/internal/election"
	"github.com/hapsnap/hapsnap/internal/testing/metricsdoc"
)

var update = flag.Bool("update", false, "rewrite the page")

// The page lists the registered metrics, and mentions no others.
func TestMetricsDocumentIsFresh(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	newMetrics(registry)
	leader, err := election.New(election.Options{Program: "provisioner", Metrics: registry, Times: election.Defaults()})
	if err != nil {
		t.Fatal(err)
	}
	newReporter(&kubernetes.Clientset{}, &dynamic.DynamicClient{}, leader, "", slog.New(slog.DiscardHandler), registry)
	metricsdoc.Check(t, registry, "../docs/reference/metrics.md", "metrics of the provisioner", "hapsnap_provisioner_", *update)
}

const controller = "hapsnap.dev/gateway-controller"

// parsed reads an object of one line.
func parsed[T any](t *testing.T, text string) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// gateway returns a Gateway that names a fleet, made so many minutes after the first.
func gateway(t *testing.T, minute int, namespace, name, fleet, more string) *gatewayv1.Gateway {
	t.Helper()
	g := parsed[gatewayv1.Gateway](t, fmt.Sprintf(`{metadata: {namespace: %s, name: %s}, spec: {gatewayClassName: hapsnap, listeners: [{name: a, port: 80, protocol: HTTP}, {name: b, port: 443, protocol: HTTPS}], infrastructure: {parametersRef: {group: hapsnap.dev, kind: Fleet, name: %q}}}}`, namespace, name, fleet))
	if more != "" {
		if err := yaml.UnmarshalStrict([]byte(more), &g.Spec); err != nil {
			t.Fatal(err)
		}
	}
	g.CreationTimestamp = metav1.NewTime(time.Unix(int64(minute)*60, 0))
	return g
}

func class(name, controller string) *gatewayv1.GatewayClass {
	c := &gatewayv1.GatewayClass{Spec: gatewayv1.GatewayClassSpec{ControllerName: gatewayv1.GatewayController(controller)}}
	c.Name = name
	return c
}

// world has two classes and two namespaces.
func world(gateways ...*gatewayv1.Gateway) World {
	return World{
		Classes:    []*gatewayv1.GatewayClass{class("hapsnap", controller), class("other", "example.com/other")},
		Gateways:   gateways,
		Namespaces: map[string]labels.Set{"shop": {"team": "shop"}, "blog": {}},
	}
}

func rules(t *testing.T) Rules {
	t.Helper()
	ports, err := ParsePorts([]string{"80", "443", "1024-65535"})
	if err != nil {
		t.Fatal(err)
	}
	return Rules{Controller: controller, MaxFleets: 3, MaxPorts: 4, Ports: ports, Reserved: map[int]string{5555: "haproxy.dataplane.port"}}
}

func named(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// told writes what a plan says of each fleet, in a line.
func told(fleets []Fleet) (out []string) {
	for _, f := range fleets {
		line := fmt.Sprintf("%s %d %v", f.Name, len(f.Gateways), f.Ports)
		if f.Refused != "" {
			line = fmt.Sprintf("%s refused: %s", f.Name, f.Refused)
		}
		out = append(out, strings.Join(append([]string{line}, f.Left...), "; "))
	}
	return out
}

// planned are the requests of Gateways, and the resulting plans.
type planned struct {
	world World
	rules func(*Rules)
	made  []types.NamespacedName
	want  []string
}

func plans(t *testing.T) map[string]planned {
	t.Helper()
	selector := labels.SelectorFromSet(labels.Set{"team": "shop"})
	one := gateway(t, 1, "shop", "one", "pay", "")
	set := func(namespace, to, from string) *gatewayv1.ListenerSet {
		return parsed[gatewayv1.ListenerSet](t, fmt.Sprintf(`{metadata: {namespace: %s, name: set}, spec: {parentRef: {name: %s, namespace: %s}, listeners: [{name: a, port: 9000, protocol: HTTP}]}}`, namespace, to, from))
	}
	allowing := func(from string) *gatewayv1.Gateway {
		return gateway(t, 1, "shop", "one", "pay", "allowedListeners: {namespaces: {"+from+"}}")
	}
	withSets := func(w World, sets ...*gatewayv1.ListenerSet) World { w.Sets = sets; return w }
	foreign, unknown := gateway(t, 1, "shop", "one", "pay", "gatewayClassName: other"), gateway(t, 1, "shop", "one", "pay", "gatewayClassName: gone")
	parameters := world(one)
	parameters.Classes[0].Spec.ParametersRef = &gatewayv1.ParametersReference{}
	return map[string]planned{
		"one":                              {world: world(one), want: []string{"shop/pay 1 [80 443]"}},
		"none that names a fleet":          {world: world(gateway(t, 1, "shop", "one", "pay", "infrastructure: {parametersRef: {group: '', kind: ConfigMap, name: pay}}"))},
		"two of one fleet":                 {world: world(one, gateway(t, 2, "shop", "two", "pay", "listeners: [{name: a, port: 8080, protocol: HTTP}]")), want: []string{"shop/pay 2 [80 443 8080]"}},
		"one name in two namespaces":       {world: world(one, gateway(t, 2, "blog", "one", "pay", "")), want: []string{"blog/pay 1 [80 443]", "shop/pay 1 [80 443]"}},
		"another controller's":             {world: world(foreign)},
		"another controller's by now":      {world: world(foreign), made: []types.NamespacedName{named("shop", "pay")}},
		"a class that is not there":        {world: world(unknown)},
		"a class that has gone":            {world: world(unknown), made: []types.NamespacedName{named("shop", "pay")}, want: []string{"shop/pay refused: there is no GatewayClass gone: the fleet stays as it is"}},
		"a class with parameters":          {world: parameters, want: []string{"shop/pay refused: GatewayClass hapsnap has parameters, which are not supported"}},
		"a namespace that is not listed":   {world: world(one), rules: func(r *Rules) { r.Namespaces = []string{"blog"} }, want: []string{"shop/pay refused: the namespace shop may have no fleets of its own"}},
		"a namespace that is selected":     {world: world(one), rules: func(r *Rules) { r.Selector = selector }, want: []string{"shop/pay 1 [80 443]"}},
		"a namespace that is not selected": {world: world(gateway(t, 1, "blog", "one", "pay", "")), rules: func(r *Rules) { r.Selector = selector }, want: []string{"blog/pay refused: the labels of the namespace blog do not let it have fleets of its own"}},
		"a namespace that is not known":    {world: world(gateway(t, 1, "new", "one", "pay", "")), rules: func(r *Rules) { r.Selector = selector }, want: []string{"new/pay refused: the labels of the namespace new do not let it have fleets of its own"}},
		"ports that may not be opened": {
			world: world(gateway(t, 1, "shop", "one", "pay", "listeners: [{name: a, port: 22, protocol: TCP}, {name: b, port: 5555, protocol: TCP}, {name: c, port: 5353, protocol: UDP}, {name: d, port: 80, protocol: HTTP}]")),
			want:  []string{"shop/pay 1 [80]; Gateway one: the port 22 may not be opened; Gateway one: the port 5555 is that of haproxy.dataplane.port in the pods of the fleet"},
		},
		"no port that may be opened": {
			world: world(gateway(t, 1, "shop", "one", "pay", "listeners: [{name: a, port: 22, protocol: TCP}]")),
			want:  []string{"shop/pay refused: no listener has a port that may be opened; Gateway one: the port 22 may not be opened"},
		},
		"too many ports": {
			world: world(one, gateway(t, 2, "shop", "two", "pay", "listeners: [{name: a, port: 9003, protocol: HTTP}, {name: b, port: 9002, protocol: HTTP}, {name: c, port: 9001, protocol: HTTP}]")),
			want:  []string{"shop/pay 2 [80 443 9002 9003]; Gateway two: the port 9001 is one more than the 4 that a fleet may have"},
		},
		"too many fleets, the youngest": {
			world: world(gateway(t, 4, "shop", "a", "a", ""), gateway(t, 3, "shop", "b", "b", ""), gateway(t, 2, "shop", "c", "c", ""), one),
			want: []string{
				"shop/a refused: the namespace shop has 3 fleets already, with those that are gone and left a store, and may have no more",
				"shop/b 1 [80 443]", "shop/c 1 [80 443]", "shop/pay 1 [80 443]",
			},
		},
		"too many fleets, those that left a store among them": {
			world: world(one, gateway(t, 2, "blog", "a", "a", "")), made: []types.NamespacedName{named("shop", "x"), named("shop", "y"), named("shop", "z")},
			want: []string{"blog/a 1 [80 443]", "shop/pay refused: the namespace shop has 3 fleets already, with those that are gone and left a store, and may have no more"},
		},
		"a fleet that was made comes before older Gateways": {
			world: world(one), made: []types.NamespacedName{named("shop", "pay"), named("shop", "y"), named("shop", "z"), named("shop", "x")}, want: []string{"shop/pay 1 [80 443]"},
		},
		"ListenerSets are not allowed":                   {world: withSets(world(one), set("shop", "one", "shop")), want: []string{"shop/pay 1 [80 443]"}},
		"ListenerSets of the namespace":                  {world: withSets(world(allowing("from: Same")), set("shop", "one", "shop"), set("blog", "one", "shop")), want: []string{"shop/pay 1 [80 443 9000]"}},
		"ListenerSets of another namespace":              {world: withSets(world(allowing("from: Same")), set("blog", "one", "shop")), want: []string{"shop/pay 1 [80 443]"}},
		"ListenerSets of all":                            {world: withSets(world(allowing("from: All")), set("blog", "one", "shop")), want: []string{"shop/pay 1 [80 443 9000]"}},
		"ListenerSets by labels":                         {world: withSets(world(allowing("from: Selector, selector: {matchLabels: {team: blog}}")), set("blog", "one", "shop")), want: []string{"shop/pay 1 [80 443]"}},
		"ListenerSets by labels that are there":          {world: withSets(world(allowing("from: Selector, selector: {matchLabels: {team: shop}}")), set("shop", "one", "shop")), want: []string{"shop/pay 1 [80 443 9000]"}},
		"ListenerSets of a Gateway in another namespace": {world: withSets(world(allowing("from: All")), set("shop", "one", "blog")), want: []string{"shop/pay 1 [80 443]"}},
	}
}

// The fleets of a plan are those that Gateways name and may have, in whatever order the objects come.
func TestPlan(t *testing.T) {
	t.Parallel()
	for name, c := range plans(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rules(t)
			if c.rules != nil {
				c.rules(&r)
			}
			made := map[types.NamespacedName]Record{}
			for _, n := range c.made {
				made[n] = Record{Fleet: n}
			}
			got := told(Plan(c.world, r, made))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			slices.Reverse(c.world.Gateways)
			if diff := cmp.Diff(got, told(Plan(c.world, r, made))); diff != "" {
				t.Errorf("the order takes part:\n%s", diff)
			}
		})
	}
}

// A name that is not valid never becomes part of another name.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "a/b", "../pay", "a.b", "A", "1st", "a\nb", "{{ .Values }}", "a: b", strings.Repeat("a", 64)} {
		got := Plan(world(gateway(t, 1, "shop", "one", name, "")), rules(t), nil)
		if len(got) != 1 || !strings.Contains(got[0].Refused, "is no name of a fleet") {
			t.Errorf("%q: %v", name, told(got))
		}
	}
	seen := map[string]string{}
	for _, c := range [][2]string{{"pay", "hapsnap"}, {"pay", "edge.example.com"}, {strings.Repeat("a", 63), "hapsnap"}, {strings.Repeat("a", 62), "hapsnap"}, {"a", strings.Repeat("b", 200)}} {
		name := nameOf(c[0], c[1])
		if len(name) > 40 || len(validation.IsDNS1035Label(name)) > 0 || seen[name] != "" {
			t.Errorf("%v is called %q, as %q", c, name, seen[name])
		}
		seen[name] = c[0]
	}
	for _, c := range [][2]string{{"a", "b-c-hapsnap"}, {"a-b", "c-hapsnap"}, {strings.Repeat("n", 63), strings.Repeat("f", 40)}} {
		store := storeOf(c[0], c[1])
		if len(validation.IsDNS1123Label(store)) > 0 || seen[store] != "" {
			t.Errorf("the store of %v is %q, as that of %q", c, store, seen[store])
		}
		seen[store] = c[0]
	}
}

// greedy asks for everything that a Gateway can ask for.
const greedy = `infrastructure:
  parametersRef: {group: hapsnap.dev, kind: Fleet, name: pay}
  labels:
    team: shop
    example.com/cost: "7"
    app.kubernetes.io/name: mine
    hapsnap.dev/fleet: other
    hapsnap.dev/fleet-namespace: blog
    gateway.networking.k8s.io/gateway-name: other
    pod-security.kubernetes.io/enforce: privileged
  annotations:
    example.com/note: "x\nkind: ClusterRole\n{{ fail }}"
    service.beta.kubernetes.io/aws-load-balancer-internal: "false"
    helm.sh/resource-policy: keep
`

// A Gateway adds the labels and annotations that the operator allows, to objects in its namespace. It cannot
// add those by which the owner of an object is known.
func TestHostileLabels(t *testing.T) {
	t.Parallel()
	r := rules(t)
	r.Labels, r.Annotations = []string{"*", "app.kubernetes.io/*", "pod-security.kubernetes.io/*"}, []string{"example.com/*"}
	f := Plan(world(gateway(t, 1, "shop", "one", "pay", greedy)), r, nil)[0]
	if got := strings.Join(f.Left, "\n"); strings.Count(got, "not among those") != 5 {
		t.Errorf("left out:\n%s", got)
	}
	record := newRecord(f, "example.com/c")
	objects := rendered(t, f, record, "")
	for _, o := range objects {
		labels, annotations := o.GetLabels(), o.GetAnnotations()
		ours := o.GetNamespace() == "shop"
		if !record.owns(o, "edge.provisioner") || labels["app.kubernetes.io/name"] != "hapsnap" || labels["app.kubernetes.io/managed-by"] != manager {
			t.Errorf("%s has the labels %v", refOf(o), labels)
		}
		if (labels["team"] == "shop") != ours || (labels["example.com/cost"] == "7") != ours || (labels[gatewayv1.GatewayNameLabelKey] == "one") != ours || strings.HasPrefix(annotations["example.com/note"], "x\nkind") != ours {
			t.Errorf("%s: labels %v, annotations %v", refOf(o), labels, annotations)
		}
		if o.GetKind() == "Namespace" && labels["pod-security.kubernetes.io/enforce"] != "restricted" || ours && annotations[keepAnnotation] != "" || annotations["service.beta.kubernetes.io/aws-load-balancer-internal"] != "" {
			t.Errorf("%s: labels %v, annotations %v", refOf(o), labels, annotations)
		}
		if selector, found, _ := unstructured.NestedStringMap(o.Object, "spec", "selector", "matchLabels"); found && selector["team"] != "" {
			t.Errorf("%s selects by a label of a Gateway", refOf(o))
		}
	}
}

// rendered renders a fleet with the operator's values.
func rendered(t *testing.T, f Fleet, r Record, values string) []*unstructured.Unstructured {
	t.Helper()
	chart, err := LoadChart("9.9.9")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := chart.Objects(f, r, "edge.provisioner", Values(*parsed[map[string]any](t, "{"+values+"}"), f, r, controller))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// The rendered objects follow the operator's values, for the namespace of the Gateway and its store alone.
func TestRender(t *testing.T) {
	t.Parallel()
	f := Plan(world(gateway(t, 1, "shop", "one", "pay", "")), rules(t), nil)[0]
	record := newRecord(f, "example.com/c")
	objects := rendered(t, f, record, "haproxy: {replicas: 5, image: {repository: ours}}, gatewayAPI: {ports: [8443]}, rbac: {namespaces: [blog]}, monitoring: {serviceMonitor: {enabled: true}}")
	if err := inside(f, record, objects); err != nil {
		t.Error(err)
	}
	found := map[string]*unstructured.Unstructured{}
	for _, o := range objects {
		found[refOf(o).String()] = o
		if !strings.HasPrefix(o.GetName(), "pay-hapsnap") && !strings.HasPrefix(o.GetName(), "shop-pay-hapsnap") && !strings.HasPrefix(o.GetName(), record.Store) {
			t.Errorf("%s is called otherwise", refOf(o))
		}
	}
	deployment := found["Deployment shop/pay-hapsnap-haproxy"]
	if deployment == nil || found["Service shop/pay-hapsnap-haproxy"] == nil || found["ServiceMonitor shop/pay-hapsnap-compiler"] == nil || found["Role blog/shop-pay-hapsnap-compiler-routes"] == nil || found["Namespace "+record.Store] == nil {
		t.Fatalf("there are %v", slices.Collect(func(yield func(string) bool) {
			for name := range found {
				if !yield(name) {
					return
				}
			}
		}))
	}
	text, err := yaml.Marshal(deployment.Object)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"replicas: 5", "image: docker.io/ours:3.2", "name: gateway-443", "name: gateway-8443", "ghcr.io/hapsnap/pusher:9.9.9"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	config, _, _ := unstructured.NestedString(found["ConfigMap shop/pay-hapsnap-compiler"].Object, "data", "config.yaml")
	for _, want := range []string{"fleet: shop/pay", "controllerName: " + controller, "- blog\n", "- shop\n"} {
		if !strings.Contains(config, want) {
			t.Errorf("no %q in\n%s", want, config)
		}
	}
	if found["Role shop/pay-hapsnap-compiler-secrets"] == nil || found["ClusterRole shop-pay-hapsnap-compiler-secrets"] != nil {
		t.Error("a fleet reads the Secrets of others")
	}
	outside := rendered(t, f, record, "extraObjects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: kube-system}}]")
	if err := inside(f, record, outside); err == nil || !strings.Contains(err.Error(), "ConfigMap kube-system/a") {
		t.Errorf("an object of another namespace: %v", err)
	}
}

func TestReadValues(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct {
		files []string
		want  string
	}{
		"the last one wins":      {[]string{"haproxy: {replicas: 1, kind: DaemonSet}", "haproxy: {replicas: 3}"}, ""},
		"one name for all":       {[]string{"fullnameOverride: a"}, "fullnameOverride is each fleet's own"},
		"one store for all":      {[]string{"store: {url: 'git+https://a.example/b'}"}, "store.url is each fleet's own"},
		"one fleet for all":      {[]string{"gatewayAPI: {fleet: a}"}, "gatewayAPI.fleet is each fleet's own"},
		"another controllerName": {[]string{"compiler: {config: {gatewayAPI: {controllerName: a/b}}}"}, "compiler.config.gatewayAPI.controllerName is each fleet's own"},
		"no YAML":                {[]string{"a: ["}, "read values"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var files []string
			for i, text := range c.files {
				path := filepath.Join(dir, fmt.Sprintf("%s-%d", strings.ReplaceAll(name, " ", "-"), i))
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				files = append(files, path)
			}
			got, err := ReadValues(files)
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) || c.want == "" && (err != nil || fmt.Sprint(got) != "map[haproxy:map[kind:DaemonSet replicas:3]]") {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

func TestReserved(t *testing.T) {
	t.Parallel()
	chart, err := LoadChart("")
	if err != nil {
		t.Fatal(err)
	}
	for values, want := range map[string]map[int]string{
		"{}": {5555: "haproxy.dataplane.port", 8404: "compiler.config.status.port"},
		"{waf: {enabled: true}, compiler: {config: {status: {port: 9000}, http: {port: 80}}}}": {5555: "haproxy.dataplane.port", 9000: "compiler.config.status.port", 9097: "waf.port", 80: "compiler.config.http.port"},
	} {
		merged, err := chart.Merged(*parsed[map[string]any](t, values))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, Reserved(merged)); diff != "" {
			t.Errorf("%s:\n%s", values, diff)
		}
	}
}

func TestParsePorts(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "0", "65536", "http", "90-80", "1-", "-1"} {
		if got, err := ParsePorts([]string{bad}); err == nil {
			t.Errorf("%q is %v", bad, got)
		}
	}
}

// Fleets go when their grace is over, and none of them if too many would.
func TestRemovals(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	ago := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	record := func(name string, since *time.Time) Record { return Record{Fleet: named("shop", name), Since: since} }
	gone := record("gone", ago(time.Hour))
	gone.Gone = true
	for name, c := range map[string]struct {
		made  []Record
		named []string
		want  string // marked, removed, waiting, held
	}{
		"named":                    {[]Record{record("a", nil)}, []string{"a"}, "[] [] [] false"},
		"named again":              {[]Record{record("a", ago(time.Minute))}, []string{"a"}, "[a] [] [] false"},
		"not named since now":      {[]Record{record("a", nil)}, nil, "[a] [] [a] false"},
		"not named for less":       {[]Record{record("a", ago(time.Minute))}, nil, "[] [] [a] false"},
		"not named for long":       {[]Record{record("a", ago(6*time.Minute))}, nil, "[] [a] [] false"},
		"a clock that was wrong":   {[]Record{record("a", ago(-time.Hour))}, nil, "[a] [] [a] false"},
		"gone":                     {[]Record{gone}, nil, "[] [] [] false"},
		"as many as may go":        {[]Record{record("a", ago(time.Hour)), record("b", ago(time.Hour)), gone}, nil, "[] [a b] [] false"},
		"too many":                 {[]Record{record("a", ago(time.Hour)), record("b", ago(time.Hour)), record("c", nil)}, nil, "[c] [] [c a b] true"},
		"one of them named, so no": {[]Record{record("a", ago(time.Hour)), record("b", ago(time.Hour)), record("c", nil)}, []string{"c"}, "[] [a b] [] false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made := map[types.NamespacedName]Record{}
			for _, r := range c.made {
				made[r.Fleet] = r
			}
			var fleets []Fleet
			for _, n := range c.named {
				fleets = append(fleets, Fleet{Name: named("shop", n)})
			}
			got := Removals(made, fleets, 2, 5*time.Minute, now)
			names := func(list []Record) []string {
				out := []string{}
				for _, r := range list {
					out = append(out, r.Fleet.Name)
				}
				return out
			}
			if said := fmt.Sprint(names(got.Mark), names(got.Remove), names(got.Waiting), got.Held != ""); said != c.want {
				t.Errorf("%s, want %s", said, c.want)
			}
		})
	}
}

// A condition is ours to write until the compiler of the fleet has written Accepted.
func TestSpeaks(t *testing.T) {
	t.Parallel()
	f := Fleet{Name: named("shop", "pay")}
	for _, reason := range []string{"", reasonRefused, reasonFailed} {
		if said := Conditions(f, reason, strings.Repeat("x", 2000), 1); !speaks(said) || differ(said, said) || len(said[1].Message) > 1100 {
			t.Errorf("%s: %v", reason, said)
		}
	}
	waiting := metav1.Condition{Type: "Accepted", Status: metav1.ConditionUnknown, Reason: "Pending", Message: "Waiting for controller"}
	compilers := metav1.Condition{Type: "Accepted", Status: metav1.ConditionFalse, Reason: "ListenersNotValid", Message: "some listeners are not served"}
	if !speaks(nil) || !speaks([]metav1.Condition{waiting}) || speaks([]metav1.Condition{compilers}) {
		t.Error("who speaks is not who should")
	}
}

// A record that cannot be read, or has another name, does not count as a fleet that was never made.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	const prefix, mark = "provisioner", "infra.provisioner"
	good := newRecord(Fleet{Name: named("shop", "pay"), Class: "hapsnap"}, "example.com/c")
	all := records{fake.NewClientset().CoreV1().ConfigMaps("infra"), prefix, mark}
	if err := all.save(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	if got, err := all.list(t.Context()); err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	for damage, change := range map[string]func(*corev1.ConfigMap){
		"is not the record of a fleet": func(c *corev1.ConfigMap) { c.Data[recordKey] = "{" },
		"which has another name":       func(c *corev1.ConfigMap) { c.Name += "2" },
	} {
		c, err := all.client.Get(t.Context(), all.name(good), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		change(c)
		damaged := records{fake.NewClientset(c).CoreV1().ConfigMaps("infra"), prefix, mark}
		if got, err := damaged.list(t.Context()); err == nil || !strings.Contains(err.Error(), damage) {
			t.Errorf("%v, %v, want that one %s", got, err, damage)
		}
	}
}

// A fleet that is not due leaves the work on the one before alone. The race detector finds fault with variables that the
// loop over the fleets and that work use without a lock.
func TestFleetsAtTheSameTime(t *testing.T) {
	t.Parallel()
	chart, err := LoadChart("9.9.9")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	wrong := map[string]any{"extraObjects": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "kube-system"}}}}
	p := &provisioner{
		Options: Options{Rules: rules(t), Resync: time.Minute, Log: slog.New(slog.DiscardHandler)},
		chart:   chart, cluster: &cluster{provisioner: "edge.provisioner"}, metrics: newMetrics(prometheus.NewRegistry()),
		states: map[types.NamespacedName]*state{}, made: map[types.NamespacedName]Record{},
	}
	fleets := Plan(world(gateway(t, 1, "shop", "one", "pay", ""), gateway(t, 2, "web", "two", "www", "")), p.Rules, nil)
	if len(fleets) != 2 || fleets[0].Name.Name != "pay" {
		t.Fatalf("the fleets are %v", fleets)
	}
	known := newRecord(fleets[1], p.Rules.Controller)
	p.made[known.Fleet] = known
	p.states[known.Fleet] = &state{digest: digestOf(Values(wrong, fleets[1], known, p.Rules.Controller), fleets[1]), at: now}
	if next := p.bring(t.Context(), fleets, wrong, now); next <= 0 || next > retryFirst {
		t.Errorf("the next turn is due in %s", next)
	}
	if err := p.states[fleets[0].Name].err; err == nil || !strings.Contains(err.Error(), "kube-system/a") {
		t.Errorf("the fleet that is due: %v", err)
	}
	if s := p.states[known.Fleet]; s.err != nil || !s.at.Equal(now) {
		t.Errorf("the fleet that is not due: %+v", s)
	}
}
