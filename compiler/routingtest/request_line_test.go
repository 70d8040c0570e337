package routingtest

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// firstLines are the request lines that a server got.
type firstLines struct {
	sync.Mutex
	got []string
}

func (l *firstLines) add(line string) {
	l.Lock()
	defer l.Unlock()
	l.got = append(l.got, line)
}

// drain returns the lines since the last call.
func (l *firstLines) drain() []string {
	l.Lock()
	defer l.Unlock()
	got := l.got
	l.got = nil
	return got
}

// agreeable starts a server that answers every request with 200, also CONNECT, and keeps the connection. It
// returns the port.
func agreeable(t *testing.T, seen *firstLines) int {
	t.Helper()
	return rawServer(t, func(c net.Conn) {
		defer c.Close()
		r := bufio.NewReader(c)
		for request := ""; ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			line = strings.TrimSpace(line)
			if request == "" {
				request = line
				seen.add(line)
			}
			if line == "" {
				length := "Content-Length: 0\r\n"
				if strings.HasPrefix(request, "CONNECT ") {
					length = "" // a tunnel begins
				}
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%s\r\n", length)
				request = ""
			}
		}
	})
}

// tunnelled returns hosts whose /admin is closed to every client and whose / is open. Their server accepts
// CONNECT for both.
func tunnelled(t *testing.T, seen *firstLines, hosts ...string) string {
	t.Helper()
	yaml := serviceYAML("shop", "open", agreeable(t, seen))
	for i, host := range hosts {
		name := fmt.Sprint("i", i)
		yaml += all([]ingress{
			{name: name + "-open", rules: []string{host + " P / open"}},
			{name: name + "-admin", rules: []string{host + " P /admin open"}, annotations: annotated("allow-list", "192.0.2.0/24")},
		})
	}
	return yaml
}

// pipelined sends a request and then one for /admin on the same connection, and returns the statuses of the
// answers.
func pipelined(t *testing.T, address string, over *tls.Config, request, host string) (statuses []string) {
	t.Helper()
	var c net.Conn
	var err error
	if over != nil {
		c, err = (&tls.Dialer{Config: over}).DialContext(t.Context(), "tcp", address)
	} else {
		c, err = net.Dial("tcp", address)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, request+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	for range 2 {
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			return statuses // HAProxy closed the connection
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, max(r.ContentLength, 0)))
		statuses = append(statuses, fmt.Sprint(r.StatusCode))
		if _, err := io.WriteString(c, "GET /admin HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n"); err != nil {
			return statuses
		}
	}
	return statuses
}

// No client gets a tunnel, since requests in it would bypass every rule.
func TestConnectIsRefused(t *testing.T) {
	t.Parallel()
	var seen firstLines
	e := start(t, tunnelled(t, &seen, "shop.example", "*.wild.example", "-"))
	clean(t, e)
	over := map[string]struct {
		address string
		tls     *tls.Config
	}{"HTTP": {e.http, nil}, "HTTPS": {e.https, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}}}
	for protocol, to := range over {
		for _, host := range []string{"shop.example", "a.wild.example", "unknown.example"} {
			for request, want := range map[string]string{
				"CONNECT " + host + ":80":           "405",
				"CONNECT " + host + ":80/admin":     "405",
				"CONNECT /admin":                    "400",
				"CONNECT *":                         "400",
				"CONNECT http://" + host + "/admin": "400",
				"connect " + host + ":80":           "400",
			} {
				got := pipelined(t, to.address, to.tls, request, host)
				if len(got) == 0 || got[0] != want || len(got) == 2 && got[1] != "403" {
					t.Errorf("%s %s: %v, want %s", protocol, request, got, want)
				}
			}
		}
	}
	for _, host := range []string{"shop.example", "a.wild.example:443", "unknown.example"} {
		if got := connectHTTP2(t, e, host); got != "405" {
			t.Errorf("HTTP/2 %s: %s, want 405", host, got)
		}
	}
	if got := seen.drain(); len(got) != 0 {
		t.Errorf("servers got %q", got)
	}
	// Other methods pass.
	for _, method := range []string{"TRACE", "PROPFIND", "connect"} {
		if got := pipelined(t, e.http, nil, method+" /x", "shop.example"); len(got) == 0 || got[0] != "200" {
			t.Errorf("%s: %v", method, got)
		}
		if got := seen.drain(); !slices.Contains(got, method+" /x HTTP/1.1") {
			t.Errorf("%s: servers got %q", method, got)
		}
	}
}

// No client gets a tunnel at a port of a Gateway either.
func TestConnectToAGatewayIsRefused(t *testing.T) {
	t.Parallel()
	var seen firstLines
	e, _ := startGateway(t, serviceYAML("shop", "open", agreeable(t, &seen))+routeYAML("shop", "open", "shop.example", "  rules:\n  - backendRefs: [{name: open, port: 80}]\n"))
	clean(t, e)
	if got := pipelined(t, e.http, nil, "CONNECT shop.example:80", "shop.example"); len(got) == 0 || got[0] != "405" {
		t.Errorf("%v, want 405", got)
	}
	// The second request on that connection is a normal one.
	for _, line := range seen.drain() {
		if line != "GET /admin HTTP/1.1" {
			t.Errorf("the server got %q", line)
		}
	}
}

// connectHTTP2 sends a CONNECT over HTTP/2 and data for the tunnel, and returns the answer.
func connectHTTP2(t *testing.T, e edge, host string) string {
	t.Helper()
	c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}).DialContext(t.Context(), "tcp", e.https)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(c, c)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := sendHTTP2(c, framer, false, []string{":method", "CONNECT", ":authority", host}); err != nil {
		t.Fatal(err)
	}
	if err := framer.WriteData(1, false, []byte("GET /admin HTTP/1.1\r\nHost: shop.example\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			return f.PseudoValue("status")
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return f.Header().Type.String()
		}
	}
}

// Requests that HAProxy sees as having no path, or another path than a server would see, reach no server.
func TestTargetsOfTheDocument(t *testing.T) {
	t.Parallel()
	var seen firstLines
	e := start(t, tunnelled(t, &seen, "shop.example", "*.wild.example"))
	clean(t, e)
	for _, row := range pathTable(t, "Requests without a path") {
		request, host, want := row[0], row[1], row[2]
		got := pipelined(t, e.http, nil, request, host)
		if len(got) == 0 || got[0] != want {
			t.Errorf("%s of %s: %v, want %s", request, host, got, want)
		}
		reached := seen.drain()
		if (len(reached) > 0) != (want == "200") {
			t.Errorf("%s of %s: servers got %q", request, host, reached)
		}
	}
}
