package policy

// BasicAuth serves only who knows a password (RFC 7617). The Authorization
// header goes on to the servers.
type BasicAuth struct {
	// Secret holds the users, as htpasswd under the key auth. It is one of the
	// namespace of whoever names it.
	Secret string
	// Realm is what users are told that the password is for.
	Realm string
	// Users is the name of the list of users that the Secret's are joined to.
	Users string
	// Alternative serves who got in by another way, too. Where Others is set, those who know no
	// password are not refused yet: another filter asks them.
	Alternative, Others bool
}

// ExternalAuth asks a Service whether a request may pass. An answer of 2xx
// passes it; 401 and 403 are what the client gets; anything else, or no answer
// in time, refuses the request with 503.
type ExternalAuth struct {
	Service ServiceRef
	// Host and Path are those of the request to the Service, Method is "GET",
	// "HEAD" or "POST". It has no body.
	Host, Path, Method string
	Timeout            Duration
	// RequestHeaders are those of the client's request that the Service gets;
	// nil is all.
	RequestHeaders []string
	// AnswerHeaders are those of the Service's answer that the request goes on
	// with. What the client sent of these names is removed.
	AnswerHeaders []string
	// SignIn is a URL or a path to which 401 redirects, with the URL of the
	// request as a parameter; "" answers 401.
	SignIn string
	// Return says what of the URL that is, and Parameter what it is called.
	Return    Return
	Parameter string
	// HostOfRequest has the Service get the Host of the client's request, not Host.
	HostOfRequest bool
	// Backend is the name of the backend that has the Service's servers.
	Backend string
	// Alternative serves who got in by another way, too, without asking the Service. With a
	// Realm, those who are refused hear that a password of it would do.
	Alternative bool
	Realm       string
}

// ReservedHeaders removes headers that a client sent, and by which an [ExternalAuth] of another
// route to the same endpoints tells them of the user.
type ReservedHeaders struct {
	Names []string // in lower case
}

// Return is what a client comes back to from where it was sent to sign in.
type Return string

// The values of Return: the whole URL, its path and query, or nothing.
const (
	ReturnURL  Return = "url"
	ReturnPath Return = "path"
	ReturnNone Return = "none"
)

// ServiceRef names a Service and a number of its ports. Without a Namespace it
// is one of the namespace of whoever names it.
type ServiceRef struct {
	Namespace, Name string
	Port            int
}

// Milliseconds returns the timeout as a number.
func (a ExternalAuth) Milliseconds() int { return a.Timeout.Seconds() * 1000 }

// Kind returns "BasicAuth".
func (BasicAuth) Kind() Kind { return "BasicAuth" }

// Kind returns "ReservedHeaders".
func (ReservedHeaders) Kind() Kind { return "ReservedHeaders" }

// Kind returns "ExternalAuth".
func (ExternalAuth) Kind() Kind { return "ExternalAuth" }
