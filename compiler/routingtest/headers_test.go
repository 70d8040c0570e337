package routingtest

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/hapsnap/hapsnap/compiler/config"
)

// bare starts a server that answers each request with its head as received, and returns its port.
func bare(t *testing.T) int {
	t.Helper()
	return rawServer(t, answerBare)
}

func answerBare(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		var head strings.Builder
		for !strings.HasSuffix(head.String(), "\r\n\r\n") {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			head.WriteString(line)
		}
		if _, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", head.Len(), head.String()); err != nil {
			return
		}
	}
}

// field is a header, without the line break.
type field struct{ name, value string }

// dial connects from an address, over TLS if a protocol is given.
func dial(t *testing.T, from, to, protocol string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := dialer.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	if protocol != "" {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
	}
	return c
}

// send11 sends a request with literal headers over HTTP/1.1, and returns the status and body of the answer.
func send11(c net.Conn, host string, fields []field) (status, body string, err error) {
	request := "GET / HTTP/1.1\r\nHost: " + host + "\r\n"
	for _, f := range fields {
		request += f.name + ": " + f.value + "\r\n"
	}
	if _, err := io.WriteString(c, request+"\r\n"); err != nil {
		return "", "", err
	}
	in := bufio.NewReader(c)
	line, err := in.ReadString('\n')
	if err != nil {
		return "", "", err
	}
	status, length := strings.Fields(line)[1], 0
	for line != "\r\n" {
		if line, err = in.ReadString('\n'); err != nil {
			return "", "", err
		}
		if n, ok := strings.CutPrefix(strings.ToLower(line), "content-length: "); ok {
			if _, err := fmt.Sscan(n, &length); err != nil {
				return "", "", err
			}
		}
	}
	text := make([]byte, length)
	_, err = io.ReadFull(in, text)
	return status, string(text), err
}

// client2 is a connection over HTTP/2 that sends requests one after the other.
type client2 struct {
	framer  *http2.Framer
	encoder *hpack.Encoder
	block   bytes.Buffer
	stream  uint32
}

func newClient2(c net.Conn) (*client2, error) {
	out := &client2{framer: http2.NewFramer(c, c), stream: 1}
	out.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	out.framer.MaxHeaderListSize = 1 << 20
	out.encoder = hpack.NewEncoder(&out.block)
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return nil, err
	}
	return out, out.framer.WriteSettings()
}

var errReset = errors.New("reset")

// send sends a request, in several frames if it is long, and returns the status and body of the answer.
func (c *client2) send(host string, fields []field) (status, body string, err error) {
	c.block.Reset()
	for _, f := range append([]field{{":method", "GET"}, {":scheme", "https"}, {":authority", host}, {":path", "/"}}, fields...) {
		if err := c.encoder.WriteField(hpack.HeaderField{Name: strings.ToLower(f.name), Value: f.value}); err != nil {
			return "", "", err
		}
	}
	const most = 16 << 10
	rest := c.block.Bytes()
	part := rest[:min(len(rest), most)]
	rest = rest[len(part):]
	if err := c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: c.stream, BlockFragment: part, EndStream: true, EndHeaders: len(rest) == 0}); err != nil {
		return "", "", err
	}
	for len(rest) > 0 {
		part, rest = rest[:min(len(rest), most)], rest[min(len(rest), most):]
		if err := c.framer.WriteContinuation(c.stream, len(rest) == 0, part); err != nil {
			return "", "", err
		}
	}
	defer func() { c.stream += 2 }()
	for {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			return "", "", err
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			status = f.PseudoValue("status")
			if f.StreamEnded() {
				return status, body, nil
			}
		case *http2.DataFrame:
			body += string(f.Data())
			if err := c.framer.WriteWindowUpdate(0, uint32(len(f.Data()))+1); err != nil {
				return "", "", err
			}
			if f.StreamEnded() {
				return status, body, nil
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return "", "", errReset
		}
	}
}

// valuesOf returns the values of a header in a head, joined by " / ".
func valuesOf(head, name string) string {
	var out []string
	for line := range strings.SplitSeq(head, "\r\n") {
		if n, value, ok := strings.Cut(line, ":"); ok && strings.EqualFold(n, name) {
			out = append(out, strings.TrimSpace(value))
		}
	}
	return strings.Join(out, " / ")
}

// tableRow is a row of the table in docs/reference/headers.md.
type tableRow struct {
	send []field
	name string
	want [3]string // for the policies: not trusted, append, keep
}

func readTable(t *testing.T) []tableRow {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/headers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "|---|---|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	code := regexp.MustCompile("`([^`]+)`")
	var out []tableRow
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		row := tableRow{name: strings.Trim(cells[1], "`"), want: [3]string(cells[2:5])}
		for _, m := range code.FindAllStringSubmatch(cells[0], -1) {
			name, value, _ := strings.Cut(m[1], ": ")
			row.send = append(row.send, field{name, value})
		}
		out = append(out, row)
	}
	if len(out) < 60 {
		t.Fatalf("the table has %d rows", len(out))
	}
	return out
}

const trustedProxy = "127.0.9.9"

// The rows of the table in docs/reference/headers.md are true.
func TestHeadersTable(t *testing.T) {
	t.Parallel()
	rows := readTable(t)
	services := serviceYAML("shop", "a", bare(t)) + ingress{rules: []string{"shop.example P / a"}}.yaml()
	for column, policy := range []config.ForwardedPolicy{config.ReplaceForwarded, config.AppendForwarded, config.KeepForwarded} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			e := startWith(t, services, func(c *config.Config) {
				c.Forwarded.Policy, c.Forwarded.Trusted = policy, []string{"127.0.9.0/24", "fd00::/8"}
			})
			clean(t, e)
			for _, from := range []string{trustedProxy, "127.0.8.8"} {
				want := column
				if from != trustedProxy {
					want = 0
				}
				plain, secure := dial(t, from, e.http, ""), dial(t, from, e.https, "http/1.1")
				h2, err := newClient2(dial(t, from, e.https, "h2"))
				if err != nil {
					t.Fatal(err)
				}
				for _, row := range rows {
					expect := func(scheme, port string) string {
						return strings.NewReplacer("ADDRESS", from, "SCHEME", scheme, "HOST", "shop.example", "PORT", port).Replace(row.want[want])
					}
					send := make([]field, len(row.send))
					hops := false
					for i, f := range row.send {
						send[i] = field{f.name, strings.ReplaceAll(f.value, "TRUSTED", "127.0.9.1")}
						hops = hops || strings.EqualFold(f.name, "Connection") || strings.EqualFold(f.name, "Upgrade")
					}
					for name, ask := range map[string]func() (string, string, error){
						"http":  func() (string, string, error) { return send11(plain, "shop.example", send) },
						"https": func() (string, string, error) { return send11(secure, "shop.example", send) },
						"h2":    func() (string, string, error) { return h2.send("shop.example", send) },
					} {
						if name == "h2" && hops {
							continue // HTTP/2 has neither; see TestHopByHop
						}
						status, head, err := ask()
						if err != nil || status != "200" {
							t.Fatalf("%s from %s, %v: %s, %v", name, from, send, status, err)
						}
						scheme, port := "https", "443"
						if name == "http" {
							scheme, port = "http", "80"
						}
						if got := valuesOf(head, row.name); got != expect(scheme, port) {
							t.Errorf("%s from %s, %v: the endpoint got %s %q, want %q", name, from, send, row.name, got, expect(scheme, port))
						}
					}
				}
			}
		})
	}
}

// overTLS11 returns the connection with HTTP/1.1 over TLS.
func overTLS11(c net.Conn) net.Conn {
	return tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
}

// Four cookies of 7 KB, or 32 KiB of headers in any form, reach the endpoint. A request larger than a buffer is
// refused, and affects no other.
func TestLargeHeaders(t *testing.T) {
	t.Parallel()
	cookies := make([]string, 4)
	for i := range cookies {
		cookies[i] = fmt.Sprintf("c%d=%s", i, strings.Repeat("x", 7000))
	}
	parts := func(total, each int) (out []field) {
		for i := 0; total > 0; i++ {
			name := fmt.Sprintf("X-Part-%d", i)
			value := strings.Repeat("y", max(1, min(each, total)-len(name)-4))
			out = append(out, field{name, value})
			total -= len(name) + 4 + len(value)
		}
		return out
	}
	split := make([]field, 4)
	for i, cookie := range cookies {
		split[i] = field{"Cookie", cookie}
	}
	yaml := serviceYAML("shop", "a", bare(t)) + ingress{rules: []string{"shop.example P / a"}}.yaml()
	e := start(t, yaml)
	clean(t, e)
	small := startWith(t, yaml, func(c *config.Config) { c.BufferSize = "16k" })
	for _, c := range []struct {
		name   string
		fields []field
		passes bool
	}{
		{"four cookies", []field{{"Cookie", strings.Join(cookies, "; ")}}, true},
		{"four lines", split, true},
		{"32 KiB in one", parts(32<<10-200, 32<<10), true},
		{"32 KiB in many", parts(32<<10-200, 350), true},
		{"64 KiB", parts(64<<10, 8<<10), false},
	} {
		for _, protocol := range []string{"http/1.1", "h2"} {
			for isSmall, edge := range map[bool]edge{false: e, true: small} {
				var status, head string
				var err error
				conn := dial(t, "127.0.0.1", edge.https, protocol)
				if protocol == "h2" {
					h2, failed := newClient2(conn)
					if failed != nil {
						t.Fatal(failed)
					}
					status, head, err = h2.send("shop.example", c.fields)
				} else {
					status, head, err = send11(conn, "shop.example", c.fields)
				}
				complete := status == "200" && err == nil
				for _, f := range c.fields {
					complete = complete && strings.Contains(head, f.value)
				}
				if passes := c.passes && !isSmall; complete != passes {
					t.Errorf("%s over %s, small %v: %s, %d bytes, %v", c.name, protocol, isSmall, status, len(head), err)
				}
				// HAProxy 3.2.0 answers 414 to any header that does not fit.
				if !complete && err == nil && status != "400" && status != "431" && status != "414" {
					t.Errorf("%s over %s, small %v: refused with %s, %v", c.name, protocol, isSmall, status, err)
				}
			}
		}
	}
	if status, _, err := send11(dial(t, "127.0.0.1", e.http, ""), "shop.example", nil); status != "200" || err != nil {
		t.Errorf("afterwards: %s, %v", status, err)
	}
}
