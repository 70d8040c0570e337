package loopback

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Tunnel passes connections on to a server.
type Tunnel struct {
	listener net.Listener
	mu       sync.Mutex
	lost     []*atomic.Bool // of each connection
}

// NewTunnel returns a tunnel to the address of a server. It ends with the test.
func NewTunnel(t *testing.T, to string) *Tunnel {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	tunnel := &Tunnel{listener: listener}
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go tunnel.pass(t.Context(), from, to)
		}
	}()
	return tunnel
}

// Addr returns the address where the tunnel begins.
func (t *Tunnel) Addr() string { return t.listener.Addr().String() }

// lose has the connections that there are carry nothing any more, and neither end learns of it, as where a firewall
// has forgotten them. New ones work.
func (t *Tunnel) lose() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, lost := range t.lost {
		lost.Store(true)
	}
}

// AnswersAfterLoss loses the connections, and asks until there is an answer: at most for ten seconds.
func AnswersAfterLoss(t *testing.T, tunnel *Tunnel, ask func(context.Context) error) {
	t.Helper()
	tunnel.lose()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for err := ask(ctx); err != nil; err = ask(ctx) {
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

func (t *Tunnel) pass(ctx context.Context, from net.Conn, to string) {
	defer from.Close()
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	lost := new(atomic.Bool)
	t.mu.Lock()
	t.lost = append(t.lost, lost)
	t.mu.Unlock()
	go func() {
		defer server.Close()
		_, _ = io.Copy(losing{server, lost}, from)
	}()
	_, _ = io.Copy(losing{from, lost}, server)
}

// losing is one direction of a connection.
type losing struct {
	to   io.Writer
	lost *atomic.Bool
}

func (l losing) Write(data []byte) (int, error) {
	if l.lost.Load() {
		return len(data), nil
	}
	return l.to.Write(data)
}
