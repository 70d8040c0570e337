package routingtest

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// checked is a server whose health checks are answered one by one by the test.
type checked struct {
	port    int
	came    chan *http.Request // a check, which waits for its answer
	answers chan int           // the status of the answer
}

func newChecked(t *testing.T) *checked {
	t.Helper()
	c := &checked{came: make(chan *http.Request), answers: make(chan int)}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Echo", "checked")
		if r.URL.Path != "/healthz" {
			return
		}
		select {
		case c.came <- r:
			select {
			case status := <-c.answers:
				w.WriteHeader(status)
			case <-t.Context().Done():
			}
		case <-t.Context().Done():
		}
	}))
	t.Cleanup(s.Close)
	c.port = s.Listener.Addr().(*net.TCPAddr).Port
	return c
}

// next waits for a check. By then HAProxy has processed the answer to the previous one.
func (c *checked) next(t *testing.T) *http.Request {
	t.Helper()
	select {
	case r := <-c.came:
		return r
	case <-time.After(deadline):
		t.Fatal("no check comes")
		return nil
	}
}

// checkInterval is also HAProxy's timeout for the connection of a check. It is long enough for a busy machine.
const checkInterval = "1s"

// An endpoint goes down after three failed checks in a row, and comes up after two successful ones.
func TestHealthChecks(t *testing.T) {
	t.Parallel()
	c := newChecked(t)
	e := start(t, served(t, "checked", []int{c.port}, "health-check-path", "/healthz?full=1", "health-check-host", "web.internal",
		"health-check-interval", checkInterval, "health-check-rise", "2", "health-check-fall", "3", "health-check-timeout", "1m", "health-check-status", "200-299"))
	clean(t, e)
	r := c.next(t)
	if r.Host != "web.internal" || r.Method != http.MethodGet || r.URL.RequestURI() != "/healthz?full=1" {
		t.Errorf("the check is %s %s of %s", r.Method, r.URL.RequestURI(), r.Host)
	}
	for i, step := range []struct {
		status int
		want   string // the answer to requests, once HAProxy has processed the check
	}{
		{204, "checked"}, // the first one decides at once
		{404, "checked"}, {200, "checked"},
		{404, "checked"}, {302, "checked"}, {500, "503"},
		{200, "503"}, {404, "503"},
		{200, "503"}, {204, "checked"},
	} {
		c.answers <- step.status
		c.next(t)
		if got := e.http11(t, "GET", "checked.example", "/"); got != step.want {
			t.Errorf("after check %d, of status %d: %s, want %s", i+1, step.status, got, step.want)
		}
	}
	c.answers <- http.StatusOK
}

// The interval of checks is that of the option.
func TestHealthCheckInterval(t *testing.T) {
	t.Parallel()
	c := newChecked(t)
	e := start(t, served(t, "checked", []int{c.port}, "health-check-path", "/healthz", "health-check-interval", checkInterval, "health-check-timeout", "10s"))
	clean(t, e)
	c.next(t)
	shortest := deadline
	for range 2 {
		answered := time.Now()
		c.answers <- http.StatusOK
		c.next(t)
		shortest = min(shortest, time.Since(answered))
	}
	if shortest < 700*time.Millisecond || shortest > soon { // by default 5s
		t.Errorf("the next check came after %v", shortest)
	}
	c.answers <- http.StatusOK
}

// An endpoint that came up gets few requests at first, and its full share in the end.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	var ill atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Echo", "slow")
		if r.URL.Path == "/healthz" && ill.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(s.Close)
	ports := []int{s.Listener.Addr().(*net.TCPAddr).Port, echo(t, "steady")}
	e := start(t, served(t, "web", ports, "slow-start", "10s", "health-check-path", "/healthz",
		"health-check-interval", checkInterval, "health-check-timeout", "10s", "health-check-rise", "1", "health-check-fall", "1"))
	clean(t, e)
	const requests = 40
	share := func() int {
		n := 0
		for range requests {
			if e.http11(t, "GET", "web.example", "/") == "slow" {
				n++
			}
		}
		return n
	}
	ill.Store(true)
	await(t, func() error {
		if n := share(); n > 0 {
			return fmt.Errorf("the server that is ill gets %d of %d requests", n, requests)
		}
		return nil
	})
	ill.Store(false)
	least := requests // the smallest share while it grows
	await(t, func() error {
		n := share()
		if n > 0 {
			least = min(least, n)
		}
		if n < requests*9/20 {
			return fmt.Errorf("the server that came up gets %d of %d requests", n, requests)
		}
		return nil
	})
	if least > requests/4 {
		t.Errorf("the server got %d of %d requests at once", least, requests)
	}
}
