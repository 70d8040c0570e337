package bind

import (
	"fmt"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// deployment is updated as Kubernetes does by default: up to 25% more pods than wanted, rounded up, and up to
// 25% fewer ready ones, rounded down.
type deployment struct {
	wanted        int
	starts, stops time.Duration // how long a pod takes to be ready, and to end
	pods          []pod
	named         int
}

type pod struct {
	name       int
	old        bool
	ready, end time.Time // end is zero until it has to end
}

func newDeployment(wanted int, starts, stops time.Duration) *deployment {
	d := &deployment{wanted: wanted, starts: starts, stops: stops}
	for range wanted {
		d.add(noon, true)
	}
	return d
}

func (d *deployment) add(ready time.Time, old bool) {
	d.named++
	d.pods = append(d.pods, pod{name: d.named, old: old, ready: ready})
}

// step does what the controller does at a time. It reports whether the update has finished.
func (d *deployment) step(now time.Time) (done bool) {
	var living, ready, fresh int
	var left []pod
	for _, p := range d.pods {
		if !p.end.IsZero() && !now.Before(p.end) {
			continue
		}
		left = append(left, p)
		if !p.end.IsZero() {
			continue
		}
		living++
		if !now.Before(p.ready) {
			ready++
		}
		if !p.old {
			fresh++
		}
	}
	d.pods = left
	for ; fresh < d.wanted && living < d.wanted+(d.wanted+3)/4; fresh, living = fresh+1, living+1 {
		d.add(now.Add(d.starts), false)
	}
	for i := range d.pods {
		if p := &d.pods[i]; p.old && p.end.IsZero() && ready > d.wanted-d.wanted/4 {
			p.end = now.Add(d.stops)
			ready--
		}
	}
	return fresh == d.wanted && len(d.pods) == d.wanted && ready == d.wanted
}

// endpoints are the pods as EndpointSlices have them.
func (d *deployment) endpoints(now time.Time) (out []snapshots.Endpoint) {
	for _, p := range d.pods {
		if !now.Before(p.ready) {
			out = append(out, snapshots.Endpoint{Address: fmt.Sprintf("10.0.%d.%d", p.name/250, p.name%250), Port: 80, Draining: !p.end.IsZero()})
		}
	}
	return out
}

// reloadsOf counts how often a backend outgrows its slots in consecutive updates. The backend begins with some
// spare slots.
func reloadsOf(t *testing.T, wanted, spare int, starts, stops time.Duration, updates int) (reloads, slots int) {
	t.Helper()
	directive := Directive{Backend: shopSlot.Backend, Service: shopWeb, Weight: 100}
	table, _ := AssignSlots(Slots{shopSlot: spareSlots(nil, wanted+spare)}, []Directive{directive},
		map[snapshots.ServicePort][]snapshots.Endpoint{shopWeb: newDeployment(wanted, starts, stops).endpoints(noon)}, noon, 30*time.Second)
	d, now := newDeployment(wanted, starts, stops), noon
	for range updates {
		for i := range d.pods {
			d.pods[i].old = true
		}
		for n := 0; !d.step(now); n++ {
			var grown []SlotKey
			table, grown = AssignSlots(table, []Directive{directive}, map[snapshots.ServicePort][]snapshots.Endpoint{shopWeb: d.endpoints(now)}, now, 30*time.Second)
			reloads += len(grown)
			if now = now.Add(time.Second); n > 10000 {
				t.Fatal("the update does not end")
			}
		}
		now = now.Add(time.Hour)
	}
	return reloads, len(table[shopSlot])
}

// There are as many spare slots as a rolling update needs, if its pods end before the next ones are ready. With
// one fewer, a backend of five or more endpoints is reloaded. If pods take longer to end, it is reloaded once
// or twice, and has enough slots from then on.
func TestSpareSlotsOfRollingUpdates(t *testing.T) {
	t.Parallel()
	const starts, slow = 10 * time.Second, 30 * time.Second
	for _, wanted := range []int{1, 2, 3, 4, 5, 8, 10, 20, 40} {
		rule := groupSize(wanted, 0) - wanted
		for _, stops := range []time.Duration{time.Second, starts / 2, starts} {
			if reloads, slots := reloadsOf(t, wanted, rule, starts, stops, 3); reloads > 0 {
				t.Errorf("%d endpoints with %d spare slots, which end in %s: %d reloads, %d slots then", wanted, rule, stops, reloads, slots)
			}
		}
		if reloads, _ := reloadsOf(t, wanted, rule-1, starts, starts, 1); reloads == 0 && wanted > 4 {
			t.Errorf("%d endpoints: %d spare slots would do", wanted, rule-1)
		}
		first, _ := reloadsOf(t, wanted, rule, starts, slow, 1)
		more, slots := reloadsOf(t, wanted, rule, starts, slow, 4)
		if more > 2 || more > first {
			t.Errorf("%d endpoints that end in %s: %d reloads, and %d with three updates more; %d slots then", wanted, slow, first, more, slots)
		}
	}
}

// If the clock is set back, or the drain time becomes shorter, no slot is kept for longer than the drain time.
func TestSlotsDrainWhereTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	s := newStory()
	s.see("1 2")
	s.see("1")
	s.now = s.now.Add(-24 * time.Hour)
	if got := s.see("1"); got != "1 2x - -" {
		t.Errorf("it has %s", got)
	}
	s.now = s.now.Add(30 * time.Second)
	if got := s.see("1"); got != "1 - - -" {
		t.Errorf("half a minute later it has %s", got)
	}
}
