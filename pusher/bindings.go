package pusher

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
)

// endpointsFrom says where the endpoints of snapshots come from.
type endpointsFrom int

const (
	fromDirectory endpointsFrom = iota // live ones, whatever is recorded
	fromSnapshots                      // those that are recorded
	fromCluster                        // live ones, unless some are recorded
)

// recorded reports whether a snapshot gets the endpoints that are recorded in it.
func (f endpointsFrom) recorded(s snapshots.Snapshot) bool {
	_, has := s.File(snapshots.EndpointsFile)
	return f == fromSnapshots || f == fromCluster && has
}

// bindings joins the snapshots in use with live data, and remembers what does not
// change with every endpoint: the node, which tells whether a reload is needed,
// only changes with the number of slots and with Secrets.
type bindings struct {
	binder bind.Binder
	slots  bind.Slots
	live   bind.Live
	from   endpointsFrom
	// offered are the certificates that the Secrets hold; renewals says which of those before
	// are served in their place.
	offered  map[snapshots.SecretName][]byte
	renewals renewals
	// expiry is that of the live certificates.
	expiry expiry[snapshots.SecretName]
	// secrets are the versions of the certificates that are offered, versionExpiry is that of the
	// versions at hand.
	secrets       versions
	versionExpiry expiry[string]

	// What there is to assign: everything, what these Services have, and the slots
	// that are drained when it is due.
	stale   bool
	changed map[snapshots.ServicePort]bool
	due     time.Time
	// moved is when the endpoints of a backend changed, of those where that was in the
	// last hour. A process that has just started finds what changed since the last one.
	moved map[string]time.Time
	// refusals are those of recorded endpoints.
	refusals refusals
	// read reports whether the endpoints of a namespace are known; nil: of all.
	read func(namespace string) bool

	shapes   int // counts the changes that can change a node
	prepared map[snapshots.ID]prepared
	nodes    map[nodeKey]nodeOf
}

type nodeKey struct {
	id     snapshots.ID
	layout bind.Layout
}

type nodeOf struct {
	shapes       int
	node         string
	shape        snapshots.Digest
	entries      snapshots.Digest // of maps
	missing      []bind.Need
	certificates push.Known
	files        []push.Stored
	err          error
}

func newBindings(slots bind.Slots, from endpointsFrom) *bindings {
	return &bindings{
		slots: slots, from: from, changed: map[snapshots.ServicePort]bool{},
		moved:    map[string]time.Time{},
		prepared: map[snapshots.ID]prepared{}, nodes: map[nodeKey]nodeOf{},
	}
}

// use brings the prepared snapshots in line with those in use, and reports
// whether they changed.
func (b *bindings) use(have map[snapshots.ID]snapshots.Snapshot) bool {
	changed := false
	for id := range b.prepared {
		if _, ok := have[id]; !ok {
			delete(b.prepared, id)
			maps.DeleteFunc(b.nodes, func(k nodeKey, _ nodeOf) bool { return k.id == id })
			changed = true
		}
	}
	for id, s := range have {
		if _, ok := b.prepared[id]; !ok {
			p := prepare(s, b.from.recorded(s), &b.refusals)
			p.known = b.from != fromCluster
			if b.from.sourceless(s) {
				p.known, p.lacks = false, []string{errNoSource.Error()}
			}
			b.prepared[id] = p
			changed = true
		}
	}
	return changed
}

// setLive takes new live data, and reports whether something of Secrets changed.
func (b *bindings) setLive(live bind.Live, now time.Time) bool {
	live.Expired, live.ExpiredVersions, live.Versions = b.live.Expired, b.live.ExpiredVersions, b.live.Versions
	offered := !maps.EqualFunc(b.offered, live.Certificates, bytes.Equal)
	b.offered = live.Certificates
	live.Certificates, b.renewals = b.renewals.settle(b.offered, now)
	changed := !sameSecrets(b.live, live)
	b.live = live
	if changed {
		b.shapes++
		b.expiry = b.expiry.follow(live.Certificates)
		b.lookAtExpiry(now)
	}
	if changed || offered {
		b.gatherVersions(now)
	}
	return changed
}

// sameSecrets reports whether all that comes from Secrets is the same.
func sameSecrets(a, b bind.Live) bool {
	return maps.EqualFunc(a.Certificates, b.Certificates, bytes.Equal) &&
		maps.EqualFunc(a.Authorities, b.Authorities, bytes.Equal) &&
		maps.EqualFunc(a.Users, b.Users, slices.Equal[[]htpasswd.User]) &&
		maps.Equal(a.Values, b.Values)
}

// binding returns what the snapshot is bound with for an instance, unless it is not
// at hand, or what it needs is not known yet.
func (b *bindings) binding(id snapshots.ID, layout bind.Layout) (snapshots.Snapshot, bind.Inputs, bool) {
	p, ok := b.prepared[id]
	slots := b.slots
	if p.recorded {
		slots = p.slots
	}
	live := b.live
	live.Endpoints = nil // which change, and are all in the slots
	return p.snapshot, bind.Inputs{Live: live, Slots: slots, Layout: layout}, ok && p.known
}

// light reports whether a worker that runs one snapshot as it is bound now can be brought
// to another without a reload. Where certificates are of the snapshot, HAProxy is to judge
// them before anything counts as applied, so other ones are loaded.
func (b *bindings) light(node string, from, to snapshots.ID, layout bind.Layout) bool {
	x, known := b.node(from, layout)
	y, also := b.node(to, layout)
	return known && also && x.err == nil && y.err == nil && b.complete(to) &&
		bind.SameNode(x.node, node) && x.shape == y.shape &&
		maps.Equal(x.certificates, y.certificates)
}

// node returns what the worker of an instance should name for the snapshot.
func (b *bindings) node(id snapshots.ID, layout bind.Layout) (nodeOf, bool) {
	key := nodeKey{id, layout}
	snapshot, binding, ok := b.binding(id, layout)
	if !ok {
		return nodeOf{}, false
	}
	if n, ok := b.nodes[key]; ok && n.shapes == b.shapes {
		return n, true
	}
	bound, err := b.binder.Bind(snapshot, binding)
	n := nodeOf{shapes: b.shapes, node: bound.Node, shape: bound.Shape, entries: bound.Entries, missing: bound.Missing, err: err, certificates: push.Hashes(bound)}
	for _, f := range bound.Files {
		if f.Kind != bind.CertificateFile {
			n.files = append(n.files, push.Stored{Kind: f.Kind, Name: f.Name})
		}
	}
	b.nodes[key] = n
	return n, true
}
