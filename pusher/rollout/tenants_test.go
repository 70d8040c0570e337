package rollout

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// badKind is the fault of a snapshot.
type badKind int

const (
	goodOne badKind = iota
	losesItsBackend
	answers500
	crashes
	refusedByHAProxy
	badKinds
)

// tenants are backends that come, go and flap.
type tenants struct {
	*sim
	random *rand.Rand
	gone   map[string]bool
	flaps  map[string]time.Time // since when
	went   map[string]map[string]time.Time
}

const tenantCount = 12

func tenant(n int) string { return fmt.Sprintf("t%02d_web", n) }

var rollouts = flag.Uint64("rollouts", 200, "how many good snapshots to roll out among tenants")

// TestTenantsRejectNothing rolls out good snapshots while Services go away, come back and flap. None is
// rejected. Each of the bad ones among them is.
func TestTenantsRejectNothing(t *testing.T) {
	t.Parallel()
	for seed := range *rollouts {
		for _, bad := range []badKind{goodOne, 1 + badKind(seed)%(badKinds-1)} {
			if bad != goodOne && seed%3 > 0 {
				continue
			}
			w := newTenants(seed, 1+int(seed)%4)
			if reason, rejected := w.rollout(bad); rejected != (bad != goodOne) {
				t.Errorf("seed %d, fleet of %d, kind %d: rejected %v: %s; rollout %+v", seed, 1+int(seed)%4, bad, rejected, reason, w.state.Rollout)
			}
		}
	}
}

func newTenants(seed uint64, size int) *tenants {
	w := &tenants{
		sim: newSim(), random: rand.New(rand.NewPCG(seed, 7)), gone: map[string]bool{}, flaps: map[string]time.Time{},
		went: map[string]map[string]time.Time{},
	}
	for n := range size {
		name := string(rune('a' + n))
		w.add(name, "")
		w.fleet[name].running = revision("r1")
		w.went[name] = map[string]time.Time{}
	}
	for n := range tenantCount {
		w.backends[tenant(n)] = Backend{Check: 8 * time.Second}
	}
	w.sampled, w.obs.Channel, w.obs.MayWait, w.obs.Intent = true, true, true, "newest"
	w.obs.Want = revision("r1")
	return w
}

// rollout rolls out a snapshot that changes the first tenant, and returns how that ended.
func (w *tenants) rollout(bad badKind) (string, bool) {
	for range 90 { // minutes, until workers are old enough
		w.second(bad)
	}
	w.obs.Want = revision("r2")
	w.backends[tenant(0)] = Backend{Changed: true, Reached: true, Check: 8 * time.Second}
	for range 1800 {
		w.second(bad)
		if failed := w.state.Failed; len(failed) > 0 {
			return failed[0].Reason, true
		}
		if w.state.Rollout == nil && w.state.Good == w.obs.Want {
			return "", false
		}
	}
	return "it is still under way", false
}

// second lets a second pass. Tenants change, and instances run checks, serve, and get pushes.
func (w *tenants) second(bad badKind) {
	w.now = w.now.Add(time.Second)
	w.tenantsChange(bad)
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range w.fleet {
			if !yield(name) {
				return
			}
		}
	}) {
		w.serve(name, bad)
	}
	for name := range w.pending {
		outcome := Applied
		if bad == refusedByHAProxy && w.pending[name].Snapshot == revision("r2") {
			outcome = Refused
		}
		_ = w.end(name, outcome)
	}
	state, pushes, waits := w.policy.Step(w.state, w.observe(), w.now)
	w.state, w.waits, w.obs.Results = state, waits, nil
	for _, p := range pushes {
		w.pending[p.Instance] = p
	}
}

// tenantsChange makes a Service go away, come back, or begin or stop to flap.
func (w *tenants) tenantsChange(bad badKind) {
	if w.random.IntN(20) > 0 {
		return
	}
	n := w.random.IntN(tenantCount)
	if bad != goodOne && n == 0 {
		return // a backend that flaps or moves is no evidence, not even against a bad snapshot
	}
	name := tenant(n)
	if len(w.gone)+len(w.flaps) > 2 && !w.gone[name] {
		delete(w.flaps, name)
		return
	}
	switch w.random.IntN(4) {
	case 0:
		w.gone[name], w.obs.Moved[name] = true, w.now
	case 1:
		if w.gone[name] {
			delete(w.gone, name)
			w.obs.Moved[name] = w.now
		}
	case 2:
		if n == 0 {
			return // a fleet of one cannot tell a backend that the snapshot broke from one that fails by itself
		}
		w.flaps[name] = w.now
	default:
		delete(w.flaps, name)
	}
}

// serve is one second of an instance. Requests come, and health checks find dead servers, on each instance at
// another moment.
func (w *tenants) serve(name string, bad badKind) {
	i := w.fleet[name]
	has := i.running == revision("r2")
	if bad == crashes && has && w.random.IntN(8) == 0 {
		i.pid += 1000
		i.started, i.counted, i.by = w.now, Counters{}, nil
		clear(w.went[name])
	}
	started := i.started
	if started.IsZero() {
		started = simBegin
	}
	i.down, i.flapped = nil, nil
	c := Counters{Connections: 10}
	by := map[string]int64{}
	for k, v := range i.by {
		by[k] = v
	}
	for n := range tenantCount {
		backend := tenant(n)
		up, dead := true, w.gone[backend]
		if since, flaps := w.flaps[backend]; flaps && !dead {
			dead = int(w.now.Sub(since)/time.Second)%14 >= 7
			// It takes some seconds to be noticed, on each instance a different number.
			phase := (int(w.now.Sub(since)/time.Second) - len(name) - int(name[0])%3 + 1400) % 14
			up = phase < 12
			if !up {
				w.went[name][backend] = w.now
			}
		}
		if w.gone[backend] {
			up = false
		}
		if bad == losesItsBackend && has && n == 0 {
			dead, up = true, w.now.Sub(started) < 7*time.Second
		}
		if !up {
			i.down = append(i.down, backend)
		} else if at, was := w.went[name][backend]; was && w.now.Sub(at) < 5*time.Minute {
			i.flapped = append(i.flapped, backend)
		}
		requests := int64(2 + w.random.IntN(3))
		c.Requests += requests
		if dead {
			c.Errors += requests
			by[backend] += requests
		}
	}
	if bad == answers500 && has {
		c.Requests, c.Errors = c.Requests+100, c.Errors+100
	}
	i.by, i.counted = by, i.counted.plus(c)
}
