package binding

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// lossGuard decides which losses of endpoints to believe. Directories and clusters have
// the same rules:
//
//  1. What the source says is believed at once. It says that a Service has no
//     endpoints when its EndpointSlices exist and have none (it was scaled to zero,
//     or its pods are not ready), when a watch reports that they were deleted, and when all
//     workloads that the Service selects exist and should have no replicas.
//  2. A Service is *lost* if the source has nothing of it any more: its file is gone, or
//     a list came without it. A deletion looks like this. So does a mount that failed,
//     half of a copy, a wrong path, or an API server with another store. A few losses are
//     believed, since deletions are common. They are not believed if half of all
//     endpoints, or all of a namespace, are lost within a minute. Then the guard keeps
//     the known endpoints, also those that were lost first in that minute, since files
//     vanish one after another.
//  3. The loss of all endpoints of a namespace is believed if the source still has other
//     Services of that namespace, since it then still reads the namespace. For half of
//     all endpoints that is no proof: Services vanish from a directory together with
//     their slices.
//  4. Endpoints are kept until the source says something of their Service, until a person
//     confirms the loss, or until no snapshot in use has the Service. They are kept even
//     if others come back, since a mount may come back in parts. Meanwhile they count as
//     lost, so that a doubtful source is not believed bit by bit.
//
// The guard counts endpoints and not Services, since a fleet with one large Service is
// empty without it. It counts only Services that snapshots in use join. What it keeps
// survives a restart: the state has the names, and its slots have the endpoints, so that
// a new pusher begins with what the last one knew.
//
// Keeping too much costs little, since addresses of pods that are gone fail their health
// checks. Keeping too little empties a fleet.
//
// The zero value is ready. It is a value: its methods return another one, and share
// nothing that is written to.
type lossGuard struct {
	kept   map[snapshots.ServicePort]bool // ports whose endpoints are kept
	recent map[snapshots.ServicePort]loss
	// blind: a new pusher finds no EndpointSlice at all, though instances run with
	// endpoints.
	blind bool
	since time.Time // that something is kept, or blind is set
}

// KeptEndpoints is the part of a lossGuard that is in the state.
type KeptEndpoints struct {
	Services []string  `json:"services,omitempty"`
	Blind    bool      `json:"blind,omitempty"`
	Since    time.Time `json:"since"`
}

// loss is a loss that was believed a short while ago.
type loss struct {
	at        time.Time
	endpoints []snapshots.Endpoint
	saying    saying
}

// saying is what a source says of the endpoints of a Service.
type saying int

const (
	said     saying = iota // the source has some, or says that there are none
	unsaid                 // the source has nothing of the Service
	unlisted               // likewise, and has other Services of the namespace
)

// lossWindow is the time in which losses count as one.
const lossWindow = time.Minute

// report is what a source says of a Service port.
type report struct {
	endpoints []snapshots.Endpoint // nil for none
	saying    saying
}

// take returns the changes of the known endpoints after reports, nil for none, and the next guard.
// Services that are not used do not count.
func (g lossGuard) take(known map[snapshots.ServicePort][]snapshots.Endpoint, reports map[snapshots.ServicePort]report, used func(snapshots.ServicePort) bool, now time.Time) (lossGuard, map[snapshots.ServicePort][]snapshots.Endpoint) {
	next, changes := g.clone(), map[snapshots.ServicePort][]snapshots.Endpoint{}
	maps.DeleteFunc(next.recent, func(_ snapshots.ServicePort, l loss) bool { return now.Sub(l.at) > lossWindow })
	for port, r := range reports {
		if r.saying == said {
			delete(next.kept, port)
			delete(next.recent, port)
			if !slices.Equal(known[port], r.endpoints) {
				changes[port] = r.endpoints
			}
			continue
		}
		if next.kept[port] {
			continue
		}
		if len(known[port]) > 0 && used(port) {
			next.recent[port] = loss{now, known[port], r.saying}
		}
		if _, known := known[port]; known {
			changes[port] = nil
		}
	}
	for port := range next.kept {
		if !used(port) {
			delete(next.kept, port)
			changes[port] = nil
		}
	}
	for _, port := range next.doubtful(known, used) {
		next.kept[port] = true
		changes[port] = next.recent[port].endpoints
		delete(next.recent, port)
	}
	return next.at(now), changes
}

// lossCount is how many endpoints there were, and how many of them are lost.
type lossCount struct {
	all, lost int
	unsaid    bool // some of the lost are unsaid
}

func (t lossCount) with(n int, lost, unsaid bool) lossCount {
	if t.all += n; lost {
		t.lost, t.unsaid = t.lost+n, t.unsaid || unsaid
	}
	return t
}

// doubtful returns the recent losses that are not believed.
func (g lossGuard) doubtful(known map[snapshots.ServicePort][]snapshots.Endpoint, used func(snapshots.ServicePort) bool) []snapshots.ServicePort {
	if len(g.recent) == 0 {
		return nil
	}
	var all lossCount
	namespaces := map[string]lossCount{}
	count := func(port snapshots.ServicePort, n int, lost, unsaid bool) {
		all = all.with(n, lost, unsaid)
		namespaces[port.Namespace] = namespaces[port.Namespace].with(n, lost, unsaid)
	}
	for port, endpoints := range known {
		if _, lost := g.recent[port]; lost || !used(port) {
			continue
		}
		count(port, len(endpoints), g.kept[port], g.kept[port])
	}
	for port, l := range g.recent {
		count(port, len(l.endpoints), true, l.saying == unsaid)
	}
	var out []snapshots.ServicePort
	for port := range g.recent {
		if t := namespaces[port.Namespace]; 2*all.lost >= all.all || t.lost == t.all && t.unsaid {
			out = append(out, port)
		}
	}
	return out
}

// confirm returns the guard after a person confirmed that the kept endpoints are gone, and the changes
// of the known endpoints.
func (g lossGuard) confirm() (lossGuard, map[snapshots.ServicePort][]snapshots.Endpoint) {
	changes := map[snapshots.ServicePort][]snapshots.Endpoint{}
	for port := range g.kept {
		changes[port] = nil
	}
	return lossGuard{}, changes
}

// at notes since when something is kept.
func (g lossGuard) at(now time.Time) lossGuard {
	switch {
	case len(g.kept) == 0 && !g.blind:
		g.since = time.Time{}
	case g.since.IsZero():
		g.since = now.UTC().Truncate(time.Second)
	}
	return g
}

// name returns a name for the endpoints that are kept now. Another set gets another name, so that a
// person confirms what they saw and nothing later. It is "" if nothing is kept.
func (g lossGuard) name() string {
	if g.since.IsZero() {
		return ""
	}
	h := sha256.New()
	fmt.Fprintln(h, g.since.Unix(), g.blind, g.ports())
	return hex.EncodeToString(h.Sum(nil))[:8]
}

// ports returns the kept ports, sorted.
func (g lossGuard) ports() []snapshots.ServicePort {
	return slices.SortedFunc(maps.Keys(g.kept), snapshots.ServicePort.Compare)
}

// saved returns what the state holds of the guard, nil for nothing.
func (g lossGuard) saved() *KeptEndpoints {
	if g.since.IsZero() {
		return nil
	}
	k := KeptEndpoints{Blind: g.blind, Since: g.since}
	for _, port := range g.ports() {
		k.Services = append(k.Services, port.String())
	}
	return &k
}

// Check returns an error if the value cannot be read.
func (k *KeptEndpoints) Check() error {
	_, err := k.guard()
	return err
}

// guard returns the guard that was saved.
func (k *KeptEndpoints) guard() (lossGuard, error) {
	g := lossGuard{kept: map[snapshots.ServicePort]bool{}}
	if k == nil {
		return g, nil
	}
	g.blind, g.since = k.Blind, k.Since
	for _, name := range k.Services {
		port, err := snapshots.ParseServicePort(name)
		if err != nil {
			return g, fmt.Errorf("kept endpoints: %w", err)
		}
		g.kept[port] = true
	}
	return g, nil
}

func (g lossGuard) clone() lossGuard {
	g.kept, g.recent = maps.Clone(g.kept), maps.Clone(g.recent)
	if g.kept == nil {
		g.kept = map[snapshots.ServicePort]bool{}
	}
	if g.recent == nil {
		g.recent = map[snapshots.ServicePort]loss{}
	}
	return g
}

// knownEndpoints returns the endpoints in a slot table, which the previous pusher knew. It leaves out
// those that were gone and being drained.
func knownEndpoints(slots bind.Slots) map[snapshots.ServicePort][]snapshots.Endpoint {
	out := map[snapshots.ServicePort][]snapshots.Endpoint{}
	for key, group := range slots {
		for _, slot := range group {
			e := snapshots.Endpoint{Address: slot.Address, Port: slot.Port, Draining: slot.State == bind.SlotDrain}
			if slot.State != bind.SlotSpare && slot.Until.IsZero() && !slices.Contains(out[key.Service], e) {
				out[key.Service] = append(out[key.Service], e)
			}
		}
	}
	for _, endpoints := range out {
		slices.SortFunc(endpoints, func(a, b snapshots.Endpoint) int {
			return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port))
		})
	}
	return out
}

// evidence is what else a directory says of Services without endpoints. It is used only if endpoints
// are missing.
type evidence struct {
	sliced map[types.NamespacedName]bool // Services that have EndpointSlices
	other  func() otherObjects
}

// otherObjects are objects that can show that a Service has no endpoints.
type otherObjects struct {
	services  map[types.NamespacedName]labels.Set // and whom they select
	speaksOf  map[string]bool                     // namespaces with Services
	workloads map[string][]workload               // by namespace
}

// workload is something that has pods.
type workload struct {
	labels labels.Set
	pods   int32
}

func newEvidence(set manifests.Set, sliced map[types.NamespacedName]bool) evidence {
	return evidence{sliced, sync.OnceValue(func() otherObjects { return otherObjectsIn(set) })}
}

// of returns what the directory says of a Service port without endpoints.
func (v evidence) of(port snapshots.ServicePort) saying {
	name := types.NamespacedName{Namespace: port.Namespace, Name: port.Service}
	if v.sliced[name] {
		return said
	}
	if v.other == nil {
		return unsaid
	}
	o := v.other()
	selector, there := o.services[name]
	switch {
	case there && o.scaledToZero(name.Namespace, selector):
		return said
	case !there && o.speaksOf[name.Namespace]:
		return unlisted
	}
	return unsaid
}

// scaledToZero reports whether the directory has workloads that a Service selects, and all of them
// should have no pods. A directory without such workloads proves nothing: objects of any kind may make
// pods.
func (o otherObjects) scaledToZero(namespace string, selector labels.Set) bool {
	selected := 0
	for _, w := range o.workloads[namespace] {
		if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(w.labels) {
			continue
		}
		if selected++; w.pods > 0 {
			return false
		}
	}
	return selected > 0
}

// otherObjectsIn reads the other objects. It ignores those that cannot be decoded.
func otherObjectsIn(set manifests.Set) otherObjects {
	out := otherObjects{services: map[types.NamespacedName]labels.Set{}, speaksOf: map[string]bool{}, workloads: map[string][]workload{}}
	for _, o := range set.Objects {
		switch o.GVK() {
		case manifests.GVK{APIVersion: "v1", Kind: "Service"}:
			var s corev1.Service
			_ = o.Decode(&s) // a faulty one exists, too
			out.services[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = s.Spec.Selector
			out.speaksOf[o.Namespace] = true
		case manifests.GVK{APIVersion: "v1", Kind: "Pod"}:
			out.workloads[o.Namespace] = append(out.workloads[o.Namespace], workload{o.Labels, 1})
		case manifests.GVK{APIVersion: "apps/v1", Kind: "Deployment"}, manifests.GVK{APIVersion: "apps/v1", Kind: "StatefulSet"},
			manifests.GVK{APIVersion: "apps/v1", Kind: "ReplicaSet"}, manifests.GVK{APIVersion: "apps/v1", Kind: "DaemonSet"}:
			var w struct {
				metav1.TypeMeta   `json:",inline"`
				metav1.ObjectMeta `json:"metadata"`
				Spec              struct {
					Replicas *int32                 `json:"replicas"`
					Template corev1.PodTemplateSpec `json:"template"`
				} `json:"spec"`
			}
			pods := int32(1)
			_ = o.Decode(&w) // what fits is enough
			if w.Spec.Replicas != nil {
				pods = *w.Spec.Replicas
			}
			out.workloads[o.Namespace] = append(out.workloads[o.Namespace], workload{w.Spec.Template.Labels, pods})
		}
	}
	return out
}

// losses is what is known of the losses of a source; see lossGuard.
type losses struct {
	guard lossGuard
	// seeds are the Service ports whose endpoints are known only from the state: the source has said
	// nothing of them yet.
	seeds map[snapshots.ServicePort]bool
	// remembers is set if the state had a slot table.
	remembers bool
	// sighted is set once the source has shown that it is not empty, or may be empty.
	sighted   bool
	read      bool // the source was read in full
	sliceless bool // it has not one EndpointSlice
	// doubted are Secrets of a cluster that were missing in a list, and when.
	doubted map[snapshots.SecretName]time.Time
}

// newLosses begins with what the previous pusher knew.
func newLosses(kept *KeptEndpoints, known map[snapshots.ServicePort][]snapshots.Endpoint, remembers bool) losses {
	l := losses{seeds: map[snapshots.ServicePort]bool{}, doubted: map[snapshots.SecretName]time.Time{}, remembers: remembers}
	l.guard, _ = kept.guard() // the state was read
	l.guard.blind = false     // Blind finds that out again
	for port := range known {
		l.seeds[port] = true
	}
	return l
}

// doubtSecrets removes Secrets that were missing in a list from a change, and notes them.
func (l *losses) doubtSecrets(c *cluster.Change, now time.Time) {
	for name, s := range c.Secrets {
		delete(l.doubted, name)
		if s == nil && c.Missing[name] {
			delete(c.Secrets, name)
			l.doubted[name] = now
		}
	}
}

// keepsIn reports whether endpoints of a namespace are kept.
func (g lossGuard) keepsIn(namespace string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(g.kept)), func(p snapshots.ServicePort) bool { return p.Namespace == namespace })
}

// takeReports takes what the source reports of Service ports, as far as the guard believes it.
func (s *Sources) takeReports(reports map[snapshots.ServicePort]report, now time.Time) News {
	for port := range reports {
		delete(s.losses.seeds, port)
	}
	next, changes := s.losses.guard.take(s.known.Endpoints, reports, s.joined(), now)
	s.losses.guard = next
	return s.change(changes)
}

// change changes the known endpoints.
func (s *Sources) change(changes map[snapshots.ServicePort][]snapshots.Endpoint) News {
	var n News
	for port, endpoints := range changes {
		n.Changes = append(n.Changes, EndpointsChange{port, s.known.Endpoints[port], endpoints})
		if s.bindings.changed[port] = true; len(endpoints) == 0 {
			delete(s.known.Endpoints, port)
		} else {
			s.known.Endpoints[port] = endpoints
		}
	}
	return n
}

// joined returns a function that reports whether a snapshot in use joins the endpoints
// of a Service port. A port in the slots counts: its snapshot may be read soon.
func (s *Sources) joined() func(snapshots.ServicePort) bool {
	var all map[snapshots.ServicePort]bool
	return func(port snapshots.ServicePort) bool {
		if all == nil {
			all = map[snapshots.ServicePort]bool{}
			for key := range s.bindings.slots {
				all[key.Service] = true
			}
			for _, p := range s.bindings.prepared {
				for service := range p.byService {
					all[service] = true
				}
			}
		}
		return all[port]
	}
}

// reportsOfChange returns the reports of a change of a cluster.
func (s *Sources) reportsOfChange(c cluster.Change) map[snapshots.ServicePort]report {
	out := make(map[snapshots.ServicePort]report, len(c.Endpoints))
	for port, endpoints := range c.Endpoints {
		if out[port] = (report{endpoints: endpoints}); c.Unsaid[port] {
			out[port] = report{saying: unsaid}
		}
	}
	for _, of := range []map[snapshots.ServicePort]bool{s.losses.seeds, s.losses.guard.kept} {
		for port := range of {
			if _, told := c.Endpoints[port]; !told && c.Seen[types.NamespacedName{Namespace: port.Namespace, Name: port.Service}] {
				out[port] = report{} // the Service has slices, and none of its endpoints is there
			}
		}
	}
	if c.Status == nil {
		return out
	}
	for port := range s.losses.seeds {
		if _, told := out[port]; !told && c.Status.Read(port.Namespace) {
			out[port] = report{saying: unsaid}
		}
	}
	return out
}

// Blind reports whether a new pusher finds no EndpointSlice at all, although the instances run with
// endpoints: a wrong path, an empty mount, another cluster. Then the pusher changes nothing. If the
// state has no slot table, instancesHave says whether they do; see [Sources.MayHaveEndpoints].
func (s *Sources) Blind(instancesHave func() bool, now time.Time) bool {
	l := &s.losses
	if l.sighted || !l.read || s.bindings.from == FromSnapshots {
		return false
	}
	have := len(s.known.Endpoints) > 0
	if !l.remembers {
		have = instancesHave()
	}
	l.guard.blind = l.sliceless && have
	l.guard = l.guard.at(now)
	l.sighted = !l.guard.blind
	return l.guard.blind
}

// MayHaveEndpoints reports whether an instance that runs a snapshot may have endpoints: it runs
// one of ours.
func (s *Sources) MayHaveEndpoints(running snapshots.ID) bool {
	p, atHand := s.bindings.prepared[running]
	return !running.IsZero() && (!atHand || len(p.Directives) > 0 && !p.Recorded)
}

// Confirm believes the loss that a person named, and returns how many Service ports it concerned. The
// endpoints that were kept when the person gave the order are dropped.
func (s *Sources) Confirm(loss string) (n News, services int, confirmed bool) {
	if loss == "" || loss != s.losses.guard.name() {
		return News{}, 0, false
	}
	services = len(s.losses.guard.kept)
	next, changes := s.losses.guard.confirm()
	s.losses.guard, s.losses.sighted = next, true
	return s.change(changes), services, true
}

// Kept returns the losses that are not believed: their name, for a person to confirm, since when
// there are some, and the Service ports whose endpoints are kept. The name is "" if there are none.
func (s *Sources) Kept() (name string, since time.Time, ports []string) {
	g := s.losses.guard
	return g.name(), g.since, texts(g.ports())
}

// Lost returns how many Service ports have endpoints that are kept.
func (s *Sources) Lost() int { return len(s.losses.guard.kept) }

// Saved returns the part of the losses that the state keeps, nil for nothing.
func (s *Sources) Saved() *KeptEndpoints { return s.losses.guard.saved() }

// LossTrouble returns an error that says whose endpoints are kept, nil for none.
func (s *Sources) LossTrouble() error {
	g := s.losses.guard
	if g.since.IsZero() {
		return nil
	}
	if g.blind {
		return errors.New("not one EndpointSlice is there, and the instances run with endpoints: nothing is changed until there is one; if that is right: pusher confirm-endpoints " + g.name())
	}
	ports := g.ports()
	if len(ports) == 0 {
		return nil
	}
	return fmt.Errorf("the endpoints of %s are gone from their source (%d in all): what was known is kept; if they are gone for good: pusher confirm-endpoints %s",
		cluster.Some(texts(ports)), len(ports), g.name())
}

func texts(ports []snapshots.ServicePort) []string {
	out := make([]string, 0, len(ports))
	for _, port := range ports {
		out = append(out, port.String())
	}
	return out
}
