package dataplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/loopback"
)

// A connection that died and of which nobody says so is given up, and the next one is used.
func TestConnectionsThatDied(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"api":{"version":"v3.2.5"},"system":{"time":1}}`))
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	tunnel := loopback.NewTunnel(t, server.Listener.Addr().String())
	authorities := x509.NewCertPool()
	authorities.AddCert(server.Certificate())
	connections := defaultHTTP(&tls.Config{RootCAs: authorities}, func(net.Conn) {}, 50*time.Millisecond)
	c, err := New(Options{URL: "https://" + tunnel.Addr(), HTTP: connections})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Clock(t.Context()); err != nil {
		t.Fatal(err)
	}
	loopback.AnswersAfterLoss(t, tunnel, func(ctx context.Context) error {
		_, err := c.Clock(ctx)
		return err
	})
}

func TestReadsAreNotWaitedForLong(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(release)
	c, err := New(Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	c.readTimeout = 50 * time.Millisecond
	began := time.Now()
	_, err = c.RuntimeInfo(t.Context())
	if !errors.Is(err, ErrUnavailable) {
		t.Errorf("a question without an answer: %v, want %v", err, ErrUnavailable)
	}
	if took := time.Since(began); took > readTimeout {
		t.Errorf("it was waited for %s", took)
	}
}
