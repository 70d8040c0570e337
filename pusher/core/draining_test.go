package core

import (
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/fleet"
)

// An instance whose pod terminates leaves the fleet, and is followed separately: its job ends, and it is
// connected to anew. A new pusher does the same. A new pod with its name is another instance.
func TestDrainingIsApartFromTheFleet(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	pods := fleet.Pods{Namespace: "edge"}
	pod := func(name, uid string, draining bool) fleet.Instance {
		return fleet.Instance{Name: name, UID: uid, URL: "http://127.0.0.1:1", Username: "u", Password: "p", Draining: draining}
	}
	m := newMachine(State{}, now)
	m.Step(now, FleetRead{Fleet: fleet.Fleet{Pods: &pods}})
	step := func(found ...fleet.Instance) string {
		var done []string
		for _, x := range m.Step(now, PodsFound{Of: pods, Found: found}) {
			if on, ok := x.(OnInstance); ok {
				done = append(done, strings.TrimSpace(on.Effect.String()))
			}
		}
		return strings.Join(done, ", ")
	}
	for _, c := range []struct {
		what             string
		found            []fleet.Instance
		done             string
		fleet, draining  string
		waitsForFirstOne bool
	}{
		{"a new pusher finds one that drains", []fleet.Instance{pod("a", "1", false), pod("b", "1", true)}, "join instance=b, join instance=a", "a", "b", false},
		{"it is listed again", []fleet.Instance{pod("a", "1", false), pod("b", "1", true)}, "", "a", "b", false},
		{"the other one begins to drain", []fleet.Instance{pod("a", "1", true), pod("b", "1", true)}, "leave instance=a, join instance=a", "", "a b", true},
		{"another pod has its name", []fleet.Instance{pod("a", "2", false), pod("b", "1", true)}, "leave instance=a, join instance=a", "a", "b", false},
		{"it is gone", []fleet.Instance{pod("a", "2", false)}, "leave instance=b", "a", "", false},
	} {
		if got := step(c.found...); got != c.done {
			t.Errorf("%s: it does %q, want %q", c.what, got, c.done)
		}
		view, status := m.Shown()
		var in, out []string
		for _, i := range status.Instances {
			in = append(in, i.Name)
		}
		for _, i := range status.Draining {
			out = append(out, i.Name)
		}
		if got, drains := strings.Join(in, " "), strings.Join(out, " "); got != c.fleet || drains != c.draining || len(view.Instances) != len(in) {
			t.Errorf("%s: of the fleet are %q, and %q drain; want %q and %q", c.what, got, drains, c.fleet, c.draining)
		}
		if m.fleetKnown() == c.waitsForFirstOne {
			t.Errorf("%s: a fleet of which all drains is taken for one that is known", c.what)
		}
	}
}
