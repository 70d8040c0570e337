package compiler_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/templates"
)

// picky stands in for HAProxy. It refuses lines with the word "refused". It also refuses, without naming a
// line, configurations with both "odd-a" and "odd-b".
type picky struct{}

func (picky) Check(_ context.Context, in validate.Input) (validate.Verdict, error) {
	var v validate.Verdict
	for _, f := range in.Artifact.Files {
		number := 0
		for line := range bytes.Lines(f.Content) {
			number++
			if bytes.Contains(line, []byte("refused")) && !bytes.HasPrefix(line, []byte("#")) {
				v.Faults = append(v.Faults, render.Fault{
					Message: "refused", File: f.Path, Line: number, Text: strings.TrimSpace(string(line)), Origin: in.Artifact.Origin(f.Path, number),
				})
			}
		}
		if bytes.Contains(f.Content, []byte("odd-a")) && bytes.Contains(f.Content, []byte("odd-b")) {
			v.Faults = append(v.Faults, render.Fault{Message: "odd"})
		}
	}
	return v, nil
}

// world is a cluster that changes.
type world struct {
	r         *rand.Rand
	names     []string // of Ingresses, in the order in which they are read
	ingresses map[string]*networkingv1.Ingress
	lines     map[string]int // where they are
	services  map[string]*corev1.Service
	widgets   map[string]*unstructured.Unstructured
	config    config.Config
	sets      []*render.Set
	set       int
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{
		r: rand.New(rand.NewPCG(seed, 2)), ingresses: map[string]*networkingv1.Ingress{}, lines: map[string]int{},
		services: map[string]*corev1.Service{}, widgets: map[string]*unstructured.Unstructured{}, config: config.Default(),
	}
	shipped, err := render.Shipped(templates.FS)
	if err != nil {
		t.Fatal(err)
	}
	for _, overlay := range []render.Templates{
		nil,
		{{Name: "extend/backend.cfg", Path: "mine/backend.cfg", Text: "{{with .Annotation \"note\"}}\n    # note {{.}}\n{{end}}"}},
		{{Name: "extend/backend.cfg", Path: "moved/backend.cfg", Text: "{{with .Annotation \"note\"}}\n    # note {{.}}\n{{end}}"}},
		{{Name: "extend/backend.cfg", Path: "mine/backend.cfg", Text: "    # hosts{{range .Hosts}} {{.Name}}{{end}}\n"}},
		{{Name: "extend/backend.cfg", Path: "mine/backend.cfg", Text: "{{range .Objects \"v1/Service\"}}\n    # {{.Object.Name}}\n{{end}}"}},
		{ // some backends read the objects, and others do not
			{Name: "extend/backend.cfg", Path: "mine/backend.cfg", Text: "{{if .Annotation \"note\"}}{{range .Objects \"example.com/v1/Widget\"}}\n    # {{.Content.spec.host}}\n{{end}}{{end}}"},
			{Name: "maps/widgets.map", Path: "mine/widgets.map", Text: "{{range .Hosts}}{{range $.Indexed \"example.com/v1/Widget\" \"byHost\" .Name}}\n{{.Object.Name}} {{.Field \"spec.note\" | default \"-\"}}\n{{end}}{{end}}"},
		},
	} {
		set, found := render.Parse(shipped.Under(overlay))
		if len(found) > 0 {
			t.Fatal(found)
		}
		w.sets = append(w.sets, set)
	}
	w.config.Kinds = []kinds.Kind{{APIVersion: "example.com/v1", Kind: "Widget", LabelSelector: "off!=true", Indexes: map[string]string{"byHost": ".spec.host"}}}
	for i := range 4 {
		name := fmt.Sprint("svc-", i)
		w.services[name] = plainService(name, nil)
	}
	return w
}

// noted are annotations that objects may get.
var noted = [][2]string{
	{"note", "a"}, {"note", "b"}, {"hapsnap.dev/timeout-server", "5s"}, {"hapsnap.dev/timeout-server", "6s"}, {"hapsnap.dev/rate-limit", "10"},
	{"hapsnap.dev/deny-list", "192.0.2.0/24"}, {"hapsnap.dev/affinity", "cookie"}, {"hapsnap.dev/request-headers", "set X-A b"},
	{"hapsnap.dev/health-check-path", "/odd-a"}, {"hapsnap.dev/health-check-path", "/healthz"},
}

// wrong are annotations that do not work, or only with some templates, or not together with others.
var wrong = [][2]string{
	{"note", "two words"}, {"hapsnap.dev/timeout-server", "soon"}, {"hapsnap.dev/health-check-path", "/refused"},
	{"hapsnap.dev/health-check-path", "/odd-b"}, {"hapsnap.dev/deny-list", "nonsense"}, {"hapsnap.dev/auth-basic", "users"},
}

// annotate returns changed annotations.
func (w *world) annotate(old map[string]string) map[string]string {
	out := maps.Clone(old)
	if out == nil || w.r.IntN(4) == 0 {
		return map[string]string{}
	}
	change := noted[w.r.IntN(len(noted))]
	if w.r.IntN(40) == 0 {
		change = wrong[w.r.IntN(len(wrong))]
	}
	out[change[0]] = change[1]
	return out
}

// change changes one thing.
func (w *world) change() {
	n := len(w.names)
	switch choice := w.r.IntN(24); {
	case n < 3 || choice < 3 && n < 9:
		name := fmt.Sprint("ing-", w.r.IntN(12))
		if w.ingresses[name] == nil {
			w.names = append(w.names, name)
			w.ingresses[name] = w.ingress(name, nil)
		}
	case choice < 5:
		i := w.r.IntN(n)
		delete(w.ingresses, w.names[i])
		w.names = slices.Delete(w.names, i, i+1)
	case choice < 7: // hosts, paths and Services change
		name := w.names[w.r.IntN(n)]
		w.ingresses[name] = w.ingress(name, w.ingresses[name].Annotations)
	case choice < 12:
		ing := w.ingresses[w.names[w.r.IntN(n)]].DeepCopy()
		ing.Annotations = w.annotate(ing.Annotations)
		w.ingresses[ing.Name] = ing
	case choice < 14:
		name := fmt.Sprint("svc-", w.r.IntN(4))
		w.services[name] = plainService(name, w.annotate(w.services[name].Annotations))
	case choice < 16:
		name := w.names[w.r.IntN(n)]
		w.lines[name] += 1 + w.r.IntN(3)
		w.ingresses[name] = w.ingresses[name].DeepCopy() // a file that has changed is decoded again
	case choice < 18:
		w.r.Shuffle(n, func(i, j int) { w.names[i], w.names[j] = w.names[j], w.names[i] })
	case choice < 19:
		w.set = []int{0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 5, 5}[w.r.IntN(12)]
	case choice < 23:
		name := fmt.Sprint("widget-", w.r.IntN(8))
		if w.widgets[name] = w.widget(name); w.r.IntN(4) == 0 {
			delete(w.widgets, name)
		}
	default:
		w.config.DNS.Prefer = []config.Family{"ipv4", "ipv6"}[w.r.IntN(2)]
		w.config.Affinity.KeySecret = []string{"", "shop/key"}[w.r.IntN(2)]
		w.config.Affinity.Key = "key"
	}
}

// ingress returns an Ingress with one or two rules.
func (w *world) ingress(name string, annotations map[string]string) *networkingv1.Ingress {
	prefix, class := networkingv1.PathTypePrefix, "hapsnap"
	out := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: annotations},
		Spec:       networkingv1.IngressSpec{IngressClassName: &class},
	}
	for range 1 + w.r.IntN(2) {
		to := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
			Name: fmt.Sprint("svc-", w.r.IntN(33)/8), Port: networkingv1.ServiceBackendPort{Number: 80}, // the last one is missing
		}}
		out.Spec.Rules = append(out.Spec.Rules, networkingv1.IngressRule{
			Host: fmt.Sprintf("h%d.example", w.r.IntN(20)),
			IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{Path: fmt.Sprint("/", w.r.IntN(3)), PathType: &prefix, Backend: to}},
			}},
		})
	}
	return out
}

// plainService returns a Service with one port.
func plainService(name string, annotations map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: annotations},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
}

// widget returns an object of a custom kind, which may not fit the templates.
func (w *world) widget(name string) *unstructured.Unstructured {
	spec := map[string]any{"host": fmt.Sprintf("h%d.example", w.r.IntN(20)), "note": []any{"a", int64(7), true, "refused", "odd-a"}[w.r.IntN(5)]}
	switch w.r.IntN(20) {
	case 0:
		delete(spec, "host")
	case 1:
		spec["host"] = "two words"
	case 2:
		delete(spec, "note")
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "spec": spec}}
	u.SetNamespace("shop")
	u.SetName(name)
	if w.r.IntN(8) == 0 {
		u.SetLabels(map[string]string{"off": "true"})
	}
	return u
}

// objects returns the objects of the world as inputs.
func (w *world) objects() inputs.Inputs {
	var in inputs.Inputs
	for _, name := range w.names {
		at := diag.Position{File: "m.yaml", Line: 1 + w.lines[name], Column: 1}
		in.Ingresses = append(in.Ingresses, inputs.Object[networkingv1.Ingress]{
			Ref:   diag.Object{Kind: "Ingress", Namespace: "shop", Name: name},
			Value: w.ingresses[name], At: func(...any) diag.Position { return at },
		})
	}
	for _, u := range w.widgets { // in any order
		in.Others = append(in.Others, inputs.Other(u))
	}
	for _, name := range slices.Sorted(maps.Keys(w.services)) {
		in.Services = append(in.Services, inputs.Object[corev1.Service]{
			Ref:   diag.Object{Kind: "Service", Namespace: "shop", Name: name},
			Value: w.services[name],
		})
	}
	return in
}

// input returns the input of a compile of the world.
func (w *world) input(m compiler.Memories) compiler.Input {
	return compiler.Input{Objects: w.objects(), Config: w.config, Templates: w.sets[w.set], Now: now, Memories: m}
}

// After thousands of changes, a compile with all memories equals one without: every byte, the origin of every
// line, and every diagnostic.
func TestMemoNeverShows(t *testing.T) {
	t.Parallel()
	w, memories := newWorld(t, 1), compiler.NewMemories()
	faulty := 0
	steps := 1000 / share
	for step := range steps {
		for range 1 + w.r.IntN(4) {
			w.change()
		}
		fresh, freshErr := compiler.Compile(t.Context(), w.input(compiler.Memories{}), picky{})
		got, err := compiler.Compile(t.Context(), w.input(memories), picky{})
		if (err == nil) != (freshErr == nil) || !reflect.DeepEqual(got, fresh) {
			t.Fatalf("step %d: %v, %v, (-afresh +remembered):\n%s", step, freshErr, err, gocmp.Diff(fresh, got))
		}
		if len(got.Diagnostics) > 0 {
			faulty++
		}
	}
	written, used := memories.Rendered.Counts()
	t.Logf("%d pieces were written, %d used again; %d of the compiles had diagnostics", written, used, faulty)
	if used < written || faulty < steps/10 || faulty > steps*99/100 {
		t.Error("the test is worth little")
	}
}

// Only what changed is rendered again, and maps only if hosts change. That also holds if an annotation of a
// Service that a template reads changes, or if a line moves.
func TestOnlyWhatChangedIsRendered(t *testing.T) {
	t.Parallel()
	in := named(many(50), "note")
	memo := render.NewMemo()
	w := newWorld(t, 1)
	in.Config, in.Templates, in.Rendered = config.Default(), w.sets[1], memo
	rendered := func() (backends, maps int) {
		t.Helper()
		before, _ := memo.Counts()
		mapsBefore := memo.Maps()
		if r, err := compiler.Compile(t.Context(), in, picky{}); err != nil {
			t.Fatal(err, r.Diagnostics)
		}
		after, _ := memo.Counts()
		return after - before, memo.Maps() - mapsBefore
	}
	n, all := rendered()
	if n != 50 || all < 5 {
		t.Errorf("%d backends and %d maps were rendered at first, want 50 and all", n, all)
	}
	for _, c := range []struct {
		what   string
		change func()
		want   int
		maps   int // all but none
	}{
		{"nothing changed", func() {}, 0, 0},
		{"an option", func() { annotate(in, 7, "hapsnap.dev/timeout-server", "5s") }, 1, all}, // its backend has another name
		{"an annotation that a template reads", func() { annotate(in, 8, "note", "b") }, 1, 0},
		{"one that none reads", func() { annotate(in, 8, "other", "b") }, 0, 0},
		{"a place", func() {
			in.Objects.Ingresses[9].At = func(...any) diag.Position { return diag.Position{File: "m.yaml", Line: 3} }
		}, 1, all},
		{"the order", func() { slices.Reverse(in.Objects.Ingresses) }, 0, 0},
		{"the configuration", func() { in.Config.DNS.Prefer = "ipv6" }, 50, all},
		{"templates that say the same, elsewhere", func() { in.Templates = w.sets[2] }, 50, all},
	} {
		c.change()
		if n, maps := rendered(); n != c.want || maps != c.maps {
			t.Errorf("%s: %d backends and %d maps were rendered, want %d and %d", c.what, n, maps, c.want, c.maps)
		}
	}
}

// named returns an input whose Ingresses have an annotation.
func named(in inputs.Inputs, name string) compiler.Input {
	out := compiler.Input{Objects: in, Now: now}
	for i := range in.Ingresses {
		annotate(out, i, name, "a")
	}
	return out
}

// annotate replaces an Ingress by one with another annotation.
func annotate(in compiler.Input, i int, name, value string) {
	ing := in.Objects.Ingresses[i].Value.DeepCopy()
	metav1.SetMetaDataAnnotation(&ing.ObjectMeta, name, value)
	in.Objects.Ingresses[i].Value = ing
}

// ofRoutes is an Input with a Gateway and routes, each for its own host and Service.
func ofRoutes(t *testing.T, n int) compiler.Input {
	t.Helper()
	web := gatewayv1.PortNumber(80)
	in := compiler.Input{Config: config.Default(), Templates: newWorld(t, 1).sets[0], Memories: compiler.Memories{Rendered: render.NewMemo(), Routes: gateway.NewMemo()}, Now: now}
	in.Config.GatewayAPI.Enabled = true
	all := &in.Objects.Gateway
	all.Classes = []inputs.Object[gatewayv1.GatewayClass]{{Ref: diag.Object{Kind: "GatewayClass", Name: "hapsnap"}, Value: &gatewayv1.GatewayClass{
		Spec: gatewayv1.GatewayClassSpec{ControllerName: gatewayv1.GatewayController(in.Config.GatewayAPI.ControllerName)},
	}}}
	all.Gateways = []inputs.Object[gatewayv1.Gateway]{{Ref: diag.Object{Kind: "Gateway", Namespace: "shop", Name: "edge"}, Value: &gatewayv1.Gateway{
		Spec: gatewayv1.GatewaySpec{GatewayClassName: "hapsnap", Listeners: []gatewayv1.Listener{{Name: "http", Port: 8000, Protocol: gatewayv1.HTTPProtocolType}}},
	}}}
	for i := range n {
		name := fmt.Sprint("web", i)
		in.Objects.Services = append(in.Objects.Services, inputs.Object[corev1.Service]{Ref: diag.Object{Kind: "Service", Namespace: "shop", Name: name}, Value: &corev1.Service{
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: web}}},
		}})
		r := &gatewayv1.HTTPRoute{}
		r.Spec.ParentRefs = []gatewayv1.ParentReference{{Name: "edge"}}
		r.Spec.Hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(name + ".example")}
		r.Spec.Rules = []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{Name: gatewayv1.ObjectName(name), Port: &web}}}}}}
		all.HTTPRoutes = append(all.HTTPRoutes, inputs.Object[gatewayv1.HTTPRoute]{Ref: diag.Object{Kind: "HTTPRoute", Namespace: "shop", Name: name}, Value: r})
	}
	return in
}

// Of many routes of a Gateway, only the changed one is read and rendered again.
func TestOneRouteIsReadAndRendered(t *testing.T) {
	t.Parallel()
	const n = 1000
	in := ofRoutes(t, n)
	all := &in.Objects.Gateway
	expect := func(about string, read int64, rendered int) {
		t.Helper()
		claims, _ := in.Routes.Counts()
		pieces, _ := in.Rendered.Counts()
		if r, err := compiler.Compile(t.Context(), in, picky{}); err != nil || len(r.Diagnostics) > 0 {
			t.Fatal(err, r.Diagnostics)
		}
		claimsNow, _ := in.Routes.Counts()
		piecesNow, _ := in.Rendered.Counts()
		if claimsNow-claims != read || piecesNow-pieces != rendered {
			t.Errorf("%s: %d routes were read and %d backends rendered, want %d and %d", about, claimsNow-claims, piecesNow-pieces, read, rendered)
		}
	}
	expect("at first", n, n)
	expect("nothing changed", 0, 0)
	slower, wait := all.HTTPRoutes[500].Value.DeepCopy(), gatewayv1.Duration("7s")
	slower.Spec.Rules[0].Timeouts = &gatewayv1.HTTPRouteTimeouts{Request: &wait}
	all.HTTPRoutes[500].Value = slower
	expect("one route changed", 1, 1)
}

// A route that HAProxy refuses is left out. If options protect it, it stays closed, and no other route gets its
// requests. Others are served, and the route has an error.
func TestRefusedRouteStaysClosed(t *testing.T) {
	t.Parallel()
	for _, protected := range []bool{true, false} {
		in := ofRoutes(t, 2)
		routes := in.Objects.Gateway.HTTPRoutes
		secret := routes[0].Value.DeepCopy()
		secret.Annotations = map[string]string{"hapsnap.dev/response-headers": "set X-A refused"}
		if protected {
			secret.Annotations["hapsnap.dev/allow-list"] = "10.0.0.0/8"
		}
		path, prefix := "/secret", gatewayv1.PathMatchPathPrefix
		secret.Spec.Rules[0].Matches = []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{Type: &prefix, Value: &path}}}
		routes[0].Value = secret
		open := routes[1].Value.DeepCopy()
		open.Spec.Hostnames = secret.Spec.Hostnames
		routes[1].Value = open
		r, err := compiler.Compile(t.Context(), in, picky{})
		if err != nil || len(r.Diagnostics) != 1 || r.Diagnostics[0].Object != routes[0].Ref {
			t.Fatal(err, r.Diagnostics)
		}
		closed, served := false, false
		for _, f := range r.Draft.Files {
			for line := range strings.Lines(string(f.Content)) {
				if strings.HasPrefix(f.Path, "maps/") && strings.Contains(line, "web0.example") {
					closed = closed || strings.Contains(line, "/secret") && strings.Contains(line, "hapsnap_unavailable:options")
					served = served || strings.Contains(line, "web1")
				}
			}
		}
		if closed != protected || !served {
			t.Errorf("protected %v: closed %v, and the other route is served %v", protected, closed, served)
		}
	}
}

// While an object is at fault, each compile asks whether the templates are. That takes two checks, and the next compile with
// the same templates and configuration does without them.
func TestTemplatesAreProbedOnce(t *testing.T) {
	t.Parallel()
	in := compiler.Input{Objects: many(5), Config: config.Default(), Templates: newWorld(t, 1).sets[0], Now: now}
	annotate(in, 2, "hapsnap.dev/health-check-path", "/refused")
	checks := func(in compiler.Input) int {
		check := &counted{checker: picky{}}
		r, err := compiler.Compile(t.Context(), in, check)
		if err != nil || len(r.Draft.Quarantined) != 1 || r.Draft.Quarantined[0].Name != "app-00002" {
			t.Fatal(err, r.Draft.Quarantined)
		}
		return check.runs
	}
	whole := checks(in)
	in.Memories = compiler.NewMemories()
	other, overlaid := in, in
	other.Config.Limits.NamespacePorts++
	overlaid.Templates = newWorld(t, 1).sets[1]
	for i, x := range []struct {
		in   compiler.Input
		want int
	}{{in, whole}, {in, whole - 2}, {other, whole}, {other, whole - 2}, {overlaid, whole}, {in, whole}} {
		if got := checks(x.in); got != x.want {
			t.Errorf("compile %d took %d checks, want %d", i, got, x.want)
		}
	}
}

// brittle refuses each backend once a file is gone that a template names in all of them.
type brittle struct {
	picky
	gone bool
}

func (c *brittle) Check(ctx context.Context, in validate.Input) (validate.Verdict, error) {
	v, err := c.picky.Check(ctx, in)
	config := snapshots.Snapshot{Files: in.Artifact.Files}.Config()
	for i, line := range strings.Split(string(config), "\n") {
		if c.gone && strings.Contains(line, "#hapsnap servers ") {
			v.Faults = append(v.Faults, render.Fault{
				Message: "there is no such file", File: snapshots.ConfigFile, Line: i + 1, Text: line, Origin: in.Artifact.Origin(snapshots.ConfigFile, i+1),
			})
		}
	}
	return v, err
}

// A template that fails from now on, since HAProxy or the machine has changed, is at fault, and not all objects are. That is
// so although the templates were probed before, for the object at fault.
func TestTemplatesThatFailLaterAreAtFault(t *testing.T) {
	t.Parallel()
	in := compiler.Input{Objects: many(5), Config: config.Default(), Templates: newWorld(t, 1).sets[0], Now: now, Memories: compiler.NewMemories()}
	annotate(in, 2, "hapsnap.dev/health-check-path", "/refused")
	var check brittle
	for _, check.gone = range []bool{false, true, false, true} {
		r, err := compiler.Compile(t.Context(), in, &check)
		if errors.Is(err, compiler.ErrTemplates) != check.gone || !check.gone && len(r.Draft.Quarantined) != 1 {
			t.Errorf("gone: %v: %v, %d objects are left out", check.gone, err, len(r.Draft.Quarantined))
		}
	}
}

// The kinds of keys are read of new Secrets only, and the memory holds those of the last compile.
func TestKeysAreReadOnce(t *testing.T) {
	t.Parallel()
	memories := compiler.NewMemories()
	secret := func(name string) inputs.Object[corev1.Secret] {
		return inputs.Object[corev1.Secret]{
			Ref:   diag.Object{Kind: "Secret", Namespace: "shop", Name: name},
			Value: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: map[string][]byte{"tls.crt": []byte(name)}},
		}
	}
	a, b, c := secret("a"), secret("b"), secret("c")
	w := newWorld(t, 1)
	for i, step := range []struct {
		secrets []inputs.Object[corev1.Secret]
		read    int
	}{
		{[]inputs.Object[corev1.Secret]{a, b}, 2}, {[]inputs.Object[corev1.Secret]{b, a}, 2}, {[]inputs.Object[corev1.Secret]{a, secret("b")}, 3},
		{[]inputs.Object[corev1.Secret]{c}, 4}, {[]inputs.Object[corev1.Secret]{a, c}, 5},
	} {
		in := w.input(memories)
		in.Objects.Secrets = step.secrets
		if _, err := compiler.Compile(t.Context(), in, picky{}); err != nil {
			t.Fatal(err)
		}
		if read := compiler.KeysRead(memories); read != step.read {
			t.Errorf("%d: %d keys were read, want %d", i, read, step.read)
		}
	}
}
