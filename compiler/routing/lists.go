package routing

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Userlist are the users of a Secret, one list for all backends that name it.
// Who they are is not known before a snapshot is pushed.
type Userlist struct {
	Name    string
	Secret  snapshots.SecretName
	Origins []Origin // of those that name it, sorted
}

// NetworkList is a list of networks that a backend names. It is a file of its
// own, one for all backends, since a list may have many thousands.
type NetworkList struct {
	policy.NetworkList
	Networks []netip.Prefix // sorted, each once
	Origin   Origin         // in the ConfigMap
}

// CountryList is the administrator's list of networks by country. It has one file, whatever
// asks for it.
type CountryList struct {
	Networks []CountryNetwork // by network, each once
	// Origins are the texts that it was read from.
	Origins []Origin
	// Codes are those of the networks.
	Codes map[string]bool
}

// CountryNetwork is a network with the code of its country or region.
type CountryNetwork struct {
	Network netip.Prefix
	Code    string
	Source  int // of the list's Origins
	Line    int // there, from 1
}

// sample returns a list like this one, for what is only checked.
func (l *CountryList) sample() *CountryList {
	if l == nil || len(l.Networks) <= 1 {
		return l
	}
	return &CountryList{Networks: l.Networks[:1], Origins: l.Origins, Codes: l.Codes}
}

// Has reports whether any network has a code, or that of a region of it.
func (l *CountryList) Has(code string) bool {
	if l.Codes[code] || code == policy.NoCountry {
		return true
	}
	for known := range l.Codes {
		if strings.HasPrefix(known, code+"-") {
			return true
		}
	}
	return false
}

// Guard refuses requests of a host whose path servers read in different ways, such as /public/..%2fadmin. HAProxy would
// route it to /public, and a server could answer it as /admin, without the protection of /admin.
//
// Only routes to the same server get around the protection of an Ingress, and these are in its namespace. So on a shared
// host, such requests are refused only for routes of that namespace. The namespace that owns a host guards all of it.
type Guard struct {
	// Namespace is that of the routes that take the requests; "" are those that no route
	// takes.
	Namespace string
	// Parameters says that paths with parameters are refused too.
	Parameters bool
	// Spelling says that paths are refused too that are not in their normal form, since the host's are compared as they come:
	// another namespace chose that.
	Spelling bool
	Origin   Origin
}

// GuardEntry is a line of the map of guards. For "HOST|NAMESPACE" it says what is refused. For a target of the maps that
// protects something it names the first target that is protected in the same way: nobody gets around the one by the other.
type GuardEntry struct {
	Key, Value string
	Origin     Origin
}

// The values of a [GuardEntry].
const (
	guardsForms      = "forms"
	guardsParameters = "parameters"
	guardsSpelling   = "_spelling" // follows one of these
)

// Guards returns the entries for hosts, by key.
func Guards(hosts []Host) []GuardEntry {
	var out []GuardEntry
	protected := map[string]Route{} // by target
	for _, h := range hosts {
		for _, g := range h.Guards {
			value := guardsForms
			if g.Parameters {
				value = guardsParameters
			}
			if g.Spelling {
				value += guardsSpelling
			}
			out = append(out, GuardEntry{h.Name + "|" + g.Namespace, value, g.Origin})
		}
		if len(h.Guards) == 0 {
			continue // as most
		}
		for _, c := range h.Choices() {
			last := c.Routes[len(c.Routes)-1]
			if !last.Protects {
				continue
			}
			was, known := protected[c.To()]
			if slices.ContainsFunc(c.Routes, func(r Route) bool { return r.Access != last.Access || known && r.Access != was.Access }) {
				last.Access = ""
			}
			if known && was.Origin.Compare(last.Origin) <= 0 {
				last.Origin = was.Origin
			}
			protected[c.To()] = last
		}
	}
	first := map[string]string{} // the first target of each access
	names := slices.Sorted(maps.Keys(protected))
	for _, name := range slices.Backward(names) {
		first[protected[name].Access] = name
	}
	for _, name := range names {
		of := name
		if access := protected[name].Access; access != "" {
			of = first[access]
		}
		out = append(out, GuardEntry{name, of, protected[name].Origin})
	}
	slices.SortFunc(out, func(a, b GuardEntry) int { return cmp.Compare(a.Key, b.Key) })
	return out
}
