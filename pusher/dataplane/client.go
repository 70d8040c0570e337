// Package dataplane talks to one HAProxy instance through its Dataplane API v3,
// in the versions 3.2 to 3.4.
//
// It is a thin shell: one method for each call, each a single HTTP exchange. It
// never retries (but what was refused for credentials that were renewed under way),
// never chooses a version and never sends skip_version; what to do
// after a conflict, a lost answer or a failed reload is the caller's decision.
// What it promises is that the caller can tell these apart: each failure is an
// [*Error] that matches exactly one of the Err values of this package, and for a
// write it says whether the write may have happened.
//
// A success proves what the API did, not what HAProxy runs. Callers read back
// [Client.RuntimeInfo], [Client.Servers] or [Client.RuntimeCertificate]; what
// [Client.SetServer] returns was read from the worker after the change.
//
// What the API does with a request, measured on real ones, is reproduced in the
// package dataplanetest; one contract suite runs against both.
package dataplane

import (
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

// Options say where an API is and who asks.
type Options struct {
	// URL is http://host:port or https://host:port, without /v3.
	URL string
	// Username and Password are sent with each request (basic authentication).
	Username, Password string
	// TLS is for https.
	TLS TLS
	// HTTP, which knows nothing of TLS above, makes the requests; nil stands for a client that gives up connecting
	// after 5 seconds and waiting for what it writes after 90. What it reads is
	// waited for 20 seconds at most, by any client. Its transport must not retry writes.
	HTTP *http.Client
}

// Client calls one API. Its methods may be used from several goroutines.
type Client struct {
	base   string
	access atomic.Pointer[access]
	peer   atomic.Pointer[netip.AddrPort]

	readTimeout time.Duration
}

// access is what a request is made with.
type access struct {
	username, password string
	http               *http.Client
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
	c := &Client{base: strings.TrimSuffix(u.Scheme+"://"+u.Host+u.Path, "/") + "/v3", readTimeout: readTimeout}
	return c, c.Renew(o)
}

// Renew has requests made with other credentials from now on, also those that
// belong to work under way. What was sent before ends as it began. The URL stays.
func (c *Client) Renew(o Options) error {
	a := &access{username: o.Username, password: o.Password, http: o.HTTP}
	if a.http == nil {
		config, err := o.TLS.config()
		if err != nil {
			return fmt.Errorf("prepare TLS: %w", err)
		}
		a.http = defaultHTTP(config, c.met)
	}
	if old := c.access.Swap(a); old != nil {
		old.http.CloseIdleConnections()
	}
	return nil
}

// met remembers where a connection got to.
func (c *Client) met(connection net.Conn) {
	if at, ok := connection.RemoteAddr().(*net.TCPAddr); ok {
		peer := at.AddrPort()
		c.peer.Store(&peer)
	}
}

// Peer returns where the newest connection got to; zero if there was none, or if
// Options.HTTP made it.
func (c *Client) Peer() netip.AddrPort {
	if p := c.peer.Load(); p != nil {
		return *p
	}
	return netip.AddrPort{}
}

// defaultHTTP waits long enough for the slowest call, a forced reload of a large
// configuration, and does not go through a proxy: instances are neighbours.
func defaultHTTP(config *tls.Config, met func(net.Conn)) *http.Client {
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

			MaxResponseHeaderBytes: largestHeader,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// APIInfo describes the API itself.
type APIInfo struct {
	// Version is the API's own version, such as "v3.2.5 1a2b3c4"; a build from
	// source may leave out the number.
	Version string
}

// Clock returns the time of the API's machine, to the second; zero where it does not
// say it.
func (c *Client) Clock(ctx context.Context) (time.Time, error) {
	a, err := c.do(ctx, call{op: "get info", method: http.MethodGet, path: "/info", ok: []int{http.StatusOK}, small: true})
	if err != nil {
		return time.Time{}, err
	}
	at, err := http.ParseTime(a.header.Get("Date"))
	if err != nil {
		return time.Time{}, nil //nolint:nilerr // it is not told
	}
	return at, nil
}

// Info returns the version of the API. It needs no HAProxy behind it.
func (c *Client) Info(ctx context.Context) (APIInfo, error) {
	var body struct {
		API struct{ Version string } `json:"api"`
	}
	_, err := c.getSmall(ctx, "get info", "/info", &body)
	return APIInfo{Version: body.API.Version}, err
}

// TLS says who is believed to be the API of an https URL, and what is shown to it.
// All but the name is PEM. Nothing turns the check of the API's certificate off.
type TLS struct {
	// CA holds the authorities that may have signed the API's certificate, those of
	// the system where it is empty. It may be the certificate itself.
	CA string
	// Certificate and Key are shown to an API that asks for a client certificate.
	Certificate, Key string
	// ServerName is expected in the API's certificate, the host of the URL where it
	// is empty.
	ServerName string
}

// Check returns why nothing can be connected to with it.
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

// The oldest versions that are worked with. Of the API only the major version 3 is.
var (
	oldestHAProxy = release{2, 6}
	oldestAPI     = release{3, 2}
)

// UnsupportedError is what is at the other end and cannot be worked with.
type UnsupportedError struct{ Message string }

// Error implements error.
func (e UnsupportedError) Error() string { return e.Message }

// Supported asks for the version of the API, and returns an [UnsupportedError] if it
// is not one that this package was made for.
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

// checkAPI judges a version such as "v3.2.5 1a2b3c4". A build from source has no
// number; it answers calls of version 3, which has to do.
func checkAPI(version string) error {
	v, ok := parseRelease(version)
	if ok && (v.major != oldestAPI.major || v.before(oldestAPI)) {
		return UnsupportedError{fmt.Sprintf("the Dataplane API is %s: want %s or a later 3", strings.TrimSpace(version), oldestAPI)}
	}
	return nil
}

// CheckHAProxy returns an [UnsupportedError] if the version, such as "3.2.0-1a2b3c4",
// is too old, and nil for one that says nothing.
func CheckHAProxy(version string) error {
	if v, ok := parseRelease(version); ok && v.before(oldestHAProxy) {
		return UnsupportedError{fmt.Sprintf("HAProxy is %s: want %s or later", strings.TrimSpace(version), oldestHAProxy)}
	}
	return nil
}

// release is what comes first in a version.
type release struct{ major, minor int }

// String implements fmt.Stringer.
func (r release) String() string { return fmt.Sprintf("%d.%d", r.major, r.minor) }

func (r release) before(o release) bool {
	return r.major < o.major || (r.major == o.major && r.minor < o.minor)
}

// parseRelease reads "v3.2.5 1a2b3c4", "2.6.12-1" and their like.
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
