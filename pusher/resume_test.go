package pusher

import (
	"net/http"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/rollout"
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
			return r.ever(func(s observe.Status) bool { return s.Phase() == rollout.Soaking && s.Rollout.Wave == 2 })
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

func TestFailureTwoPushersWithOneState(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	r.endpoints(echo(t, "one"))
	r.allRunAfter(r.publish(config("1", "")))
	if err := Run(t.Context(), r.options); err == nil || !strings.Contains(err.Error(), "another pusher is using it") {
		t.Errorf("a second pusher ended with: %v", err)
	}
}
