package config

import (
	"fmt"
	"net/netip"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation"
)

var (
	durationForm    = regexp.MustCompile(`^[1-9][0-9]{0,8}(us|ms|s|m|h|d)$`)
	environmentForm = regexp.MustCompile(`^\$\{[A-Za-z_][A-Za-z0-9_]*\}$`)
)

// Check returns every fault of the configuration, in the order of its fields.
func (c Config) Check() []FieldError {
	var found []FieldError
	f := faults{found: &found}
	f.at("ingressClass").add(checkClass(c.IngressClass), "use the name of an IngressClass, such as hapsnap")
	f.at("endpoints").add(checkEndpoints(c.Endpoints), "use live or recorded")
	c.Bind.check(f.at("bind"))
	c.checkListeners(f)
	c.Status.check(f.at("status"))
	c.checkErrorPages(f.at("errorPages"))
	if c.MaxConn < 0 {
		f.at("maxconn").add(fmt.Sprintf("%d is not a number of connections", c.MaxConn), "use 1 or more, or 0 to leave it to HAProxy")
	}
	f.at("hardStopAfter").duration(c.HardStopAfter)
	c.Timeouts.check(f.at("timeouts"))
	c.Shared.check(f.at("shared"))
	c.Affinity.check(f.at("affinity"))
	c.ExternalNames.check(f.at("externalNames"))
	c.DNS.check(f.at("dns"))
	c.checkTCP(f)
	c.Snippets.Namespaces.check(f.at("snippets").at("namespaces"))
	return found
}

// listener is a port that HAProxy opens, and the fields that say so.
type listener struct {
	path []string // below spec
	port int
}

// listeners returns every TCP port that HAProxy opens. Of two that are the same
// the later one is at fault.
func (c Config) listeners() []listener {
	return []listener{
		{[]string{"http", "port"}, c.HTTP.Port},
		{[]string{"https", "port"}, c.HTTPS.Port},
		{[]string{"status", "port"}, c.Status.Port},
	}
}

func (c Config) checkListeners(f faults) {
	seen := map[int]bool{}
	for _, l := range c.listeners() {
		at := faults{f.found, l.path}
		at.add(checkPort(l.port), "use 1 to 65535, or 0 for no such listener")
		if seen[l.port] && l.port != 0 {
			at.add("is the port of another listener", "give each listener a port of its own")
		}
		seen[l.port] = true
	}
	if c.HTTP.Port == 0 && c.HTTPS.Port == 0 {
		f.at("http").at("port").add("is 0, and so is that of https: nothing would be served", "set one of them")
	}
}

func (t Timeouts) check(f faults) {
	f.at("connect").duration(t.Connect)
	f.at("client").duration(t.Client)
	f.at("server").duration(t.Server)
	f.at("httpRequest").duration(t.HTTPRequest)
	f.at("httpKeepAlive").duration(t.HTTPKeepAlive)
	f.at("tunnel").duration(t.Tunnel)
	f.at("queue").duration(t.Queue)
}

// duration checks a time that must be there.
func (f faults) duration(d Duration) {
	if !durationForm.MatchString(string(d)) {
		f.add(fmt.Sprintf("%q is not a time", string(d)), "use a number and a unit: us, ms, s, m, h or d, such as 30s")
	}
}

func checkPort(port int) string {
	if port >= 0 && port <= 65535 {
		return ""
	}
	return fmt.Sprintf("%d is not a port", port)
}

func checkClass(name string) string {
	if len(validation.IsDNS1123Subdomain(name)) == 0 {
		return ""
	}
	return fmt.Sprintf("%q is not the name of an IngressClass", name)
}

func checkEndpoints(e Endpoints) string {
	if e == Live || e == Recorded {
		return ""
	}
	return fmt.Sprintf("%q is neither live nor recorded", string(e))
}

func (b Bind) check(f faults) {
	at := f.at("addresses")
	if len(b.Addresses) == 0 {
		at.add("is empty: nothing would be served", addressHint)
	}
	checkAddresses(at, b.Addresses)
}

const addressHint = `use IP addresses, "*", or one "${VARIABLE}"`

func checkAddresses(f faults, addresses []string) {
	for i, a := range addresses {
		if _, err := netip.ParseAddr(a); err != nil && a != "*" && !IsVariable(a) {
			f.element(i).add(fmt.Sprintf("%q is not an address", a), addressHint)
		}
	}
}

// IsVariable reports whether an address is an environment variable.
func IsVariable(address string) bool { return environmentForm.MatchString(address) }
