package cluster_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/compiler/cluster"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/kubewatch"
	"github.com/hapsnap/hapsnap/internal/rbac"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

var shared kubetest.Shared

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m, &shared)) }

// patience bounds every wait: requests that fail are repeated more and more rarely, up to once a minute.
const patience = 3 * time.Minute

// followed is a cluster that is read in a test.
type followed struct {
	*cluster.Cluster
	changes <-chan struct{}
	config  config.Config
}

func follow(t *testing.T, path string, c config.Config) *followed {
	t.Helper()
	connection, err := cluster.Connect(kubeconfig.Options{File: path, UserAgent: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return followConnection(t, connection, c)
}

func followConnection(t *testing.T, connection cluster.Connection, c config.Config) *followed {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	f := &followed{Cluster: cluster.New(connection), config: c}
	f.changes = f.Changes(t.Context(), log)
	done := make(chan struct{})
	go func() { f.Run(t.Context(), log); close(done) }()
	t.Cleanup(func() { <-done })
	return f
}

// in returns a configuration for one namespace.
func in(namespace string) config.Config {
	c := config.Default()
	c.Namespaces = []string{namespace}
	return c
}

// await reads after each change until the result is as wanted.
func (f *followed) await(t *testing.T, what string, wanted func(inputs.Inputs, error) bool) inputs.Inputs {
	t.Helper()
	end := time.After(patience)
	for {
		g, err := f.Read(t.Context(), f.config)
		if wanted(g.Objects, err) {
			return g.Objects
		}
		select {
		case <-f.changes:
		case <-end:
			t.Fatalf("%s: still %v, %v", what, refs(g.Objects), err)
		}
	}
}

// read reads once.
func (f *followed) read(t *testing.T) (inputs.Inputs, error) {
	t.Helper()
	g, err := f.Read(t.Context(), f.config)
	return g.Objects, err
}

// holds returns a condition for await: exactly these objects are known.
func holds(names ...string) func(inputs.Inputs, error) bool {
	slices.Sort(names)
	return func(in inputs.Inputs, err error) bool { return err == nil && slices.Equal(refs(in), names) }
}

// refs returns the names of the objects that were read.
func refs(in inputs.Inputs) []string {
	var out []string
	add := func(refs ...diag.Object) {
		for _, ref := range refs {
			out = append(out, ref.Kind+" "+ref.Name)
		}
	}
	for _, o := range in.Ingresses {
		add(o.Ref)
	}
	for _, o := range in.Services {
		add(o.Ref)
	}
	for _, o := range in.Secrets {
		add(o.Ref)
	}
	for _, o := range in.ConfigMaps {
		add(o.Ref)
	}
	for _, o := range in.EndpointSlices {
		add(o.Ref)
	}
	for _, o := range in.Others {
		add(o.Ref)
	}
	slices.Sort(out)
	return out
}

func service(namespace, name string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: %s}\nspec: {ports: [{name: http, port: 80}]}\n", name, namespace)
}

func ingress(namespace, name string) string {
	return fmt.Sprintf(`---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: %s, namespace: %s}
spec: {ingressClassName: hapsnap, defaultBackend: {service: {name: web, port: {name: http}}}}
`, name, namespace)
}

func configMap(namespace, name, value string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\ndata: {key: %q}\n", name, namespace, value)
}

func secret(namespace, name, value string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: %s, labels: {edge: \"yes\"}}\nstringData: {key: %q}\n", name, namespace, value)
}

func named(namespace string, secrets ...string) routing.Asked {
	var out routing.Asked
	for _, name := range secrets {
		out.Secrets = append(out.Secrets, types.NamespacedName{Namespace: namespace, Name: name})
	}
	return out
}

// There is no result before all kinds are known. Then it has everything in the selected namespace, and later
// the changes.
func TestReadsAndFollows(t *testing.T) {
	t.Parallel()
	server := shared.Server(t)
	ours, others := server.Namespace(t), server.Namespace(t)
	server.Apply(t, service(ours, "web")+ingress(ours, "web")+service(others, "other"))
	f := follow(t, server.Kubeconfig(), in(ours))
	if g, err := f.Read(t.Context(), f.config); !errors.Is(err, inputs.ErrIncomplete) || !strings.Contains(err.Error(), "Ingresses in "+ours) || len(refs(g.Objects)) > 0 {
		t.Errorf("before anything was known: %v, %v", refs(g.Objects), err)
	}
	got := f.await(t, "start", holds("Ingress web", "Service web"))
	if o := got.Ingresses[0].Value; o.Spec.DefaultBackend.Service.Name != "web" || o.UID == "" || o.ManagedFields != nil {
		t.Errorf("read %+v", o)
	}
	if at := got.Ingresses[0].Position("spec", "rules", 0).String(); at != "spec.rules[0]" {
		t.Errorf("a field is at %q", at)
	}
	server.Apply(t, service(ours, "new"))
	f.await(t, "a new one", holds("Ingress web", "Service new", "Service web"))
	server.Delete(t, service(ours, "web"))
	f.await(t, "one that is gone", holds("Ingress web", "Service new"))
}

// Of a Service for a Gateway, the owner and the selector are read, so that they can be corrected. Of other
// Services, neither is kept, and changes of them have no effect.
func TestServicesOfGatewaysAreSeenWhole(t *testing.T) {
	t.Parallel()
	server := shared.Server(t)
	namespace := server.Namespace(t)
	put := func(name, annotations, selector string) {
		t.Helper()
		server.Apply(t, fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {namespace: %s, name: %s, annotations: {%s}, ownerReferences: [{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, name: %s, uid: "1"}]}, spec: {selector: {%s}, ports: [{port: 80}]}}`, namespace, name, annotations, name, selector))
	}
	seen := func(in inputs.Inputs) map[string]string {
		out := map[string]string{}
		for _, o := range in.Services {
			out[o.Ref.Name] = fmt.Sprintf("%s %d", o.Value.Spec.Selector["app"], len(o.Value.OwnerReferences))
		}
		return out
	}
	sees := func(made string) func(inputs.Inputs, error) bool {
		return func(in inputs.Inputs, err error) bool {
			return err == nil && maps.Equal(seen(in), map[string]string{"made": made, "other": " 0"})
		}
	}
	put("made", inputs.ControllerAnnotation+": example.com/controller", "")
	put("other", "", "app: a")
	f := follow(t, server.Kubeconfig(), in(namespace))
	f.await(t, "start", sees(" 1"))
	put("made", inputs.ControllerAnnotation+": example.com/controller", "app: b")
	f.await(t, "a selector", sees("b 1"))
}

// A Secret is read once a compile has named it. Others are not read. A Secret that is created later is found.
func TestSecretsByName(t *testing.T) {
	t.Parallel()
	server := shared.Server(t)
	namespace := server.Namespace(t)
	server.Apply(t, secret(namespace, "used", "a")+secret(namespace, "unused", "b"))
	f := follow(t, server.Kubeconfig(), in(namespace))
	f.await(t, "start", holds())
	if !f.Complete(routing.Asked{}) {
		t.Error("a compile that named nothing is not complete")
	}
	if f.Complete(named(namespace, "later", "used")) {
		t.Error("a compile is complete though what it named was not read")
	}
	got := f.await(t, "named", holds("Secret used"))
	if string(got.Secrets[0].Value.Data["key"]) != "a" {
		t.Errorf("read %v", got.Secrets[0].Value.Data)
	}
	if !f.Complete(named(namespace, "later", "used")) {
		t.Error("a compile is not complete though one Secret was read and the other is known not to be there")
	}
	server.Apply(t, secret(namespace, "later", "c"))
	f.await(t, "made later", holds("Secret later", "Secret used"))
	if f.Await(named(namespace, "unused")) || !f.Await(named(namespace, "later")) {
		t.Error("what was not named before is awaited, and nothing else")
	}
	f.await(t, "named beside others", holds("Secret later", "Secret unused", "Secret used"))
	f.Complete(named(namespace, "later"))
	f.await(t, "not named any more", holds("Secret later"))
}

// A name that no object can have is known not to be there. Nobody waits for it.
func TestSecretsByOddNames(t *testing.T) {
	t.Parallel()
	server := shared.Server(t)
	f := follow(t, server.Kubeconfig(), config.Default())
	known := func(_ inputs.Inputs, err error) bool { return err == nil }
	f.await(t, "start", known)
	for _, odd := range []string{"..", ".", "a/b", "a%b", "A b", "a,b=c", "a\nb", "*", "?a=b", strings.Repeat("a", 300)} {
		f.Complete(named("default", odd))
		f.await(t, "a name like "+odd, known)
		f.Complete(named(odd, "a"))
		f.await(t, "a namespace like "+odd, known)
	}
}

func TestSecretsByLabelAndAll(t *testing.T) {
	t.Parallel()
	server := shared.Server(t)
	namespace := server.Namespace(t)
	server.Apply(t, secret(namespace, "labelled", "a")+strings.Replace(secret(namespace, "plain", "b"), "edge", "core", 1))
	c := in(namespace)
	c.Secrets = kinds.Watched{Watch: kinds.WatchSelected, LabelSelector: "edge=yes"}
	follow(t, server.Kubeconfig(), c).await(t, "by label", holds("Secret labelled"))
	c.Secrets = kinds.Watched{Watch: kinds.WatchAll}
	follow(t, server.Kubeconfig(), c).await(t, "all", holds("Secret labelled", "Secret plain"))
}

// A new configuration changes what is watched.
func TestConfigurationChanges(t *testing.T) {
	t.Parallel()
	server := shared.Server(t)
	namespace := server.Namespace(t)
	server.Apply(t, configMap(namespace, "a", "1")+secret(namespace, "b", "2"))
	f := follow(t, server.Kubeconfig(), in(namespace))
	f.await(t, "start", holds())
	f.config.ConfigMaps.Watch = kinds.WatchAll
	f.await(t, "all ConfigMaps", holds("ConfigMap a"))
	f.config.ConfigMaps.Watch, f.config.Secrets.Watch = kinds.WatchNamed, kinds.WatchAll
	f.await(t, "all Secrets", holds("Secret b"))
}

// Namespaces are selected by their labels, also by later ones.
func TestNamespacesByLabel(t *testing.T) {
	t.Parallel()
	server := shared.Server(t)
	a, b := server.Namespace(t), server.Namespace(t)
	server.Apply(t, service(a, "a")+service(b, "b")+
		fmt.Sprintf("---\napiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {tier: %s}}\n", a, a))
	c := config.Default()
	c.NamespaceSelector = "tier=" + a
	f := follow(t, server.Kubeconfig(), c)
	f.await(t, "start", holds("Service a"))
	server.Apply(t, fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {tier: %s}}\n", b, a))
	f.await(t, "another namespace", holds("Service a", "Service b"))
}

// planCase is a configuration and its plan.
type planCase struct {
	change      func(*config.Config)
	plan, rules string
}

var planCases = map[string]planCase{
	"default": {
		func(*config.Config) {},
		"IngressClasses, Ingresses, ConfigMap shop/pages, Secret blog/tls, Secret shop/a, Secret shop/b, Services",
		`
- Namespace: ""
  Rules:
  - {apiGroups: [""], resources: [services], verbs: [get, list, watch]}
  - {apiGroups: [networking.k8s.io], resources: [ingressclasses, ingresses], verbs: [get, list, watch]}
- Namespace: blog
  Rules:
  - {apiGroups: [""], resources: [secrets], resourceNames: [tls], verbs: [get, list, watch]}
- Namespace: shop
  Rules:
  - {apiGroups: [""], resources: [configmaps], resourceNames: [pages], verbs: [get, list, watch]}
  - {apiGroups: [""], resources: [secrets], resourceNames: [a, b], verbs: [get, list, watch]}
`,
	},
	"namespaces": {
		func(c *config.Config) {
			c.Namespaces, c.Endpoints = []string{"shop"}, config.Recorded
			c.Secrets = kinds.Watched{Watch: kinds.WatchSelected, LabelSelector: "edge=yes"}
			c.ConfigMaps = kinds.Watched{Watch: kinds.WatchAll}
		},
		"IngressClasses, EndpointSlices in shop, Ingresses in shop, ConfigMaps in shop, Secrets in shop with edge=yes, Services in shop",
		`
- Namespace: ""
  Rules:
  - {apiGroups: [networking.k8s.io], resources: [ingressclasses], verbs: [get, list, watch]}
- Namespace: shop
  Rules:
  - {apiGroups: [""], resources: [configmaps, secrets, services], verbs: [get, list, watch]}
  - {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}
  - {apiGroups: [networking.k8s.io], resources: [ingresses], verbs: [get, list, watch]}
`,
	},
	"kinds": {
		func(c *config.Config) {
			c.Secrets, c.ConfigMaps = kinds.Watched{Watch: kinds.WatchAll}, kinds.Watched{Watch: kinds.WatchAll}
			c.Kinds = []kinds.Kind{
				{APIVersion: "example.com/v1", Kind: "Widget", Optional: true, LabelSelector: "a=b", FieldSelector: "spec.class=x", NamespaceSelector: "tier=edge"},
				{APIVersion: "example.com/v1", Kind: "Gadget", Namespaces: []string{"shop"}},
			}
		},
		"Gadgets in shop, Widgets with a=b with spec.class=x, IngressClasses, Ingresses, ConfigMaps, Namespaces, Secrets, Services",
		`
- Namespace: ""
  Rules:
  - {apiGroups: [""], resources: [configmaps, namespaces, secrets, services], verbs: [get, list, watch]}
  - {apiGroups: [example.com], resources: [widget-resource], verbs: [get, list, watch]}
  - {apiGroups: [networking.k8s.io], resources: [ingressclasses, ingresses], verbs: [get, list, watch]}
- Namespace: shop
  Rules:
  - {apiGroups: [example.com], resources: [gadget-resource], verbs: [get, list, watch]}
`,
	},
}

func TestPlanAndRules(t *testing.T) {
	t.Parallel()
	asked := routing.Asked{
		Secrets:    []types.NamespacedName{{Namespace: "blog", Name: "tls"}, {Namespace: "shop", Name: "b"}, {Namespace: "shop", Name: "a"}},
		ConfigMaps: []types.NamespacedName{{Namespace: "shop", Name: "pages"}},
	}
	for name, c := range planCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config.Default()
			c.change(&cfg)
			plan := cluster.Plan(cfg, asked)
			var names []string
			for _, q := range plan {
				names = append(names, q.String())
			}
			slices.Sort(names)
			want := strings.Split(c.plan, ", ")
			slices.Sort(want)
			if !slices.Equal(names, want) {
				t.Errorf("planned\n%s\nwant\n%s", strings.Join(names, "\n"), strings.Join(want, "\n"))
			}
			rules := kubewatch.Rules(plan, func(kubewatch.Query) string { return "" }, func(_, kind string) string { return strings.ToLower(kind) + "-resource" })
			if got, want := canonical(t, rules), canonicalText(t, c.rules); got != want {
				t.Errorf("rules\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func canonical(t *testing.T, v any) string {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func canonicalText(t *testing.T, text string) string {
	t.Helper()
	var grants []rbac.Grant
	if err := yaml.UnmarshalStrict([]byte(text), &grants); err != nil {
		t.Fatal(err)
	}
	return canonical(t, grants)
}

// The API server selects objects of other kinds: by label, by a selectable field, by namespace, and by the
// labels of namespaces.
func TestSelectorsOfOtherKinds(t *testing.T) {
	t.Parallel()
	server := shared.Server(t)
	a, b := server.Namespace(t), server.Namespace(t)
	definition := fmt.Sprintf(widgets, "pickeds", "Picked")
	definition = strings.Replace(definition, "    schema:", "    selectableFields: [{jsonPath: .spec.host}]\n    schema:", 1)
	server.Apply(t, strings.Replace(definition, "x-kubernetes-preserve-unknown-fields: true",
		"properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {host: {type: string}}}}", 1))
	labelled := strings.Replace(widget("Picked", a, "labelled", "x.example"), "metadata: {", "metadata: {labels: {edge: \"yes\"}, ", 1)
	server.Apply(t, labelled+widget("Picked", a, "plain", "y.example")+widget("Picked", b, "other", "x.example")+
		fmt.Sprintf("---\napiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {tier: %s}}\n", b, b))
	for name, c := range map[string]struct {
		kind kinds.Kind
		want []string
	}{
		"all":                  {kinds.Kind{}, []string{"Picked labelled", "Picked other", "Picked plain"}},
		"label":                {kinds.Kind{LabelSelector: "edge=yes"}, []string{"Picked labelled"}},
		"field":                {kinds.Kind{FieldSelector: "spec.host=x.example"}, []string{"Picked labelled", "Picked other"}},
		"namespace":            {kinds.Kind{Namespaces: []string{a}}, []string{"Picked labelled", "Picked plain"}},
		"label of a namespace": {kinds.Kind{NamespaceSelector: "tier=" + b}, []string{"Picked other"}},
		"label and field":      {kinds.Kind{LabelSelector: "edge=yes", FieldSelector: "spec.host=y.example"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := in("none-of-the-others")
			c.kind.APIVersion, c.kind.Kind = "test.example/v1", "Picked"
			cfg.Kinds = []kinds.Kind{c.kind}
			follow(t, server.Kubeconfig(), cfg).await(t, name, holds(c.want...))
		})
	}
}

// Objects of the usual kinds are read as values of their types. The result is the same as that of maps, from which
// manifests and custom kinds are read.
func TestTypedObjectsEqualConvertedOnes(t *testing.T) {
	t.Parallel()
	server := shared.Server(t)
	namespace := server.Namespace(t)
	server.Apply(t, strings.ReplaceAll(`---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: all, namespace: NS, labels: {a: b}, annotations: {hapsnap.dev/timeout-server: 5s, empty: ""}, finalizers: [example.com/held]}
spec:
  ingressClassName: hapsnap
  tls: [{hosts: [a.example], secretName: tls}, {}]
  rules:
  - {}
  - {host: a.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}, {pathType: ImplementationSpecific, backend: {resource: {apiGroup: example.com, kind: Thing, name: x}}}]}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: least, namespace: NS, annotations: {}}
spec: {defaultBackend: {service: {name: web, port: {name: http}}}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: NS, annotations: {a: b}, labels: {x: "y"}, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: data, uid: "1"}]}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: web, appProtocol: kubernetes.io/h2c}, {name: more, port: 81, targetPort: 8081}]}
---
apiVersion: v1
kind: Service
metadata: {name: out, namespace: NS}
spec: {type: ExternalName, externalName: out.example}
---
apiVersion: v1
kind: Secret
metadata: {name: tls, namespace: NS, labels: {edge: "yes"}}
data: {tls.crt: AAEC, empty: ""}
---
apiVersion: v1
kind: Secret
metadata: {name: none, namespace: NS}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: data, namespace: NS}
data: {a: "b\n", empty: ""}
binaryData: {b: AAEC}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: NS, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1], conditions: {ready: true}, zone: a}, {addresses: [10.0.0.2], conditions: {}}]
ports: [{name: http, port: 8080}]
`, "NS", namespace))
	c := in(namespace)
	c.Endpoints = config.Recorded
	c.NamespaceSelector = "kubernetes.io/metadata.name=" + namespace
	c.Secrets.Watch, c.ConfigMaps.Watch = kinds.WatchAll, kinds.WatchAll
	whole := func(in inputs.Inputs, err error) bool {
		return err == nil && len(in.Secrets) == 2 && len(in.EndpointSlices) == 1
	}
	typed := follow(t, server.Kubeconfig(), c).await(t, "typed", whole)
	connection, err := cluster.Connect(kubeconfig.Options{File: server.Kubeconfig(), UserAgent: "test"})
	if err != nil {
		t.Fatal(err)
	}
	connection.Lists, connection.Single = nil, nil
	converted := followConnection(t, connection, c).await(t, "converted", whole)
	equate := []gocmp.Option{
		cmpopts.EquateEmpty(), cmpopts.IgnoreTypes(func(...any) diag.Position { return diag.Position{} }), inAnyOrder[networkingv1.Ingress](),
		inAnyOrder[corev1.Service](), inAnyOrder[corev1.Secret](), inAnyOrder[corev1.ConfigMap](), inAnyOrder[corev1.Namespace](),
	}
	if diff := gocmp.Diff(converted, typed, equate...); diff != "" {
		t.Errorf("typed objects differ (-converted +typed):\n%s", diff)
	}
	if len(typed.Ingresses) != 2 || len(typed.Services) != 2 || len(typed.ConfigMaps) == 0 || typed.Services[1].Value.Kind != "Service" {
		t.Errorf("read %v", refs(typed))
	}
}

func inAnyOrder[T any]() gocmp.Option {
	return cmpopts.SortSlices(func(a, b inputs.Object[T]) bool { return a.Ref.Compare(b.Ref) < 0 })
}
