package pusher

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// sealed returns a snapshot with backends, each of which joins some Services of shop.
func sealed(revision uint64, backends ...[]string) snapshots.Snapshot {
	var config strings.Builder
	for n, services := range backends {
		fmt.Fprintf(&config, "backend b%d\n", n)
		for _, s := range services {
			fmt.Fprintf(&config, "    #hapsnap servers shop/%s:http weight=%d\n", s, 1+len(s))
		}
	}
	d := snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(config.String())}}}
	return d.Seal(revision, snapshots.ID{})
}

func httpPort(service string) snapshots.ServicePort {
	return snapshots.ServicePort{Namespace: "shop", Service: service, Port: "http"}
}

// Endpoints that come and go one by one lead to the same slots and servers as when
// everything is assigned anew each time.
func TestAssignWhatChanged(t *testing.T) {
	t.Parallel()
	have := map[snapshots.ID]snapshots.Snapshot{}
	for n, backends := range [][][]string{{{"a"}, {"a", "bb"}, {"ccc"}}, {{"bb"}, {"a", "bb"}, {"a"}, {"none"}}} {
		s := sealed(uint64(n+1), backends...)
		have[s.ID()] = s
	}
	now, random := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), rand.New(rand.NewPCG(1, 2))
	quick, slow := newBindings(nil, fromDirectory), newBindings(nil, fromDirectory)
	for _, b := range []*bindings{quick, slow} {
		b.live.Endpoints = map[snapshots.ServicePort][]snapshots.Endpoint{}
		b.use(have)
		b.stale = true
		b.assign(now, time.Minute)
	}
	for step := range 400 {
		now = now.Add(time.Duration(random.IntN(40)) * time.Second)
		port := httpPort([]string{"a", "bb", "ccc", "unused"}[random.IntN(4)])
		var endpoints []snapshots.Endpoint
		for n := range random.IntN(2 + step/40) {
			endpoints = append(endpoints, snapshots.Endpoint{Address: fmt.Sprintf("10.0.0.%d", 1+n+random.IntN(3)), Port: 80, Draining: random.IntN(4) == 0})
		}
		quick.live.Endpoints[port], slow.live.Endpoints[port] = endpoints, endpoints
		quick.changed[port], slow.stale = true, true
		quick.assign(now, time.Minute)
		slow.assign(now, time.Minute)
		if diff := cmp.Diff(slow.slots, quick.slots); diff != "" {
			t.Fatalf("step %d: slots (-all +some):\n%s", step, diff)
		}
		for id := range have {
			if diff := cmp.Diff(slow.prepared[id].servers, quick.prepared[id].servers); diff != "" || slow.prepared[id].err != nil {
				t.Fatalf("step %d: %v, servers of %s (-all +some):\n%s", step, slow.prepared[id].err, id, diff)
			}
		}
		// It may look once too often for a slot that is drained.
		if quick.due.IsZero() && !slow.due.IsZero() || quick.due.After(slow.due) && !slow.due.IsZero() || slow.shapes != quick.shapes {
			t.Fatalf("step %d: due %s and %s, shapes %d and %d", step, slow.due, quick.due, slow.shapes, quick.shapes)
		}
	}
}

// What nothing is known of keeps the slots that it had, however long ago.
func TestUnreadNamespaceKeepsItsSlots(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := sealed(1, []string{"a"}, []string{"bb"})
	before := newBindings(nil, fromDirectory)
	before.use(map[snapshots.ID]snapshots.Snapshot{s.ID(): s})
	before.live.Endpoints = map[snapshots.ServicePort][]snapshots.Endpoint{httpPort("a"): {{Address: "10.0.0.1", Port: 80}}}
	before.stale = true
	before.assign(now, time.Minute)
	delete(before.live.Endpoints, httpPort("a"))
	before.stale = true
	before.assign(now, time.Minute) // it drains

	after := newBindings(before.slots, fromCluster)
	after.use(map[snapshots.ID]snapshots.Snapshot{s.ID(): s})
	after.learn(cluster.Status{})
	if _, _, ok := after.binding(s.ID(), bind.Layout{}); ok {
		t.Error("a snapshot is bound before its endpoints are known")
	}
	later := now.Add(time.Hour)
	if after.assign(later, time.Minute) || !slices.Equal(after.slots[bind.SlotKey{Backend: "b0", Service: httpPort("a")}], before.slots[bind.SlotKey{Backend: "b0", Service: httpPort("a")}]) {
		t.Errorf("slots changed: %v", after.slots)
	}
	if !after.due.After(later) {
		t.Errorf("due at %s, which is over, again and again", after.due)
	}
}

// Of a cluster is wanted what a snapshot joins, and does not carry itself.
func TestWantedOfACluster(t *testing.T) {
	t.Parallel()
	name := func(s string) snapshots.SecretName { return snapshots.SecretName{Namespace: "shop", Name: s} }
	d := snapshots.Draft{
		Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte("backend b\n    #hapsnap servers shop/a:http\n    #hapsnap servers blog/b:http\n    #hapsnap servers shop/c:http\n")}},
		Certificates: []snapshots.CertificateRef{
			{File: "certs/a.pem", Secret: name("live")}, {File: "certs/b.pem", Secret: name("exact"), Mode: snapshots.ModeExact, Version: "1"},
			{File: "certs/c.pem", Secret: name("sealed"), Mode: snapshots.ModeSealed, Version: "2"}, {File: "certs/fallback.pem"},
			// There was none to be sealed.
			{File: "certs/d.pem", Secret: name("missing"), Mode: snapshots.ModeSealed},
		},
	}
	secrets := []snapshots.SecretName{name("exact"), name("live")}
	for _, recorded := range []bool{false, true} {
		want := cluster.Wanted{Secrets: secrets, Namespaces: []string{"blog", "shop"}}
		if recorded {
			want.Namespaces = nil
		}
		if diff := cmp.Diff(want, prepare(d.Seal(1, snapshots.ID{}), recorded, &refusals{}).wants); diff != "" {
			t.Errorf("recorded %v (-want +got):\n%s", recorded, diff)
		}
	}
}

func TestWithoutEndpoints(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	directives := []bind.Directive{
		{Backend: "one", Service: sp("shop/web")}, {Backend: "none", Service: sp("shop/empty")},
		{Backend: "both", Service: sp("shop/empty")}, {Backend: "both", Service: sp("shop/web"), Index: 1},
		{Backend: "gone", Service: sp("shop/gone")}, {Backend: "new", Service: sp("shop/new")},
		{Backend: "leaving", Service: sp("shop/leaving")},
	}
	known := servicesWith(map[string]int{"shop/web": 1, "shop/gone": 1})
	known[sp("shop/leaving")] = []snapshots.Endpoint{{Address: "10.0.0.9", Port: 80, Draining: true}}
	slots, _ := bind.AssignSlots(nil, directives[:5], known, now, time.Minute)
	slots, _ = bind.AssignSlots(slots, directives[6:], known, now, time.Minute)
	delete(known, sp("shop/gone"))
	slots, _ = bind.AssignSlots(slots, directives[:5], known, now, time.Minute) // its slot drains
	want := "map[both:false gone:true leaving:false new:true none:true one:false]"
	if got := fmt.Sprint(withoutEndpoints(directives, slots)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestEmptinessFollows(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	before := now.Add(-time.Hour)
	x := newEmptiness(&BackendsStatus{List: []EmptyBackend{{Backend: "a", Since: before}, {Backend: "c", Since: before}}})
	text := func(s *BackendsStatus) string {
		out := fmt.Sprintf("%d of %d, %d failing:", s.Empty, s.All, s.Failing)
		for _, b := range s.List {
			out += fmt.Sprintf(" %s%v+%s", b.Backend, b.Instances, now.Sub(b.Since))
		}
		return out
	}
	x.empty = map[string]bool{"a": true, "b": false, "c": false, "d": false}
	down := map[string][]string{"edge-2": {"b", "a"}, "edge-1": {"b", "status"}}
	if got, want := text(x.follow(down, now)), "2 of 4, 1 failing: a[]+1h0m0s b[edge-1 edge-2]+0s"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	x.empty["c"] = true // again, and it was not in between
	if got, want := text(x.follow(nil, now)), "2 of 4, 0 failing: a[]+1h0m0s c[]+0s"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for n := range 200 {
		x.empty[fmt.Sprintf("many-%d", n)] = true
	}
	if s := x.follow(nil, now); s.Empty != 202 || len(s.List) != mostEmpty {
		t.Errorf("%d, of which %d are listed", s.Empty, len(s.List))
	}
}

// The status says which backends have no server up, by what the slots hold and by what
// HAProxy's checks say, and when that is over.
func TestStatusSaysWhichBackendsAreEmpty(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V34, "a")
	const backends = "backend shop_web\n    #hapsnap servers shop/web:http\nbackend shop_dead\n    #hapsnap servers shop/dead:http -- check inter 100ms fall 1\nbackend shop_none\n    #hapsnap servers shop/none:http\n"
	r.endpoints(echo(t, "one"))
	dead := listen(t)
	r.endpointsOf("dead", "live/dead.yaml", dead.Addr().String())
	dead.Close()
	text, _, _ := strings.Cut(config("1", ""), "\nbackend ")
	r.allRunAfter(r.publish(text + "\n" + backends))
	names := func(s Status) (out []string) {
		if s.Backends == nil {
			return nil
		}
		for _, b := range s.Backends.List {
			out = append(out, fmt.Sprint(b.Backend, b.Instances))
		}
		return out
	}
	s := r.until("both are said", func(s Status) bool { return slices.Equal(names(s), []string{"shop_dead[a]", "shop_none[]"}) })
	if s.Backends.All != 3 || s.Backends.Empty != 2 || s.Backends.Failing != 1 || s.Condition().fields(time.Now())["emptyBackends"] != "2" {
		t.Errorf("%+v", s.Backends)
	}
	r.endpointsOf("none", "live/none.yaml", echo(t, "two"))
	r.until("one is over", func(s Status) bool { return slices.Equal(names(s), []string{"shop_dead[a]"}) })
}
