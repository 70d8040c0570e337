package admission

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

// client returns a client certificate for a name that is valid until a time.
func client(t *testing.T, by pemtest.Authority, name string, until time.Time, usage x509.ExtKeyUsage) tls.Certificate {
	t.Helper()
	return by.Sign(t, name, func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter, c.ExtKeyUsage = time.Now().Add(-2*time.Hour), until, []x509.ExtKeyUsage{usage}
	})
}

// guarded starts a server that requires client certificates.
func guarded(t *testing.T, file string, names ...string) *Server {
	t.Helper()
	dir := t.TempDir()
	crt, key := pair(t, 1)
	put(t, dir, "tls.crt", crt)
	put(t, dir, "tls.key", key)
	ctx, stop := context.WithCancel(t.Context())
	judge := fake{t: t, ingress: func(context.Context, *networkingv1.Ingress) (Verdict, error) { return Verdict{}, nil }}
	s, err := Start(ctx, Options{
		Address: "127.0.0.1:0", CertDir: dir, ClientCA: file, ClientNames: names,
		Judge: judge, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		s.Wait()
	})
	return s
}

// clientOf returns a client with this certificate, if there is one.
func clientOf(t *testing.T, certificate tls.Certificate) *http.Client {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // in this test the server verifies
	if certificate.Certificate != nil {
		config.Certificates = []tls.Certificate{certificate}
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// answered returns the status of a review, or an error without an answer.
func answered(s *Server, client *http.Client) (int, error) {
	response, err := client.Post("https://"+s.Address()+Path, "application/json", strings.NewReader(review("CREATE", "Ingress", web, "")))
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// Only clients with a certificate of the authority, and with an allowed name, may ask.
func TestWhoMayAsk(t *testing.T) {
	ours, theirs := pemtest.NewAuthority(t), pemtest.NewAuthority(t)
	later := time.Now().Add(time.Hour)
	file := filepath.Join(t.TempDir(), "ca.crt")
	put(t, filepath.Dir(file), "ca.crt", []byte(ours.PEM))
	anyName, named := guarded(t, file), guarded(t, file, "kube-apiserver", "other")
	for _, c := range []struct {
		name        string
		certificate tls.Certificate
		any, named  bool
	}{
		{"no certificate", tls.Certificate{}, false, false},
		{"the API server's", client(t, ours, "kube-apiserver", later, x509.ExtKeyUsageClientAuth), true, true},
		{"somebody else's of the authority", client(t, ours, "system:node:a", later, x509.ExtKeyUsageClientAuth), true, false},
		{"of another authority", client(t, theirs, "kube-apiserver", later, x509.ExtKeyUsageClientAuth), false, false},
		{"expired", client(t, ours, "kube-apiserver", time.Now().Add(-time.Minute), x509.ExtKeyUsageClientAuth), false, false},
		{"a server's", client(t, ours, "kube-apiserver", later, x509.ExtKeyUsageServerAuth), false, false},
	} {
		for s, want := range map[*Server]bool{anyName: c.any, named: c.named} {
			code, err := answered(s, clientOf(t, c.certificate))
			if got := err == nil && code == http.StatusOK; got != want {
				t.Errorf("%s: answered %d, %v, want it answered: %t", c.name, code, err, want)
			}
		}
	}
}

// The authorities are read again when they change. New ones are accepted, and removed ones are refused, also on
// open connections. If the new file is invalid, the former authorities stay.
func TestClientAuthoritiesChange(t *testing.T) {
	first, second := pemtest.NewAuthority(t), pemtest.NewAuthority(t)
	later := time.Now().Add(time.Hour)
	dir := t.TempDir()
	s := guarded(t, filepath.Join(dir, "ca.crt"))
	if err := s.Ready(); err == nil || !strings.Contains(err.Error(), "client authorities") {
		t.Errorf("ready without authorities: %v", err)
	}
	one, two := clientOf(t, client(t, first, "a", later, x509.ExtKeyUsageClientAuth)), clientOf(t, client(t, second, "a", later, x509.ExtKeyUsageClientAuth))
	if code, err := answered(s, one); err == nil {
		t.Errorf("answered %d before there are authorities", code)
	}
	is := func(client *http.Client, want int) func() error {
		return func() error {
			code, err := answered(s, client)
			if code != want {
				return fmt.Errorf("answered %d, %w", code, errors.Join(err, errors.New("want another")))
			}
			return nil
		}
	}
	put(t, dir, "ca.crt", []byte(first.PEM))
	await(t, "the first is believed", is(one, http.StatusOK))
	put(t, dir, "ca.crt", nil)
	put(t, dir, "ca.crt", []byte(first.PEM[:len(first.PEM)/2]))
	s.clients.reload()
	if err := is(one, http.StatusOK)(); err != nil || s.Ready() != nil {
		t.Errorf("with half a file: %v, %v", err, s.Ready())
	}
	put(t, dir, "ca.crt", []byte(second.PEM))
	await(t, "the second is believed", is(two, http.StatusOK))
	if code, err := answered(s, one); code == http.StatusOK { // it uses an open connection
		t.Errorf("one of an authority that went was answered %d, %v", code, err)
	}
}

// Clients that send slowly or nothing delay no other, whether with many connections or with many streams.
func TestSlowSendersHoldNobody(t *testing.T) {
	dir := t.TempDir()
	crt, key := pair(t, 1)
	put(t, dir, "tls.crt", crt)
	put(t, dir, "tls.key", key)
	const patience = time.Hour // for slow clients
	s := start(t, dir, func(o *Options) { o.bodyTime = patience })
	for i := range 100 {
		c, err := tls.Dial("tcp", s.Address(), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // of a test
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%4 == 0 {
			continue // it sends nothing
		}
		if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{", Path); err != nil {
			t.Fatal(err)
		}
	}
	client := clientOf(t, tls.Certificate{})
	for range 100 {
		reader, writer := io.Pipe()
		defer writer.Close()
		go func() {
			response, err := client.Post("https://"+s.Address()+Path, "application/json", reader)
			if err == nil {
				response.Body.Close()
			}
		}()
	}
	began := time.Now()
	if code, err := answered(s, client); code != http.StatusOK {
		t.Errorf("answered %d, %v", code, err)
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("the answer took %v", took)
	}
}

// A body without an end is cut off, and the memory of all bodies is bounded.
func TestBodiesAreBounded(t *testing.T) {
	h := handlerOf(fake{t: t}, prometheus.NewRegistry())
	h.bodies.patience = 50 * time.Millisecond
	server := httptest.NewServer(h)
	defer server.Close()
	c, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{", Path); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(answer), "400 Bad Request") {
		t.Errorf("an unfinished body was answered %q, %v", answer, err)
	}

	ask := func(body string) int {
		h := handlerOf(fake{t: t, ingress: func(context.Context, *networkingv1.Ingress) (Verdict, error) { return Verdict{}, nil }}, prometheus.NewRegistry())
		h.bodies.held.Store(maxBodies)
		code, _ := ask(t, h, "", body)
		if now := h.bodies.held.Load(); now != maxBodies {
			t.Errorf("%d bytes are held afterwards", now-maxBodies)
		}
		return code
	}
	if code := ask(strings.Repeat(" ", freeBody) + review("CREATE", "Ingress", web, "")); code != http.StatusServiceUnavailable {
		t.Errorf("a large review too many was answered %d", code)
	}
	if code := ask(review("CREATE", "Ingress", web, "")); code != http.StatusOK {
		t.Errorf("a small review was answered %d", code)
	}
}

// A client that begins streams and resets them at once, again and again, delays no other.
func TestRapidResetsHoldNobody(t *testing.T) {
	dir := t.TempDir()
	crt, key := pair(t, 1)
	put(t, dir, "tls.crt", crt)
	put(t, dir, "tls.key", key)
	s := start(t, dir)
	client, other := clientOf(t, tls.Certificate{}), clientOf(t, tls.Certificate{})
	for range 300 {
		ctx, cancel := context.WithCancel(t.Context())
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+s.Address()+Path, strings.NewReader(review("CREATE", "Ingress", web, "")))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if response, err := client.Do(request); err == nil {
				response.Body.Close()
			}
		}()
		cancel()
	}
	if code, err := answered(s, other); code != http.StatusOK {
		t.Errorf("answered %d, %v", code, err)
	}
}
