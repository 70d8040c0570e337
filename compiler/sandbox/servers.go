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
	"net"
	"net/http"
	"net/http/fcgi"
	"strconv"
	"time"
)

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

// Close leaves the connection to whoever accepted it.
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
