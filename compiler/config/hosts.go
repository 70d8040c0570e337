package config

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/config/field"
)

// HostPolicy says what namespaces other than its owner get of a host.
type HostPolicy string

// The policies.
const (
	// ShareHosts merges the paths that all namespaces have for a host.
	ShareHosts HostPolicy = "shared"
	// OwnHosts serves the paths of the owner, and of those whom the owner or the
	// administrator lets in.
	OwnHosts HostPolicy = "owned"
)

func (p HostPolicy) check(f field.Errors) {
	if p != ShareHosts && p != OwnHosts {
		f.Add(fmt.Sprintf("%q is neither shared nor owned", string(p)), "use shared or owned")
	}
}

// SharedHost is a host that its owner shares, whatever the owner says.
type SharedHost struct {
	// Host is the name of a host, or a wildcard such as *.shop.example, which
	// stands for the hosts below it too.
	Host string `json:"host"`
	// Namespaces are those that may have paths of the host.
	Namespaces Namespaces `json:"namespaces"`
}

// ReservedDomain is a domain that only some namespaces may have hosts in.
type ReservedDomain struct {
	// Domain is a DNS name. It stands for the host of that name and for everything
	// below it, wildcards included.
	Domain string `json:"domain"`
	// Namespaces are those that may name such hosts. With hosts: owned, they share
	// them.
	Namespaces Namespaces `json:"namespaces"`
}

// Contains reports whether a host, perhaps a wildcard such as *.foo.example or
// .foo.example, is in the domain.
func (d ReservedDomain) Contains(host string) bool {
	host = strings.TrimPrefix(strings.TrimPrefix(host, "*"), ".")
	return host == d.Domain || strings.HasSuffix(host, "."+d.Domain)
}

// ReservedSuffixes returns what the hosts of reserved domains end with, behind a dot of
// their own.
func (c Config) ReservedSuffixes() []string {
	var out []string
	for _, d := range c.ReservedDomains {
		out = append(out, "."+d.Domain)
	}
	return out
}

func (c Config) checkHosts(f field.Errors) {
	c.Hosts.check(f.At("hosts"))
	for i, s := range c.SharedHosts {
		at := f.At("sharedHosts").Element(i)
		checkDomain(at.At("host"), strings.TrimPrefix(s.Host, "*."), s.Host)
		s.Namespaces.check(at.At("namespaces"))
	}
	for i, d := range c.ReservedDomains {
		at := f.At("reservedDomains").Element(i)
		checkDomain(at.At("domain"), d.Domain, d.Domain)
		if len(d.Namespaces) == 0 {
			at.At("namespaces").Add("names nobody who may have hosts of the domain", "list one or more namespaces")
		}
		d.Namespaces.check(at.At("namespaces"))
		if j := slices.IndexFunc(c.ReservedDomains, func(o ReservedDomain) bool { return o.Domain == d.Domain }); j < i {
			at.At("domain").Add(fmt.Sprintf("%q is that of an entry further up", d.Domain), "list all namespaces in one entry")
		}
	}
}

func checkDomain(f field.Errors, name, written string) {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		f.Add(fmt.Sprintf("%q is not the name of a host", written), "use a DNS name in lower case, such as shop.example")
	}
}
