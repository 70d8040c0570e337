package bind

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// AssignSlots assigns slots to the endpoints of the directives at the time now. It returns
// the slot table, and the keys of the groups that had too few slots and got more, in the
// order of the directives. A new slot is a new server line, and needs a reload.
//
// An endpoint keeps its slot, whatever else comes and goes. A new endpoint takes the spare
// slot with the lowest number, otherwise the slot of the gone endpoint that has drained
// longest. Otherwise the group grows: to n+2 or n+n/4 slots for n endpoints, whichever is
// more, and never below what a directive asks for. An endpoint that is draining drains its
// slot, and recovers in it. One that is gone drains its slot for drainFor, then the slot is
// spare. An endpoint that is draining when it is first seen takes a spare slot if one is
// left, but does not make the group grow.
//
// If all endpoints of a Service are draining, they take traffic until one is ready or they
// are gone, as with kube-proxy (KEP-1669), since no others serve.
//
// Groups of other directives are not changed, since a table serves two snapshots during a
// rollout. A caller that knows which endpoints have changed may give only their directives
// and their groups, and pays only for these. Groups never shrink; see [Compact].
func AssignSlots(table Slots, directives []Directive, endpoints map[snapshots.ServicePort][]snapshots.Endpoint, now time.Time, drainFor time.Duration) (next Slots, grown []SlotKey) {
	return Room(nil).AssignSlots(table, directives, endpoints, now, drainFor)
}

// Room is to how many slots a group of a namespace may grow. The groups of namespaces that it does not name may grow to any
// number.
type Room map[string]int

// AssignSlots is the function of that name, but groups grow no further than there is room. A new group gets one slot at
// least. Endpoints that find no slot are left out; those that have one keep it.
func (r Room) AssignSlots(table Slots, directives []Directive, endpoints map[snapshots.ServicePort][]snapshots.Endpoint, now time.Time, drainFor time.Duration) (next Slots, grown []SlotKey) {
	next = maps.Clone(table)
	if next == nil {
		next = make(Slots, len(directives))
	}
	least := leastSlots(directives)
	done := make(map[SlotKey]bool, len(directives))
	for _, d := range directives {
		key := d.Key()
		if done[key] {
			continue
		}
		done[key] = true
		old, known := next[key]
		most := math.MaxInt
		if room, limited := r[d.Service.Namespace]; limited {
			most = max(1, len(old), room)
		}
		group := assignGroup(slices.Clone(old), endpoints[d.Service], least[key], most, now, drainFor)
		if known && len(group) > len(old) {
			grown = append(grown, key)
		}
		next[key] = group
	}
	return next, grown
}

// Compact returns the table for the directives only, each group without those spare slots
// at its end that a new group would not have. Slots in use keep their places. A shorter
// group is another shape, so compact when every instance is reloaded anyway.
func Compact(table Slots, directives []Directive) Slots {
	next := make(Slots, len(directives))
	least := leastSlots(directives)
	for _, d := range directives {
		key := d.Key()
		if group, ok := table[key]; ok {
			used, end := 0, 0
			for i, slot := range group {
				if slot.State != SlotSpare {
					used, end = used+1, i+1
				}
			}
			next[key] = slices.Clone(group[:min(len(group), max(end, groupSize(used, least[key])))])
		}
	}
	return next
}

// leastSlots returns the number of slots that the directives ask for: the larger one, if
// two snapshots ask for different numbers.
func leastSlots(directives []Directive) map[SlotKey]int {
	out := make(map[SlotKey]int, len(directives))
	for _, d := range directives {
		out[d.Key()] = max(out[d.Key()], d.Slots)
	}
	return out
}

// groupSize is how many slots a group gets for n endpoints.
func groupSize(n, least int) int { return max(n+2, n+(n+3)/4, least) }

// assignGroup is AssignSlots for the slots of one directive, of which there may be so many at most. It changes old, which
// must be the caller's copy.
func assignGroup(old []Slot, endpoints []snapshots.Endpoint, least, most int, now time.Time, drainFor time.Duration) []Slot {
	present := slices.SortedFunc(slices.Values(endpoints), func(a, b snapshots.Endpoint) int {
		return cmp.Or(a.Compare(b), compareBool(a.Draining, b.Draining))
	})
	// An endpoint that is listed both as draining and as serving counts as serving. Those that serve come
	// first.
	present = slices.CompactFunc(present, func(a, b snapshots.Endpoint) bool { return a.Compare(b) == 0 })
	slices.SortStableFunc(present, func(a, b snapshots.Endpoint) int { return compareBool(a.Draining, b.Draining) })
	present = lastServing(present)
	until := now.Add(drainFor).UTC().Round(0) // as it is read back from JSON
	arriving := keepSlots(old, present, until, now)
	group := old
	if group == nil {
		group = spareSlots(nil, min(groupSize(len(present), least), most))
	}
	group = spareSlots(group, min(least, most))
	for _, e := range arriving {
		at := freeSlot(group, e)
		if at < 0 && (e.Draining || len(group) >= most) {
			continue
		}
		if at < 0 {
			at = len(group)
			group = spareSlots(group, min(groupSize(len(present), least), most))
		}
		group[at] = Slot{Address: e.Address, Port: e.Port, State: stateOf(e)}
	}
	return group
}

// lastServing returns the endpoints unchanged, or all as not draining if all of them are.
func lastServing(present []snapshots.Endpoint) []snapshots.Endpoint {
	if slices.ContainsFunc(present, func(e snapshots.Endpoint) bool { return !e.Draining }) {
		return present
	}
	for i := range present {
		present[i].Draining = false
	}
	return present
}

// keepSlots updates the slots that have an endpoint, and returns the endpoints that have
// none yet.
func keepSlots(group []Slot, present []snapshots.Endpoint, until, now time.Time) (arriving []snapshots.Endpoint) {
	type address struct {
		ip   string
		port int
	}
	waiting := make(map[address]snapshots.Endpoint, len(present))
	for _, e := range present {
		waiting[address{e.Address, e.Port}] = e
	}
	for i := range group {
		at := address{group[i].Address, group[i].Port}
		e, there := waiting[at]
		if group[i].State == SlotSpare {
			continue
		}
		group[i] = keepSlot(group[i], e, there, until, now)
		delete(waiting, at)
	}
	return slices.DeleteFunc(slices.Clone(present), func(e snapshots.Endpoint) bool {
		_, still := waiting[address{e.Address, e.Port}]
		return !still
	})
}

// keepSlot returns the slot of an endpoint that exists or is gone, as it is from now on.
func keepSlot(slot Slot, e snapshots.Endpoint, there bool, until, now time.Time) Slot {
	if there {
		slot.State, slot.Until = stateOf(e), time.Time{}
		return slot
	}
	if slot.Until.IsZero() || slot.Until.After(until) { // the clock was set back, or drainFor is shorter now
		slot.State, slot.Until = SlotDrain, until
	}
	if !now.Before(slot.Until) {
		return spareSlot
	}
	return slot
}

// freeSlot returns the slot that e may take, or -1.
func freeSlot(group []Slot, e snapshots.Endpoint) int {
	oldest := -1
	for i, slot := range group {
		if slot.State == SlotSpare {
			return i
		}
		if !slot.Until.IsZero() && (oldest < 0 || slot.Until.Before(group[oldest].Until)) {
			oldest = i
		}
	}
	if e.Draining {
		return -1
	}
	return oldest
}

// spareSlots appends spare slots until there are n.
func spareSlots(group []Slot, n int) []Slot {
	for len(group) < n {
		group = append(group, spareSlot)
	}
	return group
}

func stateOf(e snapshots.Endpoint) SlotState {
	if e.Draining {
		return SlotDrain
	}
	return SlotReady
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// SlotState is what a server slot is doing.
type SlotState string

// The states of a slot. HAProxy calls them ready, drain and maint. A slot that is not ready
// when HAProxy starts is disabled in the configuration, and HAProxy keeps that in its
// server state. If such a slot is set to drain, its admin state is 12, which the Dataplane
// API (3.2 and 3.4, whose client-native reads the number as hexadecimal) reports as maint.
const (
	SlotReady SlotState = "ready"
	SlotDrain SlotState = "drain"
	SlotSpare SlotState = "maint"
)

// SpareAddress and SparePort are the address of a spare slot. RFC 5737 reserves it for
// documentation, so nothing is ever there.
const (
	SpareAddress = "192.0.2.1"
	SparePort    = 1
)

// Slot is one server of a directive. A slot keeps its place, and so its server
// name ([Directive.ServerName]), for as long as its endpoint lives.
type Slot struct {
	Address string    `json:"address"`
	Port    int       `json:"port"`
	State   SlotState `json:"state"`
	// Until is set while the slot of an endpoint that is gone drains, and says when the
	// slot becomes spare. An endpoint that exists and is draining has none.
	Until time.Time `json:"until,omitzero"`
}

// spareSlot is a slot without an endpoint.
var spareSlot = Slot{Address: SpareAddress, Port: SparePort, State: SlotSpare}

func (s Slot) holds(e snapshots.Endpoint) bool { return s.Address == e.Address && s.Port == e.Port }

// SlotKey names the slots of one directive. As text it is
// "backend namespace/service:port".
type SlotKey struct {
	Backend string
	Service snapshots.ServicePort
}

// String returns "backend namespace/service:port".
func (k SlotKey) String() string { return k.Backend + " " + k.Service.String() }

// MarshalText implements [encoding.TextMarshaler].
func (k SlotKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads what [SlotKey.MarshalText] wrote.
func (k *SlotKey) UnmarshalText(text []byte) error {
	backend, service, ok := strings.Cut(string(text), " ")
	parsed, err := snapshots.ParseServicePort(service)
	if !ok || backend == "" || err != nil {
		return fmt.Errorf("%q is not backend namespace/service:port", text)
	}
	*k = SlotKey{backend, parsed}
	return nil
}

// Slots is the slot table of a fleet: every instance gets the same servers in the same
// slots. It is a value: nothing in it changes after it was made, and two tables may share
// groups. Its JSON form is stable.
type Slots map[SlotKey][]Slot

// NextDrain returns when the next drained slot becomes spare, so that a caller can set a
// timer and call [AssignSlots] then. It returns false if none will.
func (s Slots) NextDrain() (time.Time, bool) {
	var next time.Time
	for _, group := range s {
		for _, slot := range group {
			if !slot.Until.IsZero() && (next.IsZero() || slot.Until.Before(next)) {
				next = slot.Until
			}
		}
	}
	return next, !next.IsZero()
}

// Placeholder returns only spare slots for a snapshot, so that validation sees every option
// of every server line.
func Placeholder(s snapshots.Snapshot) (Slots, error) { return new(Binder).Placeholder(s) }

// Placeholder is the function [Placeholder]. If the Binder then binds the snapshot, it does not read the
// directives again.
func (b *Binder) Placeholder(s snapshots.Snapshot) (Slots, error) {
	found, err := b.directives.of(s.Config())
	if err != nil {
		return nil, err
	}
	// This is what AssignSlots returns without endpoints. Groups of the same length are the same.
	least := leastSlots(found.servers)
	slots, groups := make(Slots, len(least)), map[int][]Slot{}
	for key, n := range least {
		group, made := groups[n]
		if !made {
			group = assignGroup(nil, nil, n, math.MaxInt, time.Time{}, 0)
			groups[n] = group
		}
		slots[key] = group
	}
	return slots, nil
}
