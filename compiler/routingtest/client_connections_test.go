package routingtest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A client may have so many requests at a time, and again when one has ended.
func TestRateLimitConnections(t *testing.T) {
	t.Parallel()
	arrived, leave := make(chan struct{}, 10), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			arrived <- struct{}{}
			<-leave
		}
	}))
	t.Cleanup(s.Close)
	e := start(t, serviceYAML("shop", "a", portOf(s))+all([]ingress{
		optioned("two", "rate-limit-connections", "2", "rate-limit-status", "503"),
		optioned("both", "rate-limit-connections", "1", "rate-limit", "3", "rate-limit-period", "1h", "rate-limit-key", "header X-Key"),
		optioned("exempt", "rate-limit-connections", "1", "rate-limit-exempt", "127.0.0.0/8"),
	}))
	clean(t, e)
	done := make(chan int)
	// A request is over for its client before it is for HAProxy, which refuses the next
	// one until then.
	wait := func(host string, lines ...string) {
		t.Helper()
		await(t, func() error {
			go func() { done <- e.get(t, host, "/wait", lines...).StatusCode }()
			select {
			case <-arrived:
				return nil
			case got := <-done:
				return fmt.Errorf("a request that is allowed gets %d", got)
			}
		})
	}
	wait("two.example")
	if got := e.get(t, "two.example", "/"); got.StatusCode != 200 {
		t.Errorf("the second at a time: %d", got.StatusCode)
	}
	wait("two.example")
	wait("both.example", "X-Key: a")
	wait("exempt.example")
	for host, want := range map[string]int{"two.example": 503, "both.example": 429, "exempt.example": 200} {
		if got := e.get(t, host, "/", "X-Key: a"); got.StatusCode != want {
			t.Errorf("one more of %s: %d, want %d", host, got.StatusCode, want)
		}
	}
	if got := e.get(t, "both.example", "/", "X-Key: b"); got.StatusCode != 200 {
		t.Errorf("another client: %d", got.StatusCode)
	}
	close(leave)
	for range 4 {
		if got := <-done; got != 200 {
			t.Errorf("one that waited: %d", got)
		}
	}
	await(t, func() error {
		if got := e.get(t, "two.example", "/"); got.StatusCode != 200 {
			return fmt.Errorf("when all have ended: %d", got.StatusCode)
		}
		return nil
	})
	e.get(t, "both.example", "/", "X-Key: a")
	if got := e.get(t, "both.example", "/", "X-Key: a"); got.StatusCode != 429 {
		t.Errorf("beyond the rate: %d", got.StatusCode)
	}
}
