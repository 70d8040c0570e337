package pusher

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/observe"
)

// hangingKeeper is a state store that can cease to answer.
type hangingKeeper struct {
	stateFile
	// deaf is set where it does not even heed that its caller gives up.
	deaf bool

	mu   sync.Mutex
	open chan struct{} // closed while it answers
}

func newHangingKeeper(file string, deaf bool) *hangingKeeper {
	k := &hangingKeeper{stateFile: stateFile{file: file}, deaf: deaf, open: make(chan struct{})}
	close(k.open)
	return k
}

// hang has it cease to answer until the function is called that it returns.
func (k *hangingKeeper) hang() (release func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open = make(chan struct{})
	return sync.OnceFunc(func() { close(k.open) })
}

func (k *hangingKeeper) wait(ctx context.Context) error {
	k.mu.Lock()
	open := k.open
	k.mu.Unlock()
	if k.deaf {
		<-open
		return nil
	}
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (k *hangingKeeper) Save(ctx context.Context, data []byte) error {
	if err := k.wait(ctx); err != nil {
		return err
	}
	return k.stateFile.Save(ctx, data)
}

// A state store that does not answer stops neither endpoint updates nor probes. A rollout
// waits for it: nothing is pushed whose step is not saved.
func TestFailureStateStoreHangs(t *testing.T) {
	t.Parallel()
	for name, deaf := range map[string]bool{"until its caller gives up": false, "for good": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, dataplanetest.V34, "a")
			one, two := echo(t, "one"), echo(t, "two")
			k := newHangingKeeper(r.options.State, deaf)
			r.options.Keeper = k
			r.endpoints(one)
			first := r.publish(config("1", ""))
			r.allRunAfter(first)
			took := func(address, body string) time.Duration {
				t.Helper()
				began := time.Now()
				r.endpoints(address)
				eventually(t, "the worker has it", func() bool { return r.answersOnly("a", body) })
				return time.Since(began)
			}
			ordinary := took(two, "two")
			release := k.hang()
			defer release()
			second := r.publish(config("2", ""))
			r.until("it is wanted", func(s observe.Status) bool { return s.Channel.Wanted == second })
			for n := range 3 { // all of which take less than the store is waited for
				address, body := one, "one"
				if n%2 == 1 {
					address, body = two, "two"
				}
				if hung := took(address, body); hung > max(5*ordinary, time.Second) {
					t.Errorf("a change took %s while the state store hangs, and %s before", hung, ordinary)
				}
			}
			seen := r.until("what the worker runs is still asked for", func(s observe.Status) bool {
				a := statusOf(s, "a")
				return a.Reachable && a.Running == first && a.Doing == "" && a.Error == ""
			})
			if seen.Rollout != nil || r.pushes("a") != 1 {
				t.Errorf("the rollout is %+v, and there were %d pushes, though no step was saved", seen.Rollout, r.pushes("a"))
			}
			release()
			s := r.allRun(second)
			r.until("the trouble is over", func(s observe.Status) bool { return len(s.Troubles) == 0 })
			if s.Good != second {
				t.Errorf("good is %s", s.Good)
			}
		})
	}
}
