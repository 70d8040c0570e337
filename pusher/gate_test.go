package pusher

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/observe"
)

// newGatedRig is a rig with a gate, and a soak time in which there is something to
// count.
func newGatedRig(t *testing.T, gate string) *rig {
	t.Helper()
	r := newRig(t, dataplanetest.V32, "a", "b", "c")
	soak := 1500 * time.Millisecond
	r.options.Soak = &soak
	r.rollout = "  rollout:\n    gate: {" + gate + "}\n"
	r.writeFleet(r.names...)
	return r
}

// load asks every instance again and again until the test ends.
func (r *rig) load() {
	ctx, stop := context.WithCancel(r.t.Context())
	var clients sync.WaitGroup
	for _, name := range r.names {
		clients.Go(func() {
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-pace.C:
					_, _, _ = r.get(name) // its instance counts
				}
			}
		})
	}
	r.t.Cleanup(func() { stop(); clients.Wait() })
}

// fails answers all requests with 500.
const fails = "    http-request return status 500\n"

func TestGateStopsASnapshotThatAnswers500(t *testing.T) {
	t.Parallel()
	r := newGatedRig(t, "minRequests: 20, cannotTell: hold") // however slow the machine is
	r.endpoints(echo(t, "one"))
	good := r.publish(config("1", ""))
	r.allRunAfter(good)
	r.load()
	bad := r.publish(config("2", fails))
	s := r.until("it is rejected", func(s observe.Status) bool { return len(s.Rejected) == 1 && s.Rejected[0].Snapshot == bad })
	if reason := s.Rejected[0].Reason; !strings.HasPrefix(reason, "a: ") || !strings.Contains(reason, " requests were answered with 5xx") {
		t.Errorf("it is rejected since %s", reason)
	}
	r.allRun(good)
	if b, c := r.pushes("b"), r.pushes("c"); b != 1 || c != 1 {
		t.Errorf("b and c got %d and %d pushes, want one each", b, c)
	}
}

func TestGateFindsBackendsThatLostTheirServers(t *testing.T) {
	t.Parallel()
	r := newGatedRig(t, "minRequests: 20")
	*r.options.Soak *= 2
	r.endpoints(echo(t, "one"))
	checked := strings.Replace(config("1", ""), "    balance", "    default-server check inter 500ms fall 1 rise 1\n    balance", 1)
	good := r.publish(checked)
	r.allRunAfter(good)
	// The check asks a port of the endpoint where nobody listens.
	bad := r.publish(strings.Replace(checked, "check inter", "check port 1 inter", 1))
	s := r.until("it is rejected", func(s observe.Status) bool { return len(s.Rejected) == 1 && s.Rejected[0].Snapshot == bad })
	if reason := s.Rejected[0].Reason; reason != "a: no server is up of shop_web, which had some before" {
		t.Errorf("it is rejected since %s", reason)
	}
	r.allRun(good)
}
