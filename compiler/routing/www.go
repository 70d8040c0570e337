package routing

import (
	"strings"

	"github.com/hapsnap/hapsnap/compiler/policy"
)

// redirectWWW gives the Ingress at hand the names of its hosts with www. before them, or without
// it, to redirect from. Whoever names such a host in a rule, or as an alias, keeps it, however
// young: nobody is redirected from what somebody serves.
func (t *translation) redirectWWW(ing ingress) {
	if !t.asked.redirectWWW || t.asked.denied {
		return
	}
	at := originOf(ing, annotationPath("redirect-www")...)
	for _, host := range ruleHosts(ing.Value.Spec.Rules) {
		host = normalHost(host)
		from := otherName(host)
		if message, _ := checkHost(from); strings.HasPrefix(host, "*.") || message != "" || t.routed[from] || t.hosts[from] != nil {
			continue
		}
		if !t.mayDecide(ing, at.Position, "annotation redirect-www", host) || !t.mayDecide(ing, at.Position, "annotation redirect-www", from) {
			continue
		}
		// Names of Services hold no underscore, so that no other backend has this name.
		backend := "hapsnap_www_" + host
		t.backends[backend] = &Backend{Name: backend, Filters: []policy.Filter{policy.HostRedirect{Host: host, Code: 308}}, Origins: []Origin{at}}
		h := &virtualHost{origin: at, form: t.formOf(ing, from), routes: map[PathMatch]claim{}}
		h.routes[PathMatch{Type: Prefix}] = claim{by: ing, backend: backend, origin: at}
		t.hosts[from] = h
	}
}

// otherName returns a host with www. before it, or without it.
func otherName(host string) string {
	if rest, ok := strings.CutPrefix(host, "www."); ok {
		return rest
	}
	return "www." + host
}
