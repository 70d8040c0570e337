package routingtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// failing starts a server that fails the first requests for a path as their query says. It answers the next one
// with the size of its body.
func failing(t *testing.T) (port int, count func(path string) int) {
	t.Helper()
	var mu sync.Mutex
	seen := map[string]int{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // cut off
		}
		mu.Lock()
		seen[r.URL.Path]++
		n := seen[r.URL.Path]
		mu.Unlock()
		w.Header().Set("X-Sent", strconv.Itoa(n))
		if times, _ := strconv.Atoi(r.URL.Query().Get("times")); n > times {
			fmt.Fprint(w, len(body))
			return
		}
		switch how := r.URL.Query().Get("how"); how {
		case "silent":
			<-r.Context().Done()
		case "closed":
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		default:
			code, _ := strconv.Atoi(how)
			w.WriteHeader(code)
		}
	}))
	t.Cleanup(s.Close)
	return portOf(s), func(path string) int {
		mu.Lock()
		defer mu.Unlock()
		return seen[path]
	}
}

// A request is sent again after the errors in its rule, as often as the rule says, and with its body.
func TestGatewayRetries(t *testing.T) {
	t.Parallel()
	port, count := failing(t)
	rule := func(path, rest string) string {
		return fmt.Sprintf("  - {matches: [{path: {value: %s}}], %s, backendRefs: [{name: web, port: 80}]}\n", path, rest)
	}
	e, _ := startGateway(t, serviceYAML("shop", "web", port)+routeYAML("shop", "web", "a.example", "  rules:\n"+
		rule("/code", "retry: {codes: [500], attempts: 3}")+
		rule("/all", "retry: {codes: [504, 502, 401, 403, 404, 408, 425, 501, 503, 500], attempts: 1}")+
		rule("/usual", "retry: {codes: [500], backoff: 0s}")+
		rule("/events", "retry: {attempts: 2}, timeouts: {request: 30s, backendRequest: 1s}")+
		rule("/never", "timeouts: {request: 1s}")))
	clean(t, e)
	large := strings.Repeat("x", 100000)
	for i, c := range []struct {
		path, query, body string
		want              string // the status, the body and the number of requests
	}{
		{"/code/a", "how=500&times=2", "", "200 0 3"},
		{"/code/b", "how=500&times=4", "", "500  4"},
		{"/code/c", "how=503&times=2", "", "503  1"},
		{"/code/d", "how=500&times=1", strings.Repeat("x", 1000), "200 1000 2"},
		{"/code/e", "how=500&times=1", large, "500  1"}, // a body longer than a buffer is not sent again
		{"/code/f", "", large, "200 100000 1"},
		{"/code/g", "how=closed&times=1", "", "200 0 2"},
		{"/all/a", "how=401&times=1", "", "200 0 2"}, {"/all/b", "how=403&times=1", "", "200 0 2"}, {"/all/c", "how=404&times=1", "", "200 0 2"},
		{"/all/d", "how=408&times=1", "", "200 0 2"}, {"/all/e", "how=425&times=1", "", "200 0 2"}, {"/all/f", "how=501&times=1", "", "200 0 2"},
		{"/all/g", "how=502&times=1", "", "200 0 2"}, {"/all/h", "how=503&times=1", "", "200 0 2"}, {"/all/i", "how=504&times=1", "", "200 0 2"},
		{"/all/j", "how=504&times=2", "", "504  2"},
		{"/usual/a", "how=500&times=3", "", "200 0 4"}, {"/usual/b", "how=500&times=4", "", "500  4"},
		{"/events/a", "how=closed&times=2", "", "200 0 3"}, {"/events/b", "how=silent&times=1", "", "200 0 2"}, {"/events/c", "how=500&times=1", "", "500  1"},
		{"/never/a", "how=500&times=1", "", "500  1"}, {"/never/b", "how=silent&times=1", "", "504  1"}, {"/never/c", "how=closed&times=1", "", "502  1"},
	} {
		method := "GET"
		if c.body != "" {
			method = "POST"
		}
		got := e.send(t, false, fmt.Sprintf("%s %s?%s HTTP/1.1\nHost: a.example\nContent-Length: %d\n\n%s", method, c.path, c.query, len(c.body), c.body))
		body := ""
		if got.StatusCode == http.StatusOK {
			body = got.body
		}
		if said := fmt.Sprint(got.StatusCode, " ", body, " ", count(c.path)); said != c.want {
			t.Errorf("%d, %s?%s: %s, want %s", i, c.path, c.query, said, c.want)
		}
	}

	// HAProxy waits for a body that comes after the header.
	conn, err := net.Dial("tcp", e.http)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /code/late?how=500&times=1 HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nContent-Length: 10\r\n\r\n01234")
	for i := range 10 { // until HAProxy has read the header
		e.send(t, false, fmt.Sprintf("GET /never/%d HTTP/1.1\nHost: a.example\n\n", i))
	}
	fmt.Fprint(conn, "56789")
	got, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	if got.StatusCode != http.StatusOK || count("/code/late") != 2 {
		t.Errorf("with a late body: %d after %d requests, want 200 after 2", got.StatusCode, count("/code/late"))
	}
}
