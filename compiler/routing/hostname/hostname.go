// Package hostname knows the forms that the names of hosts have: as rules have them, as requests
// are compared with them, and in the model of package routing, where ".foo.com" is the wildcard
// "*.foo.com" and "" stands for every host.
package hostname

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// WildcardName returns the wildcard that matches a name, "" if none can.
func WildcardName(name string) string {
	_, parent, ok := strings.Cut(name, ".")
	if !ok || strings.HasPrefix(name, "*.") {
		return ""
	}
	return "*." + parent
}

// WildcardOf returns the wildcard that matches a host of the model, "-" if none does.
func WildcardOf(host string) string {
	if _, parent, ok := strings.Cut(host, "."); ok && !strings.HasPrefix(host, ".") {
		return "." + parent
	}
	return "-"
}

// Shown returns a host of the model as rules have it.
func Shown(host string) string {
	if strings.HasPrefix(host, ".") {
		return "*" + host
	}
	return host
}

// Of returns the name of a host in the model.
func Of(host string) string {
	return strings.TrimPrefix(Normal(host), "*")
}

// NotValid shortens what the API's validation says of a name.
func NotValid(problems []string) string {
	short, _, _ := strings.Cut(problems[0], " (e.g.")
	return "is not valid: " + short
}

// Normal returns a host as requests are compared with it: in lower case,
// without the dot of the root.
func Normal(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// Check says what keeps a normal host from being one of an Ingress.
func Check(host string) (message, hint string) {
	switch {
	case IsAddress(host):
		return "is an IP address", "leave host out to match requests by address"
	case host == "" || host == "*":
		return "is not a DNS name", "leave host out to match every host"
	case strings.HasPrefix(host, "*."):
		if problems := validation.IsWildcardDNS1123Subdomain(host); len(problems) > 0 {
			return NotValid(problems), ""
		}
	case strings.Contains(host, "*"):
		return "has a wildcard that is not its first label", "a wildcard stands for the first label, as in *.example.com"
	case strings.Contains(host, ":"):
		return "is not a DNS name", "leave the port out: a host matches on every port"
	default:
		if problems := SubdomainProblems(host); len(problems) > 0 {
			return NotValid(problems), ""
		}
	}
	return "", ""
}

// IsAddress reports whether a host has the form of an IP address. One of IPv4
// would pass for a DNS name.
func IsAddress(host string) bool {
	four := strings.Count(host, ".") == 3 && strings.Trim(host, "0123456789.") == ""
	return four || (strings.Count(host, ":") > 1 && strings.Trim(host, "0123456789abcdef:.[]") == "")
}

// Covers reports whether a certificate of the given names is good for a host,
// either of which may be a wildcard for one label.
func Covers(names []string, host string) bool {
	_, parent, _ := strings.Cut(host, ".")
	for _, name := range names {
		if name = Normal(name); name == host || name == "*."+parent {
			return true
		}
	}
	return false
}

// LabelProblems says why a name is no label of DNS. The
// API's own functions match expressions, which takes longer than all else that is asked of a
// usual name.
func LabelProblems(name string) []string {
	if len(name) <= validation.DNS1123LabelMaxLength && isPlainName(name, false) {
		return nil // as nearly always
	}
	return validation.IsDNS1123Label(name)
}

// SubdomainProblems says why a name is no subdomain of DNS, as [LabelProblems] does.
func SubdomainProblems(name string) []string {
	if len(name) <= validation.DNS1123SubdomainMaxLength && isPlainName(name, true) {
		return nil // as nearly always
	}
	return validation.IsDNS1123Subdomain(name)
}

// isPlainName reports whether a name is one label of DNS, or several, whatever their length.
func isPlainName(name string, several bool) bool {
	inside := false // whether a label may end here
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z' || '0' <= c && c <= '9':
			inside = true
		case c == '-' && i > 0 && name[i-1] != '.':
			inside = false
		case c == '.' && inside && several:
			inside = false
		default:
			return false
		}
	}
	return inside
}

// IsWildcard reports whether a name is that of a wildcard.
func IsWildcard(host string) bool { return strings.HasPrefix(host, ".") }
