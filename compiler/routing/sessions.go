package routing

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/hapsnap/hapsnap/compiler/policy"
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
