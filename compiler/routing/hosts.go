package routing

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/snapshots"
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

// labelProblems and subdomainProblems say why a name is no label, or no subdomain, of DNS. The
// API's own functions match expressions, which takes longer than all else that is asked of a
// usual name.
func labelProblems(name string) []string {
	if len(name) <= validation.DNS1123LabelMaxLength && isPlainName(name, false) {
		return nil // as nearly always
	}
	return validation.IsDNS1123Label(name)
}

func subdomainProblems(name string) []string {
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

// lookup finds objects by name, and remembers which ones it was asked for.
type lookup[T any] struct {
	byName map[snapshots.SecretName]inputs.Object[T]
	asked  map[snapshots.SecretName]bool
}

func newLookup[T any](objects []inputs.Object[T]) lookup[T] {
	return lookup[T]{byName: byName(objects), asked: map[snapshots.SecretName]bool{}}
}

func (l lookup[T]) find(name snapshots.SecretName) (o inputs.Object[T], exists bool) {
	l.asked[name] = true
	o, exists = l.byName[name]
	return o, exists
}

// names returns what was asked for, sorted.
func (l lookup[T]) names() []snapshots.SecretName {
	out := make([]snapshots.SecretName, 0, len(l.asked))
	for name := range l.asked {
		out = append(out, name)
	}
	slices.SortFunc(out, snapshots.SecretName.Compare)
	return out
}
