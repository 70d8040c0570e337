// Package ownership says whom hosts belong to, and which of two objects gets what both claim:
// the older one.
package ownership

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// Claimant is an object that claims hosts, paths and the like, of whatever API. Of two that
// claim the same, the older one gets it.
type Claimant struct {
	Ref diag.Object
	// Created is zero for an object that has not been created yet: it comes last.
	Created metav1.Time
	// At returns the place of a field; nil if the object does not come from a file.
	At func(path ...any) diag.Position
}

// Position returns the place of a field, or its name if the object does not come from a file.
func (c Claimant) Position(path ...any) diag.Position {
	if c.At == nil {
		return diag.Position{Field: manifests.FieldPath(path)}
	}
	return c.At(path...)
}

// Origin returns the object and the place of a field.
func (c Claimant) Origin(path ...any) routing.Origin {
	return routing.Origin{Object: c.Ref, Position: c.Position(path...), Field: manifests.FieldPath(path)}
}

// Compare orders claimants by who gets what both claim: the oldest first, then by namespace and
// name.
func (c Claimant) Compare(o Claimant) int {
	if age := CompareTimes(c.Created, o.Created); age != 0 {
		return age
	}
	return c.Ref.Compare(o.Ref)
}

// Precedes says, in a message, why a claimant comes before another.
func (c Claimant) Precedes(loser Claimant) string {
	switch {
	case c.Ref == loser.Ref:
		return "this same " + c.Ref.Kind + ", further up"
	case CompareTimes(c.Created, loser.Created) < 0:
		return c.Ref.String() + ", which is older"
	}
	return c.Ref.String() + ", which is as old and comes first by name"
}

// CompareTimes orders times of creation. An object without one has not been created yet, so that
// it comes last.
func CompareTimes(x, y metav1.Time) int {
	switch {
	case x.IsZero() && y.IsZero():
		return 0
	case x.IsZero():
		return 1
	case y.IsZero():
		return -1
	}
	return x.Compare(y.Time)
}

// Owners says which namespace owns a host: that of the oldest object that names it. That object need not be served: if it is
// left out for a mistake, it keeps its hosts. Only the owner decides about what a host can have only once: certificates,
// client certificates, passthrough, aliases. That holds even if the owner sets none of them. The configuration says
// whether paths of other namespaces are merged with the owner's, or not served.
//
// With owned hosts, a wildcard's owner also owns the hosts below it that others named later.
type Owners struct {
	rules      Rules
	owners     map[string]*Owner
	sharedWith map[sharing][]string // namespaces
}

// Rules are what the configuration says of hosts.
type Rules struct {
	// Owned says that only the owner of a host may have paths of it, and those with whom it is shared: by Shared, or by the
	// owner's annotation.
	Owned    bool
	Shared   []config.SharedHost
	Reserved []config.ReservedDomain
}

// Owner is the oldest object that names a host, and the place of the name.
type Owner struct {
	By   Claimant
	Path []any
}

// Namespace returns the namespace that has the host.
func (o *Owner) Namespace() string { return o.By.Ref.Namespace }

// Origin returns where the host is named.
func (o *Owner) Origin() routing.Origin { return o.By.Origin(o.Path...) }

// sharing is a host, and the namespace of objects that share it.
type sharing struct{ host, namespace string }

// Standing is what a namespace may do with a host.
type Standing int

// The standings.
const (
	Owns    Standing = iota // all
	Shares                  // have paths
	Strange                 // nothing
)

// New returns the owners of no hosts yet.
func New(rules Rules) *Owners {
	return &Owners{rules: rules, owners: map[string]*Owner{}, sharedWith: map[sharing][]string{}}
}

// Add says that an object names a host of the model. Objects come oldest first. Shared are the
// namespaces that the object shares the host with. It reports whether the object may name it.
func (o *Owners) Add(host string, by Claimant, path []any, shared []string) bool {
	if o.ReservedFor(host, by.Ref.Namespace) == ForOthers {
		return false
	}
	if o.owners[host] == nil {
		o.owners[host] = &Owner{by, path}
	}
	if len(shared) > 0 {
		of := sharing{host, by.Ref.Namespace}
		o.sharedWith[of] = append(o.sharedWith[of], shared...)
	}
	return true
}

// First returns who named a host first, nil if nobody who may.
func (o *Owners) First(host string) *Owner { return o.owners[host] }

// Of returns who has a host of the model, nil if nobody who may.
func (o *Owners) Of(host string) *Owner {
	first := o.owners[host]
	if !o.rules.Owned {
		return first
	}
	w := o.owners[hostname.WildcardOf(host)]
	if w != nil && (first == nil || w.By.Compare(first.By) < 0) && o.ReservedFor(host, w.Namespace()) != ForOthers {
		return w
	}
	return first
}

// StandingOf returns what a namespace may do with a host of the model, and the owner of the host. The owner is nil if the
// host is reserved for others, or if it is no host.
func (o *Owners) StandingOf(namespace, host string) (Standing, *Owner) {
	if host == "" {
		return Owns, nil
	}
	reserved := o.ReservedFor(host, namespace)
	if reserved == ForOthers {
		return Strange, nil
	}
	owner := o.Of(host)
	switch {
	case owner == nil || owner.Namespace() == namespace:
		return Owns, owner
	case !o.rules.Owned || reserved == ForIt || o.IsShared(host, owner, namespace):
		return Shares, owner
	}
	return Strange, owner
}

// IsShared reports whether an owner, or the administrator, shares a host with a namespace.
func (o *Owners) IsShared(host string, owner *Owner, namespace string) bool {
	for _, name := range []string{host, hostname.WildcardOf(host)} {
		said := o.sharedWith[sharing{name, owner.Namespace()}]
		if slices.Contains(said, namespace) || slices.Contains(said, "*") {
			return true
		}
		if slices.ContainsFunc(o.rules.Shared, func(s config.SharedHost) bool { return hostname.Of(s.Host) == name && s.Namespaces.Has(namespace) }) {
			return true
		}
	}
	return false
}

// Reservation says whether a host is reserved.
type Reservation int

// The reservations.
const (
	ForNobody Reservation = iota
	ForIt                 // for the namespace, perhaps among others
	ForOthers
)

// ReservedFor says whether a host of the model is reserved. Of several domains that it is in,
// the longest counts.
func (o *Owners) ReservedFor(host, namespace string) Reservation {
	longest, found := -1, ForNobody
	for _, d := range o.rules.Reserved {
		if len(d.Domain) <= longest || !d.Contains(host) {
			continue
		}
		longest, found = len(d.Domain), ForOthers
		if d.Namespaces.Has(namespace) {
			found = ForIt
		}
	}
	return found
}

// IsClosedTo reports whether a default backend of a namespace is not to answer for a host, since
// that namespace has nothing to say there. Held says that a rule for the host was left out.
func (o *Owners) IsClosedTo(namespace, host string, held bool) bool {
	if host == "" {
		return false
	}
	reserved := o.ReservedFor(host, namespace)
	if reserved == ForOthers {
		return true
	}
	owner := o.Of(host)
	if owner == nil || owner.Namespace() == namespace {
		return false
	}
	return held || o.rules.Owned && reserved != ForIt && !o.IsShared(host, owner, namespace)
}

// IsApart reports whether a wildcard that matches a host has no say in it: the host is reserved
// for others, or was there before the wildcard.
func (o *Owners) IsApart(host string) bool {
	w := o.owners[hostname.WildcardOf(host)]
	if w == nil {
		return false
	}
	first := o.owners[host]
	return o.ReservedFor(host, w.Namespace()) == ForOthers || first != nil && first.Namespace() != w.Namespace() && first.By.Compare(w.By) < 0
}

// Apart returns the hosts in which no wildcard that matches them has a say, sorted.
func (o *Owners) Apart() []string {
	var out []string
	for host := range maps.Keys(o.owners) {
		if !strings.HasPrefix(host, ".") && o.IsApart(host) {
			out = append(out, host)
		}
	}
	for _, d := range o.rules.Reserved {
		if o.IsApart(d.Domain) {
			out = append(out, d.Domain)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
