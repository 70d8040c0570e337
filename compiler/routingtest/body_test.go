package routingtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// reader starts a server that reads the whole body of a request and answers with its size. After an upgrade it
// echoes.
func reader(t *testing.T) int {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "echo" {
			c, buffered, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.Copy(c, buffered)
			return
		}
		n, err := io.Copy(io.Discard, r.Body)
		if err == nil {
			fmt.Fprint(w, n)
		}
	}))
	t.Cleanup(s.Close)
	return portOf(s)
}

// A body with a length is judged before it is read. A body without one, as Docker, git and gRPC send it, passes
// as a stream, and is cut off when it becomes too large.
func TestMaxBodySize(t *testing.T) {
	t.Parallel()
	e := start(t, serviceYAML("shop", "a", reader(t))+all([]ingress{
		optioned("body", "max-body-size", "10"), optioned("large", "max-body-size", "1m"), optioned("open", "retries", "1"),
	}))
	clean(t, e)
	const chunked = "Transfer-Encoding: chunked\n"
	for request, want := range map[string]int{
		"GET / HTTP/1.1\nHost: body.example":                                                                          200,
		"POST / HTTP/1.1\nHost: body.example\nContent-Length: 10\n\n0123456789":                                       200,
		"POST / HTTP/1.1\nHost: body.example\nContent-Length: 11\n\n0123456789a":                                      413,
		"POST / HTTP/1.1\nHost: body.example\n" + chunked + "\n5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n":                 200,
		"POST / HTTP/1.1\nHost: body.example\n" + chunked + "\n5\r\n01234\r\n6\r\n56789a\r\n0\r\n\r\n":                413,
		"POST / HTTP/1.1\nHost: body.example\nUpgrade: x\nConnection: upgrade\n" + chunked + "\nb\r\n01234567890\r\n": 413,
		"POST / HTTP/1.1\nHost: open.example\n" + chunked + "\nb\r\n01234567890\r\n0\r\n\r\n":                         200,
		"POST / HTTP/1.1\nHost: large.example\n" + chunked + "\n" + chunks(1<<20):                                     200,
		"POST / HTTP/1.1\nHost: large.example\n" + chunked + "\n" + chunks(1<<20+1):                                   413,
	} {
		if got := e.send(t, false, request); got.StatusCode != want {
			t.Errorf("%.100q: %d, want %d", request, got.StatusCode, want)
		}
	}
	if got := e.http2(t, "GET", "body.example", "/"); got != "200" {
		t.Errorf("HTTP/2 without a body: %s", got)
	}
	if got := e.http2Body(t, "body.example", "0123456789"); got != "200" {
		t.Errorf("HTTP/2 body of unknown length: %s", got)
	}
	if got := e.http2Body(t, "body.example", "0123456789a"); got != "RST_STREAM" && got != "413" {
		t.Errorf("HTTP/2 body that is too large: %s", got)
	}
}

// The limit does not apply to what an upgraded connection carries.
func TestMaxBodySizeAndUpgrades(t *testing.T) {
	t.Parallel()
	e := start(t, serviceYAML("shop", "a", reader(t))+optioned("body", "max-body-size", "10").yaml())
	c, err := net.Dial("tcp", e.http)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: body.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	r := bufio.NewReader(c)
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, " 101 ") {
		t.Fatalf("%q %v", line, err)
	}
	for {
		if line, err := r.ReadString('\n'); err != nil || line == "\r\n" {
			break
		}
	}
	sent := strings.Repeat("x", 100_000)
	go fmt.Fprint(c, sent)
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != sent {
		t.Errorf("echo: %v", err)
	}
}

// chunks returns a chunked body of this size.
func chunks(size int) string {
	var b strings.Builder
	for size > 0 {
		n := min(size, 10_000)
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, strings.Repeat("x", n))
		size -= n
	}
	return b.String() + "0\r\n\r\n"
}
