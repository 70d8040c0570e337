package policy

// Affinity keeps the requests of a session with the endpoint that answered the
// first of them, for as long as it is there, by means of a cookie that HAProxy
// sets. Every HAProxy gives an endpoint the same cookie.
type Affinity struct {
	// Cookie is its name. Domain is who else may get it; "" is the host alone.
	Cookie, Domain string
	SameSite       SameSite
	// Path is the path below which browsers send it; "" is all.
	Path string
	// MaxAge is for how many seconds browsers keep it; 0 is until they end.
	MaxAge int
	// HTTPSOnly says on which answers it is secure; "" is with SameSiteNone only.
	HTTPSOnly HTTPSOnly
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

// HTTPSOnly says which cookies browsers are to send over HTTPS only.
type HTTPSOnly string

// The values of HTTPSOnly: all, none, and those of answers over HTTPS.
const (
	HTTPSAlways HTTPSOnly = "always"
	HTTPSNever  HTTPSOnly = "never"
	HTTPSAuto   HTTPSOnly = "auto"
)

// Secure reports whether the cookie is always for HTTPS only.
func (a Affinity) Secure() bool {
	return a.HTTPSOnly == HTTPSAlways || a.HTTPSOnly == "" && a.SameSite == SameSiteNone
}

// SecureOverTLS reports whether it is where it was set over HTTPS.
func (a Affinity) SecureOverTLS() bool { return a.HTTPSOnly == HTTPSAuto }
