package routingtest

import (
	"bufio"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/hapsnap/hapsnap/compiler/config"
)

// Hop-by-hop headers are not passed on, however they are written.
func TestHopByHop(t *testing.T) {
	t.Parallel()
	e := start(t, serviceYAML("shop", "a", bare(t))+ingress{rules: []string{"shop.example P / a"}}.yaml())
	clean(t, e)
	for _, c := range []struct {
		name string
		send []field
	}{
		{"a list", []field{{"Connection", "Upgrade"}, {"Upgrade", "x, H2C"}}},
		{"lines", []field{{"Connection", "Upgrade"}, {"Upgrade", "x"}, {"Upgrade", "h2"}}},
		{"several Connections", []field{{"Connection", "X-Real-IP"}, {"Connection", "Upgrade"}, {"Upgrade", "\th2c\t"}, {"HTTP2-Settings", "AAMAAABk"}}},
		{"a name of its own", []field{{"Connection", "X-Forwarded-For"}, {"Connection", "close"}}},
	} {
		for _, address := range []string{e.http, e.https} {
			protocol := ""
			if address == e.https {
				protocol = "http/1.1"
			}
			status, head, err := send11(dial(t, "127.0.0.1", address, protocol), "shop.example", c.send)
			if err != nil || status != "200" {
				t.Fatal(c.name, status, err)
			}
			told := strings.ToLower(valuesOf(head, "Connection") + valuesOf(head, "Upgrade") + valuesOf(head, "HTTP2-Settings"))
			if strings.Contains(told, "h2") || strings.Contains(told, "x-") || strings.Contains(told, "aama") {
				t.Errorf("%s at %s: the endpoint got %q", c.name, address, head)
			}
			if valuesOf(head, "X-Forwarded-For") != "127.0.0.1" {
				t.Errorf("%s at %s: the endpoint got %q", c.name, address, head)
			}
		}
	}
	for _, name := range []string{"connection", "upgrade"} {
		h2, err := newClient2(dial(t, "127.0.0.1", e.https, "h2"))
		if err != nil {
			t.Fatal(err)
		}
		if status, head, err := h2.send("shop.example", []field{{name, "x-real-ip"}}); !errors.Is(err, errReset) && status != "400" {
			t.Errorf("%s over HTTP/2: %s %q %v", name, status, head, err)
		}
	}
}

// The host comes from Host. If the target names another host, the request is refused.
func TestHostOfAbsoluteForm(t *testing.T) {
	t.Parallel()
	e := start(t, serviceYAML("shop", "a", bare(t))+ingress{rules: []string{"shop.example P / a"}}.yaml())
	for request, want := range map[string]string{
		"GET http://shop.example/ HTTP/1.1\r\nHost: shop.example\r\n":             "shop.example",
		"GET http://other.example/ HTTP/1.1\r\nHost: shop.example\r\n":            "",
		"GET / HTTP/1.1\r\nHost: shop.example\r\nHost: other.example\r\n":         "",
		"GET / HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-Host: o.example\r\n": "shop.example",
	} {
		c := dial(t, "127.0.0.1", e.http, "")
		if _, err := io.WriteString(c, request+"Connection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		_, head, _ := strings.Cut(string(text), "\r\n\r\n")
		if got := valuesOf(head, "X-Forwarded-Host"); got != want || (want == "") != strings.HasPrefix(string(text), "HTTP/1.1 400") {
			t.Errorf("%q: %q", request, text)
		}
	}
}

// The port is the one in the host, or else the default.
func TestForwardedPort(t *testing.T) {
	t.Parallel()
	e := start(t, serviceYAML("shop", "a", bare(t))+ingress{rules: []string{"- P / a"}}.yaml())
	for host, want := range map[string]string{
		"shop.example:8080": "8080", "shop.example": "80", "shop.example:": "80", "[::1]:81": "81", "[::1]": "80", "shop.example:x": "80",
	} {
		status, head, err := send11(dial(t, "127.0.0.1", e.http, ""), host, []field{{"X-Forwarded-Port", "6"}, {"X-Forwarded-Port", "7"}})
		if got := valuesOf(head, "X-Forwarded-Port"); err != nil || status == "200" && got != want || status != "200" && status != "400" {
			t.Errorf("%s: %s, port %q, want %q, %v", host, status, got, want, err)
		}
	}
}

// WebSockets and gRPC streams work.
func TestUpgradesThatStay(t *testing.T) {
	t.Parallel()
	heads := make(chan http.Header, 8)
	port := rawServer(t, func(c net.Conn) { switchAndEcho(c, heads) })
	e := start(t, serviceYAML("shop", "a", port)+ingress{rules: []string{"shop.example P / a"}}.yaml())
	clean(t, e)
	for _, protocol := range []string{"", "http/1.1"} {
		address := e.http
		if protocol != "" {
			address = e.https
		}
		for name, upgrade := range map[string]string{"websocket": "websocket", "other": "SPDY/3.1"} {
			c := dial(t, "127.0.0.1", address, protocol)
			request := "GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: keep-alive, Upgrade, X-Real-IP\r\nUpgrade: " + upgrade +
				"\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
			if _, err := io.WriteString(c, request); err != nil {
				t.Fatal(err)
			}
			in := bufio.NewReader(c)
			r, err := http.ReadResponse(in, nil)
			if err != nil || r.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%s %s: %v, %v", protocol, name, r, err)
			}
			if _, err := io.WriteString(c, "hello\n"); err != nil {
				t.Fatal(err)
			}
			if line, err := in.ReadString('\n'); line != "hello\n" {
				t.Errorf("%s %s: %q, %v", protocol, name, line, err)
			}
			got := <-heads
			if !strings.EqualFold(got.Get("Connection"), "upgrade") || got.Get("Upgrade") != upgrade || got.Get("X-Real-Ip") != "127.0.0.1" {
				t.Errorf("%s %s: the endpoint got %v", protocol, name, got)
			}
		}
	}
	// RFC 8441 defines WebSockets over HTTP/2.
	c := tls.Client(dial(t, "127.0.0.1", e.https, ""), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	framer := http2.NewFramer(c, c)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := sendHTTP2(c, framer, false, []string{
		":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":authority", "shop.example", ":path", "/",
		"sec-websocket-version", "13",
	}); err != nil {
		t.Fatal(err)
	}
	status, text := "", ""
	for text != "hello\n" || status != "200" {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("over HTTP/2: %s %q %v", status, text, err)
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			status = f.PseudoValue("status")
			if err := framer.WriteData(1, false, []byte("hello\n")); err != nil {
				t.Fatal(err)
			}
		case *http2.DataFrame:
			text += string(f.Data())
		case *http2.RSTStreamFrame:
			t.Fatalf("over HTTP/2: %s %q %v", status, text, f)
		}
	}
}

// switchAndEcho answers a request with a protocol switch, and then echoes.
func switchAndEcho(c net.Conn, heads chan<- http.Header) {
	defer c.Close()
	in := bufio.NewReader(c)
	r, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	heads <- r.Header
	answer := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + r.Header.Get("Upgrade") + "\r\n"
	if key := r.Header.Get("Sec-Websocket-Key"); key != "" {
		answer += "Sec-WebSocket-Accept: " + webSocketAccept(key) + "\r\n"
	}
	if _, err := io.WriteString(c, answer+"\r\n"); err != nil {
		return
	}
	_, _ = io.Copy(c, in)
}

// A trailer does not become a header.
func TestTrailersStayTrailers(t *testing.T) {
	t.Parallel()
	got := make(chan *http.Request, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got <- r
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close() })
	e := start(t, serviceYAML("shop", "a", l.Addr().(*net.TCPAddr).Port)+ingress{rules: []string{"shop.example P / a"}}.yaml())
	c := dial(t, "127.0.0.1", e.http, "")
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\nTrailer: X-Real-IP\r\n\r\n1\r\na\r\n0\r\nX-Real-IP: 198.51.100.7\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r := <-got
	if ip := strings.Join(r.Header.Values("X-Real-Ip"), "|"); ip != "127.0.0.1" {
		t.Errorf("X-Real-IP %q", ip)
	}
}

// Allowed names pass, also with underscores. The headers that only proxies may set do not, however they are
// written.
func TestHeadersThatAreAllowed(t *testing.T) {
	t.Parallel()
	e := startWith(t, serviceYAML("shop", "a", bare(t))+ingress{rules: []string{"shop.example P / a"}}.yaml(), func(c *config.Config) {
		c.Forwarded.UnderscoresInHeaders = true
		c.Forwarded.AllowHeaders = []string{"CF-Connecting-IP", "X.Trace", "Remote_User"}
		c.Forwarded.RequestID = false
	})
	clean(t, e)
	for name, passes := range map[string]bool{
		"CF-Connecting-IP": true, "cf-connecting-ip": true, "CF-Connecting-IPv6": false, "CF_Connecting_IP": false,
		"X.Trace": true, "X.Traces": false, "X-Trace": true, "My_Header": true, "_": true, "__x": true,
		"Remote_User": true, "Remote-User": false, "X_Forwarded_For": false, "X_Forwarded-Proto": false, "X-Real_IP": false,
		"X_SSL_Client_DN": false, "ssl_client_verify": false, "Proxy": false, "HTTP2_Settings": false, "X_Request_ID": true,
	} {
		status, head, err := send11(dial(t, "127.0.0.1", e.http, ""), "shop.example", []field{{name, "x"}})
		if got := valuesOf(head, name); err != nil || status != "200" || (got == "x") != passes {
			t.Errorf("%s: %s, got %q, %v", name, status, head, err)
		}
		if valuesOf(head, "X-Request-ID") != "" {
			t.Errorf("there is an X-Request-ID: %q", head)
		}
	}
}

// webSocketAccept returns the Sec-WebSocket-Accept for a key (RFC 6455, 4.2.2).
func webSocketAccept(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}
