// Package binding joins the snapshots in use with live data for each layout of instances, and
// caches the parts that do not change with every endpoint.
//
// [Sources] takes endpoints and Secrets from a directory or a cluster, and decides which of them
// to believe. It does not believe that many endpoints were lost at once. It refuses addresses that
// no Service may have. While a Secret is broken, it keeps its last usable certificate. [Bindings]
// gives the endpoints slots, and computes the node name that the worker of an instance should
// have, which shows whether a reload is needed. [Cache] holds the snapshots that were read.
//
// The package reads no clock, starts no goroutine and makes no calls, apart from [WatchObjects],
// which reads the directory. It does not know instances, nor which snapshot should run.
package binding

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"
	"weak"

	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// Bindings joins the snapshots in use with live data, and caches what does not change with every
// endpoint. The name of a node shows whether a worker needs a reload. It changes only with Secrets
// and with the number of slots.
type Bindings struct {
	binder bind.Binder
	slots  bind.Slots
	// edition counts the changes of the slots.
	edition int
	live    bind.Live
	from    Source
	// offered are the certificates that the Secrets hold. renewals says which earlier certificates
	// are served in their place.
	offered  map[snapshots.SecretName][]byte
	renewals renewals
	// expiry says when the live certificates expire.
	expiry expiry[snapshots.SecretName]
	// secrets are the versions of the offered certificates. versionExpiry says when the versions
	// expire that were read.
	secrets       versions
	versionExpiry expiry[string]

	// What Assign still has to do: assign everything, assign the slots of these Services, end the
	// drains that are due.
	stale   bool
	changed map[snapshots.ServicePort]bool
	due     time.Time
	// moved says when the endpoints of each backend changed, for changes in the last hour. After a
	// restart, it has the changes since the previous process saved its slots. copied is set if it was
	// copied in this turn.
	moved  map[string]time.Time
	copied bool
	// refusals decides which recorded endpoints are refused.
	refusals Refusals
	// crowded are the live endpoints for which no slot is left.
	crowded RefusedEndpoints
	// read reports whether the endpoints of a namespace are known. If it is nil, those of all
	// namespaces are.
	read func(namespace string) bool

	expiries int // counts the changes of the times when certificates expire
	shapes   int // counts the changes that can change a node
	record   func(RecordedNode)
	replay   *Replay // nil if nodes are bound and not replayed
	prepared map[snapshots.ID]Prepared
	nodes    map[nodeKey]Node
	shared   map[nodeKey]weak.Pointer[sharedBound]
}

// nodeKey names a snapshot together with the layout of the instances that get it.
type nodeKey struct {
	id     snapshots.ID
	layout bind.Layout
}

// Node is what is known about a snapshot that is bound for instances of a layout.
type Node struct {
	shapes       int
	Name         string
	shape        snapshots.Digest
	Entries      snapshots.Digest // the entries of its maps
	Missing      []bind.Need
	Certificates push.CertificateHashes
	Files        []push.Stored
	Err          error
}

// New returns bindings that begin with the slots which the previous pusher assigned.
func New(slots bind.Slots, from Source, r Refusals) *Bindings {
	return &Bindings{
		slots: slots, from: from, refusals: r, crowded: RefusedEndpoints{}, changed: map[snapshots.ServicePort]bool{},
		moved:    map[string]time.Time{},
		prepared: map[snapshots.ID]Prepared{}, nodes: map[nodeKey]Node{},
	}
}

// Of returns the prepared form of a snapshot in use. It returns false if the snapshot was not read.
func (b *Bindings) Of(id snapshots.ID) (Prepared, bool) {
	p, atHand := b.prepared[id]
	return p, atHand
}

// All returns the prepared forms of the snapshots in use that were read, sorted.
func (b *Bindings) All() iter.Seq2[snapshots.ID, Prepared] {
	return func(yield func(snapshots.ID, Prepared) bool) {
		for _, id := range slices.SortedFunc(maps.Keys(b.prepared), snapshots.ID.Compare) {
			if !yield(id, b.prepared[id]) {
				return
			}
		}
	}
}

// Table returns the slots of live endpoints, and when the next drain of a slot ends, zero for never.
func (b *Bindings) Table() (slots bind.Slots, drained time.Time) { return b.slots, b.due }

// Edition changes whenever the slots change.
func (b *Bindings) Edition() int { return b.edition }

// Moved returns when the endpoints of backends changed, for changes in the last hour. The map does not change later.
func (b *Bindings) Moved() map[string]time.Time { return b.moved }

// use brings the prepared snapshots in line with those in use, and reports whether they changed. Slots are assigned anew only
// if a haproxy.cfg is new: most snapshots differ from the one before in maps.
func (b *Bindings) use(have map[snapshots.ID]snapshots.Snapshot) bool {
	changed := false
	for id := range b.prepared {
		if _, ok := have[id]; !ok {
			delete(b.prepared, id)
			maps.DeleteFunc(b.nodes, func(k nodeKey, _ Node) bool { return k.id == id })
			maps.DeleteFunc(b.shared, func(k nodeKey, _ weak.Pointer[sharedBound]) bool { return k.id == id })
			changed = true
		}
	}
	for id, s := range have {
		if _, ok := b.prepared[id]; !ok {
			b.prepared[id] = b.prepare(s)
			changed = true
		}
	}
	return changed
}

// prepare prepares a snapshot, with the servers of another one that has the same haproxy.cfg if there is any.
func (b *Bindings) prepare(s snapshots.Snapshot) Prepared {
	twin, known := b.like(s)
	if !known {
		twin.ofConfig = readConfig(s.Config())
	}
	p := prepare(s, twin.ofConfig, b.from.recorded(s), &b.refusals)
	p.Known = b.from != FromCluster
	if b.from.sourceless(s) {
		p.Known, p.Lacks = false, []string{ErrNoSource.Error()}
	}
	switch {
	case p.Recorded:
	case twin.bound() && p.Err == nil:
		p.Servers, p.places = twin.Servers, twin.places
	default:
		b.stale = true
	}
	return p
}

// like returns a snapshot in use with the same haproxy.cfg, one whose servers are bound to live endpoints if there is any.
func (b *Bindings) like(s snapshots.Snapshot) (twin Prepared, known bool) {
	for _, p := range b.prepared {
		switch {
		case !bytes.Equal(p.Snapshot.Config(), s.Config()):
		case p.bound():
			return p, true
		default:
			twin, known = p, true
		}
	}
	return twin, known
}

// setLive takes new live data, and reports whether the content of a Secret changed.
func (b *Bindings) setLive(live bind.Live, now time.Time) bool {
	live.Expired, live.ExpiredVersions, live.Versions, live.Unread = b.live.Expired, b.live.ExpiredVersions, b.live.Versions, b.live.Unread
	offered := !maps.EqualFunc(b.offered, live.Certificates, bytes.Equal)
	b.offered = live.Certificates
	live.Certificates, b.renewals = b.renewals.settle(b.offered, now)
	changed := !sameSecrets(b.live, live)
	b.live = live
	if changed {
		b.shapes++
		b.expiry = b.expiry.follow(live.Certificates)
		b.expiries++
		b.lookAtExpiry(now)
	}
	if changed || offered {
		b.gatherVersions(now)
	}
	return changed
}

// sameSecrets reports whether both have the same data from Secrets.
func sameSecrets(a, b bind.Live) bool {
	return maps.EqualFunc(a.Certificates, b.Certificates, bytes.Equal) &&
		maps.EqualFunc(a.Authorities, b.Authorities, bytes.Equal) &&
		maps.EqualFunc(a.Users, b.Users, slices.Equal[[]htpasswd.User]) &&
		maps.Equal(a.Values, b.Values)
}

// binding returns the inputs for binding a snapshot for an instance. It returns false if the snapshot
// was not read, or if something that it needs is not known yet.
func (b *Bindings) binding(id snapshots.ID, layout bind.Layout) (bind.Inputs, bool) {
	p, ok := b.prepared[id]
	slots := b.slots
	if p.Recorded {
		slots = p.Slots
	}
	live := b.live
	live.Endpoints = nil // the slots have all endpoints, and binding does not need them
	return bind.Inputs{Live: live, Slots: slots, Layout: layout}, ok && p.Known
}

// AwaitsCluster reports whether a snapshot was read, but not yet everything that it needs from the
// cluster.
func (b *Bindings) AwaitsCluster(id snapshots.ID) bool {
	p, atHand := b.prepared[id]
	return atHand && !p.Known
}

// RuntimeUpdate reports whether a worker that runs one snapshot, as it is bound now, can change to
// another one without a reload. If the certificates differ, it needs a reload: HAProxy then checks
// the new ones before the snapshot counts as applied.
func (b *Bindings) RuntimeUpdate(node string, from, to snapshots.ID, layout bind.Layout) bool {
	x, known := b.Node(from, layout)
	y, also := b.Node(to, layout)
	return known && also && x.Err == nil && y.Err == nil && b.Complete(to) &&
		bind.SameNode(x.Name, node) && x.shape == y.shape &&
		maps.Equal(x.Certificates, y.Certificates)
}

// Node returns the node that the worker of an instance should name for the snapshot.
func (b *Bindings) Node(id snapshots.ID, layout bind.Layout) (Node, bool) {
	key := nodeKey{id, layout}
	inputs, ok := b.binding(id, layout)
	if !ok {
		return Node{}, false
	}
	if n, ok := b.nodes[key]; ok && n.shapes == b.shapes {
		return n, true
	}
	if b.replay != nil {
		n := b.replay.node(key)
		n.shapes, b.nodes[key] = b.shapes, n
		return n, true
	}
	bound, err := b.share(b.prepared[id], inputs).bind()
	n := Node{shapes: b.shapes, Name: bound.Node, shape: bound.Shape, Entries: bound.Entries, Missing: bound.Missing, Err: err, Certificates: push.Hashes(bound)}
	for _, f := range bound.Files {
		if f.Kind != bind.CertificateFile {
			n.Files = append(n.Files, push.Stored{Kind: f.Kind, Name: f.Name})
		}
	}
	b.nodes[key] = n
	if b.record != nil {
		r := RecordedNode{
			Snapshot: key.id, Layout: key.layout, Name: n.Name, Shape: n.shape, Entries: n.Entries, Missing: n.Missing,
			Certificates: n.Certificates, Files: n.Files,
		}
		if n.Err != nil {
			r.Err = n.Err.Error()
		}
		b.record(r)
	}
	return n, true
}

// learn notes which parts of the cluster are known.
func (b *Bindings) learn(s cluster.Status) {
	was := b.read
	b.read = s.Read
	if unread := s.DeniedSecrets(); !maps.Equal(unread, b.live.Unread) {
		b.live.Unread = unread
		b.shapes++
	}
	for id, p := range b.prepared {
		known := s.Knows(p.wants)
		b.stale = b.stale || p.Known != known && p.Servers == nil || was == nil ||
			slices.ContainsFunc(p.wants.Namespaces, func(n string) bool { return was(n) != s.Read(n) })
		p.Known, p.Lacks = known, s.Denied(p.wants)
		b.prepared[id] = p
	}
}

// Unbound is a snapshot for an instance, with the inputs for binding it at the time of the
// decision. Binding a large snapshot is slow, so the job that carries out the effect does it.
// Unbound is a value.
type Unbound struct {
	ID     snapshots.ID
	shared *sharedBound // nil if the snapshot was not read
}

// Unbound returns a snapshot for an instance, with the current inputs.
func (b *Bindings) Unbound(id snapshots.ID, layout bind.Layout) Unbound {
	inputs, known := b.binding(id, layout)
	if !known {
		return Unbound{ID: id}
	}
	return Unbound{ID: id, shared: b.share(b.prepared[id], inputs)}
}

// Bind binds the snapshot. Instances of a layout share the result, which must not be changed.
func (u Unbound) Bind() (bind.Bound, error) {
	if u.shared == nil {
		return bind.Bound{}, fmt.Errorf("snapshot %s was not read yet", u.ID)
	}
	return u.shared.bind()
}

// errAbsent is the error of BindWhole if a certificate is missing.
var errAbsent = errors.New("a certificate that it names is missing")

// BindWhole is Bind for a push, which must not leave out a certificate.
func (u Unbound) BindWhole() (bind.Bound, error) {
	bound, err := u.Bind()
	if err == nil && len(bound.Absent) > 0 {
		err = fmt.Errorf("push %s: %w: %s", bound.ID, errAbsent, bound.Absent[0])
	}
	return bound, err
}

// Assign gives the live endpoints their slots, and reports whether any slot changed. Apart from a
// few copies, its cost depends on the changes only.
func (b *Bindings) Assign(now time.Time, drain time.Duration) bool {
	b.copied = false
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

// longestMoved is how long a change of endpoints is remembered.
const longestMoved = time.Hour

// noteMoved notes that the endpoints of a backend changed. It ignores a backend that had no slots
// before, and the end of a drain, whose endpoint was gone before.
func (b *Bindings) noteMoved(key bind.SlotKey, old, group []bind.Slot, now time.Time) {
	gone := func(s bind.Slot) bool { return s.State == bind.SlotSpare || !s.Until.IsZero() }
	same := func(x, y bind.Slot) bool { return x == y || gone(x) && gone(y) }
	if _, had := b.slots[key]; had && !slices.EqualFunc(old, group, same) {
		b.setMoved(key.Backend, now)
	}
}

// setMoved notes when the endpoints of a backend changed. The first change of a turn copies the map, since updates of
// instances read the previous one.
func (b *Bindings) setMoved(backend string, now time.Time) {
	if !b.copied {
		b.moved, b.copied = maps.Clone(b.moved), true
	}
	b.moved[backend] = now
}

// forgetMoved forgets changes that are long past.
func (b *Bindings) forgetMoved(now time.Time) {
	kept := maps.Clone(b.moved)
	maps.DeleteFunc(kept, func(_ string, at time.Time) bool { return now.Sub(at) > longestMoved })
	b.moved = kept
}

// nextDrain returns when the next drain of a slot ends. If a drain is over but the endpoints of its
// backend are not known, it returns a later time, at which the bindings look again.
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
	clear(b.crowded)
	next := b.assigned(b.assignable(b.directives()), now, drain)
	if !maps.EqualFunc(b.slots, next, func(x, y []bind.Slot) bool { return len(x) == len(y) }) {
		b.shapes++
	}
	changed := !maps.EqualFunc(b.slots, next, slices.Equal[[]bind.Slot])
	for key, group := range next {
		b.noteMoved(key, b.slots[key], group, now)
	}
	for key := range b.slots {
		if _, stays := next[key]; !stays {
			b.setMoved(key.Backend, now)
		}
	}
	b.forgetMoved(now)
	if changed {
		b.takeSlots(next)
	}
	b.due = b.nextDrain(now)
	for id, p := range b.prepared {
		if p.Recorded || p.Err != nil || !p.Known && !p.bound() || !changed && p.bound() {
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
	maps.DeleteFunc(b.crowded, func(port snapshots.ServicePort, _ []live.Refused) bool { return services[port] })
	next := b.assigned(directives, now, drain)
	changed, grown := false, false
	for _, d := range directives {
		old, group := b.slots[d.Key()], next[d.Key()]
		b.noteMoved(d.Key(), old, group, now)
		changed, grown = changed || !slices.Equal(old, group), grown || len(old) != len(group)
		if until, drains := (bind.Slots{d.Key(): group}).NextDrain(); drains && (b.due.IsZero() || until.Before(b.due)) {
			b.due = until
		}
	}
	if !changed {
		return false
	}
	b.takeSlots(next)
	if grown {
		b.shapes++
	}
	for id, p := range b.prepared {
		switch {
		case !p.bound():
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

// assigned returns the table with slots for the endpoints of some directives. No snapshot in use gets more than it may have.
func (b *Bindings) assigned(directives []bind.Directive, now time.Time, drain time.Duration) bind.Slots {
	next, grown := bind.AssignSlots(b.slots, directives, b.live.Endpoints, now, drain)
	if len(grown) == 0 && len(next) == len(b.slots) {
		return next
	}
	room := bind.Room{}
	for _, p := range b.prepared {
		if p.Recorded {
			continue
		}
		for namespace, n := range p.room(b.slots, next) {
			if most, limited := room[namespace]; !limited || n < most {
				room[namespace] = n
			}
		}
	}
	if len(room) == 0 {
		return next
	}
	next, _ = room.AssignSlots(b.slots, directives, b.live.Endpoints, now, drain)
	limited := slices.DeleteFunc(slices.Clone(directives), func(d bind.Directive) bool { _, is := room[d.Service.Namespace]; return !is })
	noteCrowded(b.crowded, limited, next, b.live.Endpoints)
	return next
}

// directives returns the directives of all snapshots in use. If several snapshots have a backend in
// common, they share its slots.
func (b *Bindings) directives() []bind.Directive {
	var out []bind.Directive
	for _, id := range slices.SortedFunc(maps.Keys(b.prepared), snapshots.ID.Compare) {
		if p := b.prepared[id]; !p.Recorded {
			out = append(out, p.Directives...)
		}
	}
	return out
}

// joining returns those directives that get the endpoints of some Services.
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

// assignable returns the directives whose endpoints are known. All others keep their slots, if they
// have any.
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
	if len(next) < len(b.slots) {
		b.takeSlots(next)
		b.stale = b.stale || len(b.crowded) > 0 // there may be room
	}
}

// takeSlots takes slots that differ from the ones before.
func (b *Bindings) takeSlots(next bind.Slots) { b.slots, b.edition = next, b.edition+1 }
