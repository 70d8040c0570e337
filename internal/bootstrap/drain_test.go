package bootstrap

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/internal/testing/loadtest"
)

// These are the ways in which a pod can end, with 40 clients that learn about it late. What the chart does
// fails no request. HAProxy's own grace keyword would fail none either, but it is not used: see
// TestGraceKeepsReplacedWorkers.
func TestWaysToEnd(t *testing.T) {
	t.Parallel()
	at := func(delay time.Duration, s syscall.Signal) func(*testing.T, *pod) {
		return func(t *testing.T, p *pod) {
			t.Helper()
			<-time.After(delay)
			p.signal(t, s)
		}
	}
	backend := slow(t)
	for _, way := range []struct {
		name, global string
		start        func(*pod, *testing.T)
		end          func(*testing.T, *pod)
		fails        bool
	}{
		{"SIGTERM at once", "", (*pod).startHAProxy, at(0, syscall.SIGTERM), true},
		{"SIGUSR1 at once", "", (*pod).startHAProxy, at(0, syscall.SIGUSR1), true},
		{"wait then SIGTERM", "", (*pod).startHAProxy, at(3*time.Second, syscall.SIGTERM), true},
		{"wait then SIGUSR1", "", (*pod).startHAProxy, at(3*time.Second, syscall.SIGUSR1), false},
		{"grace", "grace 3s", (*pod).startHAProxy, at(0, syscall.SIGUSR1), false},
		{"bootstrap", "", (*pod).startBootstrap, at(0, syscall.SIGTERM), false},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			first, second := newPod(t, backend, way.global), newPod(t, backend, way.global)
			way.start(first, t)
			way.start(second, t)
			load := loadtest.Start(t, loadtest.Options{Clients: 40}, first.web, second.web)
			load.Await(t, 100)
			heard, after := make(chan struct{}), 300*time.Millisecond // a tenth of the time that they get
			if way.fails {
				after = time.Second // so that some try in the meantime
			}
			time.AfterFunc(after, func() {
				load.Use(second.web)
				close(heard)
			})
			way.end(t, first)
			select {
			case err := <-first.ended:
				t.Log("it ended:", err)
			case <-time.After(limit):
				t.Error("HAProxy did not end")
			}
			<-heard
			load.Await(t, 100)
			served, failed := load.Stop()
			t.Logf("%d served, %d failed %v", served, len(failed), failed[:min(len(failed), 3)])
			if got := len(failed) > 0; got != way.fails {
				t.Errorf("%d requests failed: %v", len(failed), failed[:min(len(failed), 5)])
			}
		})
	}
}

// After a signal /ready fails at once, while everybody is served. Later HAProxy accepts no new connections, and
// finishes the old ones. Health, metrics and HAProxy's socket answer to the end, and a reload does not undo any
// of this. Both signals have this effect.
func TestDrain(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGUSR1} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			backend := newHeld(t)
			p := newPod(t, backend.address, "")
			p.startBootstrap(t)
			served := backend.request(t, p.web)
			p.signal(t, signal)
			eventually.Holds(t, "/ready fails", func() bool { return code("http://"+p.status+"/ready") == http.StatusServiceUnavailable })
			if err := dial(p.web); err != nil {
				t.Errorf("new connections end as soon as /ready fails: %v", err)
			}
			eventually.Holds(t, "new connections are refused", func() bool { return dial(p.web) != nil })
			if signal == syscall.SIGUSR1 {
				p.ask(t, "reload")
				eventually.Holds(t, "HAProxy reloaded itself", p.masterReloaded)
				eventually.Holds(t, "new connections are refused again", func() bool { return dial(p.web) != nil })
			}
			eventually.Holds(t, "health answers, and /ready fails", func() bool {
				return code("http://"+p.status+"/healthz") == http.StatusOK && code("http://"+p.status+"/ready") == http.StatusServiceUnavailable
			})
			select {
			case err := <-p.ended:
				t.Fatalf("the container ended under a request: %v", err)
			default:
			}
			backend.release()
			if got := <-served; got != http.StatusOK {
				t.Errorf("the request got %d", got)
			}
			select {
			case err := <-p.ended:
				if err != nil {
					t.Errorf("the container ended with %v", err)
				}
			case <-time.After(limit):
				t.Error("the container did not end")
			}
		})
	}
}

// A request that does not finish is cut off when the time is over. A second signal ends the wait for others to
// learn of the end.
func TestDrainIsBounded(t *testing.T) {
	t.Parallel()
	backend := newHeld(t)
	p := newPod(t, backend.address, "")
	p.env = append(p.env, "DRAIN_PROPAGATION_SECONDS=600", "DRAIN_SECONDS=1")
	p.startBootstrap(t)
	served := backend.request(t, p.web)
	p.signal(t, syscall.SIGTERM)
	eventually.Holds(t, "/ready fails", func() bool { return code("http://"+p.status+"/ready") == http.StatusServiceUnavailable })
	p.signal(t, syscall.SIGTERM)
	select {
	case err := <-p.ended:
		t.Log("it ended:", err)
	case <-time.After(limit):
		t.Fatal("the container did not end")
	}
	if got := <-served; got == http.StatusOK {
		t.Errorf("the request got %d", got)
	}
}

// With HAProxy's own grace keyword, replaced workers accept new requests for the whole time of the grace, with
// their old configuration.
func TestGraceKeepsReplacedWorkers(t *testing.T) {
	t.Parallel()
	first, second := answering(t, http.StatusOK), answering(t, http.StatusAccepted)
	for _, global := range []string{"", "grace 30s"} {
		p := newPod(t, first, global)
		p.startHAProxy(t)
		p.configure(t, second, global)
		p.ask(t, "reload")
		eventually.Holds(t, "HAProxy reloaded itself", p.masterReloaded)
		old := func() (served int) {
			for range 50 {
				if code("http://"+p.web) == http.StatusOK {
					served++
				}
			}
			return served
		}
		if global == "" {
			eventually.Holds(t, "the old configuration serves nobody", func() bool { return old() == 0 })
			continue
		}
		for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); {
			if old() == 0 {
				t.Fatal("the old configuration serves nobody, and grace could be used")
			}
		}
	}
}

// When close-spread-time is over, an old worker closes idle connections, and not together with a response. A
// client that sends a request at that moment gets no response. So the chart does not set it.
func TestCloseSpreadTimeCutsConnections(t *testing.T) {
	t.Parallel()
	backend := answering(t, http.StatusOK)
	for _, global := range []string{"", "close-spread-time 1s"} {
		p := newPod(t, backend, global)
		p.startHAProxy(t)
		conn, err := net.Dial("tcp", p.web)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
			t.Fatal(err)
		}
		reader := bufio.NewReader(conn)
		request := func() (int, error) {
			if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: test\r\n\r\n"); err != nil {
				return 0, err
			}
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				return 0, err
			}
			response.Body.Close()
			return response.StatusCode, nil
		}
		if got, err := request(); got != http.StatusOK {
			t.Fatalf("%d, %v", got, err)
		}
		p.ask(t, "reload")
		eventually.Holds(t, "HAProxy reloaded itself", p.masterReloaded)
		if global == "" {
			<-time.After(1500 * time.Millisecond) // the connection would be closed by then
			if got, err := request(); got != http.StatusOK {
				t.Errorf("a request after a reload got %d, %v", got, err)
			}
			continue
		}
		if _, err := reader.Peek(1); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%q: an idle connection after a reload: %v, want its end", global, err)
		}
	}
}

// held answers requests once it is told to.
type held struct {
	address string
	arrived chan struct{}
	release func()
}

func newHeld(t *testing.T) *held {
	t.Helper()
	answer := make(chan struct{})
	h := &held{arrived: make(chan struct{}, 10), release: sync.OnceFunc(func() { close(answer) })}
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		h.arrived <- struct{}{}
		<-answer
	}))
	t.Cleanup(server.Close)
	t.Cleanup(h.release) // before the server is closed, which waits
	h.address = server.Listener.Addr().String()
	return h
}

// request sends a request, and returns when it has arrived; its status comes later.
func (h *held) request(t *testing.T, to string) <-chan int {
	t.Helper()
	served := make(chan int, 1)
	go func() {
		response, err := http.Get("http://" + to)
		if err != nil {
			served <- 0
			return
		}
		response.Body.Close()
		served <- response.StatusCode
	}()
	<-h.arrived
	return served
}

func answering(t *testing.T, status int) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func dial(address string) error {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}
