package bind

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/snapshots"
)

var (
	noon     = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	shopWeb  = snapshots.ServicePort{Namespace: "shop", Service: "web", Port: "http"}
	shopSlot = SlotKey{"shop_web_http", shopWeb}
)

// story plays events on one backend and writes its slots in short: "1" is the endpoint 10.0.0.1:80, "1~" is
// draining, "1x" is gone and drained, "-" is spare.
type story struct {
	table     Slots
	directive Directive
	now       time.Time
	grown     []SlotKey
}

func newStory() *story {
	return &story{directive: Directive{Backend: shopSlot.Backend, Service: shopWeb, Weight: 100}, now: noon}
}

func (s *story) see(endpoints string) string {
	live := map[snapshots.ServicePort][]snapshots.Endpoint{}
	for word := range strings.FieldsSeq(endpoints) {
		name, draining := strings.CutSuffix(word, "~")
		live[shopWeb] = append(live[shopWeb], snapshots.Endpoint{Address: "10.0.0." + name, Port: 80, Draining: draining})
	}
	s.table, s.grown = AssignSlots(s.table, []Directive{s.directive}, live, s.now, 30*time.Second)
	return s.tell()
}

func (s *story) tell() string {
	var out []string
	for _, slot := range s.table[shopSlot] {
		name := strings.TrimPrefix(slot.Address, "10.0.0.")
		switch {
		case slot == spareSlot:
			name = "-"
		case !slot.Until.IsZero():
			name += "x"
		case slot.State == SlotDrain:
			name += "~"
		}
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

func TestAssignSlots(t *testing.T) {
	type step struct {
		after     time.Duration
		endpoints string
		want      string
		grows     bool
	}
	for _, tt := range []struct {
		name  string
		slots int
		steps []step
	}{
		{"a new backend has two spare slots", 0, []step{{0, "", "- -", false}}},
		{"a new backend has its endpoints in order, and two spare slots", 0, []step{{0, "2 1", "1 2 - -", false}}},
		{"a large backend has a quarter more", 0, []step{{0, "1 2 3 4 5 6 7 8 9", "1 2 3 4 5 6 7 8 9 - - -", false}}},
		{"slots= is a minimum", 5, []step{{0, "1", "1 - - - -", false}}},
		{"nothing moves when endpoints come and go", 0, []step{
			{0, "2", "2 - -", false}, {0, "1 2", "2 1 -", false}, {0, "1", "2x 1 -", false}, {0, "1 3", "2x 1 3", false},
		}},
		{"a drained slot falls free in time, and not before", 0, []step{
			{0, "1", "1 - -", false}, {0, "", "1x - -", false}, {29 * time.Second, "", "1x - -", false}, {time.Second, "", "- - -", false},
		}},
		{"an endpoint that comes back takes up its slot", 0, []step{
			{0, "1 2", "1 2 - -", false}, {0, "2", "1x 2 - -", false}, {time.Minute, "1 2", "1 2 - -", false},
		}},
		{"draining is not gone", 0, []step{
			{0, "1 2", "1 2 - -", false}, {0, "1~ 2", "1~ 2 - -", false}, {time.Hour, "1~ 2", "1~ 2 - -", false},
			{0, "1 2", "1 2 - -", false}, {0, "1~ 2", "1~ 2 - -", false}, {0, "2", "1x 2 - -", false},
		}},
		{"a spare slot is taken before a drained one", 0, []step{
			{0, "1", "1 - -", false}, {0, "2", "1x 2 -", false}, {0, "2 3", "1x 2 3", false},
		}},
		{"the longest drained is taken over before the group grows", 0, []step{
			{0, "1 2", "1 2 - -", false}, {0, "1 2 3 4", "1 2 3 4", false},
			{0, "1 2 4", "1 2 3x 4", false}, {time.Second, "2 4", "1x 2 3x 4", false},
			{time.Second, "2 4 5", "1x 2 5 4", false}, {0, "2 4 5 6", "6 2 5 4", false},
		}},
		{"a group that is too small grows", 0, []step{
			{0, "", "- -", false}, {0, "1 2", "1 2", false}, {0, "1 2 3", "1 2 3 - -", true}, {0, "1 2 3", "1 2 3 - -", false},
		}},
		{"a group does not shrink", 0, []step{{0, "1 2 3 4", "1 2 3 4 - -", false}, {0, "", "1x 2x 3x 4x - -", false}, {time.Minute, "", "- - - - - -", false}}},
		{"an endpoint first seen draining takes a slot if one is left", 0, []step{
			{0, "1~ 2", "2 1~ - -", false}, {0, "1~ 2 3~ 4 5~", "2 1~ 4 3~", false},
		}},
		{"those that are draining take traffic while no other does", 0, []step{
			{0, "1 2", "1 2 - -", false}, {0, "1~ 2", "1~ 2 - -", false}, {0, "1~ 2~", "1 2 - -", false}, {0, "2~", "1x 2 - -", false},
			{0, "2~ 3", "1x 2~ 3 -", false}, {0, "2~", "1x 2 3x -", false}, {0, "", "1x 2x 3x -", false},
		}},
		{"they do so when they are first seen, and have slots for that", 0, []step{{0, "", "- -", false}, {0, "1~ 2~ 3~", "1 2 3 - -", true}, {0, "1~ 2~ 3~ 4", "1~ 2~ 3~ 4 -", false}}},
		{"an endpoint listed as both is not draining", 0, []step{{0, "1~ 1 2 2~", "1 2 - -", false}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStory()
			s.directive.Slots = tt.slots
			for i, step := range tt.steps {
				s.now = s.now.Add(step.after)
				if got := s.see(step.endpoints); got != step.want {
					t.Fatalf("step %d: %q, want %q", i+1, got, step.want)
				}
				if grows := slices.Equal(s.grown, []SlotKey{shopSlot}); grows != step.grows {
					t.Errorf("step %d: grown %v", i+1, s.grown)
				}
			}
		})
	}
}

func TestAssignSlotsRaisedMinimumGrows(t *testing.T) {
	s := newStory()
	s.see("1")
	s.directive.Slots = 6
	if got := s.see("1"); got != "1 - - - - -" || len(s.grown) != 1 {
		t.Errorf("got %q, grown %v", got, s.grown)
	}
}

// During a rollout two snapshots ask for slots of the same service.
func TestAssignSlotsForTwoSnapshots(t *testing.T) {
	old := Directive{Backend: "b", Service: shopWeb, Slots: 5}
	table, grown := AssignSlots(nil, []Directive{old, {Backend: "b", Service: shopWeb}, {Backend: "c", Service: shopWeb}}, nil, noon, 0)
	if len(table) != 2 || len(table[old.Key()]) != 5 || len(table[SlotKey{"c", shopWeb}]) != 2 || grown != nil {
		t.Errorf("got %v, grown %v", table, grown)
	}
}

func TestAssignSlotsLeavesItsInputAlone(t *testing.T) {
	s := newStory()
	s.see("1 2")
	before, _ := json.Marshal(s.table)
	kept := s.table
	other := Directive{Backend: "other", Service: shopWeb}
	kept[other.Key()] = []Slot{{"10.9.9.9", 1, SlotReady, time.Time{}}}
	s.see("3 4 5")
	if diff := cmp.Diff([]Slot{{"10.9.9.9", 1, SlotReady, time.Time{}}}, s.table[other.Key()]); diff != "" {
		t.Errorf("a group of another directive (-want +got):\n%s", diff)
	}
	delete(kept, other.Key())
	if after, _ := json.Marshal(kept); string(after) != string(before) {
		t.Errorf("the table was %s and is %s", before, after)
	}
}

func TestNextDrain(t *testing.T) {
	s := newStory()
	s.see("1 2")
	if at, ok := s.table.NextDrain(); ok {
		t.Errorf("nothing drains, but something ends at %s", at)
	}
	s.see("2")
	s.now = s.now.Add(time.Second)
	s.see("")
	if at, ok := s.table.NextDrain(); !ok || !at.Equal(noon.Add(30*time.Second)) {
		t.Errorf("got %s, %v", at, ok)
	}
}

func TestCompact(t *testing.T) {
	s := newStory()
	s.see("1 2 3 4 5 6 7 8")
	s.see("2")
	s.now = s.now.Add(time.Minute)
	s.see("2")
	s.table[SlotKey{"gone", shopWeb}] = []Slot{spareSlot}
	s.table = Compact(s.table, []Directive{s.directive, {Backend: "new", Service: shopWeb}})
	if got := s.tell(); got != "- 2 -" || len(s.table) != 1 {
		t.Errorf("got %q of %v", got, s.table)
	}
	s.directive.Slots = 5
	s.see("2")
	if got := Compact(s.table, []Directive{s.directive})[shopSlot]; len(got) != 5 {
		t.Errorf("compacted below the minimum: %v", got)
	}
}

func TestSlotsKeepInJSON(t *testing.T) {
	s := newStory()
	s.now = time.Now() // with a monotonic reading, in the local zone
	s.see("1 2~")
	s.see("2~")
	s.table[SlotKey{"b", snapshots.ServicePort{Namespace: "shop", Service: "web", Port: ""}}] = []Slot{spareSlot}
	data, err := json.Marshal(s.table)
	if err != nil {
		t.Fatal(err)
	}
	var got Slots
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	// A table that was read back is equal to the one that was written, so that nothing seems to change.
	if !maps.EqualFunc(s.table, got, slices.Equal[[]Slot]) {
		t.Errorf("read back (-want +got):\n%s", cmp.Diff(s.table, got))
	}
	for _, bad := range []string{`{"shop/web":[]}`, `{"b shop":[]}`, `{" shop/web":[]}`} {
		if err := json.Unmarshal([]byte(bad), &got); err == nil {
			t.Errorf("%s is a table", bad)
		}
	}
}

func TestPlaceholder(t *testing.T) {
	s := snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte("backend b\n#hapsnap servers shop/web slots=3\n#hapsnap servers shop/api")}}}.Number(1, snapshots.ID{})
	got, err := Placeholder(s)
	want := Slots{
		{"b", snapshots.ServicePort{Namespace: "shop", Service: "web", Port: ""}}: {spareSlot, spareSlot, spareSlot},
		{"b", snapshots.ServicePort{Namespace: "shop", Service: "api", Port: ""}}: {spareSlot, spareSlot},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// FuzzAssignSlots plays random endpoints: each byte of events is a set of
// endpoints and a step in time.
func FuzzAssignSlots(f *testing.F) {
	f.Add([]byte{1, 3, 7, 15, 0, 0, 255, 1})
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		seed := make([]byte, 60)
		for i := range seed {
			seed[i] = byte(r.Uint32())
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, events []byte) {
		d := Directive{Backend: "b", Service: shopWeb}
		var table Slots
		now := noon
		for i := 0; i+2 < len(events); i += 3 {
			now = now.Add(time.Duration(events[i]) * time.Second / 8)
			live := map[snapshots.ServicePort][]snapshots.Endpoint{shopWeb: endpointsOf(events[i+1], events[i+2])}
			next, grown := AssignSlots(table, []Directive{d}, live, now, 10*time.Second)
			checkAssigned(t, table[d.Key()], next[d.Key()], live[shopWeb], now)
			if table != nil && (len(grown) > 0) != (len(next[d.Key()]) != len(table[d.Key()])) {
				t.Fatalf("grown %v from %v to %v", grown, table, next)
			}
			again, _ := AssignSlots(next, []Directive{d}, live, now, 10*time.Second)
			if diff := cmp.Diff(next, again); diff != "" {
				t.Fatalf("asked again at the same time (-first +second):\n%s", diff)
			}
			table = next
		}
	})
}

func endpointsOf(present, draining byte) (out []snapshots.Endpoint) {
	for i := range 8 {
		if present&(1<<i) != 0 {
			out = append(out, snapshots.Endpoint{Address: fmt.Sprintf("10.0.0.%d", i), Port: 80 + i%2, Draining: draining&(1<<i) != 0})
		}
	}
	return out
}

// chosenByKubeProxy returns the endpoints that kube-proxy sends traffic to: those that are
// ready, or, without any, those that serve and terminate (CategorizeEndpoints).
func chosenByKubeProxy(live []snapshots.Endpoint) map[snapshots.Endpoint]bool {
	ready, terminating := map[snapshots.Endpoint]bool{}, map[snapshots.Endpoint]bool{}
	for _, e := range live {
		if e.Draining {
			terminating[e] = true
		} else {
			ready[e] = true
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return terminating
}

func checkAssigned(t *testing.T, before, after []Slot, live []snapshots.Endpoint, now time.Time) {
	t.Helper()
	at := map[string]int{}
	for i, slot := range after {
		if slot == spareSlot {
			continue
		}
		key := fmt.Sprint(slot.Address, slot.Port)
		if _, twice := at[key]; twice {
			t.Fatalf("%s has two slots: %v", key, after)
		}
		at[key] = i
		if !slot.Until.IsZero() && (slot.State != SlotDrain || !now.Before(slot.Until)) {
			t.Fatalf("slot %d should be free: %v", i, slot)
		}
	}
	takes := chosenByKubeProxy(live)
	for _, e := range live {
		i, ok := at[fmt.Sprint(e.Address, e.Port)]
		if !ok && takes[e] {
			t.Fatalf("%v has no slot: %v", e, after)
		}
		if ok && ((after[i].State == SlotReady) != takes[e] || !after[i].Until.IsZero()) {
			t.Fatalf("%v has %v", e, after[i])
		}
		was := slices.IndexFunc(before, func(s Slot) bool { return s.holds(e) })
		if was >= 0 && i != was {
			t.Fatalf("%v moved from slot %d to %d", e, was, i)
		}
	}
	if len(after) < len(before) {
		t.Fatalf("shrank from %v to %v", before, after)
	}
}

// Placeholder is what AssignSlots returns without endpoints.
func TestPlaceholderIsWithoutEndpoints(t *testing.T) {
	s := snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte("backend b\n#hapsnap servers shop/web slots=3\n#hapsnap servers shop/api\n" +
		"backend c\n#hapsnap servers shop/web slots=5\n#hapsnap servers shop/other slots=1\n")}}}.Number(1, snapshots.ID{})
	got, err := Placeholder(s)
	directives, wrong := Directives(s.Config())
	want, _ := AssignSlots(nil, directives, nil, time.Time{}, 0)
	if diff := cmp.Diff(want, got); diff != "" || err != nil || wrong != nil || len(got) != 4 || len(directives) != 4 {
		t.Errorf("%v, %v (-want +got):\n%s", err, wrong, diff)
	}
}
