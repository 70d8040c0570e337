package pusher

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/internal/testing/eventually"
)

// crowd has clients that send one request after another, each on one connection, without retries.
type crowd struct {
	stop     atomic.Bool
	clients  sync.WaitGroup
	answered atomic.Int64
	mu       sync.Mutex
	failed   []string
}

// crowd starts clients that send requests to a backend of an instance, until disperse.
func (r *rig) crowd(name, backend string, clients int) *crowd {
	r.t.Helper()
	c := &crowd{}
	for range clients {
		conn, err := net.Dial("unix", r.binds[name])
		if err != nil {
			r.t.Fatal(err)
		}
		c.clients.Go(func() {
			defer func() { conn.Close() }()
			for answers := bufio.NewReader(conn); !c.stop.Load(); {
				if err := c.ask(conn, answers, backend); err != nil {
					c.mu.Lock()
					c.failed = append(c.failed, err.Error())
					c.mu.Unlock()
					return
				}
				c.answered.Add(1)
			}
		})
	}
	r.t.Cleanup(func() { c.stop.Store(true); c.clients.Wait() })
	return c
}

func (c *crowd) ask(conn net.Conn, answers *bufio.Reader, backend string) error {
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: shop.example.com\r\nX-Backend: %s\r\n\r\n", backend); err != nil {
		return err
	}
	response, err := http.ReadResponse(answers, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// gaveUp reports whether a client failed.
func (c *crowd) gaveUp() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.failed) > 0
}

// disperse stops the clients. None of their requests may have failed.
func (c *crowd) disperse(t *testing.T) {
	t.Helper()
	c.stop.Store(true)
	c.clients.Wait()
	if len(c.failed) > 0 {
		t.Errorf("%d clients failed after %d answers: %s", len(c.failed), c.answered.Load(), strings.Join(c.failed, ", "))
	}
}

// hastyBackend gives up soon if nothing answers, as if the connection were refused.
const hastyBackend = "timeout connect 50ms\n    retries 1\n    #hapsnap servers shop/web:http slots=8"

// All endpoints are replaced, in spare slots and in draining ones. The worker acknowledges each
// address some time before it uses it. No request goes to the former address of a server.
func TestFailureAddressesAreLate(t *testing.T) {
	t.Parallel()
	eachAPI(t, []string{"a"}, func(r *rig) {
		t := r.t
		r.options.DrainTime = time.Millisecond
		pods := newPods(t, "1", "2", "3", "4", "5", "6", "7", "8", "9")
		r.serve(pods, "web", "1", "2", "3")
		r.allRunAfter(r.publish(edgeConfig(map[string]string{"web": hastyBackend})))
		worker := r.workers()
		r.settled([]string{"web"}, pods, "1", "2", "3")
		r.instances["a"].Inject(dataplanetest.AddressLate(150 * time.Millisecond))
		crowd := r.crowd("a", "web", 4)
		for _, now := range [][]string{{"4", "5", "6"}, {"7", "8", "9"}, {"1", "2", "3"}} {
			r.serve(pods, "web", now...)
			r.settled([]string{"web"}, pods, now...)
		}
		crowd.disperse(t)
		r.keeps(worker)
	})
}

// An endpoint refuses connections, as if it were gone before a worker learned that. No request
// fails: HAProxy tries another server, with every balancing algorithm.
func TestEndpointThatRefusesFailsNoRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V34, "a")
	pods := newPods(t, "1", "2", "3")
	gone := httptest.NewServer(http.NotFoundHandler())
	pods["gone"] = &pod{name: "gone", address: gone.Listener.Addr().String()}
	gone.Close()
	r.serve(pods, "web", "1", "2", "3", "gone")
	balances := []string{"roundrobin", "leastconn", "random"}
	backends := map[string]string{}
	for _, balance := range balances {
		backends[balance] = "balance " + balance + "\n    retries 3\n    #hapsnap servers shop/web:http"
	}
	r.allRunAfter(r.publish(edgeConfig(backends)))
	r.settled(balances, pods, "1", "2", "3", "gone")
	for _, balance := range balances {
		c := r.crowd("a", balance, 2)
		eventually.Holds(t, "there are answers", func() bool { return c.answered.Load() > 200 || c.gaveUp() })
		c.disperse(t)
	}
}
