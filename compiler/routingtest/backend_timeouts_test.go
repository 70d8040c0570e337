package routingtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
)

// unanswered returns a port that neither accepts nor refuses connections: its queue is full, and no program
// calls accept.
func unanswered(t *testing.T) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	port := bound.(*syscall.SockaddrInet4).Port
	await(t, func() error {
		c, err := net.DialTimeout("tcp", fmt.Sprint("127.0.0.1:", port), 200*time.Millisecond)
		if err == nil {
			t.Cleanup(func() { c.Close() })
			return fmt.Errorf("connections are still taken")
		}
		return nil
	})
	return port
}

func TestTimeoutConnect(t *testing.T) {
	t.Parallel()
	e := startWith(t, served(t, "full", []int{unanswered(t)}, "timeout-connect", "50ms", "retries", "0"), func(c *config.Config) {
		c.Timeouts.Connect = "1h"
	})
	clean(t, e)
	if got := e.http11(t, "GET", "full.example", "/"); got != "503" {
		t.Errorf("%s, want 503", got)
	}
}

// The default is longer than this test waits.
func TestTimeoutServer(t *testing.T) {
	t.Parallel()
	h := newHolding(t, "late")
	e := start(t, served(t, "late", []int{h.port}, "timeout-server", "50ms"))
	clean(t, e)
	if got := e.http11(t, "GET", "late.example", "/hold"); got != "504" {
		t.Errorf("%s, want 504", got)
	}
}

// upgrading starts a server that switches protocols and then echoes.
func upgrading(t *testing.T) int {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(c, buffered) // until the connection ends
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr).Port
}

// A silent upgraded connection is closed after the timeout, and not before.
func TestTimeoutTunnel(t *testing.T) {
	t.Parallel()
	e := start(t, served(t, "tunnel", []int{upgrading(t)}, "timeout-tunnel", "3s"))
	clean(t, e)
	c, err := net.Dial("tcp", e.http)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil { // by default, one hour
		t.Fatal(err)
	}
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: tunnel.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	reader := bufio.NewReader(c)
	response, err := http.ReadResponse(reader, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(response, err)
	}
	fmt.Fprint(c, "hello\n")
	if line, err := reader.ReadString('\n'); line != "hello\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if _, err := reader.ReadByte(); err != io.EOF {
		t.Errorf("the silent connection: %v, want its end", err)
	}
}

// An unused connection to an endpoint is closed.
func TestTimeoutKeepAlive(t *testing.T) {
	t.Parallel()
	var idle sync.Map // connections that have served a request, so not those of checks
	var ended atomic.Int32
	port := mirror(t, "kept", func(s *httptest.Server) {
		s.Config.ConnState = func(c net.Conn, state http.ConnState) {
			if state == http.StateIdle {
				idle.Store(c, true)
			} else if _, was := idle.Load(c); was && state == http.StateClosed {
				ended.Add(1)
			}
		}
	})
	e := start(t, served(t, "kept", []int{port}, "timeout-keep-alive", "100ms"))
	clean(t, e)
	shortest := deadline
	for n := int32(1); n <= 3; n++ {
		if got := e.get(t, "kept.example", "/").seen.Name; got != "kept" {
			t.Fatalf("answered by %q", got)
		}
		began := time.Now()
		await(t, func() error {
			if ended.Load() < n {
				return fmt.Errorf("the idle connection is still there")
			}
			return nil
		})
		shortest = min(shortest, time.Since(began))
	}
	if shortest > soon { // by default, 5s
		t.Errorf("timeout-keep-alive took %v", shortest)
	}
}

// A refused connection is tried again as often as the option says.
func TestRetries(t *testing.T) {
	t.Parallel()
	port := freePort(t, "127.0.0.1")
	e := start(t, served(t, "patient", []int{port}, "retries", "100", "timeout-connect", "500ms")+
		served(t, "hasty", []int{port}, "retries", "0"))
	clean(t, e)
	patient := make(chan string, 1)
	go func() { patient <- e.http11(t, "GET", "patient.example", "/") }()
	if got := e.http11(t, "GET", "hasty.example", "/"); got != "503" {
		t.Errorf("without retries: %s, want 503", got)
	}
	select {
	case got := <-patient:
		t.Fatalf("the server was given up: %s", got)
	default:
	}
	var l net.Listener
	await(t, func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		return err
	})
	s := &httptest.Server{Listener: l, Config: &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Echo", "back") }),
	}}
	s.Start()
	t.Cleanup(s.Close)
	if got := <-patient; got != "back" {
		t.Errorf("with retries: %s", got)
	}
}
