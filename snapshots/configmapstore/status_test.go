package configmapstore

import (
	"maps"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// The status is written by whoever reads the store, and is not in the way of what is
// delivered, nor the other way around. It takes no more than the role for it.
func TestStatus(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	reader := p.as("reporter", append(Status("edge"), Creating()...)) // there is nothing yet
	set := func(fields map[string]string) {
		t.Helper()
		if err := reader.SetStatus(t.Context(), fields); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want map[string]string) {
		t.Helper()
		if o := p.object("edge-status"); !maps.Equal(o.Data, want) || o.Labels[PartLabel] != partStatus {
			t.Errorf("the status is %v, %v, not %v", o.Data, o.Labels, want)
		}
	}
	set(map[string]string{"phase": "Progressing", "message": "wave 1"})
	check(map[string]string{"phase": "Progressing", "message": "wave 1"})
	o := p.object("edge-status")
	o.Data[DeliveredKey] = "r000001-0123456789"
	if err := p.client.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	set(map[string]string{"phase": "Healthy"})
	check(map[string]string{"phase": "Healthy", DeliveredKey: "r000001-0123456789"})
	if v, err := p.open().View(t.Context()); err != nil || len(v.IDs) != 0 {
		t.Errorf("the store has %v, %v", v, err)
	}
	if id := publish(t, p.open(), storetest.Draft("a")); id != snapshots.NewID(1, storetest.Draft("a").Digest()) {
		t.Errorf("published %s", id)
	}
}
