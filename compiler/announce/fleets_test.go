package announce_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Compilers of several fleets have one controllerName. Each writes about its own Gateways and what is attached
// to them. It leaves the entries of the others, until their Gateway belongs to no fleet any more.
func TestCompilersOfFleetsLeaveEachOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gatewayAPI("gatewayclasses", "gateways", "httproutes")
	in := func(spec string) string { return "{apiVersion: gateway.networking.k8s.io/v1, kind: " + spec + "}" }
	object := func(kind, name, spec string) string {
		return in(fmt.Sprintf("%s, metadata: {namespace: %s, name: %s}, spec: %s", kind, w.namespace, name, spec))
	}
	const listeners = "listeners: [{name: http, port: 80, protocol: HTTP}]"
	class := w.namespace // classes have no namespace
	controller := gatewayv1.GatewayController("hapsnap.dev/" + class)
	w.server.Apply(t, in(fmt.Sprintf("GatewayClass, metadata: {name: %s}, spec: {controllerName: %s}", class, controller))+"\n---\n"+
		object("Gateway", "shared", fmt.Sprintf("{gatewayClassName: %s, %s}", class, listeners))+"\n---\n"+
		object("Gateway", "own", fmt.Sprintf("{gatewayClassName: %s, infrastructure: {parametersRef: {group: hapsnap.dev, kind: Fleet, name: payments}}, %s}", class, listeners))+"\n---\n"+
		object("HTTPRoute", "web", "{parentRefs: [{name: shared}, {name: own}]}")+"\n---\n"+
		object("Gateway", "lost", fmt.Sprintf("{gatewayClassName: %s, infrastructure: {parametersRef: {group: hapsnap.dev, kind: Fleet, name: paymnts}}, %s}", class, listeners)))

	// compile makes a compiler compile the present objects, and publish.
	revision := uint64(0)
	compile := func(a announcer, fleet string) {
		t.Helper()
		var api inputs.GatewayAPI
		c, route := &gatewayv1.GatewayClass{}, &gatewayv1.HTTPRoute{}
		w.readIn("", "GatewayClass", class, c)
		w.read("HTTPRoute", "web", route)
		api.Classes = []inputs.Object[gatewayv1.GatewayClass]{{Ref: diag.Object{Kind: "GatewayClass", Name: class}, Value: c}}
		api.HTTPRoutes = []inputs.Object[gatewayv1.HTTPRoute]{{Ref: diag.Object{Kind: "HTTPRoute", Namespace: w.namespace, Name: "web"}, Value: route}}
		for _, name := range []string{"shared", "own", "lost"} {
			g := &gatewayv1.Gateway{}
			w.read("Gateway", name, g)
			api.Gateways = append(api.Gateways, inputs.Object[gatewayv1.Gateway]{Ref: diag.Object{Kind: "Gateway", Namespace: w.namespace, Name: name}, Value: g})
		}
		all, cfg := inputs.Inputs{Gateway: api}, config.Default()
		cfg.GatewayAPI.Enabled, cfg.GatewayAPI.ControllerName, cfg.GatewayAPI.Fleet = true, string(controller), fleet
		_, _, said := gateway.Translate(all, gateway.Config{Controller: string(controller), Fleet: fleet})
		revision++
		a.Gateways(all, cfg, said, snapshots.ID{Revision: revision})
	}
	parents := func() string {
		route := &gatewayv1.HTTPRoute{}
		w.read("HTTPRoute", "web", route)
		var out []string
		for _, p := range route.Status.Parents {
			out = append(out, fmt.Sprintf("%s of %d", p.ParentRef.Name, p.Conditions[0].ObservedGeneration))
		}
		slices.Sort(out)
		return fmt.Sprint(out)
	}
	spoken := w.spoken
	shared, own := start(t, w.config, true), startBy(t, "payments/compiler", w.config, true, nil)
	compile(own, w.namespace+"/payments")
	w.await("the fleet's compiler writes of its Gateway", func() bool { return parents() == "[own of 1]" && spoken("own", 1) })
	c := &gatewayv1.GatewayClass{}
	if w.readIn("", "GatewayClass", class, c); gateway.Condition(c.Status.Conditions, "Accepted").Reason == "Accepted" {
		t.Error("the compiler of a fleet writes of the class")
	}
	compile(shared, "")
	w.await("both have written", func() bool { return parents() == "[own of 1 shared of 1]" && spoken("shared", 1) })
	if !spoken("own", 1) {
		t.Error("the other compiler's word of its Gateway is gone")
	}

	// The status shows a misspelled name of a fleet.
	w.await("the compiler without a fleet says that nobody has answered", func() bool {
		return w.accepted("lost").Message == "no compiler of the fleet "+w.namespace+"/paymnts has answered (compiler without a fleet)"
	})

	// Both compile the present objects again, and have nothing to write.
	before := shared.writes() + own.writes()
	compile(shared, "")
	compile(own, w.namespace+"/payments")
	w.server.Apply(t, object("HTTPRoute", "web", "{parentRefs: [{name: shared}, {name: own}], hostnames: [web.example.com]}"))
	compile(own, w.namespace+"/payments")
	w.await("the fleet's compiler writes of the next generation", func() bool { return parents() == "[own of 2 shared of 1]" })
	compile(shared, "")
	w.await("both write of the next generation", func() bool { return parents() == "[own of 2 shared of 2]" })
	if n := shared.writes() + own.writes() - before; n != 2 {
		t.Errorf("%d writes, want one of each", n)
	}

	// The Gateway moves to the fleet without a name, and its part of the route with it.
	w.server.Apply(t, object("Gateway", "own", fmt.Sprintf("{gatewayClassName: %s, %s}", class, listeners)))
	compile(own, w.namespace+"/payments")
	compile(shared, "")
	w.await("the other compiler writes of the Gateway", func() bool { return spoken("own", 2) && parents() == "[own of 2 shared of 2]" })
}

// spoken reports whether the status of a Gateway is about a generation.
func (w world) spoken(name string, generation int64) bool {
	return w.accepted(name).ObservedGeneration == generation
}

// accepted returns the condition Accepted of a Gateway.
func (w world) accepted(name string) metav1.Condition {
	g := &gatewayv1.Gateway{}
	w.read("Gateway", name, g)
	return gateway.Condition(g.Status.Conditions, "Accepted")
}

// A leader ends in the middle of its writes. The next leader, which does not know about them, writes what is
// missing, and nothing twice.
func TestTheNextLeaderWritesTheRest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gatewayAPI("httproutes")
	const many = 160 // more than a leader writes at once
	var text strings.Builder
	for n := range many {
		fmt.Fprintf(&text, "{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {namespace: %s, name: route%d}, spec: {parentRefs: [{name: web}]}}\n---\n", w.namespace, n)
	}
	w.server.Apply(t, text.String())
	publish := func(a announcer) {
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: gatewayv1.GroupName, Version: "v1", Kind: "HTTPRouteList"})
		if err := w.server.Client().List(t.Context(), &list, client.InNamespace(w.namespace)); err != nil {
			t.Fatal(err)
		}
		var in inputs.Inputs
		var said gateway.Verdicts
		for _, o := range list.Items {
			route := &gatewayv1.HTTPRoute{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, route); err != nil {
				t.Fatal(err)
			}
			_, v := routed(route.Name, route.Generation)
			v.Ref.Namespace = w.namespace
			v.Parents[0].ParentRef = route.Spec.ParentRefs[0] // with the defaults of the API server
			in.Gateway.HTTPRoutes = append(in.Gateway.HTTPRoutes, inputs.Object[gatewayv1.HTTPRoute]{Ref: v.Ref, Value: route})
			said.Routes = append(said.Routes, v)
		}
		a.Gateways(in, config.Default(), said, snapshots.ID{Revision: 1})
	}
	first := start(t, w.config, true)
	publish(first)
	w.await("some statuses", func() bool { return first.writes() >= 20 })
	first.set(false)
	next := start(t, w.config, true)
	publish(next)
	w.await("all statuses", func() bool { return first.writes()+next.writes() >= many })
	missing := func() (n int) {
		var raw unstructured.UnstructuredList
		raw.SetGroupVersionKind(schema.GroupVersionKind{Group: gatewayv1.GroupName, Version: "v1", Kind: "HTTPRouteList"})
		if err := w.server.Client().List(t.Context(), &raw, client.InNamespace(w.namespace)); err != nil {
			t.Fatal(err)
		}
		for _, o := range raw.Items {
			route := gatewayv1.HTTPRoute{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &route); err != nil {
				t.Fatal(err)
			}
			if len(route.Status.Parents) != 1 {
				n++
			}
		}
		return n
	}
	w.await("no status is missing", func() bool { return missing() == 0 })
	// Both may have made the write that was under way.
	if n := first.writes() + next.writes(); first.writes() >= many || n > many+1 {
		t.Errorf("%d and %d writes for %d routes", first.writes(), next.writes(), many)
	}
}
