package pusher

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// Killed at any step and started again, the pusher resumes, and pushes nothing
// twice.
func TestFailureKilledInARollout(t *testing.T) {
	steps := map[string]func(r *rig) func() bool{
		"before the first push": func(r *rig) func() bool {
			return r.ever(phase(rollout.Pushing))
		},
		"while the canary uploads": func(r *rig) func() bool {
			return func() bool { return r.instances["a"].Count(http.MethodPost, "/storage") > 0 }
		},
		"while the canary is pushed to": func(r *rig) func() bool {
			return func() bool { return r.pushes("a") > 0 }
		},
		"while the canary soaks": func(r *rig) func() bool {
			return r.ever(phase(rollout.Soaking))
		},
		"while the second wave is pushed to": func(r *rig) func() bool {
			return func() bool { return r.pushes("b") > 0 }
		},
		"while the second wave soaks": func(r *rig) func() bool {
			return r.ever(func(s Status) bool { return s.Phase() == rollout.Soaking && s.Rollout.Wave == 2 })
		},
		"while the last wave is pushed to": func(r *rig) func() bool {
			return func() bool { return r.pushes("c") > 0 }
		},
		"when all is done": func(r *rig) func() bool {
			return func() bool { return r.seen().Rollout == nil && !r.seen().Good.IsZero() }
		},
	}
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, dataplanetest.V32, "a", "b", "c")
			r.endpoints(echo(t, "one"))
			id := r.publish(config("1", ""))
			reached := step(r)
			r.run()
			eventually(t, name, reached)
			r.kill()
			r.allRunAfter(id)
			for _, name := range r.names {
				if n := r.reloads(name); n != 1 {
					t.Errorf("%s was reloaded %d times, want once", name, n)
				}
			}
		})
	}
}

func TestFailureStateLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a", "b", "c")
	r.endpoints(echo(t, "one"))
	good := r.publish(config("1", ""))
	r.allRunAfter(good)
	r.kill()
	r.loseState()
	before := []int{r.writes("a"), r.writes("b"), r.writes("c")}
	workers := r.workers()
	r.allRunAfter(good)
	// The fallback certificate is lost with it, which these snapshots do not use. The
	// pusher of the new state writes that it leads each instance.
	for n, was := range before {
		if now := r.writes(r.names[n]); now > was+1 {
			t.Errorf("requests that change %s were %d, are %d", r.names[n], was, now)
		}
	}
	if now := r.workers(); !slices.Equal(now, workers) {
		t.Errorf("the workers were %v, are %v", workers, now)
	}
}

func TestFailureTwoPushersWithOneState(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	r.endpoints(echo(t, "one"))
	r.allRunAfter(r.publish(config("1", "")))
	if err := Run(t.Context(), r.options); err == nil || !strings.Contains(err.Error(), "another pusher is using it") {
		t.Errorf("a second pusher ended with: %v", err)
	}
}

func TestPinAndUnpin(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a", "b")
	r.endpoints(echo(t, "one"))
	first := r.publish(config("1", ""))
	r.allRunAfter(first)
	r.allRun(r.publish(config("2", "")))

	r.channel(func(c channel.Channel) channel.Channel { return c.Pinned(channel.Pin{Snapshot: first}) })
	r.allRun(first)
	third := r.publish(config("3", ""))
	r.until("the newer one is seen", func(s Status) bool { return s.Channel.Behind == 2 })
	if revision, _, err := r.get("a"); revision != "1" {
		t.Errorf("a runs revision %q: %v", revision, err)
	}
	r.channel(channel.Channel.Unpinned)
	r.allRun(third)
}

func TestMissingPinHolds(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	r.endpoints(echo(t, "one"))
	first := r.publish(config("1", ""))
	r.allRunAfter(first)
	gone := snapshots.ID{Revision: 77, Short: "0123456789"}
	r.channel(func(c channel.Channel) channel.Channel { return c.Pinned(channel.Pin{Snapshot: gone}) })
	r.publish(config("2", ""))
	r.until("it holds", func(s Status) bool {
		return s.Channel.Hold && s.Channel.Because == channel.BecausePin && s.Channel.Behind == 1
	})
	if n := r.pushes("a"); n != 1 {
		t.Errorf("a got %d pushes, want 1", n)
	}
}

func TestRetry(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a", "b")
	r.endpoints(echo(t, "one"))
	r.allRunAfter(r.publish(config("1", "")))
	r.instances["a"].Inject(dataplanetest.FailReload("[ALERT] the port is in use").On(http.MethodPost, "/configuration/raw").Times(1))
	second := r.publish(config("2", ""))
	r.until("it is rejected", func(s Status) bool { return len(s.Rejected) == 1 && s.Rejected[0].Recorded && s.Rollout == nil })
	r.channel(func(c channel.Channel) channel.Channel {
		rejection, _ := c.Rejection(second)
		c, _ = c.Retry(rejection.Digest)
		return c
	})
	r.allRun(second)
}
