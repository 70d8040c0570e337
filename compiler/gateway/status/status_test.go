package status_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/compiler/gateway/status"
)

const ours = "hapsnap.dev/gateway-controller"

var (
	before = "2026-01-01T00:00:00Z"
	now    = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	today  = "2026-02-03T04:05:06Z"
)

// parsed returns a status as the API server sends it.
func parsed(t *testing.T, text string) map[string]any {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return whole(out).(map[string]any)
}

// whole converts the whole numbers of JSON to int64.
func whole(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = whole(v[key])
		}
	case []any:
		for i := range v {
			v[i] = whole(v[i])
		}
	case float64:
		return int64(v)
	}
	return value
}

func accepted(so metav1.ConditionStatus, generation int64) metav1.Condition {
	return metav1.Condition{Type: "Accepted", Status: so, Reason: "Accepted", ObservedGeneration: generation}
}

func parent(name gatewayv1.ObjectName, c ...metav1.Condition) gatewayv1.RouteParentStatus {
	return gatewayv1.RouteParentStatus{ParentRef: gatewayv1.ParentReference{Name: name}, ControllerName: ours, Conditions: c}
}

// elsewhere reports whether an entry is about the Gateway "fleet", which belongs to another compiler.
func elsewhere(entry map[string]any) bool {
	for _, field := range []string{"parentRef", "ancestorRef"} {
		if ref, is := entry[field].(map[string]any); is && ref["name"] == "fleet" {
			return true
		}
	}
	return false
}

// Entries and conditions of others stay unchanged and in place. Entries that are no longer ours are removed.
func TestRoute(t *testing.T) {
	t.Parallel()
	foreign := `{controllerName: other.example/x, parentRef: {name: web, odd: [1]}, conditions: [{type: Accepted, status: "False", unknown: field}]}`
	for name, c := range map[string]struct {
		there string
		want  []gatewayv1.RouteParentStatus
		get   string
	}{
		"a first word": {
			`{}`, []gatewayv1.RouteParentStatus{parent("web", accepted("True", 1))},
			`{parents: [{controllerName: ` + ours + `, parentRef: {name: web}, conditions: [{type: Accepted, status: "True", reason: Accepted, message: "", observedGeneration: 1, lastTransitionTime: "` + today + `"}]}]}`,
		},
		"between others": {
			`{parents: [` + foreign + `, {controllerName: ` + ours + `, parentRef: {name: web}, conditions: [{type: theirs, status: "True"}, {type: Accepted, status: "True", reason: Accepted, message: "", observedGeneration: 1, lastTransitionTime: "` + before + `"}]}, ` + foreign + `]}`,
			[]gatewayv1.RouteParentStatus{parent("web", accepted("True", 2)), parent("more", accepted("False", 2))},
			`{parents: [` + foreign + `, {controllerName: ` + ours + `, parentRef: {name: web}, conditions: [{type: theirs, status: "True"}, {type: Accepted, status: "True", reason: Accepted, message: "", observedGeneration: 2, lastTransitionTime: "` + before + `"}]}, ` + foreign + `,
			{controllerName: ` + ours + `, parentRef: {name: more}, conditions: [{type: Accepted, status: "False", reason: Accepted, message: "", observedGeneration: 2, lastTransitionTime: "` + today + `"}]}]}`,
		},
		"a status changes": {
			`{parents: [{controllerName: ` + ours + `, parentRef: {name: web}, conditions: [{type: Accepted, status: "True", reason: Accepted, message: "", observedGeneration: 1, lastTransitionTime: "` + before + `"}]}]}`,
			[]gatewayv1.RouteParentStatus{parent("web", accepted("False", 2))},
			`{parents: [{controllerName: ` + ours + `, parentRef: {name: web}, conditions: [{type: Accepted, status: "False", reason: Accepted, message: "", observedGeneration: 2, lastTransitionTime: "` + today + `"}]}]}`,
		},
		"a later compile has said more": {
			`{parents: [{controllerName: ` + ours + `, parentRef: {name: web}, conditions: [{type: Accepted, status: "False", reason: Later, message: "", observedGeneration: 3, lastTransitionTime: "` + before + `"}]}]}`,
			[]gatewayv1.RouteParentStatus{parent("web", accepted("True", 2))},
			`{parents: [{controllerName: ` + ours + `, parentRef: {name: web}, conditions: [{type: Accepted, status: "False", reason: Later, message: "", observedGeneration: 3, lastTransitionTime: "` + before + `"}]}]}`,
		},
		"a condition of ours ends": {
			`{parents: [{controllerName: ` + ours + `, parentRef: {name: web}, conditions: [{type: PartiallyInvalid, status: "True", observedGeneration: 1}, {type: Accepted, status: "True", reason: Accepted, message: "", observedGeneration: 1, lastTransitionTime: "` + before + `"}]}]}`,
			[]gatewayv1.RouteParentStatus{parent("web", accepted("True", 1))},
			`{parents: [{controllerName: ` + ours + `, parentRef: {name: web}, conditions: [{type: Accepted, status: "True", reason: Accepted, message: "", observedGeneration: 1, lastTransitionTime: "` + before + `"}]}]}`,
		},
		"another compiler of the controller speaks of its own": {
			`{parents: [{controllerName: ` + ours + `, parentRef: {name: fleet}, conditions: [{type: Accepted, status: "False"}]}, {controllerName: ` + ours + `, parentRef: {name: web}, conditions: []}]}`, nil,
			`{parents: [{controllerName: ` + ours + `, parentRef: {name: fleet}, conditions: [{type: Accepted, status: "False"}]}]}`,
		},
		"what another compiler has said of a Gateway that is ours now": {
			`{parents: [{controllerName: ` + ours + `, parentRef: {name: fleet}, conditions: [{type: Accepted, status: "True", lastTransitionTime: "` + before + `"}]}]}`, []gatewayv1.RouteParentStatus{parent("fleet", accepted("True", 1))},
			`{parents: [{controllerName: ` + ours + `, parentRef: {name: fleet}, conditions: [{type: Accepted, status: "True", reason: Accepted, message: "", observedGeneration: 1, lastTransitionTime: "` + before + `"}]}]}`,
		},
		"it names none of our Gateways any more": {
			`{parents: [{controllerName: ` + ours + `, parentRef: {name: web}, conditions: []}, ` + foreign + `]}`, nil, `{parents: [` + foreign + `]}`,
		},
	} {
		there := parsed(t, c.there)
		got, err := status.Route(there, ours, c.want, elsewhere, now)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(parsed(t, c.get), got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
		if diff := cmp.Diff(parsed(t, c.there), there); diff != "" {
			t.Errorf("%s: what was there is changed (-before +after)\n%s", name, diff)
		}
		if again, err := status.Route(got, ours, c.want, elsewhere, now.Add(time.Hour)); err != nil || !status.Same(again, got) {
			t.Errorf("%s: the second time it is something else: %v, %v", name, again, err)
		}
	}
}

// The listeners are ours. Addresses stay if none are known.
func TestGateway(t *testing.T) {
	t.Parallel()
	there := parsed(t, `{addresses: [{type: IPAddress, value: 192.0.2.1}], conditions: [{type: theirs, status: "True"}],
		listeners: [{name: gone, conditions: []}, {name: http, attachedRoutes: 1, conditions: [{type: Accepted, status: "True", reason: Accepted, message: "", observedGeneration: 1, lastTransitionTime: "`+before+`"}]}]}`)
	want := gatewayv1.GatewayStatus{
		Conditions: []metav1.Condition{accepted("True", 1)},
		Listeners:  []gatewayv1.ListenerStatus{{Name: "http", AttachedRoutes: 2, SupportedKinds: []gatewayv1.RouteGroupKind{}, Conditions: []metav1.Condition{accepted("True", 1)}}},
	}
	got, err := status.Gateway(there, want, now)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(parsed(t, `{addresses: [{type: IPAddress, value: 192.0.2.1}],
		conditions: [{type: theirs, status: "True"}, {type: Accepted, status: "True", reason: Accepted, message: "", observedGeneration: 1, lastTransitionTime: "`+today+`"}],
		listeners: [{name: http, attachedRoutes: 2, supportedKinds: [], conditions: [{type: Accepted, status: "True", reason: Accepted, message: "", observedGeneration: 1, lastTransitionTime: "`+before+`"}]}]}`), got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// An entry about a Gateway of another fleet is replaced only by a compiler that knows more.
func TestOther(t *testing.T) {
	t.Parallel()
	want := gatewayv1.GatewayStatus{Conditions: []metav1.Condition{{Type: "Accepted", Status: "Unknown", Reason: "Pending", Message: "nobody has answered", ObservedGeneration: 2}}}
	said := func(generation int) string {
		return fmt.Sprintf(`{type: Accepted, status: Unknown, reason: Pending, message: nobody has answered (compiler without a fleet), observedGeneration: %d, lastTransitionTime: "%s"}`, generation, before)
	}
	for name, c := range map[string]struct{ there, want string }{
		"the API server's default":  {`{conditions: [{type: Accepted, status: Unknown, reason: Pending, message: Waiting for controller, lastTransitionTime: "` + before + `"}]}`, `{conditions: [` + said(2) + `]}`},
		"our own of before":         {`{conditions: [` + said(1) + `]}`, `{conditions: [` + said(2) + `]}`},
		"a condition of a stranger": {`{conditions: [{type: theirs, status: "True", observedGeneration: 2}, ` + said(2) + `]}`, `{conditions: [{type: theirs, status: "True", observedGeneration: 2}, ` + said(2) + `]}`},
		"the fleet's compiler, a generation ago": {
			`{conditions: [{type: Accepted, status: "True", reason: Accepted, message: "", observedGeneration: 1}]}`, `{conditions: [{type: Accepted, status: "True", reason: Accepted, message: "", observedGeneration: 1}]}`,
		},
		"the provisioner": {
			`{conditions: [{type: Programmed, status: Unknown, reason: Pending, message: x (provisioner), observedGeneration: 2}]}`, `{conditions: [{type: Programmed, status: Unknown, reason: Pending, message: x (provisioner), observedGeneration: 2}]}`,
		},
	} {
		got, err := status.Other(parsed(t, c.there), want, now)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(parsed(t, c.want), got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

// Programmed is true if every worker runs the generation. It stays unchanged if nothing is known about the
// workers.
func TestProgrammed(t *testing.T) {
	t.Parallel()
	runs := func(so bool) func(types.UID, int64, bool) bool {
		return func(types.UID, int64, bool) bool { return so }
	}
	was := func(so string, generation string) string {
		return `{conditions: [{type: Programmed, status: "` + so + `", observedGeneration: ` + generation + `}]}`
	}
	for name, c := range map[string]struct {
		fleet status.Fleet
		there string
		want  string
	}{
		"every worker runs it":               {status.Fleet{Run: runs(true)}, `{}`, "True"},
		"not every worker":                   {status.Fleet{Run: runs(false)}, was("True", "2"), "False"},
		"the rollout is stopped":             {status.Fleet{Run: runs(false), Stopped: "for a reason"}, `{}`, "False"},
		"nothing is heard":                   {status.Fleet{Silent: "silent"}, `{}`, "Unknown"},
		"nothing is heard any more":          {status.Fleet{Silent: "silent"}, was("True", "2"), "True"},
		"nothing is heard of a generation":   {status.Fleet{Silent: "silent"}, was("True", "1"), "Unknown"},
		"nothing is heard of what never ran": {status.Fleet{Silent: "silent"}, was("False", "2"), "Unknown"},
	} {
		invalid := metav1.Condition{Type: "Programmed", Status: "False", Reason: "Invalid", ObservedGeneration: 2}
		var own []metav1.Condition
		listeners := [][]metav1.Condition{{accepted("True", 2)}, {invalid}}
		c.fleet.Programmed(parsed(t, c.there), "u", 2, &own, &listeners[0], &listeners[1])
		if len(own) != 1 || string(own[0].Status) != c.want || own[0].ObservedGeneration != 2 || own[0].Reason == "" {
			t.Errorf("%s: got %v", name, own)
		}
		if len(listeners) != 2 || len(listeners[0]) != 2 || listeners[0][1] != own[0] || len(listeners[1]) != 1 || listeners[1][0] != invalid {
			t.Errorf("%s: listeners have %v", name, listeners)
		}
	}
}

// A policy has at most 16 ancestors. Those of others stay. Ours come after them as far as there is room, and
// are removed when they no longer apply.
func TestPolicy(t *testing.T) {
	t.Parallel()
	foreign := func(n int) string {
		return strings.TrimSuffix(strings.Repeat(`{controllerName: other.example/x, ancestorRef: {name: theirs}, conditions: [{type: Accepted, status: "False"}]}, `, n), ", ")
	}
	own := func(name, since string) string {
		return `{controllerName: ` + ours + `, ancestorRef: {name: ` + name + `}, conditions: [{type: Accepted, status: "True", reason: Accepted, message: "", observedGeneration: 1, lastTransitionTime: "` + since + `"}]}`
	}
	var want []gatewayv1.PolicyAncestorStatus
	for _, name := range []gatewayv1.ObjectName{"a", "b", "c"} {
		want = append(want, gatewayv1.PolicyAncestorStatus{AncestorRef: gatewayv1.ParentReference{Name: name}, ControllerName: ours, Conditions: []metav1.Condition{accepted("True", 1)}})
	}
	for name, c := range map[string]struct {
		there string
		want  []gatewayv1.PolicyAncestorStatus
		get   string
	}{
		"room for all":    {`{ancestors: [` + own("b", before) + `, ` + own("gone", before) + `, ` + foreign(1) + `]}`, want, `{ancestors: [` + own("b", before) + `, ` + foreign(1) + `, ` + own("a", today) + `, ` + own("c", today) + `]}`},
		"room for two":    {`{ancestors: [` + foreign(14) + `]}`, want, `{ancestors: [` + foreign(14) + `, ` + own("a", today) + `, ` + own("b", today) + `]}`},
		"room for none":   {`{ancestors: [` + foreign(16) + `]}`, want, `{ancestors: [` + foreign(16) + `]}`},
		"too many":        {`{ancestors: [` + foreign(17) + `, ` + own("a", before) + `]}`, want, `{ancestors: [` + foreign(17) + `]}`},
		"other compilers": {`{ancestors: [` + own("fleet", before) + `, ` + foreign(14) + `, ` + own("b", before) + `]}`, want, `{ancestors: [` + own("fleet", before) + `, ` + foreign(14) + `, ` + own("a", today) + `]}`},
		"none wanted":     {`{ancestors: [` + own("a", before) + `]}`, nil, `{ancestors: []}`},
	} {
		got, err := status.Policy(parsed(t, c.there), ours, c.want, elsewhere, now)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(parsed(t, c.get), got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
		if again, err := status.Policy(got, ours, c.want, elsewhere, now.Add(time.Hour)); err != nil || !status.Same(again, got) {
			t.Errorf("%s: the second time it is something else: %v, %v", name, again, err)
		}
	}
}

// What an author wrote is a part of messages. They command no terminal, and are no longer than the API server takes.
func TestMessagesAreSafe(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"not \x1b]0;x\a but \u202ey": `not \x1b]0;x\a but \u202ey`,
		strings.Repeat("é", 20000):   strings.Repeat("é", 16382) + "…",
	} {
		c := accepted("False", 1)
		c.Message = message
		out, err := status.Route(map[string]any{}, ours, []gatewayv1.RouteParentStatus{parent("web", c)}, nil, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if got := status.Message(out["parents"].([]any)[0].(map[string]any), "Accepted"); got != want {
			t.Errorf("got %.100q, want %.100q", got, want)
		}
	}
}
