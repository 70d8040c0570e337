package pusher

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest/memory"
	"github.com/hapsnap/hapsnap/internal/testing/race"
)

// killedIn are stories of fleets whose pushers are killed, in the commands of [TestStories]. The
// last line is what happens while pushers are killed.
var killedIn = map[string]string{
	"first push":                 "publish 1",
	"rollout in waves":           "publish 1\npusher begins\npublish 2",
	"rollout in waves, in terms": "terms\npublish 1\npusher begins\npublish 2",
	"last wave fails":            "publish 1\npusher begins\nb refuses 2\nc refuses 2\npublish 2",
	"canary fails":               "publish 1\npusher begins\na refuses 2\npublish 2",
	"pin":                        "publish 1\npusher begins\npublish 2\npin 1",
	"endpoints, API 3.4":         "publish 1\npusher begins\nendpoints 10.0.0.2 10.0.0.3",
	"endpoints, API 3.2":         "all has API v3.2.5\npublish 1\npusher begins\nendpoints 10.0.0.2 10.0.0.3",
	"more endpoints than slots":  "publish 1\npusher begins\nendpoints 10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6 10.0.0.7",
	"certificate renewed":        "publish 1\npusher begins\ncertificate",
	"certificate no longer used": "publish 1\npusher begins\nput a ssl/stranger.pem\npublish 2 without TLS",
	"other routes":               "publish 1 routes shop.example.com=shop_1\npusher begins\npublish 2 of 1 routes shop.example.com=shop_web blog.example.com=shop_1",
	"file edited by hand":        "publish 1\npusher begins\nedit b 100 5",
	"map removed by hand":        "publish 1\npusher begins\nremove c maps/",
}

// killStride is the distance in steps between kills. With the race detector each life takes several
// times as long, and some of the steps are enough.
var killStride = map[bool]int{false: 1, true: 11}[race.Enabled]

// A pusher may be killed at any step and started again. The fleet still reaches its target, and
// nothing is done more often than without the kill.
func TestFailureKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	for name, script := range killedIn {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, last := prepared(t, script)
			whole := played(t, before, last, never)
			if len(whole.steps) < 4 {
				t.Fatalf("nothing happens: %q", whole.steps)
			}
			for n := 1; n <= len(whole.steps); n += killStride {
				whole.compare(t, played(t, before, last, func(life int) int { return map[int]int{0: n}[life] }))
			}
		})
	}
}

// A pusher may be killed again and again, sooner or later after each start.
func TestFailureKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	for name, script := range killedIn {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, last := prepared(t, script)
			before.recorded = true
			whole := played(t, before, last, never)
			replayAll(t, whole.logs, whole.store)
			random := rand.New(rand.NewPCG(1, 1))
			again := played(t, before, last, func(life int) int {
				if life >= 8 {
					return 0
				}
				return 1 + random.IntN(6)
			})
			whole.compare(t, again)
			replayAll(t, again.logs, again.store)
		})
	}
}

// kill says at which step the nth life ends. 0 means never.
type kill func(life int) int

func never(int) int { return 0 }

// prepared runs a story except for its last line. The story goes on in other bubbles of time.
func prepared(t *testing.T, script string) (before *story, last string) {
	t.Helper()
	lines, dir := strings.Split(script, "\n"), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		before = newStory(t)
		for _, line := range lines[:len(lines)-1] {
			before.command(line)
			before.calm()
		}
		if before.life != nil {
			before.end()
		}
		before.must(os.CopyFS(dir, os.DirFS(before.dir)))
		before.dir, before.at = dir, time.Now()
	})
	return before, lines[len(lines)-1]
}

// ending is the result of a story.
type ending struct {
	steps  []string // of the first life
	killed []string // the steps at which lives ended
	view   []string
	left   map[string]memory.State // with the writes and reloads since the beginning
	is     map[string]string       // the essence of the state
	// stubborn are the instances that refuse something. A pusher that was killed before it saved
	// that has to try once more. unsaved counts such lives.
	stubborn map[string]bool
	unsaved  int
	// terms is how many terms began after the first one. Each is written to each instance.
	terms int
	logs  []*eventLines
	store getter
}

const writtenOnly = "post the configuration, reload false"

// played runs the last line of a story with pushers that are killed.
func played(t *testing.T, before *story, last string, at kill) (out ending) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := before.goesOn(t)
		pass(time.Until(before.at))
		s.begin()
		s.calm()
		s.life.killAfter(at(0))
		s.command(last)
		s.calm()
		out.steps = s.life.trail()
		for n := 1; s.life.dead(); n++ {
			trail := s.life.trail()
			out.killed = append(out.killed, trail[len(trail)-1])
			s.kill()
			pass([]time.Duration{0, memory.ReloadTime / 2, 10 * time.Second}[(n+at(0))%3])
			s.begin()
			if saved, err := readState(s.options.State); err != nil {
				t.Fatal(err)
			} else if len(saved.Rollout.Failed) == 0 {
				out.unsaved++
			}
			s.life.killAfter(at(n))
			s.calm()
		}
		s.end()
		if out.logs = s.logs; s.recorded {
			out.store = inMemory(t, s.store)
		}
		if s.terms {
			out.terms = len(out.killed)
		}
		out.view, out.left, out.stubborn = s.view(), map[string]memory.State{}, map[string]bool{}
		out.is = map[string]string{}
		for name, i := range s.instances {
			was, is := before.instances[name].Now(), i.Now()
			is.Reloads -= was.Reloads
			is.Writes = is.Writes[len(was.Writes):]
			runs, _, _ := strings.Cut(s.viewOf(statusOf(s.seen(), name), is), ", reloaded ")
			out.is[name] = runs + "\n" + s.plain(is.Essence())
			out.left[name], out.stubborn[name] = is, i.Refuses()
		}
	})
	return out
}

// compare checks that the fleet has the same result, and that nothing was done more often than
// without the kills.
func (e ending) compare(t *testing.T, got ending) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("killed at %q: %s", got.killed, fmt.Sprintf(format, args...))
	}
	if want, got := essentials(e.view), essentials(got.view); !slices.Equal(want, got) {
		fail("there is in the end\n%s\nand without\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, name := range slices.Sorted(maps.Keys(e.left)) {
		usual, now := e.left[name], got.left[name]
		if want, got := e.is[name], got.is[name]; want != got {
			fail("%s has in the end\n%s\nand without\n%s", name, got, want)
		}
		more := 0
		if e.stubborn[name] {
			more = got.unsaved
		}
		if now.Reloads > usual.Reloads+more {
			fail("%s was reloaded %d times, and %d without", name, now.Reloads, usual.Reloads)
		}
		for _, w := range slices.Compact(slices.Sorted(slices.Values(now.Writes))) {
			allowed := more
			if w == writtenOnly {
				allowed += got.terms
			}
			if n, m := count(now.Writes, w), count(usual.Writes, w); n > m+allowed {
				fail("%s had %d times %q, and %d without", name, n, w, m)
			}
		}
	}
}

// essentials returns the lines that do not depend on how often something was tried, and by which
// pusher.
func essentials(view []string) []string {
	var out []string
	for _, line := range view {
		if strings.Contains(line, " runs ") {
			continue
		}
		if strings.HasPrefix(line, "rejected ") {
			line, _, _ = strings.Cut(line, ":")
		}
		out = append(out, line)
	}
	return out
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
