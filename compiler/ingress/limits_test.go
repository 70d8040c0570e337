package ingress_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/decision"
)

// sized returns an Ingress of a namespace with these paths. A larger age makes it older.
func sized(namespace, name string, paths []networkingv1.HTTPIngressPath, age int) inputs.Object[networkingv1.Ingress] {
	o := ingressOf("web", 0)
	o.Ref.Namespace, o.Ref.Name = namespace, name
	o.Value.CreationTimestamp = metav1.NewTime(time.Unix(int64(1_000_000-age), 0))
	o.Value.Spec.Rules[0].Host = name + "." + namespace + ".example"
	o.Value.Spec.Rules[0].HTTP.Paths = paths
	return o
}

func manyPaths(n int) []networkingv1.HTTPIngressPath {
	one := ingressOf("web", 0).Value.Spec.Rules[0].HTTP.Paths[0]
	out := make([]networkingv1.HTTPIngressPath, n)
	for i := range out {
		out[i] = one
		out[i].Path = fmt.Sprint("/p", i)
	}
	return out
}

func routesOf(m routing.Model, suffix string) (hosts []string, routes int) {
	for _, h := range m.Hosts {
		if strings.HasSuffix(h.Name, suffix) {
			hosts, routes = append(hosts, h.Name), routes+len(h.Routes)
		}
	}
	return hosts, routes
}

// A namespace with more than a million paths, options and endless lists costs a compile no more than the limits
// allow. The results of the others do not change.
func TestAbsurdNamespaceCostsOnlyItself(t *testing.T) {
	t.Parallel()
	limits := config.Default().Limits
	var others, all inputs.Inputs
	for i := range 50 {
		others.Ingresses = append(others.Ingresses, sized("good", fmt.Sprint("g", i), manyPaths(3), i))
	}
	paths := manyPaths(7000)
	all.Ingresses = slices.Clone(others.Ingresses)
	for i := range 200 {
		o := sized("absurd", fmt.Sprintf("a%03d", i), paths, i)
		o.Value.Annotations = map[string]string{}
		if i%2 == 0 {
			o.Value.Annotations["hapsnap.dev/request-headers"] = "set X-Long " + strings.Repeat("a", 8000)
			o.Value.Annotations["hapsnap.dev/allow-list"] = fmt.Sprintf("@list%d/list", i%20)
		}
		all.Ingresses = append(all.Ingresses, o)
	}
	text := strings.Repeat("10.0.0.0/8\n192.0.2.7\n", 50_000)
	for i := range 20 {
		all.ConfigMaps = append(all.ConfigMaps, inputs.Object[corev1.ConfigMap]{
			Ref:   diag.Object{Kind: "ConfigMap", Namespace: "absurd", Name: fmt.Sprint("list", i)},
			Value: &corev1.ConfigMap{Data: map[string]string{"list": text}},
		})
	}
	begun := time.Now()
	m, found := ingress.Translate(all, ingress.Config{Limits: limits})
	t.Logf("1,400,000 paths took %v", time.Since(begun))
	if _, n := routesOf(m, ".absurd.example"); n > 2*limits.NamespaceRoutes || n < limits.NamespaceRoutes/2 {
		t.Errorf("the absurd namespace has %d routes", n)
	}
	named := 0
	for _, list := range m.NetworkLists {
		named += len(text) * min(1, len(list.Networks))
	}
	if named > limits.NamespaceListBytes {
		t.Errorf("%d bytes of lists were read", named)
	}
	alone, foundAlone := ingress.Translate(others, ingress.Config{Limits: limits})
	ofOthers := slices.DeleteFunc(slices.Clone(m.Hosts), func(h routing.Host) bool { return !strings.HasSuffix(h.Name, ".good.example") })
	if diff := cmp.Diff(alone.Hosts, ofOthers); diff != "" {
		t.Error(diff)
	}
	said := slices.DeleteFunc(found, func(d diag.Diagnostic) bool { return d.Object.Namespace != "good" })
	if diff := cmp.Diff(foundAlone, said); diff != "" {
		t.Error(diff)
	}
}

// The oldest Ingresses are kept, whatever their order and names, so a new Ingress never displaces one that is
// served. The finding names the exceeded limit. What is left out is closed if it protects something.
func TestLimitsKeepTheOldest(t *testing.T) {
	t.Parallel()
	limits := config.Limits{IngressRoutes: 10, NamespaceRoutes: 20, IngressOptionBytes: 1000, NamespaceOptionBytes: 1500, NamespaceListBytes: 100}
	protected := sized("n", "protected", manyPaths(15), 1)
	protected.Value.Annotations = map[string]string{"hapsnap.dev/allow-list": "10.0.0.0/8"}
	in := inputs.Inputs{Ingresses: []inputs.Object[networkingv1.Ingress]{
		protected,
		sized("n", "a-young", manyPaths(9), 2), sized("n", "small-and-young", manyPaths(2), 1),
		sized("n", "old", manyPaths(9), 9), sized("n", "older", manyPaths(9), 10), sized("n", "huge", manyPaths(11), 99),
		sized("other", "others", manyPaths(9), 0),
	}}
	m, found := ingress.Translate(in, ingress.Config{Limits: limits})
	got := map[string]int{}
	for _, h := range m.Hosts {
		got[h.Name] = len(h.Routes)
		for _, r := range h.Routes {
			if closed := r.Backend == routing.Unavailable; closed != (h.Name == "protected.n.example") {
				t.Errorf("%s leads to %s", h.Name, r.Backend)
			}
		}
	}
	want := map[string]int{
		"older.n.example": 9, "old.n.example": 9, "small-and-young.n.example": 2, "others.other.example": 9,
		"huge.n.example": 0, "a-young.n.example": 0, "protected.n.example": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes by host (-want +got)\n%s\n%v", diff, found)
	}
	told := fmt.Sprint(found)
	for _, part := range []string{
		"Ingress n/huge: spec: is left out: with it there would be 11 routes, and an Ingress may have 10", "limits.ingressRoutes",
		"Ingress n/a-young: spec: is left out: with it there would be 27 routes, and the Ingresses of namespace n may have 20", "limits.namespaceRoutes",
		"of its routes only the first 1 are closed, or their hosts held",
	} {
		if !strings.Contains(told, part) {
			t.Errorf("nobody is told %q: %s", part, told)
		}
	}
}

// Long paths count with their size in the maps. Those of one namespace do not prevent publishing.
func TestLimitsOfLongPaths(t *testing.T) {
	t.Parallel()
	long := func(name string, paths int, age int) inputs.Object[networkingv1.Ingress] {
		ing := sized("n", name, manyPaths(paths), age)
		for i := range ing.Value.Spec.Rules[0].HTTP.Paths {
			ing.Value.Spec.Rules[0].HTTP.Paths[i].Path += "/" + strings.Repeat("<", 300) // 900 bytes
		}
		return ing
	}
	protected := long("protected", 9, 1)
	protected.Value.Annotations = map[string]string{"hapsnap.dev/allow-list": "10.0.0.0/8"}
	limits := config.Limits{IngressRouteBytes: 10_000, NamespaceRouteBytes: 15_000}
	m, found := ingress.Translate(inputs.Inputs{Ingresses: []inputs.Object[networkingv1.Ingress]{
		long("older", 9, 9), long("huge", 12, 8), long("younger", 5, 7), long("more", 5, 2), protected, sized("other", "others", manyPaths(9), 0),
	}}, ingress.Config{Limits: limits})
	got, bytes := map[string]int{}, 0
	for _, h := range m.Hosts {
		got[h.Name] = len(h.Routes)
		for _, r := range h.Routes {
			bytes += len(h.Name) + len(r.Match.Path)
		}
	}
	want := map[string]int{"older.n.example": 9, "huge.n.example": 0, "younger.n.example": 5, "more.n.example": 0, "protected.n.example": 0, "others.other.example": 9}
	want["protected.n.example"] = got["protected.n.example"]
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes by host (-want +got)\n%s\n%v", diff, found)
	}
	if bytes > 2*limits.NamespaceRouteBytes+1000 {
		t.Errorf("%d bytes of hosts and paths", bytes)
	}
	if told := fmt.Sprint(found); !strings.Contains(told, "limits.ingressRouteBytes") || !strings.Contains(told, "limits.namespaceRouteBytes") {
		t.Errorf("nobody is told: %s", told)
	}
}

// Aliases and Services multiply the cost of an Ingress, and count accordingly.
func TestLimitsCountWhatIsMultiplied(t *testing.T) {
	t.Parallel()
	aliased := sized("n", "aliased", manyPaths(6), 1)
	aliased.Value.Annotations = map[string]string{"hapsnap.dev/server-alias": "a.example, b.example"}
	wide := sized("n", "wide", manyPaths(6), 1)
	wide.Value.Annotations = map[string]string{"hapsnap.dev/request-headers": "set X-Long " + strings.Repeat("a", 300)}
	for i := range wide.Value.Spec.Rules[0].HTTP.Paths {
		p := &wide.Value.Spec.Rules[0].HTTP.Paths[i]
		p.Backend.Service = &networkingv1.IngressServiceBackend{Name: fmt.Sprint("s", i), Port: networkingv1.ServiceBackendPort{Number: 80}}
	}
	narrow := sized("n", "narrow", manyPaths(6), 1)
	narrow.Value.Annotations = wide.Value.Annotations
	in := inputs.Inputs{Ingresses: []inputs.Object[networkingv1.Ingress]{aliased, wide, narrow}}
	m, found := ingress.Translate(in, ingress.Config{Limits: config.Limits{IngressRoutes: 10, IngressOptionBytes: 1000}})
	hosts, n := routesOf(m, "")
	if n != 6 || !slices.Contains(hosts, "narrow.n.example") {
		t.Errorf("%d routes of %v: %v", n, hosts, found)
	}
}

// An object with thousands of mistakes has a hundred findings. The last one counts the rest. It is an error if
// one of the rest is.
func TestFindingsOfAnObjectAreBounded(t *testing.T) {
	t.Parallel()
	bad := sized("n", "bad", manyPaths(500), 1)
	for i := range bad.Value.Spec.Rules[0].HTTP.Paths {
		bad.Value.Spec.Rules[0].HTTP.Paths[i].Path = fmt.Sprint("/a b", i)
	}
	taken, other := sized("n", "taken", manyPaths(500), 5), sized("o", "taken", manyPaths(500), 1)
	other.Value.Spec.Rules[0].Host = taken.Value.Spec.Rules[0].Host
	_, found := ingress.Translate(inputs.Inputs{Ingresses: []inputs.Object[networkingv1.Ingress]{bad, taken, other}}, ingress.Config{})
	for _, o := range []inputs.Object[networkingv1.Ingress]{bad, other} {
		of := slices.DeleteFunc(slices.Clone(found), func(d diag.Diagnostic) bool { return d.Object != o.Ref })
		last := of[len(of)-1]
		if len(of) != 100 || last.Severity != diag.Error || !strings.Contains(last.Message, "401 more findings") {
			t.Errorf("%d findings, the last %v", len(of), last)
		}
		if wantConflict := o.Ref == other.Ref; last.Conflict != wantConflict {
			t.Errorf("conflict: %v of %v", last.Conflict, o.Ref)
		}
	}
}

// HAProxy has a rule for each expression and each name on which canaries depend, and requests of other
// namespaces pay for it. So the youngest canaries of a namespace get no requests. Values of a header cost
// nothing.
func TestLimitsOfCanaries(t *testing.T) {
	t.Parallel()
	var in inputs.Inputs
	add := func(namespace string, n int, annotations map[string]string) {
		main, canary := sized(namespace, fmt.Sprint("h", n), manyPaths(1), 1000), sized(namespace, fmt.Sprint("h", n), manyPaths(1), 900-n)
		canary.Ref.Name = fmt.Sprint("c", n)
		canary.Value.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name = "canary"
		canary.Value.Annotations = map[string]string{"hapsnap.dev/canary": "true"}
		for name, value := range annotations {
			canary.Value.Annotations["hapsnap.dev/"+name] = value
		}
		in.Ingresses = append(in.Ingresses, main, canary)
	}
	for n := range 100 {
		add("patterns", n, map[string]string{"canary-by-header": "X-A", "canary-by-header-pattern": fmt.Sprintf("^%d$", n)})
		add("names", n, map[string]string{"canary-by-header": fmt.Sprint("X-", n), "canary-by-cookie": fmt.Sprint("c", n)})
		add("values", n, map[string]string{"canary-by-header": fmt.Sprint("X-A v", n)})
		add("weights", n, map[string]string{"canary-weight": "10"})
	}
	for _, namespace := range []string{"patterns", "names", "values", "weights"} {
		for _, name := range []string{"web", "canary"} {
			in.Services = append(in.Services, inputs.Object[corev1.Service]{
				Ref: diag.Object{Kind: "Service", Namespace: namespace, Name: name}, Value: &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
			})
		}
	}
	m, found := ingress.Translate(in, ingress.Config{})
	got := map[string]int{}
	for _, h := range m.Hosts {
		for _, r := range h.Routes {
			if strings.Contains(r.Backend, "canary") {
				got[strings.Split(h.Name, ".")[1]]++
			}
		}
	}
	if diff := cmp.Diff(map[string]int{"patterns": 64, "names": 2 * 32, "values": 100, "weights": 100}, got); diff != "" {
		t.Error(diff)
	}
	left := map[string]int{}
	for _, d := range found {
		if d.Severity == diag.Error && strings.Contains(d.Message, "more than 64 names of headers and cookies, and expressions; this one gets nothing") && d.Hint != "" {
			left[d.Object.Namespace]++
			continue
		}
		t.Error(d)
	}
	if diff := cmp.Diff(map[string]int{"patterns": 36, "names": 68}, left); diff != "" {
		t.Error(diff)
	}
	if tables := decision.Decide(m.Hosts, nil); len(tables.Patterns) != 64 || len(tables.Parts) != 64+1 {
		t.Errorf("%d expressions and %d names", len(tables.Patterns), len(tables.Parts))
	}
}
