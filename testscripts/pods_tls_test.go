package testscripts

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"sync"
)

// podCertificate returns the certificate with which pods prove to be pods. The instances have no other
// certificate like it.
var podCertificate = sync.OnceValues(func() (*tls.Config, error) {
	made, err := newKeyPair([]string{"pod.example.com"})
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{made.certificate.Raw}, PrivateKey: made.private}}}, nil
})

// eitherListener accepts connections with TLS and without on one port.
type eitherListener struct {
	net.Listener
	config *tls.Config
}

func (l eitherListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &eitherConn{Conn: c, config: l.config}, nil
}

// eitherConn finds out from the client's first byte whether it speaks TLS.
type eitherConn struct {
	net.Conn
	config *tls.Config
	begin  sync.Once
	stream io.ReadWriter
}

func (c *eitherConn) Read(b []byte) (int, error) {
	c.begin.Do(c.choose)
	return c.stream.Read(b)
}

func (c *eitherConn) Write(b []byte) (int, error) {
	c.begin.Do(c.choose)
	return c.stream.Write(b)
}

// recordOfHandshake is the first byte of every TLS connection.
const recordOfHandshake = 0x16

func (c *eitherConn) choose() {
	first := make([]byte, 1)
	n, _ := io.ReadFull(c.Conn, first) // the next read returns the error again
	again := &begunConn{c.Conn, io.MultiReader(bytes.NewReader(first[:n]), c.Conn)}
	c.stream = again
	if first[0] == recordOfHandshake {
		c.stream = tls.Server(again, c.config)
	}
}

// begunConn is a connection from which something was read.
type begunConn struct {
	net.Conn
	whole io.Reader
}

func (c *begunConn) Read(b []byte) (int, error) { return c.whole.Read(b) }
