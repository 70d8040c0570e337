package pusher

import (
	"slices"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/pusher/statestore"
)

// sessionBackend keeps sessions with a cookie, as the templates write it.
const sessionBackend = "cookie s dynamic httponly indirect nocache insert\n    dynamic-cookie-key hapsnap\n    #hapsnap servers shop/web:http"

// sessions begins a session with each pod, and returns their cookies by the names of the pods.
func (r *rig) sessions(backend string, n int) map[string]string {
	r.t.Helper()
	c, out := r.dial("a"), map[string]string{}
	for range 20 * n {
		got := c.get(backend, "/")
		if cookies := got.Cookies(); len(cookies) == 1 {
			out[got.body] = "Cookie: " + cookies[0].Name + "=" + cookies[0].Value
		}
	}
	if len(out) != n {
		r.t.Fatalf("sessions with %v, want %d", out, n)
	}
	return out
}

// stays fails unless the requests of a session go to its pod, without a new cookie.
func (c conn) stays(backend, pod, cookie string) {
	c.t.Helper()
	for range 5 {
		if got := c.get(backend, "/", cookie); got.body != pod || len(got.Cookies()) > 0 {
			c.t.Errorf("session with %s: answered by %s with the cookies %v", pod, got.body, got.Cookies())
		}
	}
}

// Sessions stay with their endpoint while other endpoints come and go. The session of a leaving
// endpoint stays until the endpoint is drained. An endpoint that came at run time has sessions too.
// Its cookie is the same on every instance.
func TestSessionsAcrossEndpointChanges(t *testing.T) {
	t.Parallel()
	eachAPI(t, []string{"a"}, func(r *rig) {
		t := r.t
		r.options.DrainTime = time.Hour
		pods := newPods(t, "one", "two", "three")
		r.serve(pods, "web", "one", "two")
		r.allRunAfter(r.publish(edgeConfig(map[string]string{"sticky": sessionBackend})))
		worker, sticky := r.workers(), []string{"sticky"}
		r.settled(sticky, pods, "one", "two")
		begun, c := r.sessions("sticky", 2), r.dial("a")

		r.serve(pods, "web", "one", "two", "three")
		r.settled(sticky, pods, "one", "two", "three")
		c.stays("sticky", "one", begun["one"])
		c.stays("sticky", "two", begun["two"])
		later := r.sessions("sticky", 3)
		if later["one"] != begun["one"] || later["two"] != begun["two"] {
			t.Errorf("new sessions have the cookies %v, had %v", later, begun)
		}
		r.serve(pods, "web", "two", "three")
		r.settled(sticky, pods, "two", "three")
		for name, cookie := range later {
			c.stays("sticky", name, cookie) // also the session of the leaving pod
		}
		if got := c.count("sticky", 20); got["one"] > 0 {
			t.Errorf("new sessions with an endpoint that leaves: %v", got)
		}

		// After a restart the drain is over, and the session goes to another pod.
		r.endDrains()
		eventually.Holds(t, "its slot is free", func() bool { return r.placed("a", "sticky", pods["one"]) == slot{} })
		if got := c.get("sticky", "/", later["one"]); got.body == "one" || len(got.Cookies()) != 1 {
			t.Errorf("a session of one that is gone: answered by %s with the cookies %v", got.body, got.Cookies())
		}
		c.stays("sticky", "three", later["three"])
		r.keeps(worker)
	})
}

// endDrains ends the time of all drains, and restarts the pusher.
func (r *rig) endDrains() {
	r.t.Helper()
	r.kill()
	r.options.DrainTime = time.Millisecond
	s, err := readState(r.options.State)
	r.must(err)
	for _, group := range s.Slots {
		for n := range group {
			if !group[n].Until.IsZero() {
				group[n].Until = time.Now().Add(-time.Second).UTC()
			}
		}
	}
	r.must(saveState(r.t.Context(), statestore.NewFile(r.options.State), s))
	r.run()
}

// hold sends a request that its endpoint holds, and returns the connection and the pod.
func (r *rig) hold(backend string, pods map[string]*pod) (conn, string) {
	r.t.Helper()
	c, name := r.dial("a"), ""
	before := map[string]int32{}
	for name, p := range pods {
		before[name] = p.held.Load()
	}
	c.send(backend, "/hold")
	eventually.Holds(r.t, "the request is kept", func() bool {
		for pod, p := range pods {
			if p.held.Load() > before[pod] {
				name = pod
			}
		}
		return name != ""
	})
	return c, name
}

// ends fails unless the pod answers the held request.
func (c conn) ends(p *pod) {
	c.t.Helper()
	p.letGo()
	if got := c.receive(); got.StatusCode != 200 || got.body != p.name {
		c.t.Errorf("the request with %s: %d, %q", p.name, got.StatusCode, got.body)
	}
}

// A leaving endpoint is drained before its slot is free. Others take spare slots, and a request in
// progress ends well. That also holds without a spare slot, and if the request takes longer than
// the drain.
func TestLeavingEndpointIsDrained(t *testing.T) {
	t.Parallel()
	eachAPI(t, []string{"a"}, func(r *rig) {
		t := r.t
		r.options.DrainTime = time.Hour
		pods := newPods(t, "one", "two", "three", "four", "five")
		r.serve(pods, "web", "one")
		r.allRunAfter(r.publish(edgeConfig(map[string]string{"web": "balance roundrobin\n    #hapsnap servers shop/web:http"})))
		worker, web := r.workers(), []string{"web"}
		r.settled(web, pods, "one")
		first, _ := r.hold("web", pods)
		old := r.placed("a", "web", pods["one"])

		r.serve(pods, "web", "two")
		r.settled(web, pods, "two")
		r.serve(pods, "web", "two", "three")
		r.settled(web, pods, "two", "three")
		if now := r.placed("a", "web", pods["one"]); !now.drains || now.name != old.name {
			t.Errorf("the slot of the leaving endpoint: %+v, was %+v", now, old)
		}

		// Without a spare slot, a new endpoint takes the draining slot. That avoids a reload.
		r.serve(pods, "web", "two", "three", "four")
		r.settled(web, pods, "two", "three", "four")
		if now := r.placed("a", "web", pods["four"]); now.name != old.name {
			t.Errorf("the slots: %+v", r.slots("a", "web"))
		}
		first.ends(pods["one"])

		// The drain ends before the request.
		second, who := r.hold("web", pods)
		rest := slices.DeleteFunc([]string{"two", "three", "four"}, func(name string) bool { return name == who })
		r.serve(pods, "web", rest...)
		r.settled(web, pods, rest...)
		r.endDrains()
		eventually.Holds(t, "its slot is free", func() bool { return r.placed("a", "web", pods[who]) == slot{} })
		r.serve(pods, "web", append(rest, "five")...)
		r.settled(web, pods, append(rest, "five")...)
		second.ends(pods[who])
		r.keeps(worker)
	})
}
