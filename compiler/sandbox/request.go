package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/fcgi"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Request is what is asked. What is empty has a default: GET, /, and From an
// address of TEST-NET-2.
type Request struct {
	TLS     bool
	Port    int // of a bind line
	Method  string
	Host    string
	Path    string // and the query, as they are sent
	Headers map[string]string
	From    netip.Addr
}

// Answer is who answered. Server is nil for an answer of HAProxy's own.
type Answer struct {
	Status   int
	Location string
	Server   *Server
}

// The addresses that clients have, and HAProxy seems to listen on: of blocks that
// are kept for documentation (RFC 5737, RFC 3849).
var (
	clientAddress = netip.MustParseAddr("198.51.100.1")
	ownAddress4   = netip.MustParseAddr("192.0.2.10")
	ownAddress6   = netip.MustParseAddr("2001:db8::10")
)

// patience is how long a start or an answer may take.
const patience = 15 * time.Second

// Ask sends a request, and waits for the answer. ErrNoListener means that nothing
// listens on the port, any other error that there was no answer.
func (t *Sandbox) Ask(ctx context.Context, r Request) (Answer, error) {
	path, ok := t.sockets[r.Port]
	if !ok {
		return Answer{}, fmt.Errorf("%w %d", ErrNoListener, r.Port)
	}
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return Answer{}, fmt.Errorf("ask haproxy: %w", err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	status, header, err := exchange(ctx, c, r)
	if err != nil {
		return Answer{}, fmt.Errorf("ask haproxy: %w", err)
	}
	a := Answer{Status: status, Location: header.Get("Location")}
	if i, err := strconv.Atoi(header.Get(answeredBy)); err == nil && i >= 0 && i < len(t.lines) {
		a.Server = &t.lines[i]
	}
	return a, nil
}

// exchange says who asks, sends the request and reads the head of the answer.
func exchange(ctx context.Context, c net.Conn, r Request) (status int, header http.Header, err error) {
	if _, err := io.WriteString(c, proxyHeader(r)); err != nil {
		return 0, nil, err
	}
	if r.TLS {
		// The certificates are to throw away.
		secure := tls.Client(c, &tls.Config{InsecureSkipVerify: true, ServerName: serverName(r.Host), NextProtos: []string{"http/1.1"}}) //nolint:gosec // see above
		if err := secure.HandshakeContext(ctx); err != nil {
			return 0, nil, err
		}
		c = secure
	}
	if _, err := io.WriteString(c, requestText(r)); err != nil {
		return 0, nil, err
	}
	response, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: r.Method})
	if err != nil {
		return 0, nil, err
	}
	response.Body.Close()
	return response.StatusCode, response.Header, nil
}

// proxyHeader is a header of the PROXY protocol, version 1.
func proxyHeader(r Request) string {
	from, to, family := r.From, ownAddress4, "TCP4"
	if !from.IsValid() {
		from = clientAddress
	}
	if from.Is6() {
		to, family = ownAddress6, "TCP6"
	}
	return fmt.Sprintf("PROXY %s %s %s 40000 %d\r\n", family, from, to, r.Port)
}

// serverName is what a client that speaks TLS says of the host that it wants; of
// an address it says nothing.
func serverName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(host, ".")
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return ""
	}
	return host
}

// requestText is the request as it is sent.
func requestText(r Request) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", or(r.Method, http.MethodGet), or(r.Path, "/"), r.Host)
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		fmt.Fprintf(&b, "%s: %s\r\n", name, r.Headers[name])
	}
	if r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch {
		b.WriteString("Content-Length: 0\r\n")
	}
	return b.String() + "Connection: close\r\n\r\n"
}

func or(s, unset string) string {
	if s == "" {
		return unset
	}
	return s
}

// answeredBy is the header in which a server says its number.
const answeredBy = "X-Hapsnap-Sandbox-Server"

// servers are the servers of a sandbox, each on a port of its own.
type servers struct {
	certificate tls.Certificate
	listeners   []net.Listener
	http        []*http.Server
}

// add starts one more server, and returns its address.
func (s *servers) add(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("start a server for the sandbox: %w", err)
	}
	number := strconv.Itoa(len(s.listeners))
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(answeredBy, number) })
	server := &http.Server{Handler: handler, Protocols: new(http.Protocols), ReadHeaderTimeout: patience, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	s.listeners, s.http = append(s.listeners, l), append(s.http, server)
	go s.accept(l, server)
	return l.Addr().String(), nil
}

// accept takes connections until the listener is closed.
func (s *servers) accept(l net.Listener, server *http.Server) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go s.serve(c, server)
	}
}

// serve finds out what is spoken, and speaks it. Whatever goes wrong is seen by
// HAProxy, which says 502.
func (s *servers) serve(c net.Conn, server *http.Server) {
	p := &peekedConn{Conn: c, r: bufio.NewReader(c)}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil || p.skipProxyHeader() != nil {
		c.Close()
		return
	}
	first, err := p.r.Peek(1)
	if err != nil || c.SetReadDeadline(time.Time{}) != nil {
		c.Close()
		return
	}
	switch first[0] {
	case 0x16: // a handshake of TLS
		cfg := &tls.Config{Certificates: []tls.Certificate{s.certificate}, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12}
		_ = server.Serve(&oneConn{c: tls.Server(p, cfg)})
	case 0x01: // the version of FastCGI
		_ = fcgi.Serve(&oneConn{c: p}, server.Handler)
	default:
		_ = server.Serve(&oneConn{c: p})
	}
}

func (s *servers) close() {
	for i, l := range s.listeners {
		l.Close()
		s.http[i].Close()
	}
}

// oneConn is a listener with one connection.
type oneConn struct{ c net.Conn }

// Accept returns the connection, once.
func (l *oneConn) Accept() (net.Conn, error) {
	c := l.c
	if c == nil {
		return nil, io.EOF
	}
	l.c = nil
	return c, nil
}

// Close does nothing: the connection belongs to the code that accepted it.
func (l *oneConn) Close() error { return nil }

// Addr is nowhere.
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// peekedConn is a connection whose beginning has been looked at.
type peekedConn struct {
	net.Conn
	r *bufio.Reader
}

// Read reads what was looked at, and then the rest.
func (c *peekedConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// proxyV2 begins a header of the PROXY protocol, version 2.
var proxyV2 = []byte("\r\n\r\n\x00\r\nQUIT\n")

// skipProxyHeader reads a header of the PROXY protocol, if there is one.
func (c *peekedConn) skipProxyHeader() error {
	first, err := c.r.Peek(1)
	if err != nil {
		return err
	}
	switch first[0] {
	case 'P':
		if b, _ := c.r.Peek(6); string(b) != "PROXY " {
			return nil // another method
		}
		_, err := c.r.ReadString('\n')
		return err
	case '\r':
		head, err := c.r.Peek(len(proxyV2) + 4)
		if err != nil || !bytes.HasPrefix(head, proxyV2) {
			return err
		}
		_, err = c.r.Discard(len(head) + int(binary.BigEndian.Uint16(head[14:])))
		return err
	}
	return nil
}
