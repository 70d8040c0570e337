package routingtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkCanaries compares the cost of a request in a HAProxy with 2,000 Ingresses, of which 1,000 are
// canaries by header with a Service each, and in one with the same hosts without canaries. It sends requests to
// both in turn, and measures their CPU time. "plain" is a request to a host without a canary, and "canary" is
// one that a canary gets. Both ratios should stay under 1.5.
func BenchmarkCanaries(b *testing.B) {
	port := serving(b, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	without, with := costing(b, port, false), costing(b, port, true)
	for b.Loop() {
		var plain, canary []float64
		for range 9 {
			bare := without.cost(b, "host-1999.example", "")
			plain = append(plain, with.cost(b, "host-1999.example", "")/bare)
			canary = append(canary, with.cost(b, "host-500.example", "always")/bare)
		}
		b.ReportMetric(median(plain), "plain/bare")
		b.ReportMetric(median(canary), "canary/bare")
	}
}

// serving starts an endpoint and returns its port.
func serving(b *testing.B, handler http.HandlerFunc) int {
	b.Helper()
	server := httptest.NewServer(handler)
	b.Cleanup(server.Close)
	_, text, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		b.Fatal(err)
	}
	return port
}

// costing starts a HAProxy with 1,000 hosts that may have canaries, and 1,000 others.
func costing(b *testing.B, port int, canaries bool) edge {
	b.Helper()
	var yaml strings.Builder
	yaml.WriteString(serviceYAML("shop", "a", port))
	for n := range 2000 {
		rules := []string{fmt.Sprintf("host-%d.example P / a", n)}
		if canaries && n < 1000 {
			service := fmt.Sprint("canary-", n)
			yaml.WriteString(serviceYAML("shop", service, port))
			yaml.WriteString(canaryOf(service, []string{fmt.Sprintf("host-%d.example P / %s", n, service)}, "canary-by-header", "X-Canary").yaml())
		}
		if !canaries || n < 1000 || n == 1999 {
			yaml.WriteString(ingress{name: fmt.Sprint("main-", n), rules: rules}.yaml())
		}
	}
	return start(b, yaml.String())
}

// cost returns the CPU time of one request in nanoseconds, measured with 4,000 requests on one connection.
func (e edge) cost(b *testing.B, host, canary string) float64 {
	b.Helper()
	conn, err := net.DialTimeout("tcp", e.http, deadline)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(deadline)); err != nil {
		b.Fatal(err)
	}
	answers := bufio.NewReader(conn)
	request := "GET / HTTP/1.1\r\nHost: " + host + "\r\nX-Canary: " + canary + "\r\n\r\n"
	const requests = 4000
	before := e.onCPU(b)
	for range requests {
		if _, err := io.WriteString(conn, request); err != nil {
			b.Fatal(err)
		}
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
			b.Fatal(answer.Status, err)
		}
	}
	return float64(e.onCPU(b)-before) / requests
}

// onCPU returns the CPU time of all threads of HAProxy in nanoseconds.
func (e edge) onCPU(b *testing.B) (sum int) {
	b.Helper()
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", e.pid))
	if err != nil || len(paths) == 0 {
		b.Fatal(paths, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			b.Fatal(err)
		}
		first, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.Atoi(first)
		if err != nil {
			b.Fatal(err)
		}
		sum += n
	}
	return sum
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
