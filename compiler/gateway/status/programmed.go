package status

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Fleet is what is known of the workers of HAProxy.
type Fleet struct {
	// Silent says why nothing is known of what they run; empty if it is known.
	Silent string
	// Stopped says why nothing more is rolled out at present; empty if it is.
	Stopped string
	// Run reports whether every worker runs a generation of an object; before says that its status
	// says so.
	Run func(uid types.UID, generation int64, before bool) bool
}

// Programmed adds the condition Programmed to those of a Gateway or a ListenerSet, whose status there is,
// and of its listeners, but for those that have it: they are not served. It is true if every worker runs
// the generation, so that it is the workers that say so. While nothing is heard of them, what was true of
// the generation stays.
func (f Fleet) Programmed(there map[string]any, uid types.UID, generation int64, lists ...*[]metav1.Condition) {
	var c metav1.Condition
	switch {
	case f.Silent == "" && f.Run(uid, generation, wasProgrammed(there, generation)):
		c = metav1.Condition{Status: metav1.ConditionTrue, Reason: string(gatewayv1.GatewayReasonProgrammed), Message: "every instance runs it"}
	case f.Silent == "" && f.Stopped != "":
		c = metav1.Condition{Status: metav1.ConditionFalse, Reason: string(gatewayv1.GatewayReasonPending), Message: "not every instance runs it: " + f.Stopped}
	case f.Silent == "":
		c = metav1.Condition{Status: metav1.ConditionFalse, Reason: string(gatewayv1.GatewayReasonPending), Message: "not every instance runs it yet"}
	case wasProgrammed(there, generation):
		c = metav1.Condition{Status: metav1.ConditionTrue, Reason: string(gatewayv1.GatewayReasonProgrammed), Message: "every instance runs it"}
	default:
		c = metav1.Condition{Status: metav1.ConditionUnknown, Reason: string(gatewayv1.GatewayReasonPending), Message: f.Silent}
	}
	c.Type, c.ObservedGeneration = string(gatewayv1.GatewayConditionProgrammed), generation
	for _, list := range lists {
		if !slices.ContainsFunc(*list, func(has metav1.Condition) bool { return has.Type == c.Type }) {
			*list = append(*list, c)
		}
	}
}

// wasProgrammed reports whether a status says of a generation that every instance runs it.
func wasProgrammed(there map[string]any, generation int64) bool {
	for _, c := range maps(there["conditions"]) {
		if text(c["type"]) == string(gatewayv1.GatewayConditionProgrammed) {
			return text(c["status"]) == string(metav1.ConditionTrue) && number(c["observedGeneration"]) == generation
		}
	}
	return false
}
