package discovery_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
)

// publishBackend publishes a snapshot with a backend.
func (w *world) publishBackend(t *testing.T, revision string) snapshots.ID {
	t.Helper()
	id, _, err := w.store.Publish(t.Context(), snapshots.Draft{Time: time.Now(), Files: []snapshots.File{{
		Path: snapshots.ConfigFile, Content: []byte(`global
    maxconn 100
    description "` + revision + `"

defaults
    mode http
    timeout connect 1s
    timeout client 100s
    timeout server 10s

frontend web
    bind "${WEB}"
    default_backend shop_web_http

backend shop_web_http
    #hapsnap servers shop/web:http
`),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// backend starts a server that answers with its name, and returns its address.
func backend(t *testing.T, name string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// endpoint makes shop/web have one address.
func (w *world) endpoint(t *testing.T, address string) {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		file := filepath.Join(w.dir, "live", "web.yaml")
		err = os.WriteFile(file+".new", fmt.Appendf(nil, `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: web, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: %s}]
endpoints: [{addresses: [%s]}]
`, port, host), 0o600)
		if err == nil {
			err = os.Rename(file+".new", file)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// client is a connection that stays open.
type client struct {
	net.Conn
	answers *bufio.Reader
}

func dial(t *testing.T, address string) client {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: 30 * time.Second}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return client{conn, bufio.NewReader(conn)}
}

// servedBy waits until a backend serves requests. The former server may still get some until the worker has the
// whole change.
func (c client) servedBy(t *testing.T, name string) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	for {
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n"); err != nil {
			t.Fatalf("not yet served by %s: %v", name, err)
		}
		answer, err := http.ReadResponse(c.answers, nil)
		if err != nil {
			t.Fatalf("not yet served by %s: %v", name, err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("answered %d %q (%v), want %s", answer.StatusCode, body, err, name)
		}
		if string(body) == name {
			return
		}
	}
}

// drains waits until a pod drains, runs a snapshot, and has today's endpoints.
func (w *world) drains(t *testing.T, name string, id snapshots.ID) {
	t.Helper()
	w.until(t, name+" drains, and has the endpoints", func(s report.Status) bool {
		return len(s.Draining) == 1 && s.Draining[0].Name == name && s.Draining[0].Running == id && s.Draining[0].InSync && s.Draining[0].Doing == ""
	})
}

// A terminating pod is neither repaired nor counted, and gets no snapshot. But while it drains, its worker gets
// endpoints: today's servers serve its remaining connections, also after another pusher has taken over.
func TestDrainingPodGetsEndpoints(t *testing.T) {
	w := newWorld(t)
	w.drain = 3600
	one, two, three := backend(t, "one"), backend(t, "two"), backend(t, "three")
	w.endpoint(t, one)
	first := w.publishBackend(t, "1")
	stop := w.run(t)
	w.pod(t, "edge-0", "10.244.2.1")
	w.pod(t, "edge-1", "10.244.2.2")
	w.runs(t, first, "edge-0", "edge-1")
	open := dial(t, "10.244.2.2:8080")
	open.servedBy(t, "one")

	pods := w.client(t).CoreV1().Pods("edge")
	if err := pods.Delete(t.Context(), "edge-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.drains(t, "edge-1", first)
	w.runs(t, first, "edge-0")
	w.endpoint(t, two)
	w.until(t, "the worker of edge-1 has the endpoint", func(report.Status) bool { return w.has(t, "edge-1", two) })
	open.servedBy(t, "two")

	// Snapshots and repairs go only to the fleet. A change of the draining pod's file stays.
	edited := "# edited by hand\n"
	if err := w.pods["edge-1"].EditConfig(edited); err != nil {
		t.Fatal(err)
	}
	w.runs(t, w.publishBackend(t, "2"), "edge-0")
	stop()
	w.run(t)
	w.endpoint(t, three)
	w.until(t, "the worker of edge-1 has the endpoint after the pusher was replaced", func(report.Status) bool { return w.has(t, "edge-1", three) })
	w.drains(t, "edge-1", first)
	open.servedBy(t, "three")
	w.expectPushes(t, "edge-0", 2)
	w.expectPushes(t, "edge-1", 1)

	now := int64(0)
	if err := pods.Delete(t.Context(), "edge-1", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	w.until(t, "edge-1 is gone", func(s report.Status) bool { return len(s.Draining) == 0 && len(s.Instances) == 1 })
}

// has reports whether the worker of a pod sends requests to an address.
func (w *world) has(t *testing.T, name, address string) bool {
	t.Helper()
	out, err := w.pods[name].Socket("show servers conn shop_web_http")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(out, " "+strings.Replace(address, ":", " ", 1)+" ")
}
