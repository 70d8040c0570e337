package testscripts

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// rawClient sends requests on one connection, and repeats none. http.Client would repeat a GET if its kept
// connection is closed. It reconnects only after an answer that says that the connection closes.
type rawClient struct {
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	url     *url.URL
	conn    net.Conn
	answers *bufio.Reader
}

// newRawClient returns a client that has no connection yet.
func newRawClient(w *world, i *instance, text string) (*rawClient, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	return &rawClient{dial: w.dialer(i), url: u}, nil
}

func (c *rawClient) connect() error {
	ctx, cancel := context.WithTimeout(context.Background(), talkTimeout)
	defer cancel()
	port := cmp.Or(c.url.Port(), map[string]string{"http": "80", "https": "443"}[c.url.Scheme])
	conn, err := c.dial(ctx, "tcp", net.JoinHostPort(c.url.Hostname(), port))
	if err != nil {
		return err
	}
	if c.url.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, ServerName: c.url.Hostname(), NextProtos: []string{"http/1.1"}})
	}
	c.conn, c.answers = conn, bufio.NewReader(conn)
	return nil
}

// get sends a request, and reads its answer. After an error, the connection is gone.
func (c *rawClient) get() (answer, error) {
	got, err := c.ask()
	if err != nil {
		c.close()
	}
	return got, err
}

func (c *rawClient) ask() (answer, error) {
	if c.conn == nil {
		if err := c.connect(); err != nil {
			return answer{}, err
		}
	}
	if err := c.conn.SetDeadline(time.Now().Add(talkTimeout)); err != nil {
		return answer{}, err
	}
	if _, err := fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", c.url.RequestURI(), c.url.Host); err != nil {
		return answer{}, err
	}
	response, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if response.Close {
		c.close()
	}
	return answer{response.StatusCode, string(body)}, err
}

func (c *rawClient) close() {
	if c.conn != nil {
		c.conn.Close()
	}
	c.conn = nil
}

// astray returns the servers to which an instance sends requests although nothing listens there, as
// "backend/server address".
func astray(i *instance) string {
	out, err := i.Socket("show servers state")
	if err != nil {
		return err.Error()
	}
	var found []string
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 19 || f[1] == "hapsnap_ready" || f[5] != "2" || f[6] != "0" { // up, not drained and not in maintenance
			continue
		}
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(f[4], f[18]), time.Second)
		if err != nil {
			found = append(found, fmt.Sprintf("%s/%s %s:%s", f[1], f[3], f[4], f[18]))
			continue
		}
		conn.Close()
	}
	return strings.Join(found, ", ")
}
