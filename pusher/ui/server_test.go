package ui

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// quiet is a log that discards everything.
var quiet = slog.New(slog.DiscardHandler)

var noon = time.Date(2026, 7, 30, 12, 0, 0, 0, time.UTC)

// fakeStore is a store in memory.
type fakeStore struct {
	ids     []snapshots.ID
	stored  map[snapshots.ID]snapshots.Snapshot
	journal []channel.Entry
	err     error
	damaged error         // of the journal
	wait    chan struct{} // reads wait until it is closed, nil for no wait
}

func (f *fakeStore) ready(ctx context.Context) error {
	if f.wait != nil {
		select {
		case <-f.wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return f.err
}

func (f *fakeStore) View(ctx context.Context) (channel.View, error) {
	return channel.View{IDs: f.ids}, f.ready(ctx)
}

func (f *fakeStore) Journal(ctx context.Context) ([]channel.Entry, error) {
	return f.journal, errors.Join(f.ready(ctx), f.damaged)
}

func (f *fakeStore) Get(ctx context.Context, id snapshots.ID) (snapshots.Snapshot, error) {
	s, ok := f.stored[id]
	if !ok {
		return s, snapshots.ErrNotFound
	}
	return s, f.ready(ctx)
}

func (f *fakeStore) Manifest(ctx context.Context, id snapshots.ID) (snapshots.Manifest, error) {
	s, err := f.Get(ctx, id)
	return s.Manifest, err
}

// server returns a server for a source.
func server(t *testing.T, source Source) *Server {
	t.Helper()
	return New(t.Context(), Options{Source: source, Hosts: []string{"edge.example.com"}, Log: slog.New(slog.DiscardHandler)})
}

func says(s report.Status) func() Fleet {
	return func() Fleet { return Fleet{Status: s, At: s.Updated} }
}

func ask(t *testing.T, h http.Handler, method, target, host string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	r.Host = host
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func get(t *testing.T, h http.Handler, target string) (int, string) {
	t.Helper()
	w := ask(t, h, http.MethodGet, target, "localhost:8082")
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(body)
}

// oneInstance is the status of a small fleet.
func oneInstance() report.Status {
	return report.Status{
		Updated: noon, Leader: "pusher-1", Channel: report.Channel{Message: "r3 is the newest"},
		Instances: []report.Instance{{Name: "edge-1", Zone: "a", Reachable: true, InSync: true}},
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	h := server(t, Source{Channel: "edge", Fleet: says(oneInstance()), Store: &fakeStore{}}).Handler()
	for name, test := range map[string]struct {
		method, target, host string
		want                 int
	}{
		"the fleet":                   {"GET", "/", "localhost", 200},
		"its head":                    {"HEAD", "/", "localhost:8082", 200},
		"an instance":                 {"GET", "/instances/edge-1", "127.0.0.1:8082", 200},
		"no instance":                 {"GET", "/instances/edge-2", "[::1]:8082", 404},
		"the history":                 {"GET", "/history", "10.1.2.3:8082", 200},
		"no page":                     {"GET", "/nothing", "localhost", 404},
		"a path that climbs":          {"GET", "/static/../../etc/passwd", "localhost", 307},
		"a path that climbs, encoded": {"GET", "/static/%2e%2e/%2e%2e/etc/passwd", "localhost", 404},
		"a script":                    {"GET", "/static/page.js", "localhost", 200},
		"JSON":                        {"GET", "/api/v1/status", "localhost", 200},
		"a name that is allowed":      {"GET", "/", "Edge.example.com:443", 200},
		"a name of an attacker":       {"GET", "/", "attacker.example", 421},
		"an attacker's JSON":          {"GET", "/api/v1/status", "localhost.attacker.example", 421},
		"a stream of an attacker":     {"GET", "/events?page=/", "attacker.example", 421},
		"no name":                     {"GET", "/", "", 421},
		"a post":                      {"POST", "/", "localhost", 405},
		"options":                     {"OPTIONS", "/api/v1/status", "localhost", 405},
		"a long address":              {"GET", "/?q=" + strings.Repeat("x", 5000), "localhost", 414},
	} {
		w := ask(t, h, test.method, test.target, test.host)
		if w.Code != test.want {
			t.Errorf("%s: %d, want %d: %s", name, w.Code, test.want, w.Body)
		}
		if got := w.Header().Get("Content-Security-Policy"); got != policy {
			t.Errorf("%s: the policy is %q", name, got)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %v", name, w.Header())
		}
	}
}
