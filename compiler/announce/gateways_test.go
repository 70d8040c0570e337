package announce_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	watched "github.com/hapsnap/hapsnap/compiler/cluster"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
	"github.com/hapsnap/hapsnap/snapshots"
)

// workers are the workers of a fleet in a test.
type workers struct {
	report  func() (watched.FleetReport, error)
	changes chan struct{}
}

func (w workers) Read(time.Time) (watched.FleetReport, error) { return w.report() }

func (w workers) Changes() <-chan struct{} { return w.changes }

// routed returns a route with its verdict in a compile.
func routed(name string, generation int64) (gatewayv1.HTTPRoute, gateway.RouteVerdict) {
	parent := gatewayv1.RouteParentStatus{
		ParentRef: gatewayv1.ParentReference{Name: "web"}, ControllerName: "hapsnap.dev/gateway-controller",
		Conditions: []metav1.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted", ObservedGeneration: generation}},
	}
	route := gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "1", Generation: generation}}
	told := *parent.DeepCopy()
	told.Conditions[0].LastTransitionTime = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	route.Status.Parents = []gatewayv1.RouteParentStatus{told}
	return route, gateway.RouteVerdict{Ref: diag.Object{Kind: "HTTPRoute", Name: name}, Parents: []gatewayv1.RouteParentStatus{parent}}
}

// A thousand routes with the right status cause no request. A changed route causes one write, and the next
// write comes at least a second later.
func TestUnchangedRoutesWriteNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gatewayAPI("httproutes")
	w.server.Apply(t, fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {namespace: %s, name: web}, spec: {parentRefs: [{name: web}]}}`, w.namespace))
	a := start(t, w.config, true)
	var in inputs.Inputs
	var said gateway.Verdicts
	for n := range 1000 {
		route, v := routed(fmt.Sprintf("route%d", n), 7)
		in.Gateway.HTTPRoutes = append(in.Gateway.HTTPRoutes, inputs.Object[gatewayv1.HTTPRoute]{Ref: v.Ref, Value: &route})
		said.Routes = append(said.Routes, v)
	}
	present := &gatewayv1.HTTPRoute{}
	w.read("HTTPRoute", "web", present)
	ref := diag.Object{Kind: "HTTPRoute", Namespace: w.namespace, Name: "web"}
	in.Gateway.HTTPRoutes = append(in.Gateway.HTTPRoutes, inputs.Object[gatewayv1.HTTPRoute]{Ref: ref, Value: present})
	for _, reason := range []string{"Accepted", "Accepted", "Again"} {
		_, v := routed("web", present.Generation)
		v.Ref, v.Parents[0].Conditions[0].Reason = ref, reason
		next := said
		next.Routes = append(next.Routes[:len(next.Routes):len(next.Routes)], v)
		a.Gateways(in, config.Default(), next, snapshots.ID{Revision: 1})
		w.await("the route says "+reason, func() bool {
			got := &gatewayv1.HTTPRoute{}
			w.read("HTTPRoute", "web", got)
			return len(got.Status.Parents) == 1 && got.Status.Parents[0].Conditions[0].Reason == reason
		})
	}
	if got := a.writes(); got != 2 {
		t.Errorf("%d requests write, want 2", got)
	}
	if times := a.times(); len(times) == 2 && times[1].Sub(times[0]) < time.Second {
		t.Errorf("one status is written twice within %s", times[1].Sub(times[0]))
	}
}

// Programmed follows what the workers run. What a former leader wrote about earlier generations stays.
func TestProgrammedFollowsTheWorkers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gatewayAPI("gateways")
	w.server.Apply(t, fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {namespace: %s, name: web}, spec: {gatewayClassName: hapsnap, listeners: [{name: http, port: 80, protocol: HTTP}]}}`, w.namespace))
	first, second, third := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}, snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}, snapshots.ID{Revision: 3, Short: "cccccccccc"}
	held := make(chan watched.FleetReport, 1)
	var now watched.FleetReport
	var mute error
	fleet := workers{report: func() (watched.FleetReport, error) {
		select {
		case now = <-held:
		default:
		}
		return now, mute
	}, changes: make(chan struct{}, 1)}
	a := startWith(t, w.config, true, fleet)
	ref := diag.Object{Kind: "Gateway", Namespace: w.namespace, Name: "web"}
	runs := func(ids ...snapshots.ID) {
		report := watched.FleetReport{Workers: snapshots.Workers{}}
		for _, id := range ids {
			report.Workers[id]++
		}
		held <- report
		fleet.changes <- struct{}{}
	}
	publish := func(head snapshots.ID) {
		g := &gatewayv1.Gateway{}
		w.read("Gateway", "web", g)
		in := inputs.Inputs{Gateway: inputs.GatewayAPI{Gateways: []inputs.Object[gatewayv1.Gateway]{{Ref: ref, Value: g}}}}
		a.Gateways(in, config.Default(), gateway.Verdicts{Gateways: []gateway.GatewayVerdict{{Ref: ref, Status: gatewayv1.GatewayStatus{
			Conditions: []metav1.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted", ObservedGeneration: g.Generation}},
			Listeners:  []gatewayv1.ListenerStatus{{Name: "http", SupportedKinds: []gatewayv1.RouteGroupKind{}, Conditions: []metav1.Condition{}}},
		}}}}, head)
	}
	say := func(want string, generation int64) {
		t.Helper()
		w.await(fmt.Sprintf("Programmed=%s of generation %d", want, generation), func() bool {
			g := &gatewayv1.Gateway{}
			w.read("Gateway", "web", g)
			own := gateway.Condition(g.Status.Conditions, "Programmed")
			return string(own.Status) == want && own.ObservedGeneration == generation &&
				len(g.Status.Listeners) == 1 && string(gateway.Condition(g.Status.Listeners[0].Conditions, "Programmed").Status) == want
		})
	}
	publish(first)
	say("Unknown", 1) // the fleet has no instances
	runs(first, snapshots.ID{})
	say("False", 1)
	runs(first, first)
	say("True", 1)

	// Another object changes. The running snapshot already has the generation of this one.
	publish(second)
	runs(snapshots.ID{})
	say("False", 1)
	runs(first, second)
	say("True", 1)

	w.server.Apply(t, fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {namespace: %s, name: web}, spec: {gatewayClassName: hapsnap, listeners: [{name: http, port: 81, protocol: HTTP}]}}`, w.namespace))
	publish(third)
	say("False", 2)
	runs(third)
	say("True", 2)
	runs(second) // it was pinned
	say("False", 2)
	runs(third)
	say("True", 2)
}

// gatewayAPI makes the API server know some of the kinds.
func (w world) gatewayAPI(plurals ...string) {
	w.Helper()
	for _, plural := range plurals {
		text, err := os.ReadFile(filepath.Join(kubetest.GatewayAPI(w), "gateway.networking.k8s.io_"+plural+".yaml"))
		if err != nil {
			w.Fatal(err)
		}
		w.server.Apply(w, string(text))
	}
}

// read reads an object of the Gateway API.
func (w world) read(kind, name string, into any) {
	w.Helper()
	w.readIn(w.namespace, kind, name, into)
}

func (w world) readIn(namespace, kind, name string, into any) {
	w.Helper()
	u := w.objectIn(namespace, kind, name)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
		w.Fatal(err)
	}
}

// objectIn returns an object of the Gateway API with all its fields.
func (w world) objectIn(namespace, kind, name string) *unstructured.Unstructured {
	w.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("gateway.networking.k8s.io/v1")
	u.SetKind(kind)
	if err := w.server.Client().Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: name}, u); err != nil {
		w.Fatal(err)
	}
	return u
}

// A status that may not be written does not delay others.
func TestStatusThatMayNotBeWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gatewayAPI("gateways", "httproutes")
	const many = 12 // so many that pauses between them would exceed this test's time
	text := fmt.Sprintf("{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {namespace: %s, name: web}, spec: {parentRefs: [{name: web}]}}", w.namespace)
	for n := range many {
		text += fmt.Sprintf("\n---\n{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {namespace: %s, name: web%d}, spec: {gatewayClassName: hapsnap, listeners: [{name: http, port: 80, protocol: HTTP}]}}", w.namespace, n)
	}
	w.server.Apply(t, text)
	kubeconfig := w.server.Grant(t, w.namespace, "half", []rbacv1.PolicyRule{
		{APIGroups: []string{gatewayv1.GroupName}, Resources: []string{"gateways", "httproutes"}, Verbs: []string{"get"}},
		{APIGroups: []string{gatewayv1.GroupName}, Resources: []string{"httproutes/status"}, Verbs: []string{"patch"}},
	})
	half, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	a := start(t, half, true)
	route := &gatewayv1.HTTPRoute{}
	w.read("HTTPRoute", "web", route)
	_, v := routed("web", route.Generation)
	v.Ref.Namespace = w.namespace
	in := inputs.GatewayAPI{HTTPRoutes: []inputs.Object[gatewayv1.HTTPRoute]{{Ref: v.Ref, Value: route}}}
	said := gateway.Verdicts{Routes: []gateway.RouteVerdict{v}}
	for n := range many {
		g, ref := &gatewayv1.Gateway{}, diag.Object{Kind: "Gateway", Namespace: w.namespace, Name: fmt.Sprintf("web%d", n)}
		w.read("Gateway", ref.Name, g)
		in.Gateways = append(in.Gateways, inputs.Object[gatewayv1.Gateway]{Ref: ref, Value: g})
		said.Gateways = append(said.Gateways, gateway.GatewayVerdict{Ref: ref, Status: gatewayv1.GatewayStatus{
			Conditions: []metav1.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted", ObservedGeneration: g.Generation}},
		}})
	}
	a.Gateways(inputs.Inputs{Gateway: in}, config.Default(), said, snapshots.ID{Revision: 1})
	w.await("the route has its status", func() bool {
		got := &gatewayv1.HTTPRoute{}
		w.read("HTTPRoute", "web", got)
		return len(got.Status.Parents) == 1
	})
}

// A route without a status takes one request, and so does what comes next. What others have written of a status stays, also if
// the compiler has not read it yet.
func TestRequestsForStatuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gatewayAPI("httproutes")
	w.server.Apply(t, fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {namespace: %s, name: web}, spec: {parentRefs: [{name: web}]}}`, w.namespace))
	a := start(t, w.config, true)
	seen := &gatewayv1.HTTPRoute{}
	w.read("HTTPRoute", "web", seen)
	ref := diag.Object{Kind: "HTTPRoute", Namespace: w.namespace, Name: "web"}
	say := func(reason string) (requests int) {
		t.Helper()
		before := a.requests()
		_, v := routed("web", seen.Generation)
		v.Ref, v.Parents[0].Conditions[0].Reason = ref, reason
		in := inputs.Inputs{Gateway: inputs.GatewayAPI{HTTPRoutes: []inputs.Object[gatewayv1.HTTPRoute]{{Ref: ref, Value: seen}}}}
		a.Gateways(in, config.Default(), gateway.Verdicts{Routes: []gateway.RouteVerdict{v}}, snapshots.ID{Revision: 1})
		w.await("the route says "+reason, func() bool {
			got := &gatewayv1.HTTPRoute{}
			w.read("HTTPRoute", "web", got)
			return slices.ContainsFunc(got.Status.Parents, func(p gatewayv1.RouteParentStatus) bool {
				return p.ControllerName == "hapsnap.dev/gateway-controller" && p.Conditions[0].Reason == reason
			})
		})
		return a.requests() - before
	}
	if got := say("First"); got != 1 {
		t.Errorf("the first status took %d requests", got)
	}
	if got := say("Second"); got != 1 { // although the compiler has not read the object since
		t.Errorf("the second status took %d requests", got)
	}
	foreign := map[string]any{"controllerName": "example.com/other", "parentRef": map[string]any{"group": gatewayv1.GroupName, "kind": "Gateway", "name": "other"}, "conditions": []any{map[string]any{
		"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
	}}}
	present := w.objectIn(w.namespace, "HTTPRoute", "web")
	parents, _, err := unstructured.NestedSlice(present.Object, "status", "parents")
	if err == nil {
		err = unstructured.SetNestedSlice(present.Object, append(parents, foreign), "status", "parents")
	}
	if err = errors.Join(err, w.server.Client().Status().Update(t.Context(), present)); err != nil {
		t.Fatal(err)
	}
	for _, reason := range []string{"Third", "Fourth"} { // the compiler has not read it, and has
		say(reason)
		if parents, _, err := unstructured.NestedSlice(w.objectIn(w.namespace, "HTTPRoute", "web").Object, "status", "parents"); err != nil || !slices.ContainsFunc(parents, func(p any) bool { return reflect.DeepEqual(p, any(foreign)) }) {
			t.Errorf("what another controller wrote is not in %v (%v)", parents, err)
		}
		seen = &gatewayv1.HTTPRoute{} // the compiler has the former one
		w.read("HTTPRoute", "web", seen)
	}
}
