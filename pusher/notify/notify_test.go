package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// hook is a webhook with prepared answers. After those it answers 200.
type hook struct {
	*httptest.Server
	mu      sync.Mutex
	answers []int
	got     []Notice
	tries   chan struct{}
}

func newHook(t *testing.T, answers ...int) *hook {
	t.Helper()
	h := &hook{answers: answers, tries: make(chan struct{}, 100)}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { h.tries <- struct{}{} }()
		var n Notice
		if err := json.NewDecoder(r.Body).Decode(&n); err != nil || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("a post of %q: %v", r.Header.Get("Content-Type"), err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.got = append(h.got, n)
		if len(h.answers) > 0 {
			w.WriteHeader(h.answers[0])
			h.answers = h.answers[1:]
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) events() []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []Event
	for _, n := range h.got {
		out = append(out, n.Event)
	}
	return out
}

// await waits for a number of attempts.
func (h *hook) await(t *testing.T, n int) {
	t.Helper()
	deadline := time.After(time.Minute)
	for range n {
		select {
		case <-h.tries:
		case <-deadline:
			t.Fatalf("the webhook got %v", h.events())
		}
	}
}

func start(t *testing.T, address func() (string, error)) (s *Sender, log *bytes.Buffer, end func()) {
	t.Helper()
	log = &bytes.Buffer{}
	s = New(address, slog.New(slog.NewTextHandler(log, nil)))
	s.Backoff = wait.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 4}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	return s, log, func() { cancel(); <-done }
}

func TestSenderTriesAgain(t *testing.T) {
	tests := map[string]struct {
		answers []int
		want    []Event
		log     string
	}{
		"taken":                 {nil, []Event{RolloutBegins, RolloutDone}, ""},
		"busy for a while":      {[]int{503, 429, 200}, []Event{RolloutBegins, RolloutBegins, RolloutBegins, RolloutDone}, ""},
		"refused":               {[]int{404}, []Event{RolloutBegins, RolloutDone}, "it answered 404"},
		"out of order too long": {[]int{500, 500, 500, 500}, []Event{RolloutBegins, RolloutBegins, RolloutBegins, RolloutBegins, RolloutDone}, "the webhook answered 500"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHook(t, test.answers...)
			s, log, end := start(t, func() (string, error) { return h.URL + "/token-of-ours", nil })
			s.Send(Notice{Event: RolloutBegins, Text: "one"})
			s.Send(Notice{Event: RolloutDone, Text: "two"})
			h.await(t, len(test.want))
			end()
			if got := h.events(); !slices.Equal(got, test.want) {
				t.Errorf("the webhook got %v, want %v", got, test.want)
			}
			if !strings.Contains(log.String(), test.log) || (test.log == "") != (log.Len() == 0) || strings.Contains(log.String(), "token-of-ours") {
				t.Errorf("the log says: %s", log)
			}
		})
	}
}

// The address is read for each attempt, since it may change. It is shown nowhere.
func TestAddressIsAskedForEachTry(t *testing.T) {
	h := newHook(t)
	addresses := make(chan string, 2)
	addresses <- "http://127.0.0.1:1/token-of-ours"
	addresses <- "not a URL: \x7f token-of-ours"
	close(addresses)
	s, log, end := start(t, func() (string, error) {
		if address, more := <-addresses; more {
			return address, nil
		}
		return h.URL, nil
	})
	s.Send(Notice{Event: RolloutFailed})
	h.await(t, 1)
	end()
	if strings.Contains(log.String(), "token-of-ours") {
		t.Errorf("the log says: %s", log)
	}
}

// A git server that cannot be reached, or a tenant whose line HAProxy quotes, mentions nobody in a chat, and hides no link.
func TestNoticesHaveNoMarkup(t *testing.T) {
	h := newHook(t)
	s, _, end := start(t, func() (string, error) { return h.URL, nil })
	const said = "store: remote: <!channel> <@U1> <https://evil.example|log in> @everyone git@host ![x](http://evil.example) \u202e\x1b[2J [log in]\n\n[log in]: https://evil.example"
	s.Send(Notice{Event: Trouble, Text: said})
	h.await(t, 1)
	end()
	const want = "store: remote: ‹!channel› ‹@\u200bU1› ‹https://evil.example|log in› @\u200beveryone git@\u200bhost ![x]\u200b(http://evil.example) \\u202e\\x1b[2J [log in]\n\n[log in]\u200b: https://evil.example"
	if got := h.got[0].Text; got != want {
		t.Errorf("posted is\n%q, want\n%q", got, want)
	}
}

// At its end, the process sends the notices that are left.
func TestNoticesOfTheEnd(t *testing.T) {
	h := newHook(t)
	s := New(func() (string, error) { return h.URL, nil }, slog.New(slog.DiscardHandler))
	s.Send(Notice{Event: RolloutFailed})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Run(ctx)
	if got := h.events(); !slices.Equal(got, []Event{RolloutFailed}) {
		t.Errorf("the webhook got %v", got)
	}
}

func TestTooMany(t *testing.T) {
	var log bytes.Buffer
	s := New(func() (string, error) { return "", errors.New("never asked") }, slog.New(slog.NewTextHandler(&log, nil)))
	for range queued + 1 {
		s.Send(Notice{Event: Trouble})
	}
	if strings.Count(log.String(), "notice dropped") != 1 {
		t.Errorf("the log says: %s", &log)
	}
}
