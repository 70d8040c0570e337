package pusher

import (
	"maps"
	"slices"
	"testing"
)

// Several Services share a backend by their weights, whatever the number of their endpoints.
func TestWeightsAcrossEndpointChanges(t *testing.T) {
	t.Parallel()
	eachAPI(t, []string{"a"}, func(r *rig) {
		t := r.t
		const text = "balance roundrobin\n    #hapsnap servers shop/web:http weight=90\n    #hapsnap servers shop/canary:http weight=10"
		pods := newPods(t, "w1", "w2", "w3", "c1", "c2")
		r.serve(pods, "web", "w1")
		r.serve(pods, "canary", "c1")
		r.allRunAfter(r.publish(edgeConfig(map[string]string{"weighted": text})))
		worker := r.workers()
		for _, step := range []struct{ web, canary []string }{
			{[]string{"w1"}, []string{"c1"}},
			{[]string{"w1", "w2", "w3"}, []string{"c1"}},
			{[]string{"w1", "w2", "w3"}, []string{"c1", "c2"}},
			{[]string{"w3"}, []string{"c1", "c2"}},
			{[]string{"w2", "w3"}, []string{"c2"}},
		} {
			r.serve(pods, "web", step.web...)
			r.serve(pods, "canary", step.canary...)
			r.settled([]string{"weighted"}, pods, slices.Concat(step.web, step.canary)...)
			r.shared("weighted", step.web, step.canary)
		}
		r.keeps(worker)
	})
}

// shared waits until nine of ten requests go to the first pods, and one to the others. Pods of one
// Service must get equally many.
func (r *rig) shared(backend string, nine, one []string) {
	r.t.Helper()
	const requests = 240
	var got map[string]int
	defer func() {
		if r.t.Failed() {
			r.t.Logf("of %d requests to %v and %v: %v", requests, nine, one, got)
		}
	}()
	c := r.dial("a")
	eventually(r.t, "the weights are shared out", func() bool {
		got = c.count(backend, requests)
		fair := func(share int, names []string) bool {
			return !slices.ContainsFunc(names, func(name string) bool {
				off := got[name] - share/len(names)
				return off < -2 || off > 2
			})
		}
		return len(slices.Collect(maps.Keys(got))) == len(nine)+len(one) && fair(requests*9/10, nine) && fair(requests/10, one)
	})
}
