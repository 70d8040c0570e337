package pusher

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/snapshots"
)

// spoken is a cluster that keeps what is said in it.
type spoken struct {
	mu            sync.Mutex
	lasting, once []events.Event
	calls         int
}

func (s *spoken) Run(ctx context.Context) { <-ctx.Done() }

func (s *spoken) Say(lasting, once []events.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lasting, s.once, s.calls = lasting, append(s.once, once...), s.calls+1
}

func (s *spoken) said() (lasting, once []string, calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return words(s.lasting), words(s.once), s.calls
}

func words(all []events.Event) []string {
	var out []string
	for _, e := range all {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s %s: %s", e.Type, e.Reason, e.Regarding.Kind, e.Regarding.Name, e.Note)))
	}
	return out
}

// What happens to a rollout is said of the fleet, once.
func TestRolloutsAreSaidInTheCluster(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a", "b")
	s := &spoken{}
	r.options.Events = s
	r.endpoints(echo(t, "one"))
	good := r.publish(config("1", ""))
	r.allRunAfter(good)
	bad := r.publish(config("2", broken))
	r.until("the broken one is undone", func(s Status) bool { return len(s.Rejected) == 1 && s.Rejected[0].Recorded && s.Rollout == nil })
	r.kill()
	_, once, _ := s.said()
	said := strings.Join(once, "\n")
	for _, want := range []string{
		fmt.Sprintf("Normal RolloutBegins  : rollout of %s begins", good), fmt.Sprintf("Normal RolloutDone  : the fleet runs %s", good),
		fmt.Sprintf("Warning RolloutFailed  : rollout of %s failed: a: refused: ", bad), fmt.Sprintf("Warning SnapshotRejected  : %s is rejected", bad),
		fmt.Sprintf("Normal RolloutUndone  : rollout of %s is undone, the fleet runs %s", bad, good),
	} {
		if strings.Count(said, want) != 1 {
			t.Errorf("not said once: %s\n%s", want, said)
		}
	}
}

// What holds is said of the pods and Secrets that it holds of, in the same words for
// as long as it does.
func TestTroubleOnObjects(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	tls, auth, gone := snapshots.SecretName{Namespace: "shop", Name: "tls"}, snapshots.SecretName{Namespace: "shop", Name: "auth"}, snapshots.SecretName{Namespace: "shop", Name: "gone"}
	s := &spoken{}
	e := &engine{
		bindings: newBindings(nil, fromCluster),
		Options:  Options{Events: s}, membership: membership{pods: &fleet.Pods{Namespace: "edge"}},
		instances: map[string]*instance{"pod": {Instance: fleet.Instance{Name: "pod", UID: "u1"}}, "listed": {Instance: fleet.Instance{Name: "listed"}}},
		secrets:   secretSet{tls: {uid: "u2"}, auth: {uid: "u3"}},
	}
	e.objects.broken = []brokenSecret{{tls, "Secret shop/tls: the key is another's"}}
	e.objects.missed = []brokenSecret{{auth, "nobody is let in"}, {gone, "the fallback certificate is served"}}
	status := []InstanceStatus{
		{Name: "fine", Reachable: true}, {Name: "listed", Since: now.Add(-tellAfter)},
		{Name: "away for a moment", Since: now.Add(-tellAfter / 2)}, {Name: "not asked yet"},
		{Name: "pod", Refused: true, Error: "HAProxy 2.2 is too old", Since: now},
	}
	e.sayObjects(status, now)
	for n := range 3 { // nothing is new
		status[1].Error = fmt.Sprintf("dial: port %d", n)
		e.sayObjects(status, now.Add(time.Duration(n)*time.Second))
	}
	lasting, _, calls := s.said()
	want := []string{
		"Warning InstanceUnreachable  : listed: it has been out of reach since 2026-01-01T11:59:00Z",
		"Warning InstanceRefused Pod pod: pod: nothing is pushed to it: HAProxy 2.2 is too old",
		"Warning Unusable Secret tls: Secret shop/tls: the key is another's",
		"Warning Unusable Secret auth: nobody is let in",
	}
	if diff := cmp.Diff(want, lasting); diff != "" {
		t.Errorf("said differs (-want +got):\n%s", diff)
	}
	if calls != 1 {
		t.Errorf("said %d times", calls)
	}
	if got := e.pod("pod"); got != (corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "edge", Name: "pod", UID: types.UID("u1")}) {
		t.Errorf("the pod is %+v", got)
	}

	// What is mended is said no more.
	e.objects.broken, e.objects.missed = nil, nil
	e.sayObjects([]InstanceStatus{{Name: "listed", Reachable: true}}, now)
	if lasting, _, _ := s.said(); len(lasting) > 0 {
		t.Errorf("still said: %v", lasting)
	}
}
