package routingtest

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
)

// Requests with equal keys go to one server, requests with different keys to several.
func TestBalanceByKey(t *testing.T) {
	t.Parallel()
	ports := []int{mirror(t, "one", nil), mirror(t, "two", nil), mirror(t, "three", nil)}
	var yaml strings.Builder
	keyed := map[string]string{"header": "header X-User", "query": "query user", "uri": "uri", "source": "source"}
	for name, value := range keyed {
		yaml.WriteString(served(t, name, ports, "balance", value))
	}
	e := start(t, yaml.String())
	clean(t, e)
	// ask sends a request with the n-th value of a host's kind of key.
	ask := func(name string, n int) string {
		switch host := name + ".example"; name {
		case "header":
			return e.get(t, host, "/", fmt.Sprintf("X-User: %d", n)).seen.Name
		case "query":
			return e.get(t, host, fmt.Sprintf("/?user=%d", n)).seen.Name
		case "source":
			return e.getFrom(t, fmt.Sprintf("127.0.1.%d", 1+n), host, "/").seen.Name
		default:
			return e.get(t, host, fmt.Sprintf("/%d", n)).seen.Name
		}
	}
	for name := range keyed {
		chosen := map[string]bool{}
		for n := range 20 {
			first := ask(name, n)
			if again := ask(name, n); again != first {
				t.Errorf("balance %s: one key went to %s and %s", name, first, again)
			}
			chosen[first] = true
		}
		if len(chosen) < 2 {
			t.Errorf("balance %s: many keys, all to %v", name, chosen)
		}
	}
}

// holding is a server that keeps requests for /hold waiting until letGo.
type holding struct {
	name    string
	running atomic.Int32 // requests for /hold
	most    atomic.Int32 // the highest number at a time
	release chan struct{}
	letGo   func()
	port    int
}

func newHolding(t *testing.T, name string) *holding {
	t.Helper()
	h := &holding{name: name, release: make(chan struct{})}
	h.letGo = sync.OnceFunc(func() { close(h.release) })
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Echo", name)
		if !strings.HasPrefix(r.URL.Path, "/hold") {
			return
		}
		n := h.running.Add(1)
		defer h.running.Add(-1)
		for m := h.most.Load(); n > m && !h.most.CompareAndSwap(m, n); m = h.most.Load() {
		}
		<-h.release
	}))
	t.Cleanup(s.Close)
	t.Cleanup(h.letGo) // before Close, which waits for them
	h.port = s.Listener.Addr().(*net.TCPAddr).Port
	return h
}

// hold sends a request for /hold, and returns a channel for the answer.
func (e edge) hold(t *testing.T, host string) <-chan string {
	t.Helper()
	answered := make(chan string, 1)
	go func() { answered <- e.http11(t, "GET", host, "/hold") }()
	return answered
}

// holds waits until the servers together keep this many requests.
func holds(t *testing.T, want int, servers ...*holding) {
	t.Helper()
	await(t, func() error {
		got := 0
		for _, h := range servers {
			got += int(h.running.Load())
		}
		if got != want {
			return fmt.Errorf("%d requests are kept, want %d", got, want)
		}
		return nil
	})
}

// inTurn sends n requests for a host over one connection, and counts the answers. On one connection HAProxy has
// finished a request, and no longer counts it for the server, before the next one begins. On a new connection
// another thread might already serve the next request.
func (e edge) inTurn(t *testing.T, n int, host string) map[string]int {
	t.Helper()
	c, err := net.Dial("tcp", e.http)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	r := bufio.NewReader(c)
	for range n {
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host)
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		got[answer(response)]++
	}
	return got
}

// roundrobin takes the servers in turn, random takes all of them, leastconn the one with the fewest
// connections, and first the first one that is not full.
func TestBalanceByLoad(t *testing.T) {
	t.Parallel()
	one, two := newHolding(t, "one"), newHolding(t, "two")
	ports := []int{one.port, two.port}
	e := start(t, served(t, "roundrobin", ports, "balance", "roundrobin")+served(t, "random", ports, "balance", "random")+
		served(t, "leastconn", ports, "balance", "leastconn")+served(t, "first", ports, "balance", "first", "max-connections", "1"))
	clean(t, e)
	count := func(name string, n int) map[string]int { return e.inTurn(t, n, name+".example") }
	if got := count("roundrobin", 20); got["one"] != 10 || got["two"] != 10 {
		t.Errorf("roundrobin: %v", got)
	}
	if got := count("random", 60); got["one"] == 0 || got["two"] == 0 {
		t.Errorf("random: %v", got)
	}
	if got := count("first", 10); len(got) != 1 {
		t.Errorf("first: %v", got)
	}
	var waiting []<-chan string
	for i, name := range []string{"leastconn", "first"} {
		before := one.running.Load()
		waiting = append(waiting, e.hold(t, name+".example"))
		holds(t, i+1, one, two)
		idle := "one"
		if one.running.Load() > before {
			idle = "two"
		}
		if got := count(name, 10); got[idle] != 10 {
			t.Errorf("%s: only %s is idle, and requests go to %v", name, idle, got)
		}
	}
	one.letGo()
	two.letGo()
	for _, answered := range waiting {
		if got := <-answered; got != "one" && got != "two" {
			t.Errorf("a request that was kept: %s", got)
		}
	}
}
