// Package status makes the status of objects of the Gateway API from the current status. It is pure; package announce
// writes.
//
// # Decisions
//
// Several controllers share the lists parents and conditions of a status, and the API server replaces them as a whole. So
// the entries of others stay unchanged, in their places: other conditions, and parents whose controllerName is not ours.
// A condition for a later generation than the compiled one stays too: another compile knows more. If nothing differs,
// nothing is written. For this reason messages name no snapshot and no time.
package status

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/internal/printable"
)

// The types of our conditions, by the kind of object. Conditions of these types that do not apply any more are removed.
var (
	ofClass   = []string{string(gatewayv1.GatewayClassConditionStatusAccepted), string(gatewayv1.GatewayClassConditionStatusSupportedVersion)}
	ofGateway = []string{
		string(gatewayv1.GatewayConditionAccepted), string(gatewayv1.GatewayConditionProgrammed),
		string(gatewayv1.GatewayConditionResolvedRefs), string(gatewayv1.GatewayConditionInsecureFrontendValidationMode),
	}
	ofListener = []string{string(gatewayv1.ListenerConditionAccepted), string(gatewayv1.ListenerConditionConflicted), string(gatewayv1.ListenerConditionResolvedRefs), string(gatewayv1.ListenerConditionProgrammed)}
	ofParent   = []string{string(gatewayv1.RouteConditionAccepted), string(gatewayv1.RouteConditionResolvedRefs), string(gatewayv1.RouteConditionPartiallyInvalid)}
	ofPolicy   = []string{string(gatewayv1.PolicyConditionAccepted), string(gatewayv1.BackendTLSPolicyConditionResolvedRefs)}
)

// mostAncestors is how many ancestors the status of a policy may have, of all controllers.
const mostAncestors = 16

// Class returns the status of a GatewayClass: the current one with our conditions.
func Class(there map[string]any, want gatewayv1.GatewayClassStatus, now time.Time) (map[string]any, error) {
	return merged(there, want, func(out, wanted map[string]any) {
		out["conditions"] = conditions(out["conditions"], wanted["conditions"], ofClass, now)
		take(out, wanted, "supportedFeatures")
	})
}

// Gateway returns the status of a Gateway. Addresses are kept if none are wanted.
func Gateway(there map[string]any, want gatewayv1.GatewayStatus, now time.Time) (map[string]any, error) {
	return merged(there, want, func(out, wanted map[string]any) {
		out["conditions"] = conditions(out["conditions"], wanted["conditions"], ofGateway, now)
		out["listeners"] = listeners(out["listeners"], wanted["listeners"], now)
		take(out, wanted, "attachedListenerSets")
		take(out, wanted, "addresses")
	})
}

// unanswered ends the messages of conditions of a Gateway of another fleet.
const unanswered = " (compiler without a fleet)"

// Other returns the status of a Gateway of another fleet. It sets our conditions until the compiler of that fleet, or the
// provisioner, has written theirs. The default conditions of the API server, of generation 0, do not count.
func Other(there map[string]any, want gatewayv1.GatewayStatus, now time.Time) (map[string]any, error) {
	for _, c := range maps(there["conditions"]) {
		if slices.Contains(ofGateway, text(c["type"])) && number(c["observedGeneration"]) > 0 && !strings.HasSuffix(text(c["message"]), unanswered) {
			return there, nil
		}
	}
	return merged(there, want, func(out, wanted map[string]any) {
		for _, c := range maps(wanted["conditions"]) {
			c["message"] = text(c["message"]) + unanswered
		}
		out["conditions"] = conditions(out["conditions"], wanted["conditions"], ofGateway, now)
	})
}

// ListenerSet returns the status of a ListenerSet.
func ListenerSet(there map[string]any, want gatewayv1.ListenerSetStatus, now time.Time) (map[string]any, error) {
	return merged(there, want, func(out, wanted map[string]any) {
		out["conditions"] = conditions(out["conditions"], wanted["conditions"], ofGateway, now)
		out["listeners"] = listeners(out["listeners"], wanted["listeners"], now)
	})
}

// Route returns the status of a route, of whatever kind, of which a controller has these parents. Those that
// are for another compiler of the controller stay as they are.
func Route(there map[string]any, controller string, want []gatewayv1.RouteParentStatus, elsewhere func(entry map[string]any) bool, now time.Time) (map[string]any, error) {
	return merged(there, gatewayv1.RouteStatus{Parents: want}, func(out, wanted map[string]any) {
		out["parents"] = entries(out["parents"], wanted["parents"], "parentRef", ofParent, controller, elsewhere, now)
	})
}

// Policy returns the status of a policy of which a controller has these ancestors. What is too much is
// left out at the end, and nothing that others have written, among them other compilers of the controller.
func Policy(there map[string]any, controller string, want []gatewayv1.PolicyAncestorStatus, elsewhere func(entry map[string]any) bool, now time.Time) (map[string]any, error) {
	return merged(there, gatewayv1.PolicyStatus{Ancestors: want}, func(out, wanted map[string]any) {
		others := 0
		for _, a := range maps(out["ancestors"]) {
			if text(a["controllerName"]) != controller || elsewhere(a) {
				others++
			}
		}
		ours, _ := wanted["ancestors"].([]any)
		out["ancestors"] = entries(out["ancestors"], ours[:min(len(ours), max(0, mostAncestors-others))], "ancestorRef", ofPolicy, controller, elsewhere, now)
	})
}

// Same reports whether two statuses say the same.
func Same(a, b map[string]any) bool { return reflect.DeepEqual(a, b) }

// merged returns a copy of the current status with our changes, in the same form.
func merged[T any](there map[string]any, want T, change func(out, wanted map[string]any)) (map[string]any, error) {
	wanted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&want)
	if err != nil {
		return nil, fmt.Errorf("make a status: %w", err)
	}
	out := runtime.DeepCopyJSON(there)
	if out == nil {
		out = map[string]any{}
	}
	change(out, wanted)
	return out, nil
}

// take takes a field as it is wanted, if it is.
func take(out, wanted map[string]any, field string) {
	if value, is := wanted[field]; is && value != nil {
		out[field] = value
	}
}

// conditions changes those of ours, and leaves the others.
func conditions(there, want any, ours []string, now time.Time) []any {
	wanted := map[string]map[string]any{}
	for _, c := range maps(want) {
		wanted[text(c["type"])] = c
	}
	out := []any{}
	seen := map[string]bool{}
	for _, c := range maps(there) {
		kind := text(c["type"])
		w, is := wanted[kind]
		switch {
		case is:
			seen[kind] = true
			out = append(out, condition(c, w, now))
		case !slices.Contains(ours, kind):
			out = append(out, c)
		}
	}
	for _, w := range maps(want) {
		if !seen[text(w["type"])] {
			out = append(out, condition(nil, w, now))
		}
	}
	return out
}

// longestMessage is how many bytes a message may have: the API server refuses a status with a longer one as a whole.
const longestMessage = 32<<10 - len("…")

// condition returns the wanted condition, with a message that is safe to show and with the time of its last transition.
func condition(there, want map[string]any, now time.Time) map[string]any {
	if number(there["observedGeneration"]) > number(want["observedGeneration"]) {
		return there
	}
	since := any(now.UTC().Truncate(time.Second).Format(time.RFC3339))
	if there["status"] == want["status"] && there["lastTransitionTime"] != nil {
		since = there["lastTransitionTime"]
	}
	out := map[string]any{"message": printable.Shortened(printable.Text(text(want["message"])), longestMessage), "lastTransitionTime": since}
	for _, field := range []string{"type", "status", "reason", "observedGeneration"} {
		take(out, want, field)
	}
	return out
}

// listeners has those that are wanted, by name.
func listeners(there, want any, now time.Time) []any {
	was := map[string]map[string]any{}
	for _, l := range maps(there) {
		was[text(l["name"])] = l
	}
	out := []any{}
	for _, l := range maps(want) {
		l["conditions"] = conditions(was[text(l["name"])]["conditions"], l["conditions"], ofListener, now)
		out = append(out, l)
	}
	return out
}

// entries is a list that several controllers share. Each entry is for the object in its field ref. Entries of other
// controllers stay where they are, and so do those that our other compilers wrote for other objects.
func entries(there, want any, ref string, ours []string, controller string, elsewhere func(entry map[string]any) bool, now time.Time) []any {
	wanted := maps(want)
	done := make([]bool, len(wanted))
	out := []any{}
	for _, e := range maps(there) {
		i := slices.IndexFunc(wanted, func(w map[string]any) bool { return reflect.DeepEqual(w[ref], e[ref]) })
		if foreign := text(e["controllerName"]) != controller; foreign || i < 0 && elsewhere(e) {
			out = append(out, e)
			continue
		}
		if i < 0 || done[i] {
			continue // it is none of ours any more
		}
		done[i] = true
		wanted[i]["conditions"] = conditions(e["conditions"], wanted[i]["conditions"], ours, now)
		out = append(out, wanted[i])
	}
	for i, w := range wanted {
		if !done[i] {
			w["conditions"] = conditions(nil, w["conditions"], ours, now)
			out = append(out, w)
		}
	}
	return out
}

// Message returns that of a condition of an entry, or "".
func Message(entry map[string]any, kind string) string {
	for _, c := range maps(entry["conditions"]) {
		if text(c["type"]) == kind {
			return text(c["message"])
		}
	}
	return ""
}

// maps returns the objects of a list, and none of what is no list.
func maps(list any) []map[string]any {
	values, _ := list.([]any)
	var out []map[string]any
	for _, v := range values {
		if m, is := v.(map[string]any); is {
			out = append(out, m)
		}
	}
	return out
}

func text(value any) string {
	s, _ := value.(string)
	return s
}

func number(value any) int64 {
	n, _ := value.(int64)
	return n
}

// Fleet is what is known about the workers of HAProxy.
type Fleet struct {
	// Silent says why nothing is known of what they run; empty if it is known.
	Silent string
	// Stopped says why nothing more is rolled out at present; empty if it is.
	Stopped string
	// Run reports whether every worker runs a generation of an object; before says that its status
	// says so.
	Run func(uid types.UID, generation int64, before bool) bool
}

// Programmed adds the condition Programmed to the wanted conditions of a Gateway or a ListenerSet and its listeners, given
// the current status. Those that have it already are not served. It is true if every worker runs the generation. While
// nothing is known about the workers, a condition that was true for the generation stays.
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
