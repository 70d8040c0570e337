package routing

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/snapshots"
)

// nameCookie gives the cookie of sessions the name that it has unless one was
// asked for. Each Service port has its own, for the cookies of a host are sent
// with all of its paths: under one name, the Services of a host would take each
// other's sessions away.
func nameCookie(u *policy.Upstream, r resolved) {
	if u.Affinity == nil || u.Affinity.Cookie != "" {
		return
	}
	of := r.service.String()
	if len(r.targets) > 0 {
		of = r.targets[0].Service.String()
	}
	digest := sha256.Sum256([]byte(of))
	named := *u.Affinity
	named.Cookie = "hapsnap-" + hex.EncodeToString(digest[:4])
	u.Affinity = &named
}

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
func (t *translation) reportSharedCookies() {
	for _, host := range slices.Sorted(maps.Keys(t.hosts)) {
		owners := map[stickyCookie]stickyClaim{}
		reported := map[diag.Object]bool{}
		for _, c := range t.stickyClaims(host) {
			owner, taken := owners[c.cookie]
			switch {
			case !taken:
				owners[c.cookie] = c
			case owner.service != c.service && !reported[c.by.Ref]:
				reported[c.by.Ref] = true
				t.report(diag.Warning, c.by, c.origin.Position, fmt.Sprintf("the cookie %s of Service %s%s is that of Service %s too, by %s: each takes the other's sessions away",
					c.cookie.name, c.service.Service, ofHost(host), owner.service.Service, owner.by.Ref),
					"set "+options.Prefix+"affinity-cookie-name or affinity-cookie-path")
			}
		}
	}
}

// stickyClaims returns the routes of a host whose sessions stay with servers, those of
// the oldest Ingress first.
func (t *translation) stickyClaims(host string) []stickyClaim {
	var out []stickyClaim
	for _, c := range t.hosts[host].routes {
		b := t.backends[c.backend]
		if b == nil || b.Upstream == nil || b.Upstream.Affinity == nil || len(b.Targets) == 0 {
			continue
		}
		a := b.Upstream.Affinity
		out = append(out, stickyClaim{c, stickyCookie{a.Cookie, cmp.Or(a.Path, "/")}, b.Targets[0].Service})
	}
	slices.SortFunc(out, func(a, b stickyClaim) int {
		return cmp.Or(compareAge(a.by, b.by), a.by.Ref.Compare(b.by.Ref), cmp.Compare(a.service.String(), b.service.String()), a.origin.compare(b.origin))
	})
	return out
}
