package binding

import (
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// Assign gives the live endpoints their slots, as far as something changed, and
// reports whether the table did. It costs what changed, apart from a few copies.
func (b *Bindings) Assign(now time.Time, drain time.Duration) bool {
	drained := !b.due.IsZero() && !now.Before(b.due)
	switch {
	case b.from == FromSnapshots:
		return false
	case b.stale:
		return b.assignAll(now, drain)
	case drained:
		for key, group := range b.slots {
			if slices.ContainsFunc(group, func(s bind.Slot) bool { return !s.Until.IsZero() && !now.Before(s.Until) }) {
				b.changed[key.Service] = true
			}
		}
	}
	if len(b.changed) == 0 && !drained {
		return false
	}
	changed := b.assignSome(b.changed, now, drain)
	b.changed = map[snapshots.ServicePort]bool{}
	if drained {
		b.due = b.nextDrain(now)
	}
	return changed
}

// longestMoved is how long it is remembered that endpoints changed.
const longestMoved = time.Hour

// noteMoved notes that the endpoints of a backend changed. A backend that is new to the
// slots has no endpoints that changed.
func (b *Bindings) noteMoved(key bind.SlotKey, old, group []bind.Slot, now time.Time) {
	if _, had := b.slots[key]; had && !slices.Equal(old, group) {
		b.moved[key.Backend] = now
	}
}

func (b *Bindings) forgetMoved(now time.Time) {
	maps.DeleteFunc(b.moved, func(_ string, at time.Time) bool { return now.Sub(at) > longestMoved })
}

// nextDrain returns when the next slot is drained. One that should be already, but
// whose endpoints nobody knows, is looked at again after a while.
func (b *Bindings) nextDrain(now time.Time) time.Time {
	due, drains := b.slots.NextDrain()
	if drains && !due.After(now) {
		return now.Add(time.Second)
	}
	return due
}

// assignAll assigns the slots of all directives.
func (b *Bindings) assignAll(now time.Time, drain time.Duration) bool {
	b.stale, b.changed = false, map[snapshots.ServicePort]bool{}
	next, _ := bind.AssignSlots(b.slots, b.assignable(b.directives()), b.live.Endpoints, now, drain)
	if !maps.EqualFunc(b.slots, next, func(x, y []bind.Slot) bool { return len(x) == len(y) }) {
		b.shapes++
	}
	changed := !maps.EqualFunc(b.slots, next, slices.Equal[[]bind.Slot])
	for key, group := range next {
		b.noteMoved(key, b.slots[key], group, now)
	}
	for key := range b.slots {
		if _, stays := next[key]; !stays {
			b.moved[key.Backend] = now
		}
	}
	b.forgetMoved(now)
	b.slots = next
	b.due = b.nextDrain(now)
	for id, p := range b.prepared {
		if p.Recorded || !p.Known || p.Err != nil || (!changed && p.Servers != nil) {
			continue
		}
		p.bindAll(next)
		b.prepared[id] = p
	}
	return changed
}

// assignSome assigns the slots of the directives that join some Services.
func (b *Bindings) assignSome(services map[snapshots.ServicePort]bool, now time.Time, drain time.Duration) bool {
	directives := b.assignable(b.joining(services))
	next, _ := bind.AssignSlots(b.slots, directives, b.live.Endpoints, now, drain)
	changed, grown := false, false
	for _, d := range directives {
		old, group := b.slots[d.Key()], next[d.Key()]
		b.noteMoved(d.Key(), old, group, now)
		changed, grown = changed || !slices.Equal(old, group), grown || len(old) != len(group)
		if until, drains := (bind.Slots{d.Key(): group}).NextDrain(); drains && (b.due.IsZero() || until.Before(b.due)) {
			b.due = until
		}
	}
	if b.slots = next; !changed {
		return false
	}
	if grown {
		b.shapes++
	}
	for id, p := range b.prepared {
		switch {
		case p.Recorded || p.Err != nil || p.Servers == nil:
			continue
		case grown:
			p.bindAll(next)
		default:
			p.bindSome(next, services)
		}
		b.prepared[id] = p
	}
	return true
}

// directives returns those of all snapshots in use, which share the slots of the
// backends that they have in common.
func (b *Bindings) directives() []bind.Directive {
	var out []bind.Directive
	for _, id := range slices.SortedFunc(maps.Keys(b.prepared), snapshots.ID.Compare) {
		if p := b.prepared[id]; !p.Recorded {
			out = append(out, p.Directives...)
		}
	}
	return out
}

// joining returns those directives that join some Services.
func (b *Bindings) joining(services map[snapshots.ServicePort]bool) []bind.Directive {
	var out []bind.Directive
	for _, id := range slices.SortedFunc(maps.Keys(b.prepared), snapshots.ID.Compare) {
		p := b.prepared[id]
		for _, service := range slices.SortedFunc(maps.Keys(services), snapshots.ServicePort.Compare) {
			for _, n := range p.byService[service] {
				if !p.Recorded {
					out = append(out, p.Directives[n])
				}
			}
		}
	}
	return out
}

// assignable leaves out the directives whose endpoints are not known: they keep the
// slots that they have, if there are any.
func (b *Bindings) assignable(directives []bind.Directive) []bind.Directive {
	if b.read == nil {
		return directives
	}
	return slices.DeleteFunc(slices.Clone(directives), func(d bind.Directive) bool {
		_, assigned := b.slots[d.Key()]
		return assigned && !b.read(d.Service.Namespace)
	})
}

// Prune drops the slots of backends that no snapshot in use has.
func (b *Bindings) Prune() {
	if b.from == FromSnapshots {
		return
	}
	used := map[bind.SlotKey]bool{}
	for _, d := range b.directives() {
		used[d.Key()] = true
	}
	next := maps.Clone(b.slots)
	maps.DeleteFunc(next, func(k bind.SlotKey, _ []bind.Slot) bool { return !used[k] })
	b.slots = next
}
