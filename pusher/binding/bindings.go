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

	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
)

// Bindings joins the snapshots in use with live data, and caches what does not change with every
// endpoint. The node, which shows whether a reload is needed, changes only with the number of slots
// and with Secrets.
type Bindings struct {
	binder bind.Binder
	slots  bind.Slots
	live   bind.Live
	from   Source
	// offered are the certificates that the Secrets hold. renewals says which earlier ones are served
	// in their place.
	offered  map[snapshots.SecretName][]byte
	renewals renewals
	// expiry is the expiry of the live certificates.
	expiry expiry[snapshots.SecretName]
	// secrets are the versions of the offered certificates. versionExpiry is the expiry of the versions
	// that were read.
	secrets       versions
	versionExpiry expiry[string]

	// What Assign has to do: assign everything, assign these Services, and end the drains that are due.
	stale   bool
	changed map[snapshots.ServicePort]bool
	due     time.Time
	// moved is when the endpoints of a backend changed, for changes in the last hour. A process that
	// has just started finds the changes since the previous one.
	moved map[string]time.Time
	// refusals are for recorded endpoints.
	refusals Refusals
	// read reports whether the endpoints of a namespace are known. With nil they all are.
	read func(namespace string) bool

	expiries int // counts the changes of when certificates expire
	shapes   int // counts the changes that can change a node
	record   func(RecordedNode)
	replay   *Replay // nil: nodes are bound
	prepared map[snapshots.ID]Prepared
	nodes    map[nodeKey]Node
}

// nodeKey names a snapshot on instances with a layout.
type nodeKey struct {
	id     snapshots.ID
	layout bind.Layout
}

// Node is what is known of a snapshot bound for instances with a layout.
type Node struct {
	shapes       int
	Name         string
	shape        snapshots.Digest
	Entries      snapshots.Digest // of maps
	Missing      []bind.Need
	Certificates push.Known
	Files        []push.Stored
	Err          error
}

// New begins with the slots that the previous pusher assigned.
func New(slots bind.Slots, from Source, r Refusals) *Bindings {
	return &Bindings{
		slots: slots, from: from, refusals: r, changed: map[snapshots.ServicePort]bool{},
		moved:    map[string]time.Time{},
		prepared: map[snapshots.ID]Prepared{}, nodes: map[nodeKey]Node{},
	}
}

// Of returns what is known of a snapshot in use. It returns false if it was not read.
func (b *Bindings) Of(id snapshots.ID) (Prepared, bool) {
	p, atHand := b.prepared[id]
	return p, atHand
}

// All returns what is known of the snapshots in use that were read, sorted.
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

// Moved returns when the endpoints of backends changed, for changes in the last hour.
func (b *Bindings) Moved() map[string]time.Time { return b.moved }

// use brings the prepared snapshots in line with those in use, and reports
// whether they changed.
func (b *Bindings) use(have map[snapshots.ID]snapshots.Snapshot) bool {
	changed := false
	for id := range b.prepared {
		if _, ok := have[id]; !ok {
			delete(b.prepared, id)
			maps.DeleteFunc(b.nodes, func(k nodeKey, _ Node) bool { return k.id == id })
			changed = true
		}
	}
	for id, s := range have {
		if _, ok := b.prepared[id]; !ok {
			p := prepare(s, b.from.recorded(s), &b.refusals)
			p.Known = b.from != FromCluster
			if b.from.sourceless(s) {
				p.Known, p.Lacks = false, []string{ErrNoSource.Error()}
			}
			b.prepared[id] = p
			changed = true
		}
	}
	return changed
}

// setLive takes new live data, and reports whether something of Secrets changed.
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

// sameSecrets reports whether all data from Secrets is the same.
func sameSecrets(a, b bind.Live) bool {
	return maps.EqualFunc(a.Certificates, b.Certificates, bytes.Equal) &&
		maps.EqualFunc(a.Authorities, b.Authorities, bytes.Equal) &&
		maps.EqualFunc(a.Users, b.Users, slices.Equal[[]htpasswd.User]) &&
		maps.Equal(a.Values, b.Values)
}

// binding returns a snapshot and the inputs for binding it for an instance. It returns false if the
// snapshot was not read, or what it needs is not known yet.
func (b *Bindings) binding(id snapshots.ID, layout bind.Layout) (snapshots.Snapshot, bind.Inputs, bool) {
	p, ok := b.prepared[id]
	slots := b.slots
	if p.Recorded {
		slots = p.Slots
	}
	live := b.live
	live.Endpoints = nil // which change, and are all in the slots
	return p.Snapshot, bind.Inputs{Live: live, Slots: slots, Layout: layout}, ok && p.Known
}

// Unknown reports whether a snapshot was read, but not yet all that it needs of the cluster.
func (b *Bindings) Unknown(id snapshots.ID) bool {
	p, atHand := b.prepared[id]
	return atHand && !p.Known
}

// RuntimeUpdate reports whether a worker that runs one snapshot as it is bound now can be brought to
// another without a reload. Snapshots with other certificates need a reload, so that HAProxy checks
// these before the snapshot counts as applied.
func (b *Bindings) RuntimeUpdate(node string, from, to snapshots.ID, layout bind.Layout) bool {
	x, known := b.Node(from, layout)
	y, also := b.Node(to, layout)
	return known && also && x.Err == nil && y.Err == nil && b.Complete(to) &&
		bind.SameNode(x.Name, node) && x.shape == y.shape &&
		maps.Equal(x.Certificates, y.Certificates)
}

// Node returns what the worker of an instance should name for the snapshot.
func (b *Bindings) Node(id snapshots.ID, layout bind.Layout) (Node, bool) {
	key := nodeKey{id, layout}
	snapshot, binding, ok := b.binding(id, layout)
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
	bound, err := b.binder.Bind(snapshot, binding)
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
		b.stale = b.stale || p.Known != known || was == nil ||
			slices.ContainsFunc(p.wants.Namespaces, func(n string) bool { return was(n) != s.Read(n) })
		p.Known, p.Lacks = known, s.Denied(p.wants)
		b.prepared[id] = p
	}
}

// Unbound is a snapshot for an instance, with the inputs for binding it as they were when that was
// decided. Binding is slow for a large snapshot, so the job of an effect does it. Unbound is a value.
type Unbound struct {
	ID       snapshots.ID
	binder   *bind.Binder
	snapshot snapshots.Snapshot
	inputs   bind.Inputs
	known    bool
}

// Unbound returns a snapshot for an instance with the inputs that are known now.
func (b *Bindings) Unbound(id snapshots.ID, layout bind.Layout) Unbound {
	snapshot, inputs, known := b.binding(id, layout)
	return Unbound{ID: id, binder: &b.binder, snapshot: snapshot, inputs: inputs, known: known}
}

// Bind binds the snapshot.
func (u Unbound) Bind() (bind.Bound, error) {
	if !u.known {
		return bind.Bound{}, fmt.Errorf("snapshot %s was not read yet", u.ID)
	}
	return u.binder.Bind(u.snapshot, u.inputs)
}

// errAbsent is the error of BindWhole.
var errAbsent = errors.New("a certificate that it names is missing")

// BindWhole is Bind for a push that must not leave out a certificate.
func (u Unbound) BindWhole() (bind.Bound, error) {
	bound, err := u.Bind()
	if err == nil && len(bound.Absent) > 0 {
		err = fmt.Errorf("push %s: %w: %s", bound.ID, errAbsent, bound.Absent[0])
	}
	return bound, err
}

// Assign gives the live endpoints their slots, and reports whether the table changed. Apart from a few
// copies, it costs only what the changes need.
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

// longestMoved is how long changes of endpoints are remembered.
const longestMoved = time.Hour

// noteMoved notes that the endpoints of a backend changed. It ignores a backend that is new in the
// slots.
func (b *Bindings) noteMoved(key bind.SlotKey, old, group []bind.Slot, now time.Time) {
	if _, had := b.slots[key]; had && !slices.Equal(old, group) {
		b.moved[key.Backend] = now
	}
}

// nextDrain returns when the next drain of a slot ends. If the drain should have ended, but the
// endpoints of the backend are not known, it returns a later time to look again.
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
	maps.DeleteFunc(b.moved, func(_ string, at time.Time) bool { return now.Sub(at) > longestMoved })
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

// directives returns the directives of all snapshots in use. Snapshots share the slots of backends
// that they have in common.
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

// assignable leaves out directives whose endpoints are not known. They keep their slots, if any.
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
