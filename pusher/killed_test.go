package pusher

import (
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Killed at any step of whatever it does, and started again: the fleet gets to where it
// was going, and nobody is told anything more often than if nobody had been killed.
func TestFailureKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	for name, s := range killScenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := s.before(t)
			whole := s.played(t, before, never)
			if len(whole.steps) < 4 {
				t.Fatalf("nothing happens: %q", whole.steps)
			}
			for n := 1; n <= len(whole.steps); n += killStride {
				whole.compare(t, s.played(t, before, once(n)))
			}
		})
	}
}

// Killed again and again, sooner or later after each start.
func TestFailureKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	for name, s := range killScenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := s.before(t)
			before.recorded = true
			whole := s.played(t, before, never)
			replayAll(t, whole.logs, whole.store)
			for seed := range uint64(1) {
				random := rand.New(rand.NewPCG(seed, 1))
				again := s.played(t, before, func(life int) int {
					if life >= 8 {
						return 0
					}
					return 1 + random.IntN(6)
				})
				whole.compare(t, again)
				replayAll(t, again.logs, again.store)
			}
		})
	}
}

// A kill says at which step the nth life ends, 0 for none.
type kill func(life int) int

func never(int) int { return 0 }

func once(step int) kill {
	return func(life int) int {
		if life == 0 {
			return step
		}
		return 0
	}
}

// ending is how a play came out.
type ending struct {
	steps  []string // of the first life
	killed []string // the steps at which a life ended
	left   map[string]fakeState
	// stubborn are the instances that refuse something. Who is killed before that was
	// saved, which is counted, has to try once more to know.
	stubborn map[string]bool
	unsaved  int
	// terms is how many terms began after the first: each is written on each instance.
	terms int
	// logs are the event logs of the lives.
	logs  []*eventLines
	store getter
}

const writtenOnly = "post the configuration, reload false"

// played lets a scenario happen, with pushers that are killed.
func (s killScenario) played(t *testing.T, before *settling, at kill) (out ending) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &play{settling: before.clone(t), t: t}
		pass(time.Until(before.at))
		p.begin(filepath.Join(p.dir, "pusher"))
		if len(s.revisions()) > 0 {
			p.settle(p.newest(0), nothing)
		}
		p.life.killAfter(at(0))
		want := s.change(p)
		p.settle(want, s.missing)
		out.steps = p.life.trail()
		for n := 1; p.life.dead(); n++ {
			out.killed = append(out.killed, p.life.last())
			<-p.life.ended
			if s, err := readState(filepath.Join(p.life.folder+".left", "state.json")); err != nil {
				t.Fatal(err)
			} else if len(s.Rollout.Failed) == 0 {
				out.unsaved++
			}
			pass([]time.Duration{0, fakeReload / 2, 10 * time.Second}[(n+at(0))%3])
			p.begin(p.life.folder + ".left")
			p.life.killAfter(at(n))
			p.settle(want, s.missing)
		}
		p.life.end()
		if out.logs = p.logs; p.recorded {
			out.store = inMemory(t, p.store())
		}
		if s.terms {
			out.terms = len(out.killed)
		}
		out.left, out.stubborn = p.left(before), map[string]bool{}
		for name, i := range p.instances {
			out.stubborn[name] = i.refuses != ""
		}
	})
	return out
}

// compare checks that nothing was done more often than without the kills.
func (e ending) compare(t *testing.T, got ending) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(e.left)) {
		usual, now := e.left[name], got.left[name]
		more := 0
		if e.stubborn[name] {
			more = got.unsaved
		}
		if now.reloads > usual.reloads+more {
			t.Errorf("killed at %q: %s was reloaded %d times, and %d without", got.killed, name, now.reloads, usual.reloads)
		}
		for _, w := range slices.Compact(slices.Sorted(slices.Values(now.writes))) {
			allowed := more
			if w == writtenOnly {
				allowed += got.terms
			}
			if n, m := count(now.writes, w), count(usual.writes, w); n > m+allowed {
				t.Errorf("killed at %q: %s had %d times %q, and %d without", got.killed, name, n, w, m)
			}
		}
	}
}

func count(list []string, s string) int {
	n := 0
	for _, x := range list {
		if x == s {
			n++
		}
	}
	return n
}
