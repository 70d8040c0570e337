package events

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestNamesFollowFromWhatIsSaid(t *testing.T) {
	t.Parallel()
	event := func(name, uid, note string) Event {
		return Event{Regarding: corev1.ObjectReference{Kind: "Ingress", Name: name, UID: types.UID(uid)}, Type: "Warning", Reason: "LeftOut", Note: note}
	}
	same := event("web", "u1", "no host").Name()
	if got := event("web", "u1", "no host").Name(); got != same || !strings.HasPrefix(got, "web.") {
		t.Errorf("%s and %s", same, got)
	}
	for what, e := range map[string]Event{
		"another note": event("web", "u1", "no port"), "another object of the same name": event("web", "u2", "no host"),
		"a long name": event(strings.Repeat("a-", 126)+"a", "u1", "no host"), "no name of an Event": event("system:node", "u1", "no host"),
	} {
		if name := e.Name(); name == same || len(validation.IsDNS1123Subdomain(name)) > 0 {
			t.Errorf("%s: %s", what, name)
		}
	}
}

func TestWhereEventsAreKept(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]Event{
		"shop":    {Regarding: corev1.ObjectReference{Kind: "Ingress", Namespace: "shop", Name: "web"}},
		"default": {Regarding: corev1.ObjectReference{Kind: "IngressClass", Name: "edge"}},
	} {
		if got := e.namespace(); got != want {
			t.Errorf("namespace %s, want %s", got, want)
		}
	}
}

// A state that lasts does not suppress an Event to be said once, unless the same action found both.
func TestWhatHappenedIsSaidBesideWhatHolds(t *testing.T) {
	t.Parallel()
	l := newLedger()
	now := time.Unix(1e9, 0)
	happened, holds := said("fleet", "failed"), said("fleet", "unreachable")
	happened.Action, holds.Action = "Rollout", "Ask"
	l.wish(nil, []Event{happened}, now)
	l.wish([]Event{holds}, nil, now.Add(time.Second))
	if got := fmt.Sprint(l.drain(now.Add(time.Second))); got != "[fleet unreachable 0 fleet failed 0]" {
		t.Error(got)
	}
}
