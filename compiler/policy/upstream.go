package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// Upstream says how the servers of a backend are chosen and spoken to. A zero field means the default.
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
	// RetryOn are the events and status codes after which a request is sent again, as HAProxy writes them,
	// such as "conn-failure 500". The body of the request is waited for then, so that it can be; "" leaves it
	// to the defaults.
	RetryOn string
	Check   healthCheck
	// SlowStart is how long a new server takes to get its whole share.
	SlowStart Duration
	Affinity  *Affinity // nil: every request goes where Balance says
}

// RetryCount returns the number of retries.
func (u Upstream) RetryCount() int { return *u.Retries }

// RetryWords returns the words of RetryOn.
func (u Upstream) RetryWords() []string { return strings.Fields(u.RetryOn) }

// Balance is how servers are chosen. Key is the header or the parameter of the
// query that header and query look at.
type Balance struct {
	By  Algorithm
	Key string
}

// Algorithm is a way to choose a server.
type Algorithm string

// The algorithms. The last four send equal requests to the same server.
const (
	roundRobin Algorithm = "roundrobin"
	LeastConn  Algorithm = "leastconn"
	random     Algorithm = "random"
	First      Algorithm = "first"
	bySource   Algorithm = "source"
	byURI      Algorithm = "uri"
	byHeader   Algorithm = "header"
	byQuery    Algorithm = "query"
)

// Hashes reports whether servers are chosen by the hash of something.
func (b Balance) Hashes() bool {
	return b.By == bySource || b.By.NeedsHTTP()
}

// IsWhole reports whether a is an algorithm that needs no name.
func (a Algorithm) IsWhole() bool {
	switch a {
	case roundRobin, LeastConn, random, First, bySource, byURI:
		return true
	}
	return false
}

// IsNamed reports whether a is an algorithm that needs the name of a header or a parameter.
func (a Algorithm) IsNamed() bool { return a == byHeader || a == byQuery }

// NeedsHTTP reports whether a reads the request, which connections without HTTP have none of.
func (a Algorithm) NeedsHTTP() bool { return a == byURI || a.IsNamed() }

// Protocol is what is spoken to servers.
type Protocol string

// The protocols; "" is HTTP/1.1. GRPC is HTTP/2 without delays. With Opaque, HAProxy passes connections
// on without reading them.
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

// healthCheck says how HAProxy checks servers. Without a Path it only connects to them.
type healthCheck struct {
	Path, Host string
	// Status is a range such as "200-399".
	Status            string
	Interval, Timeout Duration
	Rise, Fall        int
}

// Affinity keeps the requests of a session with the endpoint that answered the
// first of them, for as long as it is there, by means of a cookie that HAProxy
// sets. Every HAProxy gives an endpoint the same cookie.
type Affinity struct {
	// Cookie is its name. Domain is who else may get it; "" is the host alone.
	Cookie, Domain string
	SameSite       SameSite
	// Path is the path below which browsers send it; "" is all.
	Path string
	// MaxAge is for how many seconds browsers keep it; 0 is until they end. MaxLife is after how many seconds, to four,
	// HAProxy takes it no more, whatever browsers do; 0 is never.
	MaxAge, MaxLife int
	// HTTPSOnly says on which answers it is secure; "" is with SameSiteNone only.
	HTTPSOnly HTTPSOnly
	// Preserve leaves a cookie of this name alone that the server itself set.
	Preserve bool
}

// SameSite says with which requests from other sites a browser sends a cookie;
// "" leaves it to the browser.
type SameSite string

// SameSiteNone is the value with which browsers want the cookie secure.
const SameSiteNone SameSite = "None"

// HTTPSOnly says which cookies browsers are to send over HTTPS only.
type HTTPSOnly string

// The values of HTTPSOnly: all, none, and those of answers over HTTPS.
const (
	HTTPSAlways HTTPSOnly = "always"
	HTTPSNever  HTTPSOnly = "never"
	HTTPSAuto   HTTPSOnly = "auto"
)

// Named returns the affinity with the name that its cookie has unless one was asked for. Each Service port has its own, for
// the cookies of a host are sent with all of its paths: under one name, the Services of a host would take each other's
// sessions away.
func (a Affinity) Named(service string) Affinity {
	if a.Cookie == "" {
		digest := sha256.Sum256([]byte(service))
		a.Cookie = "hapsnap-" + hex.EncodeToString(digest[:4])
	}
	return a
}

// Secure reports whether the cookie is always for HTTPS only.
func (a Affinity) Secure() bool {
	return a.HTTPSOnly == HTTPSAlways || a.HTTPSOnly == "" && a.SameSite == SameSiteNone
}

// SecureOverTLS reports whether it is where it was set over HTTPS.
func (a Affinity) SecureOverTLS() bool { return a.HTTPSOnly == HTTPSAuto }

// FastCGI says which script of an application a path is for.
type FastCGI struct {
	// Root is the directory of the scripts where the application runs.
	Root string
	// Index is the script for paths that end in a slash.
	Index string
	// PathInfo is a regular expression that divides a decoded path into the
	// script and, if it has a second group, what follows as PATH_INFO; "" takes
	// all of it for the script.
	PathInfo string
	// Params are what the application is told besides, or in place of what HAProxy would tell
	// it: names and values, by turns.
	Params []string
}

// ParamList returns the Params one by one.
func (f FastCGI) ParamList() []struct{ Name, Value string } {
	var out []struct{ Name, Value string }
	for i := 0; i+1 < len(f.Params); i += 2 {
		out = append(out, struct{ Name, Value string }{f.Params[i], f.Params[i+1]})
	}
	return out
}

// Name returns a name for the settings, which equal ones share.
func (f FastCGI) Name() string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{f.Root, f.Index, f.PathInfo}, f.Params...), "\x00")))
	return "hapsnap_" + hex.EncodeToString(sum[:8])
}

// Duration is a time as HAProxy writes it, such as "30s".
type Duration string

// Seconds returns the duration in whole seconds, rounded up; 0 if it is none.
func (d Duration) Seconds() int {
	if n, ok := strings.CutSuffix(string(d), "d"); ok { // which Go does not know
		days, _ := strconv.Atoi(n)
		return days * 24 * 3600
	}
	t, err := time.ParseDuration(string(d))
	if err != nil {
		return 0
	}
	return int((t + time.Second - 1) / time.Second)
}
