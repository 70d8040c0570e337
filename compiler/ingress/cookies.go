package ingress

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/snapshots"
)

// stickyCookie is what browsers tell cookies of a host apart by.
type stickyCookie struct{ name, path string }

// stickyClaim is a route whose sessions stay with servers of a Service.
type stickyClaim struct {
	claim
	cookie  stickyCookie
	service snapshots.ServicePort
}

// reportSharedCookies reports routes of a host whose cookie is also that of another
// Service: each answer gives the browser a cookie that the other does not know.
func (f *findings) reportSharedCookies(hosts map[string]*virtualHost, backends map[string]*routing.Backend) {
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		owners := map[stickyCookie]stickyClaim{}
		reported := map[diag.Object]bool{}
		var sticky []stickyClaim // those of the oldest Ingress first
		for _, c := range hosts[host].routes {
			b := backends[c.backend]
			if b == nil || b.Upstream == nil || b.Upstream.Affinity == nil || len(b.Targets) == 0 {
				continue
			}
			a := b.Upstream.Affinity
			sticky = append(sticky, stickyClaim{c, stickyCookie{a.Cookie, cmp.Or(a.Path, "/")}, b.Targets[0].Service})
		}
		slices.SortFunc(sticky, func(a, b stickyClaim) int {
			return cmp.Or(a.by.Compare(b.by.Claimant), cmp.Compare(a.service.String(), b.service.String()), a.origin.Compare(b.origin))
		})
		for _, c := range sticky {
			owner, taken := owners[c.cookie]
			switch {
			case !taken:
				owners[c.cookie] = c
			case owner.service != c.service && !reported[c.by.Ref]:
				reported[c.by.Ref] = true
				f.report(diag.Warning, c.by.Claimant, c.origin.Position, fmt.Sprintf("the cookie %s of Service %s%s is that of Service %s too, by %s: each takes the other's sessions away",
					c.cookie.name, c.service.Service, ofHost(host), owner.service.Service, owner.by.Ref),
					"set "+options.Prefix+"affinity-cookie-name or affinity-cookie-path")
			}
		}
	}
}
