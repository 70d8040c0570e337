package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

var (
	durationForm    = regexp.MustCompile(`^[1-9][0-9]{0,8}(us|ms|s|m|h|d)$`)
	environmentForm = regexp.MustCompile(`^\$\{[A-Za-z_][A-Za-z0-9_]*\}$`)
)

// FieldError is one impossible value: Path is the field's, below spec.
type FieldError struct {
	Path          []string
	Message, Hint string
}

// Error returns "spec.http.port: message".
func (f FieldError) Error() string { return "spec." + strings.Join(f.Path, ".") + ": " + f.Message }

// Check returns every fault of the configuration, in the order of its fields.
func (c Config) Check() []FieldError {
	var faults []FieldError
	add := func(path, message, hint string) {
		if message != "" {
			faults = append(faults, FieldError{strings.Split(path, "."), message, hint})
		}
	}
	add("ingressClass", checkClass(c.IngressClass), "use the name of an IngressClass, such as hapsnap")
	add("endpoints", checkEndpoints(c.Endpoints), "use live or recorded")
	add("bind.addresses", checkAddresses(c.Bind.Addresses), `use IP addresses, "*", or one "${VARIABLE}"`)
	add("http.port", checkPort(c.HTTP.Port), "use 1 to 65535, or 0 for no such listener")
	add("https.port", checkPort(c.HTTPS.Port), "use 1 to 65535, or 0 for no such listener")
	add("status.port", checkPort(c.Status.Port), "use 1 to 65535, or 0 for no such listener")
	for _, clash := range c.clashes() {
		add(clash, "is the port of another listener", "give each listener a port of its own")
	}
	if c.HTTP.Port == 0 && c.HTTPS.Port == 0 {
		add("http.port", "is 0, and so is that of https: nothing would be served", "set one of them")
	}
	if c.MaxConn < 0 {
		add("maxconn", fmt.Sprintf("%d is not a number of connections", c.MaxConn), "use 1 or more, or 0 to leave it to HAProxy")
	}
	for _, d := range c.durations() {
		add(d.path, checkDuration(d.value), "use a number and a unit: us, ms, s, m, h or d, such as 30s")
	}
	return faults
}

// clashes lists the listeners that have the port of an earlier one.
func (c Config) clashes() []string {
	var out []string
	seen := map[int]bool{0: true}
	for _, l := range []struct {
		path string
		port int
	}{{"http.port", c.HTTP.Port}, {"https.port", c.HTTPS.Port}, {"status.port", c.Status.Port}} {
		if seen[l.port] && l.port != 0 {
			out = append(out, l.path)
		}
		seen[l.port] = true
	}
	return out
}

type namedDuration struct {
	path  string
	value Duration
}

func (c Config) durations() []namedDuration {
	t := c.Timeouts
	return []namedDuration{
		{"hardStopAfter", c.HardStopAfter},
		{"timeouts.connect", t.Connect}, {"timeouts.client", t.Client}, {"timeouts.server", t.Server},
		{"timeouts.httpRequest", t.HTTPRequest}, {"timeouts.httpKeepAlive", t.HTTPKeepAlive},
		{"timeouts.tunnel", t.Tunnel}, {"timeouts.queue", t.Queue},
	}
}

func checkDuration(d Duration) string {
	if durationForm.MatchString(string(d)) {
		return ""
	}
	return fmt.Sprintf("%q is not a time", string(d))
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

func checkAddresses(addresses []string) string {
	if len(addresses) == 0 {
		return "is empty: nothing would be served"
	}
	for _, a := range addresses {
		if _, err := netip.ParseAddr(a); err != nil && a != "*" && !IsVariable(a) {
			return fmt.Sprintf("%q is not an address", a)
		}
	}
	return ""
}

// IsVariable reports whether an address is an environment variable.
func IsVariable(address string) bool { return environmentForm.MatchString(address) }
