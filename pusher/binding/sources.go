package binding

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// Sources is what is known about live data: the endpoints of Services, and the content of Secrets. It passes to the
// bindings what it believes.
type Sources struct {
	bindings *Bindings
	known    Objects
	// read is set once snapshots may be bound, because the directory was read. A cluster need not be read as a whole,
	// since each snapshot waits for what it needs.
	read     bool
	fallback []byte
	secrets  secretSet // the Secrets of a cluster
	refusals Refusals
	waiting  waiting // what was not read from the cluster yet
	losses   losses  // which endpoints were lost, and whether that is believed
	// decryptions are the snapshots whose certificates are being decrypted, or could not be decrypted.
	decryptions *decryptions
}

// NewSources returns sources that begin with what the previous pusher knew: its slots, and the Service ports whose
// endpoints it kept.
func NewSources(b *Bindings, r Refusals, kept *KeptEndpoints, fallback []byte, now time.Time) *Sources {
	s := &Sources{bindings: b, fallback: fallback, secrets: secretSet{}, refusals: r, read: b.from != FromDirectory, decryptions: newDecryptions()}
	s.known.Fallback, s.known.Endpoints = fallback, knownEndpoints(b.slots)
	s.losses = newLosses(kept, s.known.Endpoints, len(b.slots) > 0)
	b.setLive(s.known.Live, now)
	return s
}

// News says what has changed in live data.
type News struct {
	Changes []EndpointsChange
	// Endpoints and Secrets say when endpoints, and the content of Secrets, were changed, as far as the source tells.
	Endpoints, Secrets []time.Time
}

// EndpointsChange says that the endpoints of a Service port have changed.
type EndpointsChange struct {
	Port          snapshots.ServicePort
	Before, After []snapshots.Endpoint
}

// TakeRead takes the objects that were read from the directory.
func (s *Sources) TakeRead(read Objects, now time.Time) News {
	s.losses.read, s.losses.sliceless = true, read.Slices == 0
	read.Endpoints = s.refusals.filterAll(read.Endpoints)
	// If something could not be parsed, it may hold the absent endpoints, so they are not reported.
	reports := make(map[snapshots.ServicePort]report, len(read.Endpoints))
	for port, endpoints := range read.Endpoints {
		reports[port] = report{endpoints: endpoints}
	}
	for port := range s.known.Endpoints {
		if _, there := read.Endpoints[port]; there || read.unsure {
			continue
		}
		reports[port] = report{saying: read.evidence.of(port)}
	}
	n := s.takeReports(reports, now)
	merged := mergeLive(s.known, read, s.losses.guard.keepsIn)
	merged.Fallback, merged.evidence = s.fallback, evidence{} // it holds all objects that were read, and was used above
	was := s.read
	s.known, s.read = merged, true
	if was && len(n.Changes) > 0 {
		n.Endpoints = []time.Time{now}
	}
	if s.bindings.setLive(merged.Live, now) && was {
		n.Secrets = []time.Time{now}
	}
	s.bindings.stale = true
	return n
}

// TakeCluster takes a change of the cluster.
func (s *Sources) TakeCluster(change cluster.Change, now time.Time) News {
	var n News
	change.Endpoints = s.refusals.filter(change.Endpoints)
	if status := change.Status; status != nil {
		s.losses.read, s.losses.sliceless = len(status.Waits) == 0 && len(s.bindings.prepared) > 0, status.Slices == 0
	}
	if reports := s.reportsOfChange(change); len(reports) > 0 {
		n = s.takeReports(reports, now)
	}
	s.losses.doubtSecrets(&change, now)
	if len(change.Endpoints) > 0 {
		n.Endpoints = change.Since
	}
	if len(change.Secrets) > 0 {
		n.Secrets = s.takeSecrets(change, now)
	}
	if change.Status != nil {
		s.bindings.learn(*change.Status)
		s.waiting.take(*change.Status, now)
	}
	return n
}

// takeSecrets takes Secrets that changed, and returns the times of the changes that concern a snapshot. If a Secret is
// broken now, its last usable certificate stays in use.
func (s *Sources) takeSecrets(change cluster.Change, now time.Time) []time.Time {
	for name, secret := range change.Secrets {
		if secret == nil {
			delete(s.secrets, name)
			continue
		}
		s.secrets[name] = s.secrets[name].follow(*secret)
	}
	endpoints := s.known.Endpoints
	s.known = s.secrets.live()
	s.known.Endpoints, s.known.Fallback = endpoints, s.fallback
	if s.bindings.setLive(s.known.Live, now) {
		return change.Since
	}
	return nil
}

// secretPatience is how long a Secret stays that was missing in a list. Within that time it may turn out that the
// namespace has lost its endpoints as well.
const secretPatience = 5 * time.Second

// SettleSecrets forgets Secrets that were missing in a list. It keeps them while endpoints of their namespace are kept,
// since both may have been lost together.
func (s *Sources) SettleSecrets(now time.Time) {
	gone := cluster.Change{Secrets: map[snapshots.SecretName]*corev1.Secret{}}
	for name, at := range s.losses.doubted {
		if now.Sub(at) >= secretPatience && !s.losses.guard.keepsIn(name.Namespace) {
			gone.Secrets[name] = nil
			delete(s.losses.doubted, name)
		}
	}
	if len(gone.Secrets) > 0 {
		s.takeSecrets(gone, now)
	}
}

// Use brings the bindings in line with the snapshots in use. It reports whether the bindings changed.
func (s *Sources) Use(have map[snapshots.ID]snapshots.Snapshot, now time.Time) (n News, changed bool) {
	if !s.bindings.use(have) {
		return News{}, false
	}
	s.bindings.gatherVersions(now)
	if len(s.losses.guard.kept) > 0 {
		n = s.takeReports(nil, now) // the kept endpoints may no longer be used by any snapshot
	}
	return n, true
}

// Wanted returns what the snapshots in use need from a cluster.
func (s *Sources) Wanted() cluster.Wanted {
	var all cluster.Wanted
	for _, id := range slices.SortedFunc(maps.Keys(s.bindings.prepared), snapshots.ID.Compare) {
		wants := s.bindings.prepared[id].wants
		all.Namespaces = append(all.Namespaces, wants.Namespaces...)
		all.Secrets = append(all.Secrets, wants.Secrets...)
		all.Keys = append(all.Keys, wants.Keys...)
	}
	slices.SortFunc(all.Keys, bind.SecretKey.Compare)
	all.Keys = slices.Compact(all.Keys)
	s.bindings.learn(s.waiting.status)
	return all
}

// Place is where an instance is: the address of its Dataplane API, others of the same machine or pod, and
// ports elsewhere that lead to it.
type Place struct {
	API    netip.AddrPort
	Others []netip.Addr
	Ports  []netip.AddrPort
}

// RefuseOwn refuses endpoints that lead to these instances, given by the name of the instance. The places of earlier
// calls no longer count.
func (s *Sources) RefuseOwn(places map[string]Place, now time.Time) News {
	changed := s.refusals.setOwn(s.ownAddresses(places))
	if len(changed) == 0 {
		return News{}
	}
	return s.takeReports(s.reportsOfChange(cluster.Change{Endpoints: changed}), now)
}

// ownAddresses returns the addresses of the instances' Dataplane APIs, the addresses at which their HAProxy listens
// for requests or with its statistics, and the ports of nodes that lead there. Other ports of the same hosts are not
// refused, since a pod in the node's network may run beside HAProxy.
func (s *Sources) ownAddresses(places map[string]Place) map[netip.AddrPort]string {
	own := map[netip.AddrPort]string{}
	for _, name := range slices.Sorted(maps.Keys(places)) {
		place := places[name]
		addresses := append([]netip.Addr{place.API.Addr()}, place.Others...)
		for _, p := range s.bindings.prepared {
			for _, l := range p.listeners {
				if l.address.IsValid() {
					own[netip.AddrPortFrom(l.address, l.port)] = "HAProxy's own"
					continue
				}
				for _, a := range addresses {
					own[netip.AddrPortFrom(a, l.port)] = "HAProxy's own, on " + name
				}
			}
		}
		for _, at := range place.Ports {
			own[at] = "a port of the node of " + name
		}
		for _, a := range addresses {
			own[netip.AddrPortFrom(a, place.API.Port())] = "the Dataplane API of " + name
		}
	}
	return own
}

// Refused returns all refused endpoints, those of live data and those recorded in snapshots in use.
func (s *Sources) Refused() RefusedEndpoints {
	all := maps.Clone(s.refusals.refused)
	for port, refused := range s.bindings.crowded {
		all[port] = slices.Concat(all[port], refused)
	}
	for _, id := range slices.SortedFunc(maps.Keys(s.bindings.prepared), snapshots.ID.Compare) {
		maps.Copy(all, s.bindings.prepared[id].refused)
	}
	return all
}

// Faults returns a function that says what is wrong with a value that a Secret should hold. That is a fault in its
// content, or a certificate that has expired or is not valid yet. The function is for this turn only.
func (s *Sources) Faults(now time.Time) func(bind.Need) []error {
	ends := s.bindings.expiredVersions()
	return func(need bind.Need) []error { return s.bindings.withExpiry(need, s.known.faults[need], ends, now) }
}

// Problems says which live objects cannot be used. It returns nil if there are none.
func (s *Sources) Problems() error {
	var problems []error
	for _, p := range s.known.problems {
		problems = append(problems, errors.New(p))
	}
	return errors.Join(problems...)
}

// SecretFault is a part of a Secret that cannot be used.
type SecretFault struct {
	Secret snapshots.SecretName
	Fault  string
}

// Faulty returns the parts of Secrets of a cluster that cannot be used.
func (s *Sources) Faulty() []SecretFault { return s.known.faulty }

// SecretUID returns the UID of a Secret of a cluster, "" if it is not known.
func (s *Sources) SecretUID(name snapshots.SecretName) types.UID { return s.secrets[name].uid }

// SecretAbsent reports whether the cluster was asked for a Secret and has none of that name. It returns false for a
// Secret that was not read yet or may not be read, and without a cluster.
func (s *Sources) SecretAbsent(name snapshots.SecretName) bool {
	_, there := s.secrets[name]
	status := s.waiting.status
	return !there && status.Knows(cluster.Wanted{Secrets: []snapshots.SecretName{name}}) && !status.DeniedSecrets()[name]
}

// Ready reports whether snapshots may be bound, because the directory was read. With a cluster it always returns true,
// since each snapshot waits for what it needs.
func (s *Sources) Ready() bool { return s.read }

// ClusterTrouble returns why a cluster cannot be watched, or nil.
func (s *Sources) ClusterTrouble() error { return s.waiting.status.Trouble }

// Endpoints returns the endpoints that are believed to exist.
func (s *Sources) Endpoints() map[snapshots.ServicePort][]snapshots.Endpoint {
	return s.known.Endpoints
}

// waiting says what was not read from the cluster yet, and since when.
type waiting struct {
	status cluster.Status
	since  time.Time
}

func (w *waiting) take(s cluster.Status, now time.Time) {
	switch {
	case len(s.Waits) == 0:
		w.since = time.Time{}
	case w.since.IsZero():
		w.since = now
	}
	w.status = s
}

// shortWait is how long the first read of something in the cluster may take. A longer read counts as trouble.
const shortWait = 2 * time.Second

// WaitTrouble returns an error about what was not read from the cluster, if that takes long. It leaves out what the
// pusher may not read. That counts as lacking: a restart would not help, and it must not keep the pusher from being
// ready.
func (s *Sources) WaitTrouble(now time.Time) error {
	w := s.waiting
	onlyRefused := len(w.status.Refused) == len(w.status.Waits)
	if !w.since.IsZero() && now.Sub(w.since) >= shortWait && !onlyRefused {
		return fmt.Errorf("snapshots that need it wait for %s", printable.Few(w.status.Waits, mostListed))
	}
	return nil
}

// secretSet is the parsed content of each Secret of a cluster. If one Secret changes, the keys of the others need not
// be parsed again.
type secretSet map[snapshots.SecretName]secretData

// secretData is the parsed content of one Secret.
type secretData struct {
	uid         types.UID
	certificate []byte // nil for none
	fault       error  // why there is none, or why it is an earlier one
	more        live.Secrets
}

// follow parses a newer version of the Secret. While its certificate is broken, the last usable one
// stays. Users, authorities and values do not stay: the present content says who may pass.
func (d secretData) follow(s corev1.Secret) secretData {
	out := secretData{uid: s.UID, more: live.GatherSecrets([]corev1.Secret{s})}
	certificates, problems := live.Certificates([]corev1.Secret{s})
	for _, certificate := range certificates {
		out.certificate = certificate
	}
	for _, p := range problems {
		out.certificate, out.fault = d.certificate, p
	}
	return out
}

// live returns the content of all Secrets.
func (set secretSet) live() Objects {
	var out Objects
	out.Certificates = map[snapshots.SecretName][]byte{}
	all := live.GatherSecrets(nil)
	for _, name := range slices.SortedFunc(maps.Keys(set), snapshots.SecretName.Compare) {
		d := set[name]
		if d.certificate != nil {
			out.Certificates[name] = d.certificate
		}
		if d.fault != nil {
			out.problems = append(out.problems, d.fault.Error())
			out.faulty = append(out.faulty, SecretFault{name, d.fault.Error()})
		}
		maps.Copy(all.Authorities, d.more.Authorities)
		maps.Copy(all.Users, d.more.Users)
		maps.Copy(all.Values, d.more.Values)
		maps.Copy(all.UserCosts, d.more.UserCosts)
		maps.Copy(all.Problems, d.more.Problems)
	}
	all.BoundUsers()
	out.Authorities, out.Users, out.Values, out.faults = all.Authorities, all.Users, all.Values, all.Problems
	return out
}

// NewlyUnread returns the Services of a snapshot that would get no servers, because nobody knows their endpoints and
// the pusher may not read their namespaces. It leaves out Services that the last good snapshot has. It also leaves out
// namespaces that the last good snapshot does not use, since the snapshot lacks these anyway. The texts follow the
// words "the pusher".
func (s *Sources) NewlyUnread(wanted, good Prepared) []string {
	return newlyUnread(wanted, good, s.waiting.status.Unread, s.known.Endpoints)
}

func newlyUnread(wanted, good Prepared, unread func(namespace string) bool, endpoints map[snapshots.ServicePort][]snapshots.Endpoint) []string {
	if len(wanted.Lacks) == 0 || wanted.Recorded {
		return nil
	}
	var out []string
	for service := range wanted.byService {
		_, had := good.byService[service]
		_, known := endpoints[service]
		if had || known || !unread(service.Namespace) || !slices.Contains(good.wants.Namespaces, service.Namespace) {
			continue
		}
		out = append(out, fmt.Sprintf("may not list EndpointSlices in %s, where Service %s is new", service.Namespace, service.Service))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
