package policy

// Upstream says how the servers of a backend are chosen and spoken to. What is
// zero is as in the defaults.
type Upstream struct {
	Balance  Balance
	Protocol Protocol
	TLS      *TLS // nil: in the clear
	// FastCGI is given if that is the Protocol, and else nil.
	FastCGI *FastCGI
	// ProxyProtocol is the version, 1 or 2, to send; 0 sends none.
	ProxyProtocol int
	// MaxConnections and MaxQueue are for each server and each HAProxy.
	MaxConnections, MaxQueue int
	Timeouts                 Timeouts
	Retries                  *int // nil: as in the defaults
	Check                    HealthCheck
	// SlowStart is how long a new server takes to get its whole share.
	SlowStart Duration
	Affinity  *Affinity // nil: every request goes where Balance says
}

// RetryCount is what Retries points to.
func (u Upstream) RetryCount() int { return *u.Retries }

// Balance is how servers are chosen. Key is the header or the parameter of the
// query that [ByHeader] and [ByQuery] look at.
type Balance struct {
	By  Algorithm
	Key string
}

// Algorithm is a way to choose a server.
type Algorithm string

// The algorithms. The last four send what is equal to the same server.
const (
	RoundRobin Algorithm = "roundrobin"
	LeastConn  Algorithm = "leastconn"
	Random     Algorithm = "random"
	First      Algorithm = "first"
	BySource   Algorithm = "source"
	ByURI      Algorithm = "uri"
	ByHeader   Algorithm = "header"
	ByQuery    Algorithm = "query"
)

// Hashes reports whether servers are chosen by the hash of something.
func (b Balance) Hashes() bool {
	return b.By == BySource || b.By == ByURI || b.By == ByHeader || b.By == ByQuery
}

// Protocol is what is spoken to servers.
type Protocol string

// The protocols; "" is HTTP/1.1. GRPC is HTTP/2 without delays. Opaque is
// whatever connections hold, which are passed on as they are.
const (
	HTTP1  Protocol = "h1"
	HTTP2  Protocol = "h2"
	GRPC   Protocol = "grpc"
	FCGI   Protocol = "fcgi"
	Opaque Protocol = "opaque"
)

// TLS says how servers are spoken to over TLS.
type TLS struct {
	// Verify checks the server's certificate against Authorities, and against
	// the name that is sent.
	Verify bool
	// Authorities is the file of certificate authorities, and Certificate that of
	// the certificate to show to servers that ask for one, as snapshots name the
	// files of Secrets. Without them these are the system's authorities, and none.
	Authorities, Certificate string
	// ServerName is sent as SNI. With OfRequest it is the request's host.
	ServerName string
	OfRequest  bool
	// MinVersion and MaxVersion are as HAProxy writes them, such as "TLSv1.2", and Ciphers, for
	// versions up to 1.2, as OpenSSL does; "" leaves it to HAProxy.
	MinVersion, MaxVersion, Ciphers string
}

// Timeouts are those of a backend. KeepAlive is for connections to servers.
type Timeouts struct {
	Connect, Server, Queue, Tunnel, KeepAlive Duration
}

// HealthCheck says how servers are found to be up. Without a Path it is by
// connecting to them.
type HealthCheck struct {
	Path, Host string
	// Status is a range such as "200-399".
	Status            string
	Interval, Timeout Duration
	Rise, Fall        int
}
