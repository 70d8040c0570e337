package pusher

import (
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// assign gives the live endpoints their slots, as far as something changed, and
// reports whether the table did. It costs what changed, apart from a few copies.
func (b *bindings) assign(now time.Time, drain time.Duration) bool {
	drained := !b.due.IsZero() && !now.Before(b.due)
	switch {
	case b.from == fromSnapshots:
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
func (b *bindings) noteMoved(key bind.SlotKey, old, group []bind.Slot, now time.Time) {
	if _, had := b.slots[key]; had && !slices.Equal(old, group) {
		b.moved[key.Backend] = now
	}
}

func (b *bindings) forgetMoved(now time.Time) {
	maps.DeleteFunc(b.moved, func(_ string, at time.Time) bool { return now.Sub(at) > longestMoved })
}

// nextDrain returns when the next slot is drained. One that should be already, but
// whose endpoints nobody knows, is looked at again after a while.
func (b *bindings) nextDrain(now time.Time) time.Time {
	due, drains := b.slots.NextDrain()
	if drains && !due.After(now) {
		return now.Add(time.Second)
	}
	return due
}

// assignAll assigns the slots of all directives.
func (b *bindings) assignAll(now time.Time, drain time.Duration) bool {
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
		if p.recorded || !p.known || p.err != nil || (!changed && p.servers != nil) {
			continue
		}
		p.bindAll(next)
		b.prepared[id] = p
	}
	return changed
}

// assignSome assigns the slots of the directives that join some Services.
func (b *bindings) assignSome(services map[snapshots.ServicePort]bool, now time.Time, drain time.Duration) bool {
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
		case p.recorded || p.err != nil || p.servers == nil:
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
func (b *bindings) directives() []bind.Directive {
	var out []bind.Directive
	for _, id := range slices.SortedFunc(maps.Keys(b.prepared), snapshots.ID.Compare) {
		if p := b.prepared[id]; !p.recorded {
			out = append(out, p.directives...)
		}
	}
	return out
}

// joining returns those directives that join some Services.
func (b *bindings) joining(services map[snapshots.ServicePort]bool) []bind.Directive {
	var out []bind.Directive
	for _, id := range slices.SortedFunc(maps.Keys(b.prepared), snapshots.ID.Compare) {
		p := b.prepared[id]
		for _, service := range slices.SortedFunc(maps.Keys(services), snapshots.ServicePort.Compare) {
			for _, n := range p.byService[service] {
				if !p.recorded {
					out = append(out, p.directives[n])
				}
			}
		}
	}
	return out
}

// assignable leaves out the directives whose endpoints are not known: they keep the
// slots that they have, if there are any.
func (b *bindings) assignable(directives []bind.Directive) []bind.Directive {
	if b.read == nil {
		return directives
	}
	return slices.DeleteFunc(slices.Clone(directives), func(d bind.Directive) bool {
		_, assigned := b.slots[d.Key()]
		return assigned && !b.read(d.Service.Namespace)
	})
}

// prune drops the slots of backends that no snapshot in use has.
func (b *bindings) prune() {
	if b.from == fromSnapshots {
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

// BackendsStatus says which backends of the snapshot that should run have no server up.
type BackendsStatus struct {
	// All is how many backends have servers that endpoints are given to, and Empty how
	// many of them have no server up. Failing is how many of these have endpoints, none of
	// which passes its checks.
	All     int `json:"all"`
	Empty   int `json:"empty"`
	Failing int `json:"failing,omitempty"`
	// List are the first of those, by name.
	List []EmptyBackend `json:"list,omitempty"`
}

// EmptyBackend is a backend without a server up.
type EmptyBackend struct {
	Backend string `json:"backend"`
	// Since is when the pusher saw it first.
	Since time.Time `json:"since"`
	// Instances are those on which no server passes its checks, though there are
	// endpoints; none where there are no endpoints, which is so on all.
	Instances []string `json:"instances,omitempty"`
}

// mostEmpty is how many the status lists.
const mostEmpty = 100

// withoutEndpoints returns which backends of the directives there are, and whether one
// has no endpoint in any of its slots. An endpoint that is gone and drains is none.
func withoutEndpoints(directives []bind.Directive, slots bind.Slots) map[string]bool {
	out := map[string]bool{}
	for _, d := range directives {
		if empty, known := out[d.Backend]; known && !empty {
			continue
		}
		out[d.Backend] = !slices.ContainsFunc(slots[d.Key()], func(s bind.Slot) bool {
			return s.State != bind.SlotSpare && s.Until.IsZero()
		})
	}
	return out
}

// emptiness follows which backends have no server up, and since when.
type emptiness struct {
	of      snapshots.ID
	servers *bind.Server    // with which it was found out
	empty   map[string]bool // all backends, true for those without endpoints
	since   map[string]time.Time
}

func newEmptiness(before *BackendsStatus) emptiness {
	out := emptiness{since: map[string]time.Time{}}
	if before != nil {
		for _, b := range before.List {
			out.since[b.Backend] = b.Since
		}
	}
	return out
}

// follow returns what there is to say now. Down are the backends of which no server
// passes its checks, by instance.
func (x *emptiness) follow(down map[string][]string, now time.Time) *BackendsStatus {
	out := BackendsStatus{All: len(x.empty)}
	on := map[string][]string{}
	for _, instance := range slices.Sorted(maps.Keys(down)) {
		for _, backend := range down[instance] {
			if _, ours := x.empty[backend]; ours {
				on[backend] = append(on[backend], instance)
			}
		}
	}
	since := map[string]time.Time{}
	for backend, empty := range x.empty {
		if !empty && len(on[backend]) == 0 {
			continue
		}
		b := EmptyBackend{Backend: backend, Since: now.UTC().Truncate(time.Second)}
		if at, known := x.since[backend]; known {
			b.Since = at
		}
		if !empty {
			b.Instances = on[backend]
			out.Failing++
		}
		since[backend] = b.Since
		out.List = append(out.List, b)
	}
	x.since = since
	slices.SortFunc(out.List, func(a, b EmptyBackend) int {
		if a.Backend < b.Backend {
			return -1
		}
		return 1
	})
	out.Empty = len(out.List)
	out.List = out.List[:min(len(out.List), mostEmpty)]
	return &out
}

// backendsStatus returns which backends have no server up of the snapshot that should
// run, or of the last good one while that waits; nil while nothing is known.
func (e *engine) backendsStatus(now time.Time) *BackendsStatus {
	id := e.target()
	if p, atHand := e.bindings.prepared[id]; !atHand || !p.known || len(e.lacks()) > 0 {
		id = e.state.Rollout.Good
	}
	p, atHand := e.bindings.prepared[id]
	if !atHand || !p.known || len(p.servers) == 0 {
		return nil
	}
	if x := &e.emptiness; x.of != id || x.servers != &p.servers[0] {
		slots := e.bindings.slots
		if p.recorded {
			slots = p.slots
		}
		x.of, x.servers, x.empty = id, &p.servers[0], withoutEndpoints(p.directives, slots)
	}
	down := map[string][]string{}
	for name, i := range e.instances {
		if s := i.samples.last(i.started); i.reachable() && s.PID == i.info.PID {
			down[name] = s.Down
		}
	}
	return e.emptiness.follow(down, now)
}

// gauges returns how many backends have no endpoints, and how many have only such that
// fail their checks.
func (s *BackendsStatus) gauges() (withoutEndpoints, failing int) {
	if s == nil {
		return 0, 0
	}
	return s.Empty - s.Failing, s.Failing
}
