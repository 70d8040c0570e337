package compiler_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/inputs"
)

// crowd adds routes of a namespace: one with this many paths of a wildcard host, and routes of 16 hosts below
// it, with conditions only.
func crowd(in *compiler.Input, domain string, keys, hosts int) {
	all := &in.Objects.Gateway
	from := gatewayv1.NamespacesFromAll
	all.Gateways[0].Value.Spec.Listeners[0].AllowedRoutes = &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: &from}}
	web, namespace := gatewayv1.PortNumber(80), gatewayv1.Namespace("shop")
	in.Objects.Services = append(in.Objects.Services, inputs.Object[corev1.Service]{Ref: diag.Object{Kind: "Service", Namespace: "evil", Name: "web"}, Value: &corev1.Service{
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: web}}},
	}})
	add := func(name string, age int, hosts []gatewayv1.Hostname, matches ...gatewayv1.HTTPRouteMatch) {
		r := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Unix(int64(1_000_000-age), 0))}}
		r.Spec.ParentRefs = []gatewayv1.ParentReference{{Name: "edge", Namespace: &namespace}}
		r.Spec.Hostnames = hosts
		r.Spec.Rules = []gatewayv1.HTTPRouteRule{{Matches: matches, BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{Name: "web", Port: &web}}}}}}
		all.HTTPRoutes = append(all.HTTPRoutes, inputs.Object[gatewayv1.HTTPRoute]{Ref: diag.Object{Kind: "HTTPRoute", Namespace: "evil", Name: name}, Value: r})
	}
	exact := gatewayv1.PathMatchExact
	var paths []gatewayv1.HTTPRouteMatch
	for n := range keys {
		path := fmt.Sprint("/p", n)
		paths = append(paths, gatewayv1.HTTPRouteMatch{Path: &gatewayv1.HTTPPathMatch{Type: &exact, Value: &path}})
	}
	add("wildcard", 1000, []gatewayv1.Hostname{gatewayv1.Hostname("*." + domain)}, paths...)
	for n := 0; n < hosts; n += 16 {
		var names []gatewayv1.Hostname
		for i := n; i < min(hosts, n+16); i++ {
			names = append(names, gatewayv1.Hostname(fmt.Sprintf("h%d.%s", i, domain)))
		}
		add(fmt.Sprintf("hosts-%03d", n), 900-n, names, gatewayv1.HTTPRouteMatch{Headers: []gatewayv1.HTTPHeaderMatch{{Name: "X-A", Value: "a"}}})
	}
}

// The size of laid-out routes is bounded. The youngest routes of their namespace are left out before they cost
// memory. All other namespaces are served, and the rest can be published.
func TestCrowdedNamespaceStopsNobody(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(strings.Repeat("a", 60)+".", 3) + "evil.example"
	for _, c := range []struct {
		domain, limit string
		served        int // how many of the routes with 16 hosts
	}{
		{"evil.example", "limits.namespaceRoutes", 3}, // each has 16 * (1 + 2*512) entries
		{long, "limits.namespaceRouteBytes", 2},       // each entry has about 200 bytes
	} {
		in := ofRoutes(t, 3)
		crowd(&in, c.domain, 512, 320)
		r, err := compiler.Compile(t.Context(), in, picky{})
		if err != nil {
			t.Fatal(err) // then nothing could be published
		}
		left := map[string]bool{}
		for _, d := range r.Diagnostics {
			if d.Severity != diag.Error || d.Object.Namespace != "evil" || !strings.Contains(d.Hint, c.limit+" ") {
				t.Error(d)
			}
			left[d.Object.Name] = true
		}
		if len(left) != 20-c.served || left["wildcard"] || left["hosts-000"] || !left["hosts-304"] {
			t.Errorf("%s: %d are left out: %v", c.domain, len(left), left)
		}
		for _, route := range r.Verdicts.Routes {
			accepted := gateway.Condition(route.Parents[0].Conditions, "Accepted")
			if (accepted.Status == metav1.ConditionTrue) == left[route.Ref.Name] {
				t.Errorf("%s: %+v", route.Ref, accepted)
			}
		}
		if n := r.Verdicts.Gateways[0].Status.Listeners[0].AttachedRoutes; int(n) != 3+1+c.served {
			t.Errorf("%d routes are attached", n)
		}
		lines, served := 0, false
		for _, f := range r.Artifact.Files {
			if strings.HasPrefix(f.Path, "maps/") {
				served = served || strings.Contains(string(f.Content), "web2.example")
				lines += strings.Count(string(f.Content), "\n")
			}
		}
		if lines > 60_000 || !served {
			t.Errorf("%d lines of maps", lines)
		}
	}
}
