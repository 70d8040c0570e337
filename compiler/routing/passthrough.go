package routing

import (
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/snapshots"
)

// passthroughOption is named in what is said of connections that are passed on.
const passthroughOption = "annotation " + options.Prefix + "ssl-passthrough "

// hostClaim is who has a host first, and so says what becomes of the connections
// that ask for it over TLS: with a backend they are passed on to that.
type hostClaim struct {
	by      ingress
	backend string
	origin  Origin
}

// claimConnections takes the TLS connections of a host that a rule names. They
// belong to the oldest Ingress with the host, whether it passes them on or not:
// on what a host's connections end, one Ingress alone can decide. It is one of the namespace
// that the host belongs to.
func (t *translation) claimConnections(ing ingress, i int, rule networkingv1.IngressRule, host string, at Origin) {
	passes := t.asked.passthrough && !t.asked.denied
	key := hostName(host)
	winner, taken := t.passed[key]
	standing, owner := t.standingOf(ing, key)
	if standing == owns && taken && owner != nil && winner.by.Ref.Namespace != ing.Ref.Namespace {
		taken = false // by one who had it only as long as no Ingress of the owner's did
	}
	switch {
	case !taken && standing != owns:
		if passes {
			t.mayDecide(ing, at.Position, strings.TrimSpace(passthroughOption), host)
		}
		t.passed[key] = hostClaim{by: ing, origin: at}
	case taken && winner.by.Ref == ing.Ref:
	case taken && passes:
		t.reportLost(diag.Error, ing, winner.by, at.Position, passthroughOption+"is not heeded for host "+host+": what becomes of its TLS connections is up to "+precedes(winner.by, ing),
			"give it a host of its own"+winnerAt(winner.origin))
	case taken && winner.backend != "":
		t.reportLost(diag.Warning, ing, winner.by, at.Position, "TLS connections for host "+host+" do not get here: they are passed on as they are by "+precedes(winner.by, ing),
			"only requests in the clear do"+winnerAt(winner.origin))
	case taken:
	default:
		claim := hostClaim{by: ing, origin: at}
		if passes {
			claim.backend = t.passOn(ing, i, rule, host, at)
		}
		t.passed[key] = claim
	}
}

// passOn returns the backend for connections of a host, "" if there can be none.
func (t *translation) passOn(ing ingress, i int, rule networkingv1.IngressRule, host string, at Origin) string {
	switch {
	case t.cfg.HTTPSPort == 0:
		t.report(diag.Warning, ing, at.Position, passthroughOption+"has no effect: nothing listens for HTTPS", "")
		return ""
	case host == "":
		t.report(diag.Error, ing, at.Position, passthroughOption+"is not heeded for a rule without a host: there is none that TLS could ask for", "name the host")
		return ""
	}
	var paths []networkingv1.HTTPIngressPath
	if rule.HTTP != nil {
		paths = rule.HTTP.Paths
	}
	isRoot := func(p networkingv1.HTTPIngressPath) bool {
		return matchOf(p, t.asked.exactPaths, NormalForm) == PathMatch{Type: Prefix, Path: ""}
	}
	root := slices.IndexFunc(paths, isRoot)
	for j, p := range paths {
		if j != root {
			t.report(diag.Warning, ing, ing.Position("spec", "rules", i, "http", "paths", j, "path"),
				"path "+printable.Quoted(orSlash(p.Path))+ofHost(host)+" is for requests in the clear only: TLS connections are passed on as they are", "only a path / of type Prefix says where to")
		}
	}
	if root < 0 {
		t.report(diag.Error, ing, at.Position, passthroughOption+"is not heeded for host "+host+": no path / of type Prefix says where its connections go", "add one")
		return ""
	}
	return t.passthroughBackend(ing, paths[root].Backend, at)
}

// passthroughBackend adds the backend to which an Ingress passes connections on,
// and returns its name. No namespace is its first part, which three more follow.
func (t *translation) passthroughBackend(ing ingress, ref networkingv1.IngressBackend, at Origin) string {
	r := t.resolveService(ing, ref) // what is wrong with it is said of the route
	if ref.Service == nil {
		return t.connectionBackend("tls_"+Unavailable, r, at, func(*Backend) bool { return true }).Name
	}
	name := snapshots.SecretName{Namespace: ing.Ref.Namespace, Name: ref.Service.Name}
	return t.connectionBackend("tls_"+r.name+"."+ing.Ref.Name, r, at, func(b *Backend) bool {
		service, exists := t.services[name]
		return exists && t.equipConnections(b, service, t.asked.values, &ing)
	}).Name
}

// keepApart has the TLS connections end here that ask for hosts in which a wildcard that
// matches them has no say.
func (t *translation) keepApart() {
	for _, host := range t.apart() {
		if _, known := t.passed[host]; known {
			continue
		}
		c := hostClaim{}
		if o := t.owners[host]; o != nil {
			if t.isReleased(o) {
				continue
			}
			c.by, c.origin = o.by, originOf(o.by, o.path...)
		}
		t.passed[host] = c
	}
}

// passthroughListener returns the listener for HTTPS, if any connection to it is
// passed on. Hosts that are not, but that one which is has a wildcard for, are
// among its routes.
func (t *translation) passthroughListener() []Listener {
	l := Listener{Name: "https", Port: t.cfg.HTTPSPort, Protocol: HTTPS}
	t.keepApart()
	for host, c := range t.passed {
		_, parent, _ := strings.Cut(host, ".")
		switch wildcard := t.passed["."+parent]; {
		case c.backend != "":
			l.Routes = append(l.Routes, ConnectionRoute{SNI: host, Backend: c.backend, Origin: c.origin})
		case host != "" && !strings.HasPrefix(host, ".") && wildcard.backend != "":
			l.Routes = append(l.Routes, ConnectionRoute{SNI: host, Terminate: true, Origin: c.origin})
		}
	}
	if len(l.Routes) == 0 {
		return nil
	}
	return []Listener{l}
}
