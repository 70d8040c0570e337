package pusher

import (
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/snapshots"
)

// bindings joins the snapshots in use with live data, and remembers what does not
// change with every endpoint: the node, which tells whether a reload is needed,
// only changes with the number of slots and with Secrets.
type bindings struct {
	slots snapshots.Slots
	live  snapshots.Live
	// expiry is that of the live certificates.
	expiry expiry[snapshots.SecretName]
	// secrets are the versions of the live certificates, versionExpiry is that of the
	// versions at hand.
	secrets       versions
	versionExpiry expiry[string]
	// recorded: the endpoints are those in the snapshots, not live ones.
	recorded bool

	shapes   int // counts the changes that can change a node
	due      time.Time
	prepared map[snapshots.ID]prepared
	nodes    map[nodeKey]nodeOf
}

// prepared is what is known of a snapshot without an instance.
type prepared struct {
	snapshot   snapshots.Snapshot
	directives []snapshots.Directive
	needs      []snapshots.Need
	versions   []snapshots.CertificateRef // that name one
	slots      snapshots.Slots            // of recorded endpoints, else nil
	servers    []snapshots.BoundServer
	linger     time.Duration // see [rollout.Seen.Linger]
	err        error
}

type nodeKey struct {
	id     snapshots.ID
	layout snapshots.Layout
}

type nodeOf struct {
	shapes       int
	node         string
	missing      []snapshots.Need
	certificates push.Known
	files        []push.Stored
	err          error
}

func newBindings(slots snapshots.Slots, recorded bool) *bindings {
	return &bindings{
		slots: slots, recorded: recorded,
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
			b.prepared[id] = prepare(s, b.recorded)
			changed = true
		}
	}
	return changed
}

func prepare(s snapshots.Snapshot, recorded bool) prepared {
	p := prepared{snapshot: s, versions: versionsOf(s), linger: linger(s.Config())}
	if p.directives, p.err = snapshots.Directives(s.Config()); p.err != nil {
		return p
	}
	if p.needs, p.err = snapshots.Needs(s.Config(), s.Manifest.Spec.Certificates); p.err != nil || !recorded {
		return p
	}
	endpoints, _, err := s.RecordedEndpoints()
	if p.err = err; err != nil {
		return p
	}
	p.slots, _ = snapshots.AssignSlots(snapshots.Slots{}, p.directives, endpoints, time.Time{}, 0)
	p.servers, p.err = snapshots.BindServers(p.directives, p.slots)
	return p
}

// assign gives the live endpoints their slots, and reports whether the table
// changed. It has to be called when endpoints or snapshots changed, and when a
// drained slot falls free, see due.
func (b *bindings) assign(now time.Time, drain time.Duration) bool {
	if b.recorded {
		return false
	}
	next, _ := snapshots.AssignSlots(b.slots, b.directives(), b.live.Endpoints, now, drain)
	if !maps.EqualFunc(b.slots, next, func(x, y []snapshots.Slot) bool { return len(x) == len(y) }) {
		b.shapes++
	}
	changed := !maps.EqualFunc(b.slots, next, slices.Equal[[]snapshots.Slot])
	b.slots = next
	b.due, _ = next.NextDrain()
	for id, p := range b.prepared {
		if p.err != nil || (!changed && p.servers != nil) {
			continue
		}
		p.servers, p.err = snapshots.BindServers(p.directives, next)
		b.prepared[id] = p
	}
	return changed
}

// directives returns those of all snapshots in use, which share the slots of the
// backends that they have in common.
func (b *bindings) directives() []snapshots.Directive {
	var out []snapshots.Directive
	for _, id := range slices.SortedFunc(maps.Keys(b.prepared), snapshots.ID.Compare) {
		out = append(out, b.prepared[id].directives...)
	}
	return out
}

// prune drops the slots of backends that no snapshot in use has.
func (b *bindings) prune() {
	if b.recorded {
		return
	}
	used := map[snapshots.SlotKey]bool{}
	for _, d := range b.directives() {
		used[d.Key()] = true
	}
	next := maps.Clone(b.slots)
	maps.DeleteFunc(next, func(k snapshots.SlotKey, _ []snapshots.Slot) bool { return !used[k] })
	b.slots = next
}

// setLive takes new live data.
func (b *bindings) setLive(live snapshots.Live, now time.Time) {
	live.Expired, live.ExpiredVersions, live.Versions = b.live.Expired, b.live.ExpiredVersions, b.live.Versions
	changed := !sameSecrets(b.live, live)
	b.live = live
	if changed {
		b.shapes++
		b.expiry = b.expiry.follow(live.Certificates)
		b.lookAtExpiry(now)
		b.gatherVersions(now)
	}
}

// sameSecrets reports whether all that comes from Secrets is the same.
func sameSecrets(a, b snapshots.Live) bool {
	return maps.EqualFunc(a.Certificates, b.Certificates, slices.Equal[[]byte]) &&
		maps.EqualFunc(a.Authorities, b.Authorities, slices.Equal[[]byte]) &&
		maps.EqualFunc(a.Users, b.Users, slices.Equal[[]snapshots.User]) &&
		maps.Equal(a.Values, b.Values)
}

// binding returns what the snapshot is bound with for an instance.
func (b *bindings) binding(id snapshots.ID, layout snapshots.Layout) (snapshots.Snapshot, snapshots.Binding, bool) {
	p, ok := b.prepared[id]
	slots := b.slots
	if b.recorded {
		slots = p.slots
	}
	return p.snapshot, snapshots.Binding{Live: b.live, Slots: slots, Layout: layout}, ok
}

// node returns what the worker of an instance should name for the snapshot.
func (b *bindings) node(id snapshots.ID, layout snapshots.Layout) (nodeOf, bool) {
	key := nodeKey{id, layout}
	if n, ok := b.nodes[key]; ok && n.shapes == b.shapes {
		return n, true
	}
	snapshot, binding, ok := b.binding(id, layout)
	if !ok {
		return nodeOf{}, false
	}
	bound, err := snapshots.Bind(snapshot, binding)
	n := nodeOf{shapes: b.shapes, node: bound.Node, missing: bound.Missing, err: err, certificates: push.Hashes(bound)}
	for _, f := range bound.Files {
		if f.Kind != snapshots.CertificateFile {
			n.files = append(n.files, push.Stored{Kind: f.Kind, Name: f.Name})
		}
	}
	b.nodes[key] = n
	return n, true
}
