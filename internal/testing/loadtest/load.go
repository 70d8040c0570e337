// Package loadtest sends requests over raw sockets and counts those that fail. It sends nothing twice: a client
// of net/http repeats a request that a server dropped, and so hides the failure. Half of the clients make a
// connection for each request, half keep theirs until the server says that it closes it. If a server closes a
// connection without saying so, the request has failed.
package loadtest

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Options say who sends what.
type Options struct {
	Clients int
	// Host and Path are of each request.
	Host, Path string
	// Pause is the time between a response and the next request; 20 ms by default.
	Pause time.Duration
}

// limit bounds a request.
const limit = time.Minute

// Load is a number of clients at work.
type Load struct {
	options Options
	stop    chan struct{}
	done    sync.WaitGroup
	served  atomic.Int64
	next    atomic.Int64

	mu        sync.Mutex
	addresses []string
	failed    []error
}

// Start starts clients that send requests to the addresses in turn. They end with the test.
func Start(tb testing.TB, o Options, addresses ...string) *Load {
	tb.Helper()
	o.Host, o.Path, o.Pause = cmp.Or(o.Host, "test"), cmp.Or(o.Path, "/"), cmp.Or(o.Pause, 20*time.Millisecond)
	l := &Load{options: o, stop: make(chan struct{}), addresses: addresses}
	for i := range o.Clients {
		l.done.Go(func() { l.client(i%2 == 0) })
	}
	tb.Cleanup(func() { l.Stop() })
	return l
}

// Use makes new connections go to these addresses, like a proxy of Services whose endpoints change. Existing
// connections stay.
func (l *Load) Use(addresses ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addresses = addresses
}

// Await waits until that many more requests were served, or one failed.
func (l *Load) Await(tb testing.TB, more int) {
	tb.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	wanted, failed := l.served.Load()+int64(more), l.Failed()
	for deadline := time.Now().Add(limit); l.served.Load() < wanted && l.Failed() == failed; <-tick.C {
		if time.Now().After(deadline) {
			tb.Fatalf("%d more requests were not served", more)
		}
	}
}

// Failed is how many requests failed so far.
func (l *Load) Failed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.failed)
}

// Stop ends the clients after their current requests, and returns what happened to all requests.
func (l *Load) Stop() (served int, failed []error) {
	l.mu.Lock()
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.mu.Unlock()
	l.done.Wait()
	return int(l.served.Load()), l.failed
}

// client sends requests until the load stops.
func (l *Load) client(keeps bool) {
	var c *connection
	defer func() { c.close() }()
	for {
		var err error
		if c == nil {
			c, err = l.dial()
		}
		if err == nil {
			var closes bool
			closes, err = c.request(l.options, keeps)
			if err != nil || closes || !keeps {
				c.close()
				c = nil
			}
		}
		if err != nil {
			l.mu.Lock()
			l.failed = append(l.failed, err)
			l.mu.Unlock()
		} else {
			l.served.Add(1)
		}
		select {
		case <-l.stop:
			return
		case <-time.After(l.options.Pause):
		}
	}
}

// connection is a connection, with bytes that were read too early.
type connection struct {
	net.Conn
	reader *bufio.Reader
	sent   int
}

func (l *Load) dial() (*connection, error) {
	l.mu.Lock()
	addresses := l.addresses
	l.mu.Unlock()
	if len(addresses) == 0 {
		return nil, errors.New("there is no address")
	}
	address := addresses[int(l.next.Add(1))%len(addresses)]
	conn, err := (&net.Dialer{Timeout: limit}).DialContext(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	return &connection{Conn: conn, reader: bufio.NewReader(conn)}, nil
}

func (c *connection) close() {
	if c != nil {
		_ = c.Conn.Close()
	}
}

// request sends one request, and reports whether the connection is closed after it.
func (c *connection) request(o Options, keeps bool) (closes bool, err error) {
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return false, err
	}
	header := ""
	if !keeps {
		header = "Connection: close\r\n"
	}
	c.sent++
	failed := func(err error) error {
		return fmt.Errorf("%s: request %d of a connection from %s to %s: %w", time.Now().Format("15:04:05.000"), c.sent, c.LocalAddr(), c.RemoteAddr(), err)
	}
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", o.Path, o.Host, header); err != nil {
		return false, failed(err)
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return false, failed(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return false, failed(err)
	}
	if response.StatusCode != http.StatusOK {
		return false, failed(fmt.Errorf("status %s", response.Status))
	}
	return response.Close, nil
}
