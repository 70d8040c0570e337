package routing

import (
	"net/netip"
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
