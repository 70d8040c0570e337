package pusher

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/notify"
	"github.com/hapsnap/hapsnap/pusher/observe"
)

// rival is another pusher for the instances of a rig, with a state of its own.
type rival struct {
	t       *testing.T
	options Options

	mu      sync.Mutex
	status  observe.Status
	log     bytes.Buffer
	notices []notify.Notice

	stop context.CancelFunc
	done chan error
}

func (r *rig) rival(name string) *rival {
	v := &rival{t: r.t, options: r.options}
	v.options.State = filepath.Join(r.dir, name, "state.json")
	v.options.Log = slog.New(slog.NewTextHandler(v, nil))
	v.options.Status = func(s observe.Status) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.status = s
	}
	v.options.Notify = func(n notify.Notice) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.notices = append(v.notices, n)
	}
	r.t.Cleanup(func() {
		v.end()
		if r.t.Failed() {
			r.t.Logf("log of the other pusher:\n%s", v.log.String())
		}
	})
	return v
}

func (v *rival) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.log.Write(p)
}

func (v *rival) run() {
	ctx, stop := context.WithCancel(context.Background())
	v.stop, v.done = stop, make(chan error, 1)
	go func(o Options) { v.done <- Run(ctx, o) }(v.options)
}

func (v *rival) end() {
	if v.stop == nil {
		return
	}
	v.stop()
	if err := <-v.done; err != nil {
		v.t.Errorf("the other pusher ended with: %v", err)
	}
	v.stop = nil
}

func (v *rival) seen() observe.Status {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.status
}

func (v *rival) until(what string, ok func(observe.Status) bool) {
	v.t.Helper()
	eventually(v.t, "the other pusher: "+what, func() bool { return ok(v.seen()) })
}

// isSecond reports whether a pusher says that another one leads the whole fleet.
func isSecond(s observe.Status) bool {
	blocked, is := s.Blocked()
	return is && blocked.About == "pusher" && strings.Contains(blocked.Error, "--take-over") && s.InSync() == 0 && s.Condition().Phase == observe.Degraded &&
		!slices.ContainsFunc(s.Instances, func(i observe.InstanceStatus) bool { return i.Reachable && i.LedBy == "" })
}

func (r *rig) allWrites() (n []int) {
	for _, name := range r.names {
		n = append(n, r.writes(name), r.reloads(name))
	}
	return n
}

// A second pusher, with other live data, finds who leads and writes nothing. It takes over
// when it is told to, and then the first writes nothing.
func TestFailureTwoPushersWithTwoStates(t *testing.T) {
	t.Parallel()
	for _, api := range []dataplanetest.API{dataplanetest.V32, dataplanetest.V34} {
		t.Run(string(api), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, api, "a", "b")
			r.options.InspectInterval = 100 * time.Millisecond
			r.endpoints(echo(t, "one"))
			r.allRunAfter(r.publish(config("1", "")))
			second := r.rival("second")
			second.options.Live = filepath.Join(r.dir, "others")
			r.endpointsOf("web", "others/endpoints.yaml", echo(t, "two"))
			before := r.allWrites()
			second.run()
			second.until("it is the second", isSecond)
			looks := r.instances["a"].Count("GET", "/configuration/raw")
			eventually(t, "the first inspects its instances", func() bool {
				return r.instances["a"].Count("GET", "/configuration/raw") > looks+10
			})
			if after := r.allWrites(); !slices.Equal(before, after) {
				t.Errorf("writes and reloads were %v, and are %v", before, after)
			}
			// What the first does is not undone.
			id := r.publish(config("2", ""))
			r.allRun(id)
			second.until("it is still the second", isSecond)
			if a, b := r.reloads("a"), r.reloads("b"); a != 2 || b != 2 {
				t.Errorf("%d and %d reloads for two snapshots", a, b)
			}
			if !r.answersOnly("a", "one") {
				t.Error("a is not on the first one's endpoints")
			}
			if f := second.seen().Rejected; len(f) > 0 {
				t.Errorf("the second rejected %v", f)
			}
			second.end()

			second.options.TakeOver = true
			second.run()
			eventually(t, "the second one's endpoints answer", func() bool { return r.answersOnly("a", "two") && r.answersOnly("b", "two") })
			r.until("the first is told", isSecond)
			second.until("all is well", func(s observe.Status) bool { return s.InSync() == 2 && len(s.Troubles) == 0 })
			if a, b := r.reloads("a"), r.reloads("b"); a != 2 || b != 2 {
				t.Errorf("%d and %d reloads after the second took over", a, b)
			}
			// It goes on leading without the flag, and so does the first being led.
			second.end()
			second.options.TakeOver = false
			second.run()
			second.until("it still leads", func(s observe.Status) bool { return s.InSync() == 2 && len(s.Troubles) == 0 })
			r.kill()
			r.run()
			r.until("the first is still told", isSecond)
		})
	}
}

// Two pushers that begin at once with a fleet that nobody leads: one leads it.
func TestTwoPushersBeginAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a", "b")
	r.endpoints(echo(t, "one"))
	id := r.publish(config("1", ""))
	second := r.rival("second")
	second.run()
	r.run()
	eventually(t, "one of them leads both, or each some", func() bool {
		led := 0
		for _, s := range []observe.Status{r.seen(), second.seen()} {
			for _, i := range s.Instances {
				if i.InSync && i.Running == id {
					led++
				}
			}
		}
		return led == 2
	})
	if a, b := r.reloads("a"), r.reloads("b"); a > 2 || b > 2 {
		t.Errorf("%d and %d reloads", a, b)
	}
}

// A state that is lost for good, with its place, takes a person's word.
func TestStateLostWithItsPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V34, "a")
	r.endpoints(echo(t, "one"))
	id := r.publish(config("1", ""))
	r.allRunAfter(id)
	r.kill()
	r.options.State = filepath.Join(r.dir, "elsewhere", "state.json")
	r.run()
	r.until("it takes itself for the second", isSecond)
	r.kill()
	r.options.TakeOver = true
	r.allRunAfter(id)
	if n := r.reloads("a"); n != 1 {
		t.Errorf("%d reloads", n)
	}
}

// A copy of a state is another pusher, too: the one that met the instances first is told.
func TestPusherWithACopyOfTheState(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V34, "a")
	r.options.InspectInterval = 100 * time.Millisecond
	r.endpoints(echo(t, "one"))
	r.allRunAfter(r.publish(config("1", "")))
	second := r.rival("second")
	data, err := readFile(r.options.State)
	if err != nil {
		t.Fatal(err)
	}
	r.write("second/state.json", string(data))
	second.run()
	r.until("the first is told that another goes on with its state", isSecond)
	second.until("it leads", func(s observe.Status) bool { return s.InSync() == 1 })
	if n := r.reloads("a"); n != 1 {
		t.Errorf("%d reloads", n)
	}
}

// Where another pusher leads but some of the instances, the others are looked after.
func TestPusherLeavesAloneWhatAnotherLeads(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V34, "a", "b")
	r.endpoints(echo(t, "one"))
	second := r.rival("second")
	r.writeFleet("a")
	first := r.publish(config("1", ""))
	r.allRunAfter(first)
	r.write("second.yaml", fleetOf(r, "b"))
	second.options.Fleet = filepath.Join(r.dir, "second.yaml")
	second.run()
	second.until("it leads b", func(s observe.Status) bool { return s.InSync() == 1 })
	r.writeFleet("a", "b")
	r.until("b is another one's", func(s observe.Status) bool {
		b := statusOf(s, "b")
		return b.LedBy != "" && !b.InSync && strings.Contains(b.Error, "another pusher leads it") && statusOf(s, "a").InSync && len(s.Troubles) == 0
	})
	id := r.publish(config("2", ""))
	r.until("the rollout is done without b", func(s observe.Status) bool { return s.Good == id && s.Rollout == nil && statusOf(s, "a").InSync })
	if log := r.logged(); strings.Count(log, "instance is led by another pusher, nothing is written to it") != 1 {
		t.Error("it is not said once in the log")
	}
}
