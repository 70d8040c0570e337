package pusher

import (
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
)

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
	lacks         []string      // what it needs and the pusher cannot have; see needs.go
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
