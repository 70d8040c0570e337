package pusher

import (
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/eventually"
)

// checkedBackend checks its servers as the templates write it.
const checkedBackend = `option httpchk
    http-check send meth GET uri "/healthz" ver HTTP/1.1 hdr Host localhost
    http-check expect status 200-399
    timeout check 30s
    default-server inter 250ms rise 1 fall 1
    #hapsnap servers shop/web:http -- check`

// The checks of a slot follow its endpoint. A new endpoint is checked, gets no requests while it is
// sick, and gets them when it is well. An endpoint that is gone is no longer checked.
func TestChecksAcrossEndpointChanges(t *testing.T) {
	t.Parallel()
	eachAPI(t, []string{"a"}, func(r *rig) {
		t := r.t
		r.options.DrainTime = time.Hour
		pods := newPods(t, "one", "two", "three")
		r.serve(pods, "web", "one", "two")
		r.allRunAfter(r.publish(edgeConfig(map[string]string{"checked": checkedBackend})))
		worker, checked := r.workers(), []string{"checked"}
		r.settled(checked, pods, "one", "two")
		pods["one"].sick.Store(true)
		r.settled(checked, pods, "two")

		// The new endpoint is sick. The health of the slot's former endpoint does not count.
		pods["three"].sick.Store(true)
		r.serve(pods, "web", "one", "two", "three")
		eventually.Holds(t, "who came is asked", func() bool { return pods["three"].checks.Load() > 2 })
		r.settled(checked, pods, "two")
		if got := r.dial("a").count("checked", 20); got["one"]+got["three"] > 0 {
			t.Errorf("only two is well, and requests go to %v", got)
		}
		pods["three"].sick.Store(false)
		r.settled(checked, pods, "two", "three")
		eventually.Holds(t, "who is well answers", func() bool {
			got := r.dial("a").count("checked", 20)
			if got["one"] > 0 {
				t.Errorf("one is sick, and requests go to %v", got)
			}
			return got["two"] > 0 && got["three"] > 0
		})

		// One leaves. Once it is drained, its slot is free, and it is no longer checked.
		r.serve(pods, "web", "two", "three")
		r.settled(checked, pods, "two", "three")
		r.endDrains()
		eventually.Holds(t, "the slot of one is free", func() bool { return r.placed("a", "checked", pods["one"]) == slot{} })
		sofar := pods["one"].checks.Load()
		others := pods["two"].checks.Load()
		eventually.Holds(t, "the others are asked", func() bool { return pods["two"].checks.Load() > others+5 })
		if now := pods["one"].checks.Load(); now > sofar+1 { // one check may have been under way
			t.Errorf("one is gone, and was asked %d times", now-sofar)
		}
		pods["one"].sick.Store(false)
		r.serve(pods, "web", "one", "two", "three")
		r.settled(checked, pods, "one", "two", "three")
		r.keeps(worker)
	})
}

// Checks go on while a slot drains. If its endpoint was found down, and the pusher forgot that it
// drained, the next endpoint still serves at once. With its own checks alone it would never be up.
func TestSlotThatWasFoundDownServesAtOnce(t *testing.T) {
	t.Parallel()
	eachAPI(t, []string{"a"}, func(r *rig) {
		t := r.t
		r.options.DrainTime = time.Hour
		pods := newPods(t, "one", "two", "three")
		r.serve(pods, "web", "one")
		r.allRunAfter(r.publish(edgeConfig(map[string]string{"checked": strings.Replace(checkedBackend, "rise 1 ", "rise 100000 ", 1)})))
		checked := []string{"checked"}
		r.settled(checked, pods, "one")
		r.serve(pods, "web", "one", "two")
		r.settled(checked, pods, "one", "two")
		pods["two"].sick.Store(true)
		r.serve(pods, "web", "one")
		sofar := pods["two"].checks.Load()
		eventually.Holds(t, "two, which drains, is asked", func() bool { return pods["two"].checks.Load() > sofar+2 })
		r.endDrains()
		eventually.Holds(t, "the slot of two is free", func() bool { return r.placed("a", "checked", pods["two"]) == slot{} })
		r.serve(pods, "web", "three")
		eventually.Holds(t, "three answers", func() bool { return r.dial("a").count("checked", 20)["three"] == 20 })
	})
}
