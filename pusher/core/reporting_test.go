package core

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

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
	slots, _ = bind.AssignSlots(slots, directives[:5], known, now, time.Minute) // the slot of the Service drains
	want := "map[both:false gone:true leaving:false new:true none:true one:false]"
	if got := fmt.Sprint(withoutEndpoints(directives, slots)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestEmptinessFollows(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	before := now.Add(-time.Hour)
	x := newEmptiness(&report.Backends{List: []report.EmptyBackend{{Backend: "a", Since: before}, {Backend: "c", Since: before}}})
	text := func(s *report.Backends) string {
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
	x.empty["c"] = true // empty again, after a time when it was not
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

func TestSecretTrouble(t *testing.T) {
	t.Parallel()
	auth := bind.Need{Use: snapshots.UseUsers, Secret: snapshots.SecretName{Namespace: "shop", Name: "auth"}}
	faults := []error{errors.New("one"), errors.New("two"), errors.New("three"), errors.New("four"), errors.New("five")}
	for want, err := range map[string]error{
		"users of Secret shop/auth: one; two; three; and 2 more":                             secretTrouble(auth, false, false, faults),
		"nobody is let in: Secret shop/auth has no usable users under auth: one":             secretTrouble(auth, true, false, faults[:1]),
		"nobody is let in: Secret shop/auth has no usable users under auth":                  secretTrouble(auth, true, false, nil),
		"the fallback certificate is served: Secret shop/auth does not exist":                secretTrouble(bind.Need{Secret: auth.Secret}, true, true, nil),
		"nobody is let in: Secret shop/auth does not exist":                                  secretTrouble(auth, true, true, faults[:1]),
		"the fallback certificate is served: Secret shop/auth has no usable certificate":     secretTrouble(bind.Need{Secret: auth.Secret}, true, false, nil),
		"no certificate is trusted: Secret shop/auth has no usable authorities under ca.crt": secretTrouble(bind.Need{Use: snapshots.UseCA, Secret: auth.Secret}, true, false, nil),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := secretTrouble(auth, false, false, nil); err != nil {
		t.Errorf("no trouble: %v", err)
	}
}

// While the credentials for discovered pods cannot be made, the fleet is degraded.
func TestCredentialsThatCannotBeMade(t *testing.T) {
	t.Parallel()
	pods := fleet.Pods{Namespace: "edge", Secret: "user"}
	m := newMachine(State{}, noon)
	m.Step(noon, FleetRead{Fleet: fleet.Fleet{Pods: &pods}})
	phase := func(said CredentialsMade) report.Phase {
		m.Step(noon, said)
		_, s := m.Shown()
		troubles := slices.DeleteFunc(s.Troubles, func(t report.Trouble) bool { return t.About != report.AboutCredentials })
		return report.Status{Channel: report.Channel{Message: "read"}, Troubles: troubles}.Condition().Phase
	}
	if got := phase(CredentialsMade{Of: pods, Err: errors.New("Secret edge/tls: it is gone")}); got != report.Degraded {
		t.Errorf("the fleet is %s", got)
	}
	if phase(CredentialsMade{Of: pods}) == report.Degraded {
		t.Error("it is degraded for ever")
	}
	if phase(CredentialsMade{Err: errors.New("of pods that were looked for before")}) == report.Degraded {
		t.Error("others' credentials count")
	}
}

// The traffic of backends is summed over the last samples of all instances. A published sum does not change.
func TestTrafficOfBackends(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	counted := func(after time.Duration, requests, errors int64) rollout.Sample {
		s := rollout.Sample{At: now.Add(after), Served: map[string]int64{"web": requests}, By: map[string]int64{"web": errors}}
		s.PID = 7
		return s
	}
	var a samples
	for _, s := range []rollout.Sample{counted(-30*time.Second, 10, 1), counted(-20*time.Second, 1000, 1), counted(-10*time.Second, 1500, 51)} {
		a = a.add(s)
	}
	if a[0].Served != nil || a[1].Served == nil {
		t.Error("what backends served is kept of others than the last two samples")
	}
	gone := samples{}.add(counted(-20*time.Minute, 0, 0)).add(counted(-19*time.Minute, 6000, 3))
	r := &reporting{world: &world{instances: map[string]*instanceState{"a": {samples: a}, "b": {samples: samples{}.add(counted(0, 90, 9))}, "c": {}, "gone": {samples: gone}}}}
	first := r.trafficOf(now)
	if got := fmt.Sprint(first); got != "map[web:{50 5 63}]" {
		t.Errorf("got %s", got)
	}
	r.instances["c"].samples = samples{counted(0, 10, 10)}
	if got := fmt.Sprint(r.trafficOf(now.Add(trafficPace - 1))); got != "map[web:{50 5 63}]" {
		t.Errorf("counted again at once: %s", got)
	}
	if got := fmt.Sprint(r.trafficOf(now.Add(trafficPace))); got != "map[web:{50 5 73}]" {
		t.Errorf("later: %s", got)
	}
	if got := fmt.Sprint(first); got != "map[web:{50 5 63}]" {
		t.Errorf("what was handed out changed: %s", got)
	}
}
