package pusher

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/eventually"
)

// balances are the balancing algorithms of the options, as the templates write them.
var balances = map[string]string{
	"roundrobin": "balance roundrobin",
	"leastconn":  "balance leastconn",
	"random":     "balance random(2)",
	"first":      "balance first",
	"source":     "balance source\n    hash-type consistent",
	"uri":        "balance uri\n    hash-type consistent",
	"header":     "balance hdr(x-key)\n    hash-type consistent",
	"query":      "balance url_param key\n    hash-type consistent",
}

// Every balancing algorithm of the options keeps working when endpoints change without a reload.
// With a hash, a key moves only if its endpoint is gone, or to the new endpoint.
func TestBalanceAcrossEndpointChanges(t *testing.T) {
	t.Parallel()
	eachAPI(t, []string{"a"}, func(r *rig) {
		t := r.t
		backends := map[string]string{}
		for name, balance := range balances {
			backends[name] = balance + "\n    #hapsnap servers shop/web:http"
		}
		names := slices.Sorted(maps.Keys(backends))
		pods := newPods(t, "one", "two", "three", "four")
		r.serve(pods, "web", "one", "two", "three")
		r.allRunAfter(r.publish(edgeConfig(backends)))
		worker := r.workers()
		r.settled(names, pods, "one", "two", "three")
		before := r.balanced(pods, "one", "two", "three")
		r.serve(pods, "web", "one", "two", "four")
		r.settled(names, pods, "one", "two", "four")
		after := r.balanced(pods, "one", "two", "four")
		for key, was := range before {
			if now := after[key]; now != was && was != "three" && now != "four" {
				t.Errorf("%s moved from %s to %s", key, was, now)
			}
		}
		r.keeps(worker)
	})
}

// balanced checks each algorithm with the present pods. For algorithms with a hash it returns which
// pod answers for each key.
func (r *rig) balanced(pods map[string]*pod, names ...string) map[string]string {
	r.t.Helper()
	c := r.dial("a")
	got := c.count("roundrobin", 30)
	for _, name := range names {
		if n := got[name]; n < 9 || n > 11 { // a new endpoint may begin anywhere in the round
			r.t.Errorf("roundrobin: %v", got)
		}
	}
	if got := c.count("first", 10); len(got) != 1 {
		r.t.Errorf("first: %v", got)
	}
	if got := c.count("random", 200); len(got) != len(names) || got[names[2]] == 0 {
		r.t.Errorf("random: %v", got)
	}
	r.leastLoaded(pods, names)
	return r.hashed(names)
}

// leastLoaded checks that leastconn chooses the only idle endpoint. Meanwhile it keeps a connection
// to each other.
func (r *rig) leastLoaded(pods map[string]*pod, names []string) {
	r.t.Helper()
	before := map[string]int32{}
	for _, name := range names {
		before[name] = pods[name].held.Load()
	}
	var waiting []conn
	for range names[1:] {
		c := r.dial("a")
		c.send("leastconn", "/hold")
		waiting = append(waiting, c)
		eventually.Holds(r.t, "the requests are kept", func() bool { return len(idle(pods, names, before)) == len(names)-len(waiting) })
	}
	free := idle(pods, names, before)
	if got := r.dial("a").count("leastconn", 10); len(free) != 1 || got[free[0]] != 10 {
		r.t.Errorf("leastconn: only %v is idle, and requests go to %v", free, got)
	}
	for _, p := range pods {
		p.letGo()
	}
	for _, c := range waiting {
		c.receive()
	}
}

// idle returns the pods that hold no more requests than before.
func idle(pods map[string]*pod, names []string, before map[string]int32) []string {
	var out []string
	for _, name := range names {
		if pods[name].held.Load() == before[name] {
			out = append(out, name)
		}
	}
	return out
}

// hashed sends requests for many keys, in all ways in which a key can decide.
func (r *rig) hashed(names []string) map[string]string {
	r.t.Helper()
	c, out := r.dial("a"), map[string]string{}
	for _, backend := range []string{"source", "uri", "header", "query"} {
		chosen := map[string]bool{}
		for n := range 60 {
			key := fmt.Sprintf("10.0.%d.%d", n, n)
			ask := func() string {
				path := "/" + key + "?key=" + key
				return c.get(backend, path, "X-Source: "+key, "X-Key: "+key).body
			}
			who := ask()
			if again := ask(); again != who || !slices.Contains(names, who) {
				r.t.Errorf("%s: one key went to %s and %s", backend, who, again)
			}
			out[backend+" "+key], chosen[who] = who, true
		}
		if len(chosen) != len(names) {
			r.t.Errorf("%s: many keys, all to %v", backend, chosen)
		}
	}
	return out
}

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
	eventually.Holds(r.t, "the weights are shared out", func() bool {
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
