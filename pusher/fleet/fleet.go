package fleet

import (
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// Kind is the KRM kind of the file.
const Kind = "Fleet"

// The directories of a Dataplane API that was not told others.
const (
	DefaultMaps         = "/etc/haproxy/maps"
	DefaultCertificates = "/etc/haproxy/ssl"
	DefaultGeneral      = "/etc/haproxy/general"
)

// DefaultName is the name of a fleet whose file gives none.
const DefaultName = "default"

// Fleet is the instances that run one configuration.
type Fleet struct {
	// Name tells it from other fleets on the same store: what it rejects counts for no
	// other.
	Name      string
	Rollout   Rollout
	Instances []Instance // by name
	// Pods says which pods are instances as well, nil for none.
	Pods *Pods
	// Files are those that it was read from: the file itself and those with
	// passwords, certificates and keys, which have to be watched.
	Files []string
}

// Instance is one HAProxy and its Dataplane API.
type Instance struct {
	Name     string
	URL      string
	Username string
	Password string
	TLS      dataplane.TLS
	Zone     string
	// UID is that of the pod, "" for an instance of the file. Another pod of the same
	// name is another instance.
	UID    string
	Layout bind.Layout
}
