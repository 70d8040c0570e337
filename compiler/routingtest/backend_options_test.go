package routingtest

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
)

// served returns a Service with annotations for each case, and an Ingress for it. Its endpoints are ports of
// 127.0.0.1.
func served(t *testing.T, name string, ports []int, options ...string) string {
	t.Helper()
	var slices strings.Builder
	for i, port := range ports {
		fmt.Fprintf(&slices, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: %[1]s-%[2]d, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: "", port: %[3]d, protocol: TCP}]
endpoints: [{addresses: [127.0.0.1]}]
`, name, i, port)
	}
	service := fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata:\n  namespace: shop\n  name: %s\n  annotations:\n    %s\nspec: {ports: [{port: 80}]}\n", name, annotated(options...))
	return service + slices.String() + ingress{name: name, rules: []string{name + ".example P / " + name}}.yaml()
}

// overTLS makes a mirror use TLS, with HTTP/2 if h2 is set.
func overTLS(h2 bool) func(*httptest.Server) {
	return func(s *httptest.Server) {
		s.TLS = &tls.Config{}
		s.EnableHTTP2 = h2
		s.Config.Protocols.SetHTTP2(h2)
	}
}

func TestBackendProtocols(t *testing.T) {
	t.Parallel()
	onlyH2 := func(s *httptest.Server) {
		s.Config.Protocols.SetHTTP1(false)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
	}
	var yaml strings.Builder
	for _, c := range []struct {
		name      string
		configure func(*httptest.Server)
		options   []string
	}{
		{"h1", nil, []string{"backend-protocol", "h1"}},
		{"h1tls", overTLS(false), []string{"backend-protocol", "h1-tls", "backend-sni", "web.internal"}},
		{"h2", onlyH2, []string{"backend-protocol", "h2"}},
		{"h2tls", overTLS(true), []string{"backend-protocol", "h2-tls", "backend-sni", "request-host"}},
		{"grpc", onlyH2, []string{"backend-protocol", "grpc"}},
		{"grpctls", overTLS(true), []string{"backend-protocol", "grpc-tls", "backend-verify", "none"}},
		{"verified", overTLS(true), []string{"backend-protocol", "h2-tls", "backend-verify", "system", "backend-sni", "example.com"}},
	} {
		yaml.WriteString(served(t, c.name, []int{mirror(t, c.name, c.configure)}, c.options...))
	}
	e := start(t, yaml.String())
	clean(t, e)
	byItself := "" // the SNI that HAProxy sends if no option sets one
	if branch(t).AtLeast(3, 3) {
		byItself = "grpctls.example"
	}
	for name, want := range map[string]seen{
		"h1": {Proto: "HTTP/1.1"}, "h1tls": {Proto: "HTTP/1.1", TLS: true, SNI: "web.internal"},
		"h2": {Proto: "HTTP/2.0"}, "h2tls": {Proto: "HTTP/2.0", TLS: true, SNI: "h2tls.example"},
		"grpc": {Proto: "HTTP/2.0"}, "grpctls": {Proto: "HTTP/2.0", TLS: true, SNI: byItself},
	} {
		got := e.get(t, name+".example", "/").seen
		if got.Name != name || got.Proto != want.Proto || got.TLS != want.TLS || got.SNI != want.SNI {
			t.Errorf("%s: server saw %+v, want %+v", name, got, want)
		}
	}
	if got := e.get(t, "verified.example", "/"); got.StatusCode != 503 {
		t.Errorf("a certificate that nobody vouches for: %d", got.StatusCode)
	}
}

// HAProxy uses the appProtocol of a Service's port without any option.
func TestAppProtocol(t *testing.T) {
	t.Parallel()
	onlyH2 := func(s *httptest.Server) {
		s.Config.Protocols.SetHTTP1(false)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
	}
	var yaml strings.Builder
	for name, c := range map[string]struct {
		protocol  string
		configure func(*httptest.Server)
	}{"h2c": {"kubernetes.io/h2c", onlyH2}, "grpc": {"grpc", onlyH2}, "secure": {"https", overTLS(false)}, "plain": {"kubernetes.io/ws", nil}} {
		manifest := served(t, name, []int{mirror(t, name, c.configure)})
		yaml.WriteString(strings.Replace(manifest, "ports: [{port: 80}]", "ports: [{port: 80, appProtocol: "+c.protocol+"}]", 1))
	}
	e := start(t, yaml.String())
	clean(t, e)
	for name, want := range map[string]seen{
		"h2c": {Proto: "HTTP/2.0"}, "grpc": {Proto: "HTTP/2.0"}, "secure": {Proto: "HTTP/1.1", TLS: true}, "plain": {Proto: "HTTP/1.1"},
	} {
		if got := e.get(t, name+".example", "/").seen; got.Name != name || got.Proto != want.Proto || got.TLS != want.TLS {
			t.Errorf("%s: server saw %+v, want %+v", name, got, want)
		}
	}
}

// An option of the Service wins over the same option of the Ingress.
func TestServiceWins(t *testing.T) {
	t.Parallel()
	port := mirror(t, "a", func(s *httptest.Server) {
		s.Config.Protocols.SetHTTP1(false)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
	})
	yaml := served(t, "won", []int{port}, "backend-protocol", "h2") +
		ingress{name: "other", annotations: annotated("backend-protocol", "h1-tls"), rules: []string{"lost.example P / won"}}.yaml()
	e := start(t, yaml)
	clean(t, e)
	for _, host := range []string{"won.example", "lost.example"} {
		if got := e.get(t, host, "/"); got.seen.Proto != "HTTP/2.0" {
			t.Errorf("%s: %d %+v", host, got.StatusCode, got.seen)
		}
	}
}

// soon is shorter than HAProxy's own defaults, and much longer than the times that the options of these tests
// set.
const soon = 4 * time.Second

// Requests beyond the limit wait, but only for a limited time.
func TestMaxConnections(t *testing.T) {
	t.Parallel()
	h := newHolding(t, "limited")
	e := startWith(t, served(t, "limited", []int{h.port}, "max-connections", "1", "timeout-queue", "50ms"), func(c *config.Config) {
		c.Timeouts.Queue = "1h"
	})
	clean(t, e)
	first := e.hold(t, "limited.example")
	holds(t, 1, h)
	if got := e.http11(t, "GET", "limited.example", "/hold"); got != "503" {
		t.Errorf("beyond max-connections: %s", got)
	}
	h.letGo()
	if got := <-first; got != "limited" {
		t.Errorf("the first request: %s", got)
	}
	if n := h.most.Load(); n != 1 {
		t.Errorf("%d requests at once", n)
	}
}

// A request whose key leads to a full server waits for that server, unless its queue is full.
func TestMaxQueue(t *testing.T) {
	t.Parallel()
	h := newHolding(t, "queued")
	e := start(t, served(t, "queued", []int{h.port}, "balance", "uri", "max-connections", "1", "max-queue", "1", "timeout-queue", "1m"))
	clean(t, e)
	first := e.hold(t, "queued.example")
	holds(t, 1, h)
	// One of the next two requests waits and one is refused, in any order.
	second, third := e.hold(t, "queued.example"), e.hold(t, "queued.example")
	var refused string
	select {
	case refused = <-second:
		second = third
	case refused = <-third:
	case <-time.After(deadline):
		t.Fatal("both wait")
	}
	if refused != "503" {
		t.Errorf("beyond max-queue: %s", refused)
	}
	h.letGo()
	for name, answered := range map[string]<-chan string{"first": first, "waiting": second} {
		if got := <-answered; got != "queued" {
			t.Errorf("the %s request: %s", name, got)
		}
	}
}

// A request whose cookie leads to a full server with a full queue goes to another server.
func TestMaxQueueOfSession(t *testing.T) {
	t.Parallel()
	one, two := newHolding(t, "one"), newHolding(t, "two")
	e := start(t, served(t, "sticky", []int{one.port, two.port}, "affinity", "cookie", "max-connections", "1", "max-queue", "1", "timeout-queue", "1m"))
	clean(t, e)
	reply := e.get(t, "sticky.example", "/")
	cookie, home := "Cookie: "+reply.Cookies()[0].Name+"="+reply.Cookies()[0].Value, reply.Header.Get("X-Echo")
	answered := make(chan string, 3)
	ask := func() { answered <- answer(e.get(t, "sticky.example", "/hold", cookie).Response) }
	go ask()
	holds(t, 1, one, two)
	if n := map[string]*holding{"one": one, "two": two}[home].running.Load(); n != 1 {
		t.Errorf("the session of %s was sent elsewhere", home)
	}
	// One of the next two requests waits for the first server, and the other server gets the other one.
	go ask()
	go ask()
	holds(t, 2, one, two)
	one.letGo()
	two.letGo()
	got := map[string]int{}
	for range 3 {
		got[<-answered]++
	}
	if got[home] != 2 || len(got) != 2 || got["503"] > 0 {
		t.Errorf("the session of %s was served by %v", home, got)
	}
}

// proxyConn is a connection that begins with a header of the PROXY protocol, which has the client's address
// (sections 2.1 and 2.2 of its specification).
type proxyConn struct {
	net.Conn
	reader  *bufio.Reader
	client  net.Addr
	version string
}

func (p *proxyConn) Read(b []byte) (int, error) { return p.reader.Read(b) }
func (p *proxyConn) RemoteAddr() net.Addr       { return p.client }

// proxyListener accepts connections that begin with a header of the PROXY protocol, and reports their versions.
type proxyListener struct {
	net.Listener
	versions chan string
}

func (l proxyListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p := &proxyConn{Conn: c, reader: bufio.NewReader(c), client: c.RemoteAddr()}
		if err := p.head(); err != nil {
			c.Close() // the client gets no answer
			continue
		}
		select {
		case l.versions <- p.version:
		default:
		}
		return p, nil
	}
}

// head reads the header.
func (p *proxyConn) head() error {
	start, err := p.reader.Peek(12)
	switch {
	case err != nil:
		return err
	case string(start) == "\r\n\r\n\x00\r\nQUIT\n":
		p.version = "v2"
		return p.headV2()
	}
	p.version = "v1"
	return p.headV1()
}

// headV1 reads a header such as "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443".
func (p *proxyConn) headV1() error {
	line, err := p.reader.ReadString('\n')
	words := strings.Fields(line)
	switch {
	case err != nil:
		return err
	case len(words) == 2 && words[0] == "PROXY" && words[1] == "UNKNOWN": // a health check
		return nil
	case len(words) != 6 || words[0] != "PROXY" || words[1] != "TCP4" || !strings.HasSuffix(line, "\r\n"):
		return fmt.Errorf("%q is no head of version 1", line)
	}
	client, err := netip.ParseAddrPort(words[2] + ":" + words[4])
	p.client = net.TCPAddrFromAddrPort(client)
	return err
}

// headV2 reads the binary form: for IPv4, or for a connection of the proxy itself, such as a check.
func (p *proxyConn) headV2() error {
	head := make([]byte, 16)
	if _, err := io.ReadFull(p.reader, head); err != nil {
		return err
	}
	rest := make([]byte, binary.BigEndian.Uint16(head[14:]))
	if _, err := io.ReadFull(p.reader, rest); err != nil {
		return err
	}
	switch {
	case head[12] == 0x20: // LOCAL
		return nil
	case head[12] != 0x21 || head[13] != 0x11 || len(rest) < 12:
		return fmt.Errorf("%x is no head of version 2 for TCP over IPv4", head)
	}
	ip, _ := netip.AddrFromSlice(rest[:4])
	p.client = net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, binary.BigEndian.Uint16(rest[8:])))
	return nil
}

// With send-proxy-protocol, servers get the client's address.
func TestSendProxyProtocol(t *testing.T) {
	t.Parallel()
	versions := map[string]chan string{"v1": make(chan string, 1), "v2": make(chan string, 1)}
	var yaml strings.Builder
	for version, came := range versions {
		port := mirror(t, version, func(s *httptest.Server) { s.Listener = proxyListener{s.Listener, came} })
		yaml.WriteString(served(t, version, []int{port}, "send-proxy-protocol", version))
	}
	e := start(t, yaml.String())
	clean(t, e)
	for version, came := range versions {
		got := e.getFrom(t, "127.0.0.77", version+".example", "/")
		if !strings.HasPrefix(got.seen.Remote, "127.0.0.77:") {
			t.Errorf("%s: the server takes %q for the client", version, got.seen.Remote)
		}
		if got := <-came; got != version {
			t.Errorf("%s: the server got %s", version, got)
		}
	}
}
