// Package dataplane talks to one HAProxy instance through its Dataplane API v3, in the versions 3.2 to 3.4.
//
// It is thin: one method for each call, each a single HTTP exchange. It never chooses a version and never
// sends skip_version. It retries only a request that was refused because its credentials were renewed at that
// time. What to do after a conflict, a lost answer or a failed reload is the caller's decision. Callers can
// tell these apart: each failure is an [*Error] that matches exactly one of the Err values of this package.
// For a write it says whether the write may have happened.
//
// A success proves what the API did, and not what HAProxy runs. Callers read back [Client.RuntimeInfo],
// [Client.Servers] or [Client.RuntimeCertificate]. Only the result of [Client.SetServer] was read from the
// worker after the change.
//
// Package dataplanetest reproduces what the API does with a request, as measured on real ones. One contract
// suite runs against both.
package dataplane

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Options are the address of an API, and the credentials for it.
type Options struct {
	// URL is http://host:port or https://host:port, without /v3.
	URL string
	// Username and Password are sent with each request (basic authentication).
	Username, Password string
	// Unknown says why the credentials are not known, and is "" if they are. If they are not, no call is made.
	Unknown string
	// TLS is for https.
	TLS TLS
	// HTTP makes the requests. TLS above does not apply to it. Its transport must not retry writes. If it is
	// nil, a client is used that gives up connecting after 5 seconds, and gives up waiting for the answer to
	// a write after 90. Reads are given up after 20 seconds with any client.
	HTTP *http.Client
	// Texts are shared with the clients of other instances. If it is nil, the client shares none.
	Texts *Texts
}

// Client calls one API. Several goroutines may use it.
type Client struct {
	base   string
	access atomic.Pointer[access]
	peer   atomic.Pointer[netip.AddrPort]
	text   atomic.Int64 // how many bytes the haproxy.cfg had that was read last
	texts  *Texts

	readTimeout time.Duration
}

// access is what requests are made with. Renew replaces it.
type access struct {
	username, password, unknown string
	http                        *http.Client
}

// New returns a client. It makes no request.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, fmt.Errorf("parse instance url: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("parse instance url %q: want http://host:port or https://host:port", u.Redacted())
	}
	if u.User != nil {
		return nil, errors.New("parse instance url: credentials belong in the user name and password settings")
	}
	c := &Client{base: strings.TrimSuffix(u.Scheme+"://"+u.Host+u.Path, "/") + "/v3", readTimeout: readTimeout, texts: cmp.Or(o.Texts, &Texts{})}
	return c, c.Renew(o)
}

// Renew replaces the credentials, also for work that is under way. A request that was sent before ends with
// the old ones. The URL and the texts stay.
func (c *Client) Renew(o Options) error {
	a := &access{username: o.Username, password: o.Password, unknown: o.Unknown, http: o.HTTP}
	if a.http == nil {
		config, err := o.TLS.config()
		if err != nil {
			return fmt.Errorf("prepare TLS: %w", err)
		}
		a.http = defaultHTTP(config, c.met, aliveWithin)
	}
	if old := c.access.Swap(a); old != nil {
		old.http.CloseIdleConnections()
	}
	return nil
}

// met remembers the address that a connection reached.
func (c *Client) met(connection net.Conn) {
	if at, ok := connection.RemoteAddr().(*net.TCPAddr); ok {
		peer := at.AddrPort()
		c.peer.Store(&peer)
	}
}

// Peer returns the address that the newest connection reached. It is zero if there was no connection, or if
// Options.HTTP made it.
func (c *Client) Peer() netip.AddrPort {
	if p := c.peer.Load(); p != nil {
		return *p
	}
	return netip.AddrPort{}
}

// aliveWithin is how long nothing arrives on a connection before it is checked, and how long that takes at most.
const aliveWithin = 15 * time.Second

// defaultHTTP waits long enough for the slowest call, which is a forced reload of a large configuration. It
// uses no proxy: instances are close.
func defaultHTTP(config *tls.Config, met func(net.Conn), within time.Duration) *http.Client {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	return &http.Client{
		Timeout: 90 * time.Second,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				connection, err := dialer.DialContext(ctx, network, address)
				if err == nil {
					met(connection)
				}
				return connection, err
			},
			TLSClientConfig:     config,
			TLSHandshakeTimeout: 5 * time.Second,
			IdleConnTimeout:     30 * time.Second,
			MaxIdleConnsPerHost: 4,
			ForceAttemptHTTP2:   true,
			// With HTTP/2 all requests share a connection. If that died and nobody said so, each would wait in vain,
			// until TCP gives it up after a quarter of an hour.
			HTTP2: &http.HTTP2Config{SendPingTimeout: within, PingTimeout: within},

			MaxResponseHeaderBytes: largestHeader,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// APIInfo describes the API itself.
type APIInfo struct {
	// Version is the API's own version, such as "v3.2.5 1a2b3c4". A build from source may lack the number.
	Version string
}

// Clock returns the time of the API's machine, to the second. It is zero if the API does not say it.
func (c *Client) Clock(ctx context.Context) (time.Time, error) {
	a, err := c.do(ctx, call{op: "get info", method: http.MethodGet, path: "/info", ok: []int{http.StatusOK}, small: true})
	if err != nil {
		return time.Time{}, err
	}
	at, err := http.ParseTime(a.header.Get("Date"))
	if err != nil {
		return time.Time{}, nil //nolint:nilerr // the API does not say it
	}
	return at, nil
}

// Info returns the version of the API. The API needs no HAProxy for that.
func (c *Client) Info(ctx context.Context) (APIInfo, error) {
	var body struct {
		API struct{ Version string } `json:"api"`
	}
	_, err := c.getSmall(ctx, "get info", "/info", &body)
	return APIInfo{Version: body.API.Version}, err
}

// TLS says which certificate of an https URL is trusted, and which one is sent to the API. All fields except
// the name are PEM. The check of the API's certificate cannot be turned off.
type TLS struct {
	// CA holds the authorities that may have signed the API's certificate. It may be that certificate itself.
	// If it is empty, the authorities of the system are used.
	CA string
	// Certificate and Key are sent to an API that asks for a client certificate.
	Certificate, Key string
	// ServerName is the name that the API's certificate must have. If it is empty, it is the host of the URL.
	ServerName string
}

// Check returns why no connection can be made with these values.
func (t TLS) Check() error {
	_, err := t.config()
	return err
}

func (t TLS) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(t.CA)) {
			return nil, errors.New("the authorities hold no certificate in PEM")
		}
	}
	if t.Certificate == "" && t.Key == "" {
		return config, nil
	}
	pair, err := tls.X509KeyPair([]byte(t.Certificate), []byte(t.Key))
	if err != nil {
		return nil, fmt.Errorf("the client certificate cannot be used: %w", err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

// These are the oldest supported versions. Of the API, only the major version 3 is supported.
var (
	oldestHAProxy = release{2, 6}
	oldestAPI     = release{3, 2}
)

// UnsupportedError says that an instance has an unsupported version.
type UnsupportedError struct{ Message string }

// Error implements error.
func (e UnsupportedError) Error() string { return e.Message }

// Supported asks for the version of the API, and returns an [UnsupportedError] if this package does not
// support it.
func (c *Client) Supported(ctx context.Context) error {
	info, err := c.Info(ctx)
	if errors.Is(err, ErrNotFound) {
		return UnsupportedError{fmt.Sprintf("there is no Dataplane API of version 3: want %s or a later 3", oldestAPI)}
	}
	if err != nil {
		return err
	}
	return checkAPI(info.Version)
}

// checkAPI checks a version such as "v3.2.5 1a2b3c4". A build from source has no number. It is accepted,
// since it answers calls of version 3.
func checkAPI(version string) error {
	v, ok := parseRelease(version)
	if ok && (v.major != oldestAPI.major || v.before(oldestAPI)) {
		return UnsupportedError{fmt.Sprintf("the Dataplane API is %s: want %s or a later 3", strings.TrimSpace(version), oldestAPI)}
	}
	return nil
}

// CheckHAProxy returns an [UnsupportedError] if a version such as "3.2.0-1a2b3c4" is too old. It accepts a
// text without a version.
func CheckHAProxy(version string) error {
	if v, ok := parseRelease(version); ok && v.before(oldestHAProxy) {
		return UnsupportedError{fmt.Sprintf("HAProxy is %s: want %s or later", strings.TrimSpace(version), oldestHAProxy)}
	}
	return nil
}

// release is the beginning of a version.
type release struct{ major, minor int }

// String implements fmt.Stringer.
func (r release) String() string { return fmt.Sprintf("%d.%d", r.major, r.minor) }

func (r release) before(o release) bool {
	return r.major < o.major || (r.major == o.major && r.minor < o.minor)
}

// parseRelease reads versions such as "v3.2.5 1a2b3c4" and "2.6.12-1".
func parseRelease(version string) (release, bool) {
	major, rest, dotted := strings.Cut(strings.TrimPrefix(strings.TrimSpace(version), "v"), ".")
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	x, errX := strconv.Atoi(major)
	y, errY := strconv.Atoi(rest[:end])
	return release{x, y}, dotted && errX == nil && errY == nil
}
