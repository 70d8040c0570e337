package pusher

import (
	"strings"
	"testing"
	"time"
)

// checkedBackend checks its servers as the templates have it.
const checkedBackend = `option httpchk
    http-check send meth GET uri "/healthz" ver HTTP/1.1 hdr Host localhost
    http-check expect status 200-399
    timeout check 30s
    default-server inter 250ms rise 1 fall 1
    #hapsnap servers shop/web:http -- check`

// The checks of a slot go on with the endpoint that it has: who comes is asked, gets no
// requests while it is sick, and is back when it is well; who is gone is asked no more.
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

		// It comes sick. What its slot was before is not its health.
		pods["three"].sick.Store(true)
		r.serve(pods, "web", "one", "two", "three")
		eventually(t, "who came is asked", func() bool { return pods["three"].checks.Load() > 2 })
		r.settled(checked, pods, "two")
		if got := r.dial("a").count("checked", 20); got["one"]+got["three"] > 0 {
			t.Errorf("only two is well, and requests go to %v", got)
		}
		pods["three"].sick.Store(false)
		r.settled(checked, pods, "two", "three")
		eventually(t, "who is well answers", func() bool {
			got := r.dial("a").count("checked", 20)
			if got["one"] > 0 {
				t.Errorf("one is sick, and requests go to %v", got)
			}
			return got["two"] > 0 && got["three"] > 0
		})

		// Its slot goes to another, who is well at once.
		r.serve(pods, "web", "two", "three")
		r.settled(checked, pods, "two", "three")
		r.endDrains()
		eventually(t, "the slot of one is free", func() bool { return r.placed("a", "checked", pods["one"]) == slot{} })
		sofar := pods["one"].checks.Load()
		others := pods["two"].checks.Load()
		eventually(t, "the others are asked", func() bool { return pods["two"].checks.Load() > others+5 })
		if now := pods["one"].checks.Load(); now > sofar+1 { // one may have been under way
			t.Errorf("one is gone, and was asked %d times", now-sofar)
		}
		pods["one"].sick.Store(false)
		r.serve(pods, "web", "one", "two", "three")
		r.settled(checked, pods, "one", "two", "three")
		r.keeps(worker)
	})
}

// Checks go on while a slot drains. One that was found down so, and where nobody could
// tell that it still drained, serves its next endpoint at once all the same: by its
// checks alone it would never be up.
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
		eventually(t, "two, which drains, is asked", func() bool { return pods["two"].checks.Load() > sofar+2 })
		r.endDrains()
		eventually(t, "the slot of two is free", func() bool { return r.placed("a", "checked", pods["two"]) == slot{} })
		r.serve(pods, "web", "three")
		eventually(t, "three answers", func() bool { return r.dial("a").count("checked", 20)["three"] == 20 })
	})
}
