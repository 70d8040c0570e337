package routingtest

import (
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
)

// soon is less than what HAProxy's own defaults would take, and far more than what the
// options of these tests ask for.
const soon = 4 * time.Second

// Requests beyond the limit wait, and not for ever.
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

// A request that has its server by its key waits for that one, if the queue is
// not full.
func TestMaxQueue(t *testing.T) {
	t.Parallel()
	h := newHolding(t, "queued")
	e := start(t, served(t, "queued", []int{h.port}, "balance", "uri", "max-connections", "1", "max-queue", "1", "timeout-queue", "1m"))
	clean(t, e)
	first := e.hold(t, "queued.example")
	holds(t, 1, h)
	// Of two more one waits and one is refused, whichever comes first.
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

// A server that a cookie leads to and that is full is left for another.
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
	// Of two more one waits there, and one is kept by the other server.
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
