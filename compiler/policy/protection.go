package policy

// Protection says which requests are refused. The zero Protection refuses none.
type Protection struct {
	// Deny and Allow are networks of clients. A client in Deny is refused, and
	// so is one outside Allow if anything is named there, be it an empty list.
	Deny, Allow Networks
	// AllowSuffices serves clients in Allow without asking who they are, and has the filters
	// ask all others, who are not refused.
	AllowSuffices bool
	Rate          *RateLimit
	// MaxBody is the most bytes that a request's body may have; 0 is any.
	MaxBody int64
	// Clients is nil where clients need not say who they are over TLS.
	Clients *ClientCertificate
}

// RateLimit refuses a client that sends more than Requests in a Period, or has more than
// Connections requests at a time; 0 is any number. Each HAProxy counts for itself.
type RateLimit struct {
	Requests    int
	Connections int
	Period      Duration
	// Header is the one whose values are told apart; "" tells clients apart by
	// their addresses.
	Header string
	Status int // of the refusal
	// Exempt are networks whose clients are not counted.
	Exempt Networks
}

// Any reports whether anything is refused.
func (p Protection) Any() bool {
	return p.Deny.Any() || p.Allow.Any() || p.Rate != nil || p.MaxBody > 0 || p.Clients != nil
}
