package pusher

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// Whatever keeps an instance from being in sync has words.
func TestPendingHasWords(t *testing.T) {
	t.Parallel()
	good := instanceNeeds{Reachable: true, Bound: true, SameNode: true, SameServers: true, SameMaps: true, SameCertificates: true, Persisted: true}
	for what, spoil := range map[string]func(*instanceNeeds){
		"reload":                   func(s *instanceNeeds) { s.SameNode = false },
		"servers":                  func(s *instanceNeeds) { s.SameServers = false },
		"servers, certificates":    func(s *instanceNeeds) { s.SameServers, s.SameCertificates = false, false },
		"entries of maps":          func(s *instanceNeeds) { s.SameMaps = false },
		"written to its disk":      func(s *instanceNeeds) { s.Persisted = false },
		"files that nothing needs": func(s *instanceNeeds) { s.Garbage = true },
		"not at hand":              func(s *instanceNeeds) { s.Bound = false },
	} {
		s := good
		spoil(&s)
		if got := s.pending(classify(s, time.Time{})); !strings.Contains(got, what) {
			t.Errorf("%s: %q", what, got)
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
	known := map[snapshots.ServicePort][]snapshots.Endpoint{
		sp("shop/web"): {{Address: "10.0.0.1", Port: 80}}, sp("shop/gone"): {{Address: "10.0.0.1", Port: 80}},
		sp("shop/leaving"): {{Address: "10.0.0.9", Port: 80, Draining: true}},
	}
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
	x := newEmptiness(&observe.BackendsStatus{List: []observe.EmptyBackend{{Backend: "a", Since: before}, {Backend: "c", Since: before}}})
	text := func(s *observe.BackendsStatus) string {
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
	names := func(s observe.Status) (out []string) {
		if s.Backends == nil {
			return nil
		}
		for _, b := range s.Backends.List {
			out = append(out, fmt.Sprint(b.Backend, b.Instances))
		}
		return out
	}
	s := r.until("both are said", func(s observe.Status) bool { return slices.Equal(names(s), []string{"shop_dead[a]", "shop_none[]"}) })
	if s.Backends.All != 3 || s.Backends.Empty != 2 || s.Backends.Failing != 1 || s.Condition().Fields(time.Now())["emptyBackends"] != "2" {
		t.Errorf("%+v", s.Backends)
	}
	r.endpointsOf("none", "live/none.yaml", echo(t, "two"))
	r.until("one is over", func(s observe.Status) bool { return slices.Equal(names(s), []string{"shop_dead[a]"}) })
}

func httpPort(service string) snapshots.ServicePort {
	return snapshots.ServicePort{Namespace: "shop", Service: service, Port: "http"}
}
