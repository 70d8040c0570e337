package dataplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
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

// Info returns the version of the API. It needs no HAProxy behind it.
func (c *Client) Info(ctx context.Context) (APIInfo, error) {
	var body struct {
		API struct{ Version string } `json:"api"`
	}
	_, err := c.getSmall(ctx, "get info", "/info", &body)
	return APIInfo{Version: body.API.Version}, err
}
