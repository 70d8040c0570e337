package announce

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/gateway/status"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/snapshots"
)

// gatewayObject is an object of the Gateway API, and how its new status is made from the current one.
type gatewayObject struct {
	ref    diag.Object
	meta   metav1.Object
	status func(there map[string]any, now time.Time) (map[string]any, error)
	route  *gateway.RouteVerdict // of a route
}

// objects returns the objects whose status is for us to write: those that many share, and routes and policies.
func (g *gatewayStatuses) objects() (shared, own []gatewayObject) {
	fleet := g.running()
	classes, gateways, sets := byRef(g.in.Classes), byRef(g.in.Gateways), byRef(g.in.Sets)
	for _, v := range g.said.Classes {
		if o, ok := classes[v.Ref]; ok {
			shared = append(shared, gatewayObject{ref: v.Ref, meta: o.Value, status: func(there map[string]any, now time.Time) (map[string]any, error) {
				return status.Class(there, v.Status, now)
			}})
		}
	}
	for _, v := range g.said.Gateways {
		if o, ok := gateways[v.Ref]; ok {
			shared = append(shared, gatewayObject{ref: v.Ref, meta: o.Value, status: func(there map[string]any, now time.Time) (map[string]any, error) {
				return status.Gateway(there, g.ofGateway(v, o.Value, fleet, there), now)
			}})
		}
	}
	for _, v := range g.said.Others {
		if o, ok := gateways[v.Ref]; ok {
			shared = append(shared, gatewayObject{ref: v.Ref, meta: o.Value, status: func(there map[string]any, now time.Time) (map[string]any, error) {
				return status.Other(there, v.Status, now)
			}})
		}
	}
	for _, v := range g.said.Sets {
		if o, ok := sets[v.Ref]; ok {
			shared = append(shared, gatewayObject{ref: v.Ref, meta: o.Value, status: func(there map[string]any, now time.Time) (map[string]any, error) {
				return status.ListenerSet(there, ofSet(v, o.Value, fleet, there), now)
			}})
		}
	}
	parents := map[diag.Object][]gatewayv1.RouteParentStatus{}
	for _, v := range g.said.Routes {
		parents[v.Ref] = v.Parents
	}
	for kind, o := range g.in.Each() {
		if kind.IsRoute() {
			own = append(own, g.routeObject(o, parents[o.Ref]))
		}
	}
	return shared, append(own, g.policyObjects()...)
}

// policyObjects are all policies: those for nothing of ours lose what we have written when they were.
func (g *gatewayStatuses) policyObjects() []gatewayObject {
	ancestors := map[diag.Object][]gatewayv1.PolicyAncestorStatus{}
	for _, v := range g.said.Policies {
		ancestors[v.Ref] = v.Ancestors
	}
	var out []gatewayObject
	for _, o := range g.in.Policies {
		out = append(out, gatewayObject{ref: o.Ref, meta: o.Value, status: func(there map[string]any, now time.Time) (map[string]any, error) {
			if there["ancestors"] == nil && len(ancestors[o.Ref]) == 0 {
				return there, nil
			}
			return status.Policy(there, g.config.GatewayAPI.ControllerName, ancestors[o.Ref], g.elsewhereFor(o.Ref.Namespace, "ancestorRef"), now)
		}})
	}
	return out
}

// byRef returns objects by what names them. There may be thousands, and each is looked for.
func byRef[T any](list []inputs.Object[T]) map[diag.Object]inputs.Object[T] {
	out := make(map[diag.Object]inputs.Object[T], len(list))
	for _, o := range list {
		out[o.Ref] = o
	}
	return out
}

// routeObject is a route. If it names none of our Gateways any more, it loses the status that we wrote when it did.
func (g *gatewayStatuses) routeObject(o inputs.GatewayObject, parents []gatewayv1.RouteParentStatus) gatewayObject {
	return gatewayObject{ref: o.Ref, meta: o.Value, route: &gateway.RouteVerdict{Ref: o.Ref, Parents: parents}, status: func(there map[string]any, now time.Time) (map[string]any, error) {
		if there["parents"] == nil && len(parents) == 0 {
			return there, nil
		}
		return status.Route(there, g.config.GatewayAPI.ControllerName, parents, g.elsewhereFor(o.Ref.Namespace, "parentRef"), now)
	}}
}

// elsewhereFor says which entries of statuses of a namespace are those of compilers of other fleets.
func (g *gatewayStatuses) elsewhereFor(namespace, field string) func(entry map[string]any) bool {
	return func(entry map[string]any) bool {
		ref, _ := entry[field].(map[string]any)
		about := diag.Object{Kind: "Gateway", Namespace: namespace}
		for key, into := range map[string]*string{"kind": &about.Kind, "namespace": &about.Namespace, "name": &about.Name} {
			if value, is := ref[key].(string); is {
				*into = value
			}
		}
		return g.elsewhere.Has(about, status.Message(entry, string(gatewayv1.RouteConditionAccepted)))
	}
}

// running says what is known of the workers.
func (g *gatewayStatuses) running() status.Fleet {
	if g.fleet == nil {
		return status.Fleet{Silent: "nothing tells the compiler what the instances run"}
	}
	report, err := g.fleet.Read(time.Now())
	switch {
	case err != nil:
		return status.Fleet{Silent: err.Error()}
	case len(report.Workers) == 0:
		return status.Fleet{Silent: "the fleet has no instances"}
	}
	out := status.Fleet{Run: func(uid types.UID, number int64, was bool) bool {
		for id := range report.Workers {
			if id != g.head && !g.had(id, uid, number, was) {
				return false
			}
		}
		return true
	}}
	if report.Stopped {
		out.Stopped = "the rollout is stopped; the status of the pusher says why"
	}
	return out
}

// had reports whether an earlier snapshot has a generation of an object. All have it from the one on that
// was made of it first, as far as is known. Of those before this process began, the status of the object
// says it.
func (g *gatewayStatuses) had(id snapshots.ID, uid types.UID, number int64, was bool) bool {
	of, known := g.first[uid]
	if !known || of.number != number || id.IsZero() {
		return false
	}
	return id.Revision >= of.first.Revision || of.before && was
}

func (g *gatewayStatuses) ofGateway(v gateway.GatewayVerdict, o *gatewayv1.Gateway, fleet status.Fleet, there map[string]any) gatewayv1.GatewayStatus {
	out := *v.Status.DeepCopy()
	programmed := string(gatewayv1.GatewayConditionProgrammed)
	if trouble := g.services.trouble(o.UID); trouble != "" && gateway.Condition(out.Conditions, programmed).Type == "" {
		out.Conditions = append(out.Conditions, metav1.Condition{
			Type: programmed, Status: metav1.ConditionFalse, Reason: string(gatewayv1.GatewayReasonNoResources), Message: trouble, ObservedGeneration: o.Generation,
		})
	}
	lists := []*[]metav1.Condition{&out.Conditions}
	for i := range out.Listeners {
		lists = append(lists, &out.Listeners[i].Conditions)
	}
	fleet.Programmed(there, o.UID, o.Generation, lists...)
	if len(out.Addresses) == 0 {
		out.Addresses = g.where
	}
	return out
}

func ofSet(v gateway.SetVerdict, o *gatewayv1.ListenerSet, fleet status.Fleet, there map[string]any) gatewayv1.ListenerSetStatus {
	out := *v.Status.DeepCopy()
	lists := []*[]metav1.Condition{&out.Conditions}
	for i := range out.Listeners {
		lists = append(lists, &out.Listeners[i].Conditions)
	}
	fleet.Programmed(there, o.UID, o.Generation, lists...)
	return out
}
