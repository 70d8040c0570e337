package announce

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/snapshots"
)

// restless is how many objects a tenant makes anew for each status that is written.
const restless = 50

// A tenant makes Ingresses anew all the time. The status of another one is written nevertheless.
func TestRestlessNamespaceHoldsUpNoStatusOfAnother(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	pending := pendingStatuses{marks: marks{}}
	for n := range 20 {
		var in inputs.Inputs
		served := map[diag.Object]bool{}
		add := func(namespace, name, uid string) {
			ref := diag.Object{Kind: "Ingress", Namespace: namespace, Name: name}
			in.Ingresses = append(in.Ingresses, inputs.Object[networkingv1.Ingress]{Ref: ref, Value: &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid), ResourceVersion: "1"}}})
			served[ref] = true
		}
		for i := range restless {
			add("a-restless", fmt.Sprint("web-", i), fmt.Sprint(n, "-", i))
		}
		if n >= 10 {
			add("shop", "web", "shop")
		}
		pending.want(desire{in: in, served: served, addresses: addresses([]string{"192.0.2.1"}), known: true}.changes())
		pending.marks.keep(in)
		c, ok := pending.next(now)
		if !ok {
			t.Fatal("nothing is due")
		}
		pending.marks.wrote(c, now)
		if c.ref.Namespace == "shop" {
			return
		}
	}
	t.Error("the status of the other one is not written")
}

// The same of routes. The status of a Gateway comes between them, although its namespace has many routes as well.
func TestRestlessNamespaceHoldsUpNoStatusOfAnotherRoute(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	g := gatewayStatuses{first: map[types.UID]generation{}, wrote: map[types.UID]gatewayMark{}, right: map[types.UID]rightStatus{}}
	written := map[string]int{}
	for n := range 20 {
		g.in, g.said = inputs.GatewayAPI{}, gateway.Verdicts{}
		add := func(namespace, name, uid string) {
			ref := diag.Object{Kind: "HTTPRoute", Namespace: namespace, Name: name}
			g.in.HTTPRoutes = append(g.in.HTTPRoutes, inputs.Object[gatewayv1.HTTPRoute]{Ref: ref, Value: &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid), ResourceVersion: "1"}}})
			g.said.Routes = append(g.said.Routes, gateway.RouteVerdict{Ref: ref, Parents: []gatewayv1.RouteParentStatus{{ParentRef: gatewayv1.ParentReference{Name: "web"}, ControllerName: "hapsnap.dev/gateway-controller"}}})
		}
		for i := range restless {
			add("a-restless", fmt.Sprint("web-", i), fmt.Sprint(n, "-", i))
		}
		if n >= 10 {
			add("shop", "web", "shop")
			ref := diag.Object{Kind: "Gateway", Namespace: "a-restless", Name: "web"}
			g.in.Gateways = []inputs.Object[gatewayv1.Gateway]{{Ref: ref, Value: &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "a-restless", Name: "web", UID: "gateway", ResourceVersion: "1"}}}}
			g.said.Gateways = []gateway.GatewayVerdict{{Ref: ref, Status: gatewayv1.GatewayStatus{Conditions: []metav1.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted"}}}}}
		}
		g.config, g.head, g.changed = config.Default(), snapshots.ID{Revision: uint64(n + 1)}, true
		g.services = untroubled{}
		o, ok := g.due(now)
		if !ok {
			t.Fatal("nothing is due")
		}
		g.wrote[o.meta.GetUID()] = gatewayMark{version: "1", next: now.Add(time.Hour)}
		written[o.ref.String()]++
	}
	if written["HTTPRoute shop/web"] != 1 || written["Gateway a-restless/web"] != 1 {
		t.Errorf("written were %v", written)
	}
}

type untroubled struct{}

func (untroubled) trouble(types.UID) string { return "" }

// The same of Services of Gateways.
func TestRestlessNamespaceHoldsUpNoServiceOfAnother(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	s := gatewayServices{marks: map[types.NamespacedName]serviceMark{}}
	for n := range 20 {
		s.tasks = nil
		for i := range restless {
			s.tasks = append(s.tasks, serviceTask{name: types.NamespacedName{Namespace: "a-restless", Name: fmt.Sprint("web-", n, "-", i)}})
		}
		if n >= 10 {
			s.tasks = append(s.tasks, serviceTask{name: types.NamespacedName{Namespace: "shop", Name: "web"}})
		}
		got, ok := s.due(now)
		if !ok {
			t.Fatal("nothing is due")
		}
		if got.name.Namespace == "shop" {
			return
		}
		s.marks[got.name] = serviceMark{task: got, at: now}
	}
	t.Error("the Service of the other one is not looked at")
}

// Very many statuses are handed out in a time that grows with their number, not with its square.
func TestManyStatuses(t *testing.T) {
	t.Parallel()
	const n = 60_000
	now := time.Unix(1e9, 0)
	pending := pendingStatuses{marks: marks{}}
	var changes []change
	for i := range n {
		changes = append(changes, change{ref: ref(fmt.Sprint("web-", i)), uid: types.UID(fmt.Sprint(i)), version: "1", addresses: addresses([]string{"192.0.2.1"})})
	}
	pending.want(changes)
	began := time.Now()
	got := 0
	for c, ok := pending.next(now); ok; c, ok = pending.next(now) {
		pending.marks.wrote(c, now)
		got++
	}
	if took := time.Since(began); got != n || took > 3*time.Second {
		t.Errorf("%d statuses take %s", got, took)
	}
}

// What was written of a route that went meanwhile is forgotten: somebody may make routes anew all the time.
func TestStatusesOfRoutesThatWentAreForgotten(t *testing.T) {
	t.Parallel()
	loop := events.NewLoop("statuses", events.Always{}, slog.New(slog.DiscardHandler), nil)
	g := &gatewayStatuses{first: map[types.UID]generation{}, wrote: map[types.UID]gatewayMark{}, services: untroubled{}, loop: loop}
	a := &Announcer{gateways: g, services: &gatewayServices{marks: map[types.NamespacedName]serviceMark{}, loop: loop}}
	ref := diag.Object{Kind: "HTTPRoute", Namespace: "shop", Name: "web"}
	var in inputs.Inputs
	in.Gateway.HTTPRoutes = []inputs.Object[gatewayv1.HTTPRoute]{{Ref: ref, Value: &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web", ResourceVersion: "1"}}}}
	a.Gateways(in, config.Default(), gateway.Verdicts{}, snapshots.ID{Revision: 1})
	a.Gateways(inputs.Inputs{}, config.Default(), gateway.Verdicts{}, snapshots.ID{Revision: 2})
	g.wrote["web"] = gatewayMark{gone: true} // the API server answers only now
	a.Gateways(inputs.Inputs{}, config.Default(), gateway.Verdicts{}, snapshots.ID{Revision: 3})
	if len(g.wrote) > 0 || len(g.first) > 0 {
		t.Errorf("there is still %v, %v", g.wrote, g.first)
	}
}

// Statuses that are right are looked at once (with no other test beside it, which would allocate as well), and again if the object or what is to be said has changed.
func TestRightStatusesAreLookedAtOnce(t *testing.T) {
	const n = 1000
	g := gatewayStatuses{first: map[types.UID]generation{}, wrote: map[types.UID]gatewayMark{}, right: map[types.UID]rightStatus{}, config: config.Default()}
	var routes []*gatewayv1.HTTPRoute
	for i := range n {
		ref := diag.Object{Kind: "HTTPRoute", Namespace: "shop", Name: fmt.Sprint("web-", i)}
		parent := gatewayv1.RouteParentStatus{ParentRef: gatewayv1.ParentReference{Name: "web"}, ControllerName: "hapsnap.dev/gateway-controller", Conditions: []metav1.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted"}}}
		told := *parent.DeepCopy()
		told.Conditions[0].LastTransitionTime = metav1.NewTime(time.Unix(1e9, 0))
		r := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: ref.Name, UID: types.UID(ref.Name), ResourceVersion: "1"}}
		r.Status.Parents = []gatewayv1.RouteParentStatus{told}
		routes = append(routes, r)
		g.in.HTTPRoutes = append(g.in.HTTPRoutes, inputs.Object[gatewayv1.HTTPRoute]{Ref: ref, Value: r})
		g.said.Routes = append(g.said.Routes, gateway.RouteVerdict{Ref: ref, Parents: []gatewayv1.RouteParentStatus{parent}})
	}
	look := func() string {
		g.changed = true
		o, ok := g.due(time.Unix(2e9, 0))
		if !ok {
			return "none"
		}
		return o.ref.Name
	}
	if got := look(); got != "none" {
		t.Fatalf("the status of %s is not right", got)
	}
	if perRoute := testing.AllocsPerRun(3, func() { look() }) / n; perRoute > 10 {
		t.Errorf("a look at a status that is right takes %.0f allocations", perRoute)
	}
	for _, change := range []func() string{
		func() string { // by another compile, of the same objects
			parent := *g.said.Routes[7].Parents[0].DeepCopy()
			parent.Conditions[0].Reason = "Other"
			g.said.Routes[7].Parents = []gatewayv1.RouteParentStatus{parent}
			return g.said.Routes[7].Ref.Name
		},
		func() string { // somebody else writes the status
			g.said.Routes[7].Parents = g.said.Routes[9].Parents
			routes[8].ResourceVersion, routes[8].Status.Parents = "2", nil
			return routes[8].Name
		},
	} {
		if want := change(); look() != want {
			t.Errorf("%s is not looked at again", want)
		}
	}
}
