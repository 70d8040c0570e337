package rollout

import (
	"fmt"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// An instance may name any number of backends. The state, which has to fit into a Secret, has only those of the last good
// snapshot.
func TestNamesThatInstancesMakeUp(t *testing.T) {
	t.Parallel()
	const many = 50_000
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	sample := Sample{At: now, PID: 7, By: map[string]int64{"web": 3}, Down: []string{"web"}, Flapped: []string{"api"}}
	for n := range many {
		name := fmt.Sprint("made-up-", n)
		sample.By[name], sample.Down = 1, append(sample.Down, name)
	}
	good, target := snapshots.ID{Revision: 1, Short: "0000000001"}, snapshots.ID{Revision: 2, Short: "0000000002"}
	for name, test := range map[string]struct {
		good     snapshots.ID
		backends map[string]Backend
		want     string
	}{
		"with a good snapshot":               {good, map[string]Backend{"web": {}, "api": {}}, "map[web:3] [api web] [web]"},
		"without one, nothing depends on it": {snapshots.ID{}, nil, "map[] [] []"},
	} {
		seen := Seen{Name: "a", Reachable: true, Running: test.good, PID: 7, Sample: sample}
		s := &step{
			Policy: Policy{Soak: time.Minute}, now: now, seen: map[string]Seen{"a": seen}, o: Observation{Instances: []Seen{seen}, Backends: test.backends},
			State: State{Good: test.good, Rollout: &Rollout{Target: target, From: now}},
		}
		s.knowDown()
		down := s.Rollout.Down
		touched := s.before(seen)
		touched.Applied, touched.At, touched.PID, touched.Was = true, now.Add(-time.Second), 7, 7
		s.Rollout.Touched, s.Rollout.From = []Touch{touched}, now.Add(-time.Minute)
		s.count()
		if got := fmt.Sprint(s.Rollout.Counted["a"].By, touched.Down, down); got != test.want {
			t.Errorf("%s: the state has %.200s, want %s", name, got, test.want)
		}
	}
}
