package gateway

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
	"github.com/hapsnap/hapsnap/compiler/inputs"
)

// Verdicts are what the status of objects should say, by age and name of the objects. Conditions have no time. The
// condition Programmed is missing if it depends on what HAProxy runs. Only listeners and Gateways that are not served
// have it, as false.
type Verdicts struct {
	Classes  []ClassVerdict
	Gateways []GatewayVerdict
	Sets     []SetVerdict
	Routes   []RouteVerdict
	Policies []PolicyVerdict
	// Others are Gateways of our classes that name another fleet, with what their status says until the compiler of
	// that fleet answers. Only the compiler without a fleet has them.
	Others []GatewayVerdict
}

// otherVerdict says that no compiler has answered. The name of the fleet may be misspelled, or no compiler has such a
// fleet.
func otherVerdict(g inputs.Object[gatewayv1.Gateway], fleet string) GatewayVerdict {
	out := GatewayVerdict{Ref: g.Ref}
	for _, kind := range []gatewayv1.GatewayConditionType{gatewayv1.GatewayConditionAccepted, gatewayv1.GatewayConditionProgrammed} {
		out.Status.Conditions = append(out.Status.Conditions, metav1.Condition{
			Type: string(kind), Status: metav1.ConditionUnknown, Reason: string(gatewayv1.GatewayReasonPending), ObservedGeneration: g.Value.Generation,
			Message: "no compiler of the fleet " + fleet + " has answered",
		})
	}
	return out
}

// ClassVerdict is the status of a GatewayClass.
type ClassVerdict struct {
	Ref    diag.Object
	Status gatewayv1.GatewayClassStatus
}

// GatewayVerdict is the status of a Gateway, with the Service that it should have, or nil.
type GatewayVerdict struct {
	Ref     diag.Object
	Status  gatewayv1.GatewayStatus
	Service *Service
}

// SetVerdict is the status of a ListenerSet.
type SetVerdict struct {
	Ref    diag.Object
	Status gatewayv1.ListenerSetStatus
}

// RouteVerdict is the status of a route, for those of its parents that are ours.
type RouteVerdict struct {
	Ref     diag.Object
	Parents []gatewayv1.RouteParentStatus
}

// PolicyVerdict is the status of a BackendTLSPolicy, for those of its ancestors that are ours.
type PolicyVerdict struct {
	Ref       diag.Object
	Ancestors []gatewayv1.PolicyAncestorStatus
}

// ObjectStatus is what the status of an object should say, for people and for programs.
type ObjectStatus struct {
	Object string `json:"object"` // as Kind namespace/name
	Status any    `json:"status"`
}

// Statuses returns the verdicts, one for each object.
func (v Verdicts) Statuses() []ObjectStatus {
	var out []ObjectStatus
	for _, c := range v.Classes {
		out = append(out, ObjectStatus{c.Ref.String(), c.Status})
	}
	for _, g := range v.Gateways {
		out = append(out, ObjectStatus{g.Ref.String(), g.Status})
	}
	for _, s := range v.Sets {
		out = append(out, ObjectStatus{s.Ref.String(), s.Status})
	}
	for _, r := range v.Routes {
		out = append(out, ObjectStatus{r.Ref.String(), gatewayv1.RouteStatus{Parents: r.Parents}})
	}
	for _, p := range v.Policies {
		out = append(out, ObjectStatus{p.Ref.String(), gatewayv1.PolicyStatus{Ancestors: p.Ancestors}})
	}
	return out
}

// condition returns a condition that is true, or false with the reason if there is one.
func condition(kind, reason string, v attach.Verdict, generation int64) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, ObservedGeneration: generation}
	if !v.Fine() {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v.Reason, v.Message
	}
	return c
}

func classVerdict(c inputs.Object[gatewayv1.GatewayClass], cfg Config, of api) ClassVerdict {
	var v attach.Verdict
	if c.Value.Spec.ParametersRef != nil {
		v = attach.Verdict{Reason: string(gatewayv1.GatewayClassReasonInvalidParameters), Message: "parameters are not supported"}
	}
	return ClassVerdict{c.Ref, gatewayv1.GatewayClassStatus{
		Conditions: []metav1.Condition{
			condition(string(gatewayv1.GatewayClassConditionStatusAccepted), string(gatewayv1.GatewayClassReasonAccepted), v, c.Value.Generation),
			of.version(c.Value.Generation),
		},
		SupportedFeatures: cfg.supportedFeatures(of),
	}}
}

// referenceConditions say whether the objects exist to which a Gateway refers. They also say whether the Gateway
// accepts clients without a certificate although it asks for one.
func referenceConditions(g *attach.Gateway) []metav1.Condition {
	resolved := g.Resolved
	for _, l := range g.Listeners {
		if !l.Resolved.Fine() && resolved.Fine() {
			resolved = attach.Verdict{Reason: string(gatewayv1.GatewayReasonListenersNotResolved), Message: fmt.Sprintf("listener %s: %s", l.Spec.Name, l.Resolved.Message)}
		}
	}
	out := []metav1.Condition{condition(string(gatewayv1.GatewayConditionResolvedRefs), string(gatewayv1.GatewayReasonResolvedRefs), resolved, g.Value.Generation)}
	if insecure(g) {
		out = append(out, metav1.Condition{
			Type: string(gatewayv1.GatewayConditionInsecureFrontendValidationMode), Status: metav1.ConditionTrue,
			Reason: string(gatewayv1.GatewayReasonConfigurationChanged), ObservedGeneration: g.Value.Generation,
			Message: "clients without a valid certificate are let in, as the mode AllowInsecureFallback says",
		})
	}
	return out
}

// ownerConditions returns the conditions of a Gateway or a ListenerSet. Both have the same types and reasons, except
// the reason if no listener is served.
func ownerConditions(o *attach.Owner, unplaced attach.Verdict, unserved string, generation int64) []metav1.Condition {
	serves, all := false, true
	for _, l := range o.Listeners {
		serves, all = serves || l.Valid(), all && l.Valid()
	}
	accepted := condition(string(gatewayv1.GatewayConditionAccepted), string(gatewayv1.GatewayReasonAccepted), o.Refused, generation)
	if o.Refused.Fine() && !all {
		accepted.Reason, accepted.Message = string(gatewayv1.GatewayReasonListenersNotValid), "some listeners are not served"
		if !serves {
			accepted.Status = metav1.ConditionFalse
		}
	}
	if serves && unplaced.Fine() {
		return []metav1.Condition{accepted}
	}
	if serves {
		return []metav1.Condition{accepted, condition(string(gatewayv1.GatewayConditionProgrammed), "", unplaced, generation)}
	}
	programmed := attach.Verdict{Reason: unserved, Message: "no listener is served"}
	if !o.Refused.Fine() {
		programmed = o.Refused
	}
	return []metav1.Condition{accepted, condition(string(gatewayv1.GatewayConditionProgrammed), "", programmed, generation)}
}

func listenerVerdict(l *attach.Listener, generation int64) gatewayv1.ListenerStatus {
	out := gatewayv1.ListenerStatus{Name: l.Spec.Name, AttachedRoutes: int32(l.Attached), SupportedKinds: []gatewayv1.RouteGroupKind{}}
	group := gatewayv1.Group(attach.Group)
	for _, k := range l.Kinds {
		out.SupportedKinds = append(out.SupportedKinds, gatewayv1.RouteGroupKind{Group: &group, Kind: gatewayv1.Kind(k)})
	}
	accepted := l.Accepted
	if accepted.Fine() {
		accepted = l.Conflicted
	}
	conflicted := metav1.Condition{Type: string(gatewayv1.ListenerConditionConflicted), Status: metav1.ConditionFalse, Reason: string(gatewayv1.ListenerReasonNoConflicts), ObservedGeneration: generation}
	if !l.Conflicted.Fine() {
		conflicted.Status, conflicted.Reason, conflicted.Message = metav1.ConditionTrue, l.Conflicted.Reason, l.Conflicted.Message
	}
	out.Conditions = []metav1.Condition{
		condition(string(gatewayv1.ListenerConditionAccepted), string(gatewayv1.ListenerReasonAccepted), accepted, generation),
		conflicted,
		condition(string(gatewayv1.ListenerConditionResolvedRefs), string(gatewayv1.ListenerReasonResolvedRefs), l.Resolved, generation),
	}
	if !l.Serves() {
		programmed := attach.Verdict{Reason: string(gatewayv1.ListenerReasonInvalid), Message: "the listener is not served"}
		if !l.Conflicted.Fine() {
			programmed = l.Conflicted
		}
		out.Conditions = append(out.Conditions, condition(string(gatewayv1.ListenerConditionProgrammed), "", programmed, generation))
	}
	return out
}

// verdict returns what the status of a route should say about one parent.
func (r *read) verdict(ref gatewayv1.ParentReference, why attach.Verdict, cfg Config) gatewayv1.RouteParentStatus {
	generation := r.Value.Generation
	out := gatewayv1.RouteParentStatus{ParentRef: ref, ControllerName: gatewayv1.GatewayController(cfg.Controller), Conditions: []metav1.Condition{
		condition(string(gatewayv1.RouteConditionAccepted), string(gatewayv1.RouteReasonAccepted), why, generation),
		condition(string(gatewayv1.RouteConditionResolvedRefs), string(gatewayv1.RouteReasonResolvedRefs), r.resolved, generation),
	}}
	out.Conditions[0].Message = signed(cfg.Fleet, out.Conditions[0].Message)
	if !r.dropped.Fine() {
		out.Conditions = append(out.Conditions, partial(r.dropped, generation))
	}
	return out
}

// partial returns the condition that a part of a route is not served.
func partial(v attach.Verdict, generation int64) metav1.Condition {
	return metav1.Condition{
		Type: string(gatewayv1.RouteConditionPartiallyInvalid), Status: metav1.ConditionTrue,
		Reason: v.Reason, Message: v.Message, ObservedGeneration: generation,
	}
}

// routes returns the verdict on each route.
func (v Verdicts) routes() map[diag.Object]RouteVerdict {
	out := make(map[diag.Object]RouteVerdict, len(v.Routes))
	for _, r := range v.Routes {
		out[r.Ref] = r
	}
	return out
}

// refuse says that the route is not accepted, for all parents that have accepted it.
func (v RouteVerdict) refuse(why attach.Verdict, fleet string) {
	for _, p := range v.Parents {
		if accepted := &p.Conditions[0]; accepted.Status == metav1.ConditionTrue {
			*accepted = condition(accepted.Type, accepted.Reason, why, accepted.ObservedGeneration)
			accepted.Message = signed(fleet, accepted.Message)
		}
	}
}

// partial says that a part of the route is not served, unless its status already says so.
func (v RouteVerdict) partial(message string) {
	for i := range v.Parents {
		p := &v.Parents[i]
		if Condition(p.Conditions, string(gatewayv1.RouteConditionPartiallyInvalid)).Type == "" {
			p.Conditions = append(p.Conditions, partial(attach.Verdict{Reason: string(gatewayv1.RouteReasonUnsupportedValue), Message: message}, p.Conditions[0].ObservedGeneration))
		}
	}
}

// Condition returns the condition of a type, or the zero value if it is missing.
func Condition(all []metav1.Condition, kind string) metav1.Condition {
	i := slices.IndexFunc(all, func(c metav1.Condition) bool { return c.Type == kind })
	if i < 0 {
		return metav1.Condition{}
	}
	return all[i]
}

// signed returns a message that names the fleet of this compiler, if it has one. All compilers of a class have the same
// controllerName. Nothing else says which of them wrote an entry of a status.
func signed(fleet, message string) string {
	if fleet == "" {
		return message
	}
	return strings.TrimSpace(message + " (fleet " + fleet + ")")
}

var signature = regexp.MustCompile(`\(fleet ([^()\s]+)\)$`)

// signer returns the fleet of the compiler that signed a message, or "".
func signer(message string) string {
	if m := signature.FindStringSubmatch(message); m != nil {
		return m[1]
	}
	return ""
}

// Elsewhere says which entries of a status belong to compilers of other fleets. A compiler does not change the entries
// of others.
type Elsewhere struct {
	// Fleet is the fleet of this compiler, as namespace/name, or "".
	Fleet string
	// Reads reports whether the compiler reads objects of a namespace.
	Reads func(namespace string) bool
	In    inputs.GatewayAPI
}

// Has reports whether another compiler is responsible for an entry about a Gateway or ListenerSet. The message is that
// of the condition Accepted in the entry. If the Gateway or ListenerSet is gone, the compiler without a fleet removes
// the entries of all compilers.
func (e Elsewhere) Has(about diag.Object, message string) bool {
	if signer(message) == e.Fleet {
		return false
	}
	return e.Fleet != "" || !e.Reads(about.Namespace) || e.there(about)
}

func (e Elsewhere) there(o diag.Object) bool {
	if o.Kind != "ListenerSet" {
		return slices.ContainsFunc(e.In.Gateways, func(g inputs.Object[gatewayv1.Gateway]) bool { return g.Ref == o })
	}
	return slices.ContainsFunc(e.In.Sets, func(s inputs.Object[gatewayv1.ListenerSet]) bool {
		to := s.Value.Spec.ParentRef
		r := attach.ReferenceOf("Gateway", o.Namespace, to.Group, to.Kind, to.Namespace, to.Name)
		return s.Ref == o && (!e.Reads(r.Namespace) || e.there(diag.Object{Kind: "Gateway", Namespace: r.Namespace, Name: r.Name}))
	})
}
