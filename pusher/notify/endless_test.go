package notify

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
)

// The response of a webhook is read for a limited time. Then the next notice is sent.
func TestWebhookWhoseAnswerNeverEnds(t *testing.T) {
	for _, code := range []int{http.StatusOK, http.StatusForbidden} {
		tries := make(chan struct{}, 100)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			tries <- struct{}{}
			w.WriteHeader(code)
			for block := strings.Repeat("x", 64<<10); r.Context().Err() == nil; {
				if _, err := io.WriteString(w, block); err != nil {
					return
				}
			}
		}))
		defer server.Close()
		s := New(func() (string, error) { return server.URL, nil }, slog.New(slog.DiscardHandler))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		done := make(chan struct{})
		go func() {
			s.Run(t.Context())
			close(done)
		}()
		for range 3 {
			s.Send(Notice{Event: RolloutBegins})
		}
		for n := range 3 {
			select {
			case <-tries:
			case <-time.After(time.Minute):
				t.Fatalf("answer %d: only %d of 3 notices came within a minute", code, n)
			}
		}
		runtime.ReadMemStats(&after)
		if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 16 {
			t.Errorf("answer %d: %d MiB were allocated", code, used)
		}
		if len(tries) > 0 {
			t.Errorf("answer %d: a notice was sent again", code)
		}
	}
}
