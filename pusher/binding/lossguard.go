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
	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// lossGuard decides which losses of endpoints to believe. The rules are the same for directories
// and clusters:
//
//  1. What the source says is believed at once. The source says that a Service has no endpoints in
//     three ways: the Service has EndpointSlices without endpoints (it was scaled to zero, or its
//     pods are not ready), a watch reports that its EndpointSlices were deleted, or all workloads
//     that the Service selects exist and should have no replicas.
//  2. A Service is *lost* if the source no longer has anything about it: its file is gone, or a
//     list came without it. That happens when somebody deletes it. It also happens with a mount
//     that failed, a half-finished copy, a wrong path, or an API server with another store. A few
//     losses are believed, since deletions are common. They are not believed if half of all
//     endpoints, or all endpoints of a namespace, are lost within a minute. Then the guard keeps
//     the known endpoints. It also keeps those that were lost first in that minute, since files
//     disappear one after another.
//  3. The loss of all endpoints of a namespace is believed if the source still has other Services
//     of that namespace, since it then still reads the namespace. For half of all endpoints that
//     proves nothing: Services disappear from a directory together with their slices.
//  4. Endpoints are kept until the source says something about their Service, until a person
//     confirms the loss, or until no snapshot in use has the Service. They are kept even if others
//     come back, since a mount may come back in parts. Meanwhile they count as lost, so that the
//     guard does not believe a doubtful source bit by bit.
//
// The guard counts endpoints and not Services, since a fleet with one large Service is empty
// without it. It counts only Services whose endpoints snapshots in use have. What it keeps survives
// a restart: the state has the names of the Service ports, and its slots have the endpoints. So a
// new pusher begins with what the previous one knew.
//
// Keeping too many endpoints does little harm, since addresses of pods that are gone fail their
// health checks. Keeping too few empties a fleet.
//
// The zero value is ready to use. A lossGuard is a value: its methods return a new one, and never
// write to what both share.
type lossGuard struct {
	kept   map[snapshots.ServicePort]bool // ports whose endpoints are kept
	recent map[snapshots.ServicePort]loss
	// blind is set if a new pusher finds no EndpointSlice at all although the instances run with
	// endpoints.
	blind bool
	since time.Time // since when something is kept, or blind is set
}

// KeptEndpoints is the part of a lossGuard that is saved in the state.
type KeptEndpoints struct {
	Services []string  `json:"services,omitempty"`
	Blind    bool      `json:"blind,omitempty"`
	Since    time.Time `json:"since"`
}

// loss is a loss that was believed less than lossWindow ago.
type loss struct {
	at        time.Time
	endpoints []snapshots.Endpoint
	saying    saying
}

// saying is what a source says about the endpoints of a Service.
type saying int

const (
	said     saying = iota // the source has some, or says that there are none
	unsaid                 // the source has nothing about the Service
	unlisted               // like unsaid, but the source has other Services of the namespace
)

// mostListed is how many things a message lists.
const mostListed = 5

// lossWindow is the time within which losses count as one.
const lossWindow = time.Minute

// report is what a source says about a Service port.
type report struct {
	endpoints []snapshots.Endpoint // nil for none
	saying    saying
}

// take returns how the known endpoints change after reports, nil for no changes, and the next
// guard. Services that are not used do not count.
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
	unsaid    bool // the source says nothing about some of the lost
}

func (t lossCount) with(n int, lost, unsaid bool) lossCount {
	if t.all += n; lost {
		t.lost, t.unsaid = t.lost+n, t.unsaid || unsaid
	}
	return t
}

// doubtful returns the recent losses that the guard does not believe.
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

// confirm handles a person's confirmation that the kept endpoints are gone. It returns the next
// guard, and how the known endpoints change.
func (g lossGuard) confirm() (lossGuard, map[snapshots.ServicePort][]snapshots.Endpoint) {
	changes := map[snapshots.ServicePort][]snapshots.Endpoint{}
	for port := range g.kept {
		changes[port] = nil
	}
	return lossGuard{}, changes
}

// at sets the time since when something is kept.
func (g lossGuard) at(now time.Time) lossGuard {
	switch {
	case len(g.kept) == 0 && !g.blind:
		g.since = time.Time{}
	case g.since.IsZero():
		g.since = now.UTC().Truncate(time.Second)
	}
	return g
}

// name returns a name for the set of endpoints that are kept now, "" for none. Another set has
// another name. So a person confirms what they have seen, and nothing that came later.
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

// saved returns the part of the guard that the state keeps, nil for nothing.
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

// Check returns an error if the saved value cannot be read.
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

// knownEndpoints returns the endpoints in slots, which the previous pusher knew. It leaves out
// draining endpoints.
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

// evidence is what else a directory says about Services without endpoints. It is used only if
// endpoints are missing.
type evidence struct {
	sliced map[types.NamespacedName]bool // Services that have EndpointSlices
	other  func() otherObjects
}

// otherObjects are objects that can show that a Service should have no endpoints.
type otherObjects struct {
	services  map[types.NamespacedName]labels.Set // and which pods they select
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

// of returns what the directory says about a Service port without endpoints.
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

// scaledToZero reports whether the directory has workloads that the Service selects, and none of
// them should have pods. A directory without such workloads proves nothing, since objects of other
// kinds may make pods.
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

// otherObjectsIn reads these objects from a set. It ignores objects that cannot be decoded.
func otherObjectsIn(set manifests.Set) otherObjects {
	out := otherObjects{services: map[types.NamespacedName]labels.Set{}, speaksOf: map[string]bool{}, workloads: map[string][]workload{}}
	for _, o := range set.Objects {
		switch o.GVK() {
		case manifests.GVK{APIVersion: "v1", Kind: "Service"}:
			var s corev1.Service
			_ = o.Decode(&s) // a faulty Service exists, too
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
			_ = o.Decode(&w) // use what can be decoded
			if w.Spec.Replicas != nil {
				pods = *w.Spec.Replicas
			}
			out.workloads[o.Namespace] = append(out.workloads[o.Namespace], workload{w.Spec.Template.Labels, pods})
		}
	}
	return out
}

// losses is what is known about the losses of a source, see lossGuard.
type losses struct {
	guard lossGuard
	// seeds are the Service ports whose endpoints are known only from the state, because the source
	// has not said anything about them yet.
	seeds map[snapshots.ServicePort]bool
	// remembers is set if the state had slots.
	remembers bool
	// sighted is set once the source has shown that it is not empty, or that it may be empty.
	sighted   bool
	read      bool // the source was read in full
	sliceless bool // the source has no EndpointSlice at all
	// doubted are Secrets of a cluster that were missing in a list, with the time of that list.
	doubted map[snapshots.SecretName]time.Time
}

// newLosses returns losses that begin with what the previous pusher knew.
func newLosses(kept *KeptEndpoints, known map[snapshots.ServicePort][]snapshots.Endpoint, remembers bool) losses {
	l := losses{seeds: map[snapshots.ServicePort]bool{}, doubted: map[snapshots.SecretName]time.Time{}, remembers: remembers}
	l.guard, _ = kept.guard() // Check has already read it
	l.guard.blind = false     // Blind finds that out again
	for port := range known {
		l.seeds[port] = true
	}
	return l
}

// doubtSecrets removes Secrets that were missing in a list from the change, and remembers them.
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

// takeReports takes what the source reports about Service ports, as far as the guard believes it.
func (s *Sources) takeReports(reports map[snapshots.ServicePort]report, now time.Time) News {
	for port := range reports {
		delete(s.losses.seeds, port)
	}
	next, changes := s.losses.guard.take(s.known.Endpoints, reports, s.joined(), now)
	s.losses.guard = next
	return s.change(changes)
}

// change applies changes to the known endpoints.
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

// joined returns a function that reports whether a snapshot in use has the endpoints of a Service
// port. A port in the slots counts too, since its snapshot may be read soon.
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

// reportsOfChange turns a change of a cluster into reports about Service ports.
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
				out[port] = report{} // the Service has slices, but no endpoint of this port
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

// Blind reports whether a new pusher finds no EndpointSlice at all although the instances run with
// endpoints. The reason may be a wrong path, an empty mount or another cluster. The pusher then
// changes nothing. If the state has no slots, instancesHave says whether the instances run with
// endpoints; see [Sources.MayHaveEndpoints].
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

// MayHaveEndpoints reports whether an instance that runs this snapshot may have endpoints. It may
// if the snapshot has live endpoints, or if the pusher has not read the snapshot.
func (s *Sources) MayHaveEndpoints(running snapshots.ID) bool {
	p, atHand := s.bindings.prepared[running]
	return !running.IsZero() && (!atHand || len(p.Directives) > 0 && !p.Recorded)
}

// Confirm carries out a person's confirmation of a loss, and returns how many Service ports it
// concerned. It drops the endpoints that were kept when the person gave the order.
func (s *Sources) Confirm(loss string) (n News, services int, confirmed bool) {
	if loss == "" || loss != s.losses.guard.name() {
		return News{}, 0, false
	}
	services = len(s.losses.guard.kept)
	next, changes := s.losses.guard.confirm()
	s.losses.guard, s.losses.sighted = next, true
	return s.change(changes), services, true
}

// Kept returns the losses that the guard does not believe: the name by which a person can confirm
// them, since when there are some, and the Service ports whose endpoints are kept. The name is ""
// if there are none.
func (s *Sources) Kept() (name string, since time.Time, ports []string) {
	g := s.losses.guard
	return g.name(), g.since, texts(g.ports())
}

// Lost returns how many Service ports have endpoints that are kept.
func (s *Sources) Lost() int { return len(s.losses.guard.kept) }

// Saved returns the part of the losses that the state keeps, nil for nothing.
func (s *Sources) Saved() *KeptEndpoints { return s.losses.guard.saved() }

// LossTrouble returns an error that says whose endpoints are kept, nil if none are.
func (s *Sources) LossTrouble() error {
	g := s.losses.guard
	if g.since.IsZero() {
		return nil
	}
	if g.blind {
		return errors.New("not one EndpointSlice is there, and the instances run with endpoints, or do not answer: nothing is changed until there is one; if that is right: pusher confirm-endpoints " + g.name())
	}
	ports := g.ports()
	if len(ports) == 0 {
		return nil
	}
	return fmt.Errorf("the endpoints of %s are gone from their source (%d in all): what was known is kept; if they are gone for good: pusher confirm-endpoints %s",
		printable.Few(texts(ports), mostListed), len(ports), g.name())
}

func texts(ports []snapshots.ServicePort) []string {
	out := make([]string, 0, len(ports))
	for _, port := range ports {
		out = append(out, port.String())
	}
	return out
}
