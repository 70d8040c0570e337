package routing

import (
	"maps"
	"slices"
	"strings"
)

// serverNames gives certificates their hosts, and returns those that need more
// than that, sorted.
func (t *translation) serverNames() []ServerName {
	var out []ServerName
	names := slices.Sorted(maps.Keys(t.tls))
	below := belowWildcards(names)
	for _, host := range names {
		claim := t.tls[host]
		name := ServerName{Host: host, Certificates: claim.files(), Except: t.except(host, below[host]), Origin: claim.origin}
		if len(name.Except) > 0 {
			out = append(out, name)
			continue
		}
		for _, file := range name.Certificates {
			t.certs[file].Hosts = append(t.certs[file].Hosts, host)
		}
	}
	return out
}

// files returns the certificates of a claim, in the order of their files.
func (c *tlsClaim) files() []string {
	out := make([]string, len(c.secrets))
	for i, secret := range c.secrets {
		out[i] = certificateFile(secret)
	}
	slices.Sort(out)
	return out
}

// belowWildcards returns the names that a wildcard would match, by wildcard.
func belowWildcards(names []string) map[string][]string {
	out := map[string][]string{}
	for _, name := range names {
		if wildcard := wildcardOf(name); wildcard != "" {
			out[wildcard] = append(out[wildcard], name)
		}
	}
	return out
}

// wildcardOf returns the wildcard that matches a name, "" if none can.
func wildcardOf(name string) string {
	_, parent, ok := strings.Cut(name, ".")
	if !ok || strings.HasPrefix(name, "*.") {
		return ""
	}
	return "*." + parent
}

// maxExcept is how many hosts a wildcard can leave out: they share its line of a
// crt-list, which HAProxy limits to 2048 words and 64 KiB. The names that are
// left over get the wildcard's certificate if its key is of another kind.
const (
	maxExcept      = 1000
	maxExceptBytes = 48 << 10
)

// except returns the names below a wildcard that are not its own.
func (t *translation) except(host string, below []string) []string {
	var out []string
	size := 0
	for _, name := range below {
		if slices.Equal(t.tls[name].files(), t.tls[host].files()) {
			continue
		}
		if size += len(name) + 2; len(out) == maxExcept || size > maxExceptBytes {
			break
		}
		out = append(out, name)
	}
	return out
}
