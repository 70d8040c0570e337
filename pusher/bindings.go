package pusher

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
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

// prepared is what is known of a snapshot without an instance.
type prepared struct {
	snapshot     snapshots.Snapshot
	directives   []bind.Directive
	needs        []bind.Need
	versions     []snapshots.CertificateRef // that name one
	certificates []push.Stored              // as instances have them
	recorded     bool                       // its endpoints are
	slots        bind.Slots                 // of recorded endpoints, else nil
	servers      []bind.Server
	dynamic      map[string]dataplane.DynamicServer // by backend, see [push.DynamicServers]
	// wants is what it needs of a cluster; known: that is known, as far as it can be.
	wants         cluster.Wanted
	listeners     []listener       // of HAProxy, with it
	refused       refusedEndpoints // of those that are recorded
	known         bool
	lacks         []string      // what it needs and the pusher cannot have; see decide.go
	hardStopAfter time.Duration // see [rollout.Seen.HardStopAfter]
	err           error

	byService map[snapshots.ServicePort][]int // the directives that join one
	places    []int                           // where the servers of each directive begin, and the end
}

// prepare leaves out those recorded endpoints that are refused.
func prepare(s snapshots.Snapshot, recorded bool, r *refusals) prepared {
	p := prepared{snapshot: s, recorded: recorded, versions: versionsOf(s), certificates: certificatesOf(s), hardStopAfter: hardStopAfter(s.Config()), listeners: listenersOf(s.Config())}
	if p.directives, p.err = bind.Directives(s.Config()); p.err != nil {
		return p
	}
	p.dynamic = push.DynamicServers(s.Config(), p.directives)
	p.byService = map[snapshots.ServicePort][]int{}
	for n, d := range p.directives {
		p.byService[d.Service] = append(p.byService[d.Service], n)
	}
	p.needs, p.err = bind.Needs(s.Config(), s.Manifest.Spec.Certificates)
	if p.wants = p.wanted(); p.err != nil || !recorded {
		return p
	}
	endpoints, _, err := s.RecordedEndpoints()
	if p.err = err; err != nil {
		return p
	}
	endpoints, p.refused = r.recorded(endpoints)
	p.slots, _ = bind.AssignSlots(bind.Slots{}, p.directives, endpoints, time.Time{}, 0)
	p.servers, p.err = bind.Servers(p.directives, p.slots)
	return p
}

// Wanted returns what a snapshot needs of a cluster that endpoints and Secrets come
// from.
func Wanted(s snapshots.Snapshot) (cluster.Wanted, error) {
	p := prepare(s, fromCluster.recorded(s), &refusals{})
	return p.wants, p.err
}

// wanted returns what the snapshot needs of a cluster.
func (p prepared) wanted() cluster.Wanted {
	var out cluster.Wanted
	for service := range p.byService {
		if !p.recorded {
			out.Namespaces = append(out.Namespaces, service.Namespace)
		}
	}
	slices.Sort(out.Namespaces)
	out.Namespaces = slices.Compact(out.Namespaces)
	for _, need := range p.needs {
		if need.Use != snapshots.UseCertificate || !p.carries(need.Secret) {
			out.Secrets = append(out.Secrets, need.Secret)
		}
	}
	slices.SortFunc(out.Secrets, snapshots.SecretName.Compare)
	out.Secrets = slices.Compact(out.Secrets)
	return out
}

// carries reports whether the certificate of a Secret comes with the snapshot, or was
// left out of it because there was none.
func (p prepared) carries(secret snapshots.SecretName) bool {
	return slices.ContainsFunc(p.snapshot.Manifest.Spec.Certificates, func(ref snapshots.CertificateRef) bool {
		return ref.Secret == secret && (ref.Mode == snapshots.ModeSealed || ref.Mode == snapshots.ModeCompanion)
	})
}

// bindAll binds the servers of all directives.
func (p *prepared) bindAll(slots bind.Slots) {
	p.servers, p.err = bind.Servers(p.directives, slots)
	p.places = make([]int, 0, len(p.directives)+1)
	at := 0
	for _, d := range p.directives {
		p.places = append(p.places, at)
		at += len(slots[d.Key()])
	}
	p.places = append(p.places, at)
}

// bindSome binds the servers anew of the backends that join some Services, none of
// which has another number of slots than before.
func (p *prepared) bindSome(slots bind.Slots, services map[snapshots.ServicePort]bool) {
	fresh := slices.Clone(p.servers) // what is used elsewhere stays as it is
	bound := map[string]bool{}
	for service := range services {
		for _, n := range p.byService[service] {
			backend := p.directives[n].Backend
			if bound[backend] {
				continue
			}
			bound[backend] = true
			first, end := p.backend(n)
			var servers []bind.Server
			if servers, p.err = bind.Servers(p.directives[first:end], slots); p.err != nil {
				return
			}
			copy(fresh[p.places[first]:p.places[end]], servers)
		}
	}
	if len(bound) > 0 {
		p.servers = fresh
	}
}

// backend returns the range of the directives of the backend that has the nth.
func (p *prepared) backend(n int) (first, end int) {
	first, end = n, n+1
	for first > 0 && p.directives[first-1].Backend == p.directives[n].Backend {
		first--
	}
	for end < len(p.directives) && p.directives[end].Backend == p.directives[n].Backend {
		end++
	}
	return first, end
}

// hardStopAfter returns how long a worker with this haproxy.cfg lives at most after it was
// replaced, zero if that is not said. HAProxy takes the last of several lines.
func hardStopAfter(config []byte) time.Duration {
	var most time.Duration
	for section := range haproxycfg.Sections(config) {
		if section.Keyword != "global" {
			continue
		}
		for _, line := range section.Lines {
			if words := line.Texts(); len(words) > 1 && words[0] == "hard-stop-after" {
				most = configTime(words[1])
			}
		}
	}
	return most
}

// timeUnits are those of HAProxy's times, the longer word first.
var timeUnits = []struct {
	word string
	unit time.Duration
}{
	{"us", time.Microsecond}, {"ms", time.Millisecond}, {"s", time.Second},
	{"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour},
}

// configTime reads a time as HAProxy does, in milliseconds unless it names a unit;
// zero if it is none.
func configTime(text string) time.Duration {
	unit := time.Millisecond
	for _, u := range timeUnits {
		if digits, ok := strings.CutSuffix(text, u.word); ok {
			text, unit = digits, u.unit
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(n) * unit
}
