package pusher

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hapsnap/hapsnap/pusher/rollout"
)

// Some instances hang in the middle of a rollout: they accept connections and never answer. The
// others still get the snapshot in their waves. Goroutines and memory do not grow with time. When
// the hanging instances answer again, they get what the fleet runs.
//
// The test is not parallel, since it counts the goroutines and the memory of the whole process.
func TestManyInstancesHang(t *testing.T) {
	const all, everyThird = 30, 3 // 1,000 instances give the same result in eight minutes
	synctest.Test(t, func(t *testing.T) {
		var names, hanging []string
		for n := range all {
			names = append(names, fmt.Sprintf("edge-%04d", n))
			if n%everyThird == 1 && len(hanging) < 3*all/10 {
				hanging = append(hanging, names[n])
			}
		}
		s := newStory(t, names...)
		s.command("policy waves: ['1', 25%, 100%]")
		s.set("soak", 30*time.Second)
		s.set("poll", 30*time.Second)
		s.set("inspect", time.Hour)
		s.begin()
		s.command("publish 1")
		s.runs("1", all)
		before := runtime.NumGoroutine()

		s.command("publish 2")
		for n := 0; s.count("2") == 0; n++ {
			if pass(look); n > 1000 {
				t.Fatal("no canary")
			}
		}
		for _, name := range hanging {
			s.instance(name, []string{"hangs"})
		}
		began := time.Now()
		s.runs("2", all-len(hanging))
		took := time.Since(began)
		most, settled := runtime.NumGoroutine(), heap()
		for range 10 { // the instances go on hanging
			pass(time.Minute)
			most = max(most, runtime.NumGoroutine())
		}
		grown := heap()
		t.Logf("%d of %d hang: the others took %s; %d goroutines before, %d at most; heap %d and %d MB",
			len(hanging), all, took, before, most, settled>>20, grown>>20)
		// In each wave, the instances that hang may delay the others by the deadline, and no more.
		if limit := 2*rollout.DefaultPolicy().Deadline + 10*time.Minute; took > limit {
			t.Errorf("it took %s, want no more than %s", took, limit)
		}
		// Each may have a probe, a job, and a request under way, with some goroutines for each.
		if most > before+8*len(hanging) {
			t.Errorf("%d goroutines, and %d before", most, before)
		}
		if grown > settled+settled/4+(8<<20) {
			t.Errorf("the heap grows from %d to %d bytes", settled, grown)
		}
		if seen := s.seen(); len(seen.Rejected) > 0 || seen.Good != s.ids["2"] {
			t.Errorf("good is %s, rejected %+v", seen.Good, seen.Rejected)
		}
		for _, name := range hanging {
			s.instance(name, []string{"is", "well"})
		}
		s.runs("2", all)
		s.end()
	})
}

// count returns how many workers name a snapshot.
func (s *story) count(revision string) (n int) {
	for _, i := range s.instances {
		if strings.HasPrefix(i.Now().Worker.Node, s.ids[revision].String()) {
			n++
		}
	}
	return n
}

// runs waits until this many instances run a snapshot, and the rollout is over.
func (s *story) runs(revision string, want int) {
	s.t.Helper()
	for began := time.Now(); s.count(revision) < want || s.seen().Rollout != nil || s.seen().Good != s.ids[revision]; pass(look) {
		if time.Since(began) > 2*time.Hour {
			s.t.Fatalf("%d run %s, want %d: %q", s.count(revision), revision, want, s.view())
		}
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
