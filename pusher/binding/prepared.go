package binding

import (
	"errors"
	"path"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// Source says where the endpoints of snapshots come from.
type Source int

// The sources of endpoints.
const (
	FromDirectory Source = iota // always live endpoints
	FromSnapshots               // always recorded endpoints
	FromCluster                 // recorded endpoints if the snapshot has some, otherwise live ones
)

// recorded reports whether a snapshot is bound to its recorded endpoints.
func (f Source) recorded(s snapshots.Snapshot) bool {
	_, has := s.File(snapshots.EndpointsFile)
	return f == FromSnapshots || f == FromCluster && has
}

// Prepared is the part of binding a snapshot that does not depend on an instance.
type Prepared struct {
	Snapshot snapshots.Snapshot
	ofConfig
	Needs        []bind.Need
	versions     []snapshots.CertificateRef // the references that name a version
	Certificates []push.Stored              // by their names on instances
	Recorded     bool                       // its endpoints are the recorded ones
	Slots        bind.Slots                 // the slots of recorded endpoints, otherwise nil
	Servers      []bind.Server
	// wants is what the snapshot needs from a cluster. Known is set once that was read, as far as the pusher may read
	// it.
	wants   cluster.Wanted
	refused RefusedEndpoints // the recorded endpoints that are refused
	Known   bool
	Lacks   []string // what the snapshot needs that the pusher cannot have; core/needs.go has the rules
	Err     error

	places []int // where the servers of each directive begin, and where the last ones end
}

// ofConfig is what a haproxy.cfg alone says. Snapshots that differ in their maps only share it.
type ofConfig struct {
	Directives    []bind.Directive
	Dynamic       map[string]dataplane.DynamicServer // by backend, see [push.DynamicServers]
	HardStopAfter time.Duration                      // see [rollout.Seen.HardStopAfter]
	listeners     []listener                         // where HAProxy listens
	mostServers   int                                // 0 for any number, see crowd.go
	byService     map[snapshots.ServicePort][]int    // by Service, the directives that get its endpoints
	Namespaces    map[string]string                  // by backend, that of its endpoints
	unreadable    error
}

func readConfig(config []byte) ofConfig {
	c := ofConfig{HardStopAfter: hardStopAfter(config), listeners: listenersOf(config), mostServers: mostServers(config)}
	if c.Directives, c.unreadable = bind.Directives(config); c.unreadable != nil {
		return c
	}
	c.Dynamic = push.DynamicServers(config, c.Directives)
	c.byService, c.Namespaces = map[snapshots.ServicePort][]int{}, map[string]string{}
	for n, d := range c.Directives {
		c.byService[d.Service] = append(c.byService[d.Service], n)
		c.Namespaces[d.Backend] = d.Service.Namespace
	}
	return c
}

// prepare prepares a snapshot, of which its haproxy.cfg has been read. It leaves out recorded endpoints that are refused.
func prepare(s snapshots.Snapshot, c ofConfig, recorded bool, r *Refusals) Prepared {
	p := Prepared{Snapshot: s, ofConfig: c, Recorded: recorded, versions: VersionsOf(s), Certificates: certificatesOf(s), Err: c.unreadable}
	if p.Err != nil {
		return p
	}
	p.Needs, p.Err = bind.Needs(s.Config(), s.Manifest.Spec.Certificates)
	var wants cluster.Wanted
	for service := range p.byService {
		if !p.Recorded {
			wants.Namespaces = append(wants.Namespaces, service.Namespace)
		}
	}
	slices.Sort(wants.Namespaces)
	wants.Namespaces = slices.Compact(wants.Namespaces)
	carried := carriedBy(s)
	for _, need := range p.Needs {
		if need.Use != snapshots.UseCertificate || !carried[need.Secret] {
			wants.Secrets = append(wants.Secrets, need.Secret)
		}
		wants.Keys = append(wants.Keys, need.SecretKeys()...)
	}
	slices.SortFunc(wants.Keys, bind.SecretKey.Compare)
	wants.Keys = slices.Compact(wants.Keys)
	slices.SortFunc(wants.Secrets, snapshots.SecretName.Compare)
	wants.Secrets = slices.Compact(wants.Secrets)
	p.wants = wants
	if p.Err != nil || !recorded {
		return p
	}
	endpoints, _, err := s.RecordedEndpoints()
	if p.Err = err; err != nil {
		return p
	}
	endpoints, p.refused = r.recorded(endpoints)
	p.Slots, _ = bind.AssignSlots(bind.Slots{}, p.Directives, endpoints, time.Time{}, 0)
	if room := p.room(bind.Slots{}, p.Slots); room != nil {
		p.Slots, _ = room.AssignSlots(bind.Slots{}, p.Directives, endpoints, time.Time{}, 0)
		noteCrowded(p.refused, p.Directives, p.Slots, endpoints)
	}
	p.Servers, p.Err = bind.Servers(p.Directives, p.Slots)
	return p
}

// Wanted returns what a snapshot needs from the cluster that has its endpoints and Secrets.
func Wanted(s snapshots.Snapshot) (cluster.Wanted, error) {
	p := prepare(s, readConfig(s.Config()), FromCluster.recorded(s), &Refusals{})
	return p.wants, p.Err
}

// carriedBy returns the Secrets whose certificates come with a snapshot. Those that the compiler left out because there
// were none are among them.
func carriedBy(s snapshots.Snapshot) map[snapshots.SecretName]bool {
	out := map[snapshots.SecretName]bool{}
	for _, ref := range s.Manifest.Spec.Certificates {
		if ref.Mode == snapshots.ModeSealed || ref.Mode == snapshots.ModeCompanion {
			out[ref.Secret] = true
		}
	}
	return out
}

// bound reports whether the servers are bound to live endpoints. Then they follow the slots, even while something else
// that the snapshot needs is not known.
func (p *Prepared) bound() bool { return !p.Recorded && p.Servers != nil && p.Err == nil }

// bindAll binds the servers of all directives.
func (p *Prepared) bindAll(slots bind.Slots) {
	p.Servers, p.Err = bind.Servers(p.Directives, slots)
	p.places = make([]int, 0, len(p.Directives)+1)
	at := 0
	for _, d := range p.Directives {
		p.places = append(p.places, at)
		at += len(slots[d.Key()])
	}
	p.places = append(p.places, at)
}

// bindSome binds again the servers of backends that get the endpoints of some Services. The number of slots of these
// backends must not have changed.
func (p *Prepared) bindSome(slots bind.Slots, services map[snapshots.ServicePort]bool) {
	fresh := slices.Clone(p.Servers) // others may use the previous list
	bound := map[string]bool{}
	for service := range services {
		for _, n := range p.byService[service] {
			backend := p.Directives[n].Backend
			if bound[backend] {
				continue
			}
			bound[backend] = true
			first, end := p.backend(n)
			var servers []bind.Server
			if servers, p.Err = bind.Servers(p.Directives[first:end], slots); p.Err != nil {
				return
			}
			copy(fresh[p.places[first]:p.places[end]], servers)
		}
	}
	if len(bound) > 0 {
		p.Servers = fresh
	}
}

// backend returns the range of the directives that are in the same backend as the nth directive.
func (p *Prepared) backend(n int) (first, end int) {
	first, end = n, n+1
	for first > 0 && p.Directives[first-1].Backend == p.Directives[n].Backend {
		first--
	}
	for end < len(p.Directives) && p.Directives[end].Backend == p.Directives[n].Backend {
		end++
	}
	return first, end
}

// hardStopAfter returns how long a worker with this haproxy.cfg may live after it was replaced. It returns zero if the
// file does not say so. If several lines do, HAProxy uses the last one.
func hardStopAfter(config []byte) time.Duration {
	var most time.Duration
	for section := range haproxycfg.Sections(config) {
		if section.Keyword != "global" {
			continue
		}
		for _, line := range section.Lines {
			if words := line.Texts(); len(words) > 1 && words[0] == "hard-stop-after" {
				most = haproxycfg.Duration(words[1])
			}
		}
	}
	return most
}

// certificatesOf returns the certificates of a snapshot by their names on instances, even if their
// Secrets are missing.
func certificatesOf(s snapshots.Snapshot) (out []push.Stored) {
	for _, ref := range s.Manifest.Spec.Certificates {
		if ref.Use != snapshots.UseCA {
			out = append(out, push.Stored{Kind: bind.CertificateFile, Name: path.Base(ref.File)})
		}
	}
	return out
}

// ErrNoSource is the error of a snapshot that needs live endpoints or content of Secrets, for a pusher without a source
// of these.
var ErrNoSource = errors.New("has no source of live endpoints and Secrets (--live or --kubeconfig)")

// sourceless reports whether the pusher has no source for live endpoints or content of Secrets that the snapshot needs.
func (f Source) sourceless(s snapshots.Snapshot) bool {
	if f != FromSnapshots {
		return false
	}
	if _, recorded := s.File(snapshots.EndpointsFile); !recorded {
		if directives, err := bind.Directives(s.Config()); err == nil && len(directives) > 0 {
			return true
		}
	}
	unversioned := slices.DeleteFunc(slices.Clone(s.Manifest.Spec.Certificates), snapshots.CertificateRef.Versioned)
	needs, err := bind.Needs(s.Config(), unversioned)
	return err == nil && slices.ContainsFunc(needs, func(n bind.Need) bool { return n.Secret != (snapshots.SecretName{}) })
}

// NeedsSource reports whether a snapshot can only be pushed with a source of live endpoints and Secrets: a cluster, or
// a directory with manifests.
func NeedsSource(s snapshots.Snapshot) bool { return FromSnapshots.sourceless(s) }

// VersionsOf returns the references of a snapshot that name a version of a certificate.
func VersionsOf(s snapshots.Snapshot) []snapshots.CertificateRef {
	return slices.DeleteFunc(slices.Clone(s.Manifest.Spec.Certificates), func(ref snapshots.CertificateRef) bool {
		return ref.Version == ""
	})
}
