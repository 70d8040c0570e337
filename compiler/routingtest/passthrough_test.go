package routingtest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
)

// passed returns an Ingress with ssl-passthrough.
func passed(name, rule string, options ...string) ingress {
	return ingress{name: name, annotations: annotated(append([]string{"ssl-passthrough", "true"}, options...)...), rules: []string{rule}}
}

// ownTLS starts a mirror that terminates TLS itself, and returns its port and its certificate for the host.
func ownTLS(t *testing.T, name, host string) (port int, certificate []byte) {
	t.Helper()
	certificate, key := hostKeyPair(t, host)
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	port = mirror(t, name, func(s *httptest.Server) {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		s.Config.Protocols.SetHTTP2(true)
		s.EnableHTTP2 = true
	})
	return port, certificate
}

// visit requests a URL of a host from a loopback address on a new connection, with HTTP/2 if the server has it.
// It returns the status and what the server saw.
func (e edge) visit(t *testing.T, source, host string, roots *x509.CertPool, wrap func(net.Conn) net.Conn) (string, seen) {
	t.Helper()
	dial := func(context.Context, string, string) (net.Conn, error) {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}).DialContext(t.Context(), "tcp", e.https)
		if err == nil && wrap != nil {
			c = wrap(c)
		}
		return c, err
	}
	transport := &http.Transport{DialContext: dial, ForceAttemptHTTP2: true, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, InsecureSkipVerify: roots == nil}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: deadline}
	response, err := client.Get("https://" + host + "/x")
	if err != nil {
		return "refused", seen{}
	}
	defer response.Body.Close()
	var got seen
	if body, err := io.ReadAll(response.Body); err == nil && response.StatusCode == http.StatusOK {
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("%s: %s", err, body)
		}
	}
	if got.Name != "" {
		return got.Name, got
	}
	return response.Status[:3], got
}

func TestPassthrough(t *testing.T) {
	t.Parallel()
	inside, own := ownTLS(t, "inside", "pass.example")
	wild, wildOwn := ownTLS(t, "wild", "b.wild.example")
	certificate, key := hostKeyPair(t, "ended.example", "a.wild.example", "listed.example")
	secret := secretYAML("web", certificate, key)
	ended := ingress{name: "ended", rules: []string{"ended.example P / a", "a.wild.example P / a"}, tls: []string{"web ended.example a.wild.example"}}
	listed := optioned("listed", "allow-list", "127.0.0.7")
	e := start(t, serviceYAML("shop", "a", mirror(t, "a", nil))+serviceYAML("shop", "inside", inside)+serviceYAML("shop", "wild", wild)+secret+all([]ingress{
		passed("pass", "pass.example P / inside"), passed("wild", "*.wild.example P / wild"),
		passed("guarded", "guarded.example P / inside", "allow-list", "127.0.0.7"),
		passed("denied", "denied.example P / inside", "deny-list", "127.0.0.7"),
		ended, listed,
	}))
	clean(t, e)
	for _, c := range []struct {
		name, source, host string
		roots              []byte
		want, proto        string
	}{
		{"passed on", "127.0.0.7", "pass.example", own, "inside", "HTTP/2.0"},
		{"passed on by wildcard", "127.0.0.7", "b.wild.example", wildOwn, "wild", "HTTP/2.0"},
		{"terminated", "127.0.0.7", "ended.example", certificate, "a", "HTTP/1.1"},
		{"terminated under a wildcard", "127.0.0.7", "a.wild.example", certificate, "a", "HTTP/1.1"},
		{"terminated, no route", "127.0.0.7", "x.example", nil, "404", ""},
		{"terminated, in the allow list", "127.0.0.7", "listed.example", nil, "a", "HTTP/1.1"},
		{"terminated, not in the allow list", "127.0.0.8", "listed.example", nil, "403", ""},
		{"passed on, in the allow list", "127.0.0.7", "guarded.example", nil, "inside", "HTTP/2.0"},
		{"passed on, not in the allow list", "127.0.0.8", "guarded.example", nil, "refused", ""},
		{"passed on, in the deny list", "127.0.0.7", "denied.example", nil, "refused", ""},
		{"passed on, not in the deny list", "127.0.0.8", "denied.example", nil, "inside", "HTTP/2.0"},
	} {
		for how, wrap := range map[string]func(net.Conn) net.Conn{"at once": nil, "in pieces": inPieces} {
			t.Run(c.name+", "+how, func(t *testing.T) {
				t.Parallel()
				var roots *x509.CertPool
				if c.roots != nil {
					roots = pool(t, c.roots)
				}
				answered, got := e.visit(t, c.source, c.host, roots, wrap)
				if answered != c.want || got.Proto != c.proto {
					t.Errorf("answered by %s over %s, want %s over %s", answered, got.Proto, c.want, c.proto)
				}
				if source := got.Header.Get("X-Forwarded-For"); answered == "a" && source != c.source {
					t.Errorf("X-Forwarded-For: %q, want %s", source, c.source)
				}
			})
		}
	}
	if got := e.http2(t, "GET", "ended.example", "/"); got != "200" {
		t.Errorf("HTTP/2 to a terminated host: %s", got)
	}
	if got := e.certificate(t, ""); got != "fallback.invalid" {
		t.Errorf("without SNI: certificate of %s", got)
	}
	t.Run("plain HTTP to a host that is passed on", func(t *testing.T) {
		// The Service requires TLS, and answers a plain request like Go's server.
		if got := e.get(t, "pass.example", "/"); got.StatusCode != http.StatusBadRequest || !strings.Contains(got.body, "HTTPS server") {
			t.Errorf("%d %s", got.StatusCode, got.body)
		}
	})
	for host, want := range map[string]int{"pass.example": 421, "PASS.example.:443": 421, "b.wild.example": 421, "a.wild.example": 200, "ended.example": 200} {
		t.Run(host+" by a connection for another host", func(t *testing.T) {
			if got := e.getTLS(t, host, "/"); got.StatusCode != want {
				t.Errorf("%d %s, want %d", got.StatusCode, got.body, want)
			}
		})
	}
	t.Run("no TLS", func(t *testing.T) {
		c := dialFrom(t, "127.0.0.7", e.https)
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: pass.example\r\n\r\n")
		if text, _ := io.ReadAll(c); strings.Contains(string(text), "200 OK") {
			t.Errorf("served: %s", text)
		}
	})
}

// inPieces makes a connection write its first bytes, which include the SNI, a few at a time.
func inPieces(c net.Conn) net.Conn { return &piecewise{c, 200, time.NewTicker(time.Millisecond)} }

// piecewise waits between the pieces, since otherwise the kernel would join them.
type piecewise struct {
	net.Conn
	left int
	pace *time.Ticker
}

func (p *piecewise) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		piece := b
		if p.left > 0 {
			piece = b[:min(len(b), 40)]
			p.left -= len(piece)
			<-p.pace.C
		}
		m, err := p.Conn.Write(piece)
		n += m
		if err != nil {
			return n, err
		}
		b = b[m:]
	}
	return n, nil
}

// With the PROXY protocol, the client's address is the one in its header, with ssl-passthrough and without.
func TestPassthroughAndProxyProtocol(t *testing.T) {
	t.Parallel()
	inside, _ := ownTLS(t, "inside", "pass.example")
	listed := optioned("listed", "allow-list", proxyClient)
	yaml := serviceYAML("shop", "a", mirror(t, "a", nil)) + serviceYAML("shop", "inside", inside) +
		all([]ingress{passed("pass", "pass.example P / inside", "allow-list", proxyClient), listed})
	e := startWith(t, yaml, func(c *config.Config) { c.ProxyProtocol.Trusted = []string{"127.0.9.1"} })
	clean(t, e)
	after := func(header string) func(net.Conn) net.Conn {
		return func(c net.Conn) net.Conn {
			_, _ = io.WriteString(c, header) // an error shows in the handshake
			return c
		}
	}
	for name, c := range map[string]struct{ source, header, host, want string }{
		"passed on, version 1":    {"127.0.9.1", proxyV1(), "pass.example", "inside"},
		"passed on, version 2":    {"127.0.9.1", proxyV2(), "pass.example", "inside"},
		"passed on, direct":       {"127.0.8.1", "", "pass.example", "refused"},
		"passed on, not trusted":  {"127.0.8.1", proxyV1(), "pass.example", "refused"},
		"terminated, version 1":   {"127.0.9.1", proxyV1(), "listed.example", "a"},
		"terminated, version 2":   {"127.0.9.1", proxyV2(), "listed.example", "a"},
		"terminated, direct":      {"127.0.8.1", "", "listed.example", "403"},
		"terminated, not trusted": {"127.0.8.1", proxyV1(), "listed.example", "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, _ := e.visit(t, c.source, c.host, nil, after(c.header)); got != c.want {
				t.Errorf("answered by %s, want %s", got, c.want)
			}
		})
	}
}

// A passthrough that is not possible is reported on its Ingress, and affects no other.
func TestPassthroughRefused(t *testing.T) {
	t.Parallel()
	inside, _ := ownTLS(t, "inside", "pass.example")
	younger := passed("younger", "taken.example P / inside")
	younger.age = 1
	late := ingress{name: "late", age: 1, rules: []string{"first.example P /x a"}}
	e := start(t, serviceYAML("shop", "a", mirror(t, "a", nil))+serviceYAML("shop", "inside", inside)+
		strings.Replace(serviceYAML("shop", "kong", inside), "name: kong}", "name: kong, annotations: {konghq.com/plugins: key-auth}}", 1)+all([]ingress{
		passed("kongs", "kong.example P / kong"), passed("paths", "paths.example P / inside"), passed("deep", "deep.example P /x a"), passed("all", "- P / a"),
		{name: "older", rules: []string{"taken.example P / a"}}, younger,
		passed("first", "first.example P / inside"), late,
		passed("closed", "closed.example P / inside", "rate-limit", "10"),
		passed("gone", "gone.example P / nothing"),
		passed("header", "header.example P / inside", "request-headers", "set X-A b"),
	}))
	for host, want := range map[string]string{
		"paths.example": "inside", "deep.example": "a", "taken.example": "a", "first.example": "inside",
		"closed.example": "refused", "gone.example": "refused", "header.example": "inside", "kong.example": "refused",
	} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			if got, _ := e.visit(t, "127.0.0.7", host, nil, nil); got != want {
				t.Errorf("answered by %s, want %s", got, want)
			}
		})
	}
	for _, name := range []string{"deep", "all", "younger", "late", "closed", "gone", "header"} {
		reportedOn(t, e, diag.Object{Kind: "Ingress", Namespace: "shop", Name: name})
	}
}
