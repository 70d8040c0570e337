package fleet

import (
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Kind is the KRM kind of the file.
const Kind = "Fleet"

// The directories of a Dataplane API that was not told others.
const (
	DefaultMaps         = "/etc/haproxy/maps"
	DefaultCertificates = "/etc/haproxy/ssl"
	DefaultGeneral      = "/etc/haproxy/general"
)

// Fleet is the instances that run one configuration.
type Fleet struct {
	Rollout   Rollout
	Instances []Instance // by name
	// Files are those that it was read from: the file itself and those with
	// passwords, certificates and keys, which have to be watched.
	Files []string
}

// Rollout is what the file says of the rollout policy; zero is nothing.
type Rollout struct {
	Waves    []rollout.Size
	Soak     *time.Duration
	Deadline time.Duration
}

// Apply returns the policy with what the file says.
func (r Rollout) Apply(p rollout.Policy) rollout.Policy {
	if len(r.Waves) > 0 {
		p.Waves = r.Waves
	}
	if r.Soak != nil {
		p.Soak = *r.Soak
	}
	if r.Deadline > 0 {
		p.Deadline = r.Deadline
	}
	return p
}

// Instance is one HAProxy and its Dataplane API.
type Instance struct {
	Name     string
	URL      string
	Username string
	Password string
	TLS      dataplane.TLS
	Zone     string
	Layout   snapshots.Layout
}
