package routing

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// normalHost returns a host as requests are compared with it: in lower case,
// without the dot of the root.
func normalHost(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// checkHost says what keeps a normal host from being one of an Ingress.
func checkHost(host string) (message, hint string) {
	switch {
	case isAddress(host):
		return "is an IP address", "leave host out to match requests by address"
	case host == "" || host == "*":
		return "is not a DNS name", "leave host out to match every host"
	case strings.HasPrefix(host, "*."):
		if problems := validation.IsWildcardDNS1123Subdomain(host); len(problems) > 0 {
			return mustBe(problems), ""
		}
	case strings.Contains(host, "*"):
		return "has a wildcard that is not its first label", "a wildcard stands for the first label, as in *.example.com"
	case strings.Contains(host, ":"):
		return "is not a DNS name", "leave the port out: a host matches on every port"
	default:
		if problems := subdomainProblems(host); len(problems) > 0 {
			return mustBe(problems), ""
		}
	}
	return "", ""
}

// isAddress reports whether a host has the form of an IP address. One of IPv4
// would pass for a DNS name.
func isAddress(host string) bool {
	four := strings.Count(host, ".") == 3 && strings.Trim(host, "0123456789.") == ""
	return four || (strings.Count(host, ":") > 1 && strings.Trim(host, "0123456789abcdef:.[]") == "")
}

// covers reports whether a certificate of the given names is good for a host,
// either of which may be a wildcard for one label.
func covers(names []string, host string) bool {
	_, parent, _ := strings.Cut(host, ".")
	for _, name := range names {
		if name = normalHost(name); name == host || name == "*."+parent {
			return true
		}
	}
	return false
}
