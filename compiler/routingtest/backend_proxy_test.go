package routingtest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

// proxyConn is a connection whose first bytes tell the client's address, by the
// PROXY protocol's specification, sections 2.1 and 2.2.
type proxyConn struct {
	net.Conn
	reader  *bufio.Reader
	client  net.Addr
	version string
}

func (p *proxyConn) Read(b []byte) (int, error) { return p.reader.Read(b) }
func (p *proxyConn) RemoteAddr() net.Addr       { return p.client }

// proxyListener accepts connections that begin with the protocol, and tells
// which versions of it came.
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
			c.Close() // whoever sent it gets no answer
			continue
		}
		select {
		case l.versions <- p.version:
		default:
		}
		return p, nil
	}
}

// head reads the first bytes.
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

// headV1 reads such as "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443".
func (p *proxyConn) headV1() error {
	line, err := p.reader.ReadString('\n')
	words := strings.Fields(line)
	switch {
	case err != nil:
		return err
	case len(words) == 2 && words[0] == "PROXY" && words[1] == "UNKNOWN": // a check
		return nil
	case len(words) != 6 || words[0] != "PROXY" || words[1] != "TCP4" || !strings.HasSuffix(line, "\r\n"):
		return fmt.Errorf("%q is no head of version 1", line)
	}
	client, err := netip.ParseAddrPort(words[2] + ":" + words[4])
	p.client = net.TCPAddrFromAddrPort(client)
	return err
}

// headV2 reads the binary form: of IPv4, or of a connection of the proxy's own,
// as for a check.
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

// Servers that expect the PROXY protocol get the client's address by it.
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
