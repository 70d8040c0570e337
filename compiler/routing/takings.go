package routing

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/internal/printable"
)

// mostTold is how many takings of a host its owner is told one by one.
const mostTold = 5

// tellOwners tells the owners of hosts who else has paths of them, and hosts below their
// wildcards, unless they share them. Each host's owner is told once.
func (t *translation) tellOwners() {
	below := map[string][]string{} // by wildcard
	for _, host := range slices.Sorted(maps.Keys(t.hosts)) {
		o := t.ownerOf(host)
		if o == nil || host == "" {
			continue
		}
		if w := t.owners[wildcardKey(host)]; w != nil && w.namespace() != o.namespace() && older(w.by, o.by) && !t.isShared(host, w, o.namespace()) {
			below[wildcardKey(host)] = append(below[wildcardKey(host)], fmt.Sprintf("%s by %s", host, o.by.Ref))
		}
		routes := t.hosts[host].routes
		var matches []PathMatch
		for match, c := range routes {
			if c.by.Ref.Namespace != o.namespace() && !t.isShared(host, o, c.by.Ref.Namespace) {
				matches = append(matches, match)
			}
		}
		slices.SortFunc(matches, PathMatch.compare)
		var taken []string
		for _, match := range matches {
			taken = append(taken, fmt.Sprintf("%s (%s) by %s", printable.Quoted(orSlash(match.Path)), match.Type, routes[match].by.Ref))
		}
		t.tellTaken(o, "other namespaces have paths of host "+shownHost(host), taken, "to have them alone, ask for hosts: owned in the configuration; "+options.Prefix+"share-host says that it is meant")
	}
	for _, wildcard := range slices.Sorted(maps.Keys(below)) {
		t.tellTaken(t.owners[wildcard], "other namespaces have hosts below "+shownHost(wildcard), below[wildcard], "to own these too, ask for hosts: owned in the configuration; "+options.Prefix+"share-host says that it is meant")
	}
}

func (t *translation) tellTaken(o *owner, what string, taken []string, hint string) {
	if len(taken) == 0 {
		return
	}
	more := ""
	if n := len(taken) - mostTold; n > 0 {
		more = fmt.Sprintf(", and %d more", n)
		taken = taken[:mostTold]
	}
	t.report(diag.Warning, o.by, o.by.Position(o.path...), what+": "+strings.Join(taken, ", ")+more, hint)
}

// shownHost returns a host of the model as rules have it.
func shownHost(host string) string {
	if strings.HasPrefix(host, ".") {
		return "*" + host
	}
	return host
}
