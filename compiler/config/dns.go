package config

import (
	"fmt"
	"net/netip"

	"github.com/hapsnap/hapsnap/compiler/config/field"
)

// DNS says how HAProxy resolves the names of Services of type ExternalName while it runs.
// If a name cannot be resolved, its own routes answer 503, and no others.
type DNS struct {
	// Nameservers are the IP addresses of name servers, with or without a port: 10.96.0.10,
	// 10.96.0.10:5353 or [fd00::10]:53. If empty, HAProxy asks those of its own
	// /etc/resolv.conf, which it reads when it starts.
	Nameservers []string `json:"nameservers"`
	// Refresh is the time after which HAProxy resolves a name again.
	Refresh Duration `json:"refresh"`
	// Prefer is the address family that HAProxy takes if a name has both.
	Prefer Family `json:"prefer"`
}

// Family is a family of IP addresses.
type Family string

// The families.
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

func (d DNS) check(f field.Errors) {
	for i, s := range d.Nameservers {
		if _, err := nameserver(s); err != nil {
			f.At("nameservers").Element(i).Add(fmt.Sprintf("%q is not an IP address, perhaps with a port", s), "use such as 10.96.0.10, 10.96.0.10:5353 or [fd00::10]:53")
		}
	}
	checkDuration(f.At("refresh"), d.Refresh)
	if d.Prefer != IPv4 && d.Prefer != IPv6 {
		f.At("prefer").Add(fmt.Sprintf("%q is neither ipv4 nor ipv6", string(d.Prefer)), "use ipv4 or ipv6")
	}
}

// dnsPort is where name servers listen.
const dnsPort = 53

// nameserver reads the address of a name server.
func nameserver(s string) (netip.AddrPort, error) {
	if ip, err := netip.ParseAddr(s); err == nil && ip.Zone() == "" {
		return netip.AddrPortFrom(ip, dnsPort), nil
	}
	a, err := netip.ParseAddrPort(s)
	if err == nil && (a.Addr().Zone() != "" || a.Port() == 0) {
		err = fmt.Errorf("%q has a zone or no port", s)
	}
	return a, err
}

// Addresses returns the name servers with their ports.
func (d DNS) Addresses() []netip.AddrPort {
	var out []netip.AddrPort
	for _, s := range d.Nameservers {
		if a, err := nameserver(s); err == nil {
			out = append(out, a)
		}
	}
	return out
}
