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
	names := t.tlsNames()
	below := belowWildcards(names)
	for _, host := range names {
		name := ServerName{Host: host, Certificates: t.filesOf(host), Clients: t.clientCheck(host), Origin: t.tlsOrigin(host)}
		name.Except = t.except(name, below[host])
		if len(name.Except) > 0 || name.Clients != nil || len(name.Certificates) == 0 && t.isApart(hostName(host)) {
			out = append(out, name)
			continue
		}
		for _, file := range name.Certificates {
			t.certs[file].Hosts = append(t.certs[file].Hosts, host)
		}
	}
	return out
}

// tlsNames returns the hosts that TLS clients are told apart by, sorted: those
// with certificates, those whose clients are asked for certificates, and those
// whose clients are not, below a wildcard whose clients are; and those below a
// wildcard that has no say in them.
func (t *translation) tlsNames() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(t.tls)), maps.Keys(t.clients))
	if len(t.clients) > 0 {
		for host := range t.hosts {
			if !strings.HasPrefix(host, ".") && t.clients[wildcardOf(host)] != nil {
				names = append(names, host)
			}
		}
	}
	for _, host := range t.apart() {
		if wildcard := wildcardOf(host); t.tls[wildcard] != nil || t.clients[wildcard] != nil {
			names = append(names, host)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// filesOf returns the certificates of a host: those that were named for it, or
// for the wildcard that matches it.
func (t *translation) filesOf(host string) []string {
	if claim := t.tls[host]; claim != nil {
		return claim.files()
	}
	if claim := t.tls[wildcardOf(host)]; claim != nil && !t.isApart(hostName(host)) {
		return claim.files()
	}
	return nil
}

// tlsOrigin returns where a host was named that clients are told apart by.
func (t *translation) tlsOrigin(host string) Origin {
	if claim := t.clients[host]; claim != nil {
		return claim.origin
	}
	if claim := t.tls[host]; claim != nil {
		return claim.origin
	}
	if h := t.hosts[hostName(host)]; h != nil {
		return h.origin
	}
	if o := t.owners[hostName(host)]; o != nil {
		return originOf(o.by, o.path...)
	}
	return Origin{}
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

// except returns the names below a wildcard that are not its own: those with
// other certificates, and those whose clients are asked for others, or for none.
func (t *translation) except(wildcard ServerName, below []string) []string {
	var checked, others []string
	for _, name := range below {
		switch {
		case wildcard.Clients != nil || t.clients[name] != nil:
			checked = append(checked, name)
		case !slices.Equal(t.filesOf(name), wildcard.Certificates):
			others = append(others, name)
		}
	}
	out, size := append(checked, others...), 0
	for i, name := range out {
		if size += len(name) + 2; i == maxExcept || size > maxExceptBytes {
			return out[:i]
		}
	}
	return out
}
