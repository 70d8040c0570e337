package pusher

import (
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/eventually"
)

// delete deletes the server of a pod from a worker, as a person does.
func (r *rig) delete(name, backend string, p *pod) {
	r.t.Helper()
	server := backend + "/" + r.placed(name, backend, p).name
	if answer, err := r.instances[name].Socket("set server " + server + " state maint; @1 del server " + server); err != nil {
		r.t.Fatalf("delete %s: %s: %v", server, answer, err)
	}
}

// A server that somebody deletes from a worker is there again, with its checks, after one reload: no call of the API makes a server
// of the configuration again.
func TestFailureServerDeletedFromAWorker(t *testing.T) {
	t.Parallel()
	eachAPI(t, []string{"a"}, func(r *rig) {
		r.options.InspectInterval = 200 * time.Millisecond
		pods := newPods(r.t, "one", "two")
		r.serve(pods, "web", "one", "two")
		id := r.publish(edgeConfig(map[string]string{"checked": checkedBackend}))
		r.allRunAfter(id)
		r.settled([]string{"checked"}, pods, "one", "two")
		reloads := r.pushes("a")
		r.delete("a", "checked", pods["one"])
		eventually.Holds(r.t, "the worker is replaced", func() bool { return r.pushes("a") > reloads })
		r.allRun(id)
		r.settled([]string{"checked"}, pods, "one", "two")
		if n := r.pushes("a") - reloads; n != 1 {
			r.t.Errorf("it took %d reloads", n)
		}
	})
}

// While no reload may be done, a server that somebody deleted keeps no other server from following its endpoint.
func TestFailureServerDeletedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	eachAPI(t, []string{"a"}, func(r *rig) {
		r.options.InspectInterval = 200 * time.Millisecond
		r.rollout = "  rollout: {budget: {perInstance: 1, within: 1h}}\n"
		r.writeFleet("a")
		pods := newPods(r.t, "one", "two", "three")
		r.serve(pods, "web", "one", "two")
		r.serve(pods, "other", "two")
		r.allRunAfter(r.publish(edgeConfig(map[string]string{"checked": checkedBackend, "plain": "#hapsnap servers shop/other:http"})))
		r.settled([]string{"checked"}, pods, "one", "two")
		workers := r.workers()
		r.delete("a", "checked", pods["one"])
		eventually.Holds(r.t, "it is found", func() bool { return !r.seen().Instances[0].InSync })
		r.serve(pods, "web", "one", "two", "three")
		r.serve(pods, "other", "three")
		r.settled([]string{"checked"}, pods, "two", "three")
		r.settled([]string{"plain"}, pods, "three")
		eventually.Holds(r.t, "status says so", func() bool {
			return r.seen().Instances[0].Foreign != ""
		})
		r.serve(pods, "other", "one", "two")
		r.settled([]string{"plain"}, pods, "one", "two")
		r.keeps(workers)
	})
}
