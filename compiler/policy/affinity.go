package policy

// Affinity keeps the requests of a session with the endpoint that answered the
// first of them, for as long as it is there, by means of a cookie that HAProxy
// sets. Every HAProxy gives an endpoint the same cookie.
type Affinity struct {
	// Cookie is its name. Domain is who else may get it; "" is the host alone.
	Cookie, Domain string
	SameSite       SameSite
	// Preserve leaves a cookie of this name alone that the server itself set.
	Preserve bool
}

// SameSite says with which requests from other sites a browser sends a cookie;
// "" leaves it to the browser.
type SameSite string

// The values of SameSite. With SameSiteNone browsers want the cookie secure.
const (
	SameSiteNone   SameSite = "None"
	SameSiteLax    SameSite = "Lax"
	SameSiteStrict SameSite = "Strict"
)

// Secure reports whether the cookie is for HTTPS only.
func (a Affinity) Secure() bool { return a.SameSite == SameSiteNone }
