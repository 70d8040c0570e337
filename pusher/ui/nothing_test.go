package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
)

// If little or nothing is known, every page says what is missing, and none fails.
func TestLittleIsKnown(t *testing.T) {
	t.Parallel()
	older := report.Status{} // of an older version, which knew less, and of a newer one
	if err := json.Unmarshal([]byte(`{"updated":"2020-01-01T00:00:00Z","instances":[{"name":"edge-1","reachable":true,"later":{"a":1}}],"rollout":{"target":"r000001-aaaaaaaaaa"},"later":[1]}`), &older); err != nil {
		t.Fatal(err)
	}
	one, two := shop(1), shop(2)
	removed := storeOf(one, two)
	removed.stored = map[snapshots.ID]snapshots.Snapshot{}
	runs := oneInstance()
	runs.Good = one.ID()
	for name, test := range map[string]struct {
		source Source
		pages  map[string]string // texts on the pages
	}{
		"no fleet, no store":     {Source{}, map[string]string{"/": "There are no instances.", "/history": "no store is named", "/routes": "No store is named"}},
		"nothing read yet":       {Source{Fleet: NewLatest().Fleet, Store: &fakeStore{}}, map[string]string{"/": "nothing is known of the fleet yet", "/history": "Nothing is known.", "/routes": "The store holds no snapshot yet."}},
		"an empty fleet":         {Source{Fleet: says(report.Status{Updated: noon}), Store: storeOf(one)}, map[string]string{"/": "0 instances", "/routes": "the newest; what the fleet runs is not known"}},
		"no snapshot yet":        {Source{Fleet: says(oneInstance()), Store: &fakeStore{}}, map[string]string{"/": "No snapshot has reached the whole fleet yet.", "/left-out": "The compiler publishes the first one.", "/certificates": "The store holds no snapshot yet."}},
		"snapshots were removed": {Source{Fleet: says(runs), Store: removed}, map[string]string{"/history": "2 snapshots could not be read", "/snapshots/r1": "may have been removed", "/diff?a=r1&b=r2": "cannot be read", "/routes": "not found"}},
		"what runs was removed":  {Source{Fleet: says(runs), Store: storeOf(two)}, map[string]string{"/routes": "the newest; the store does not hold r1 any more"}},
		"another version":        {Source{Fleet: says(older), Store: storeOf(one)}, map[string]string{"/": "edge-1", "/instances/edge-1": "no snapshot"}},
		"no leader":              {Source{Fleet: says(report.Status{Updated: noon, Standby: true, Channel: report.Channel{Message: "no pusher leads: instances stay as they are"}}), Store: storeOf(one)}, map[string]string{"/": "no pusher leads"}},
	} {
		h := server(t, test.source).Handler()
		for _, page := range []string{
			"/", "/?page=999999999999999999999", "/instances/edge-1", "/history", "/history?host=shop.example.com&object=Ingress+shop/web", "/snapshots/r1", "/diff?a=r1&b=r2", "/diff", "/routes", "/routes?host=shop.example.com",
			"/routes?snapshot=yesterday+14:03", "/routes?host=%00&path=%ff", "/left-out?snapshot=r99", "/left-out", "/certificates", "/api/v1/status", "/api/v1/rollout", "/api/v1/routes", "/api/v1/answer?host=shop.example.com",
		} {
			code, body := get(t, h, page)
			if code == http.StatusInternalServerError || strings.Contains(body, "cannot be shown") {
				t.Errorf("%s: %s: %d: %s", name, page, code, plainText(body))
			}
			if want := test.pages[page]; !strings.Contains(strings.ToLower(plainText(body)), strings.ToLower(want)) {
				t.Errorf("%s: %s: no %q in %s", name, page, want, plainText(body))
			}
		}
		for page := range test.pages {
			if code, _ := get(t, h, page); code == http.StatusInternalServerError {
				t.Errorf("%s: %s: %d", name, page, code)
			}
		}
	}
}

// A query for too much gets the limit.
func TestHugeQueries(t *testing.T) {
	t.Parallel()
	h := shopPage(t)
	var headers strings.Builder
	for n := range 150 {
		fmt.Fprintf(&headers, "X-%d=%d%%0A", n, n)
	}
	for query, want := range map[string]int{
		"host=shop.example.com&headers=" + headers.String(): 200, "host=" + strings.Repeat("a.", 1900): 200, "q=" + strings.Repeat("+a", 1900): 200, "host=shop.example.com&path=" + strings.Repeat("/..", 1200): 200,
		"q=" + strings.Repeat("a", maxAddress): 414, strings.Repeat("q=a&", maxAddress/4): 414,
	} {
		if code, body := get(t, h, "/routes?"+query); code != want {
			t.Errorf("%.40s…: %d, want %d: %.300s", query, code, want, plainText(body))
		}
	}
}
