package gatewayapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/layout"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
)

// listener is a listener of the Gateway. Host has the form of [routing.Host]; "" means all hosts.
type listener struct {
	name, host   string
	secure       bool
	passes       bool // connections are passed through
	certificates []types.NamespacedName
	// owner is the host of the model whose routes the listener has, if known is set. A plain listener without a
	// host has the routes of all hosts that have no listener of their own.
	owner string
	known bool
}

// virtualHost is a host of the model that has routes or is held.
type virtualHost struct {
	routing.Host
	own bool // it has a plain listener of its own
}

// hosts returns the hosts of the model by name.
func (m *mover) hosts() map[string]*virtualHost {
	out := map[string]*virtualHost{}
	for _, h := range m.model.Held {
		out[h.Name] = &virtualHost{Host: routing.Host{Name: h.Name, Closed: h.Closed, Origin: h.Origin}}
	}
	for _, h := range m.model.Hosts {
		out[h.Name] = &virtualHost{Host: h}
	}
	namespaces := map[string]bool{}
	for _, h := range m.model.Hosts {
		for _, r := range h.Routes {
			namespaces[r.Origin.Object.Namespace] = true
		}
	}
	if m.model.Default != "" {
		namespaces[m.model.DefaultOrigin.Object.Namespace] = true
	}
	for name, h := range out {
		if name == "" {
			continue
		}
		// Namespaces that have no routes for a host cannot reach it if it has a listener of its own.
		h.own = h.Closed && m.model.Default != "" || m.keepsHosts() && len(namespaces) > 1
		for other := range out {
			h.own = h.own || other != name && layout.Takes(other, name)
		}
	}
	return out
}

// listeners returns the listeners that the Gateway needs. Among Ingresses, a host owns its requests. If a less
// specific host would take them too, it needs a plain listener of its own. Over HTTPS every host has one.
func (m *mover) listeners(hosts map[string]*virtualHost) []listener {
	var out []listener
	add := func(l listener) { out = append(out, named(out, l)) }
	if m.HTTPPort > 0 {
		add(listener{known: hosts[""] != nil})
		for _, name := range sortedKeys(hosts) {
			if hosts[name].own {
				add(listener{host: name, owner: name, known: true})
			}
		}
	}
	if m.HTTPSPort > 0 {
		for _, l := range m.secureListeners(hosts) {
			add(l)
		}
	}
	return out
}

// named gives a listener a unique name.
func named(others []listener, l listener) listener {
	base := "http"
	switch {
	case l.passes:
		base = "tls"
	case l.secure:
		base = "https"
	}
	switch {
	case hostname.IsWildcard(l.host):
		base += "-any" + l.host
	case l.host != "":
		base += "-" + l.host
	}
	if len(base) > 200 {
		sum := sha256.Sum256([]byte(base))
		base = strings.Trim(base[:180], "-.") + "-" + hex.EncodeToString(sum[:6])
	}
	l.name = base
	for slices.ContainsFunc(others, func(o listener) bool { return o.name == l.name }) {
		l.name += "-2"
	}
	return l
}

// secureListeners returns the listeners for HTTPS, one for each host that has a certificate.
func (m *mover) secureListeners(hosts map[string]*virtualHost) []listener {
	wanted := map[string]bool{}
	for name := range hosts {
		wanted[name] = true
	}
	for _, c := range m.model.Certificates {
		for _, host := range c.Hosts {
			wanted[hostname.Of(host)] = true
		}
	}
	for _, s := range m.model.ServerNames {
		wanted[hostname.Of(s.Host)] = true
	}
	if m.model.DefaultCertificate != "" {
		wanted[""] = true
	}
	all := sortedKeys(wanted)
	wildcards := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !hostname.IsWildcard(name) })
	var out []listener
	for _, name := range all {
		owner, known := ownerOf(hosts, name)
		certificates := m.certificatesOf(name)
		for _, wildcard := range wildcards { // a wildcard would take the requests of hosts below it
			if len(certificates) == 0 && layout.Takes(wildcard, name) {
				certificates = m.certificatesOf(wildcard)
			}
		}
		switch {
		case len(certificates) > 0 && (known || m.model.Default != ""):
			out = append(out, listener{host: name, secure: true, certificates: certificates, owner: owner, known: known})
		case len(certificates) == 0 && name != "" && known && len(hosts[name].Routes) > 0:
			m.say(diag.Warning, hosts[name].Origin.Object, hosts[name].Origin.Position, "host "+hostname.Shown(name)+" has no certificate: it is not served over HTTPS, where clients got the default one",
				"list it in tls, or give --config a default certificate")
		}
	}
	if hosts[""] != nil && m.model.DefaultCertificate == "" {
		m.say(diag.Warning, hosts[""].Origin.Object, hosts[""].Origin.Position, "rules without a host are served over HTTPS only for hosts that have a certificate", "")
	}
	return out
}

// ownerOf returns the host of the model whose rules Ingresses apply to requests for a host.
func ownerOf(hosts map[string]*virtualHost, host string) (owner string, known bool) {
	for _, name := range []string{host, hostname.WildcardOf(host), ""} {
		if hosts[name] != nil {
			return name, true
		}
	}
	return "", false
}

// certificatesOf returns the Secrets of the certificates that clients of a host get.
func (m *mover) certificatesOf(host string) []types.NamespacedName {
	secretOf := func(file string) (out []types.NamespacedName) {
		for _, c := range m.model.Certificates {
			if c.File == file {
				out = append(out, types.NamespacedName(c.Secret))
			}
		}
		return out
	}
	for _, name := range []string{host, hostname.WildcardOf(host)} {
		if name == "" {
			continue
		}
		for _, s := range m.model.ServerNames {
			if hostname.Of(s.Host) == name && len(s.Certificates) > 0 {
				var out []types.NamespacedName
				for _, file := range s.Certificates {
					out = append(out, secretOf(file)...)
				}
				return out
			}
		}
		for _, c := range m.model.Certificates {
			if slices.ContainsFunc(c.Hosts, func(h string) bool { return hostname.Of(h) == name }) {
				return []types.NamespacedName{types.NamespacedName(c.Secret)}
			}
		}
	}
	return secretOf(m.model.DefaultCertificate)
}

// redirectsWholly returns the filter with which a backend redirects all plain requests to HTTPS, or nil.
func redirectsWholly(b routing.Backend) *policy.HTTPSRedirect {
	for _, f := range b.Filters {
		if redirect, ok := f.(policy.HTTPSRedirect); ok {
			return &redirect
		}
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	var out []string
	for key := range m {
		out = append(out, key)
	}
	slices.SortFunc(out, cmp.Compare[string])
	return out
}
