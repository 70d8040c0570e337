package ui

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/report"
)

// Clients that request much and read nothing delay no other viewers.
func TestSlowReadersHoldUpNobody(t *testing.T) {
	t.Parallel()
	status := named("edge-one")
	for i := range 20_000 {
		status.Instances = append(status.Instances, report.Instance{Name: fmt.Sprintf("edge-%d", i), Error: strings.Repeat("x", 200)})
	}
	source, _ := changing(status)
	s := serve(t, server(t, source))
	for range maxAnswers + 2 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 4096)
		if n, err := conn.Read(answer); err != nil || strings.Contains(string(answer[:n]), "too many ask") { // the answer has begun, or is a refusal
			t.Fatalf("%v: %s", err, answer[:n])
		}
	}
	if answer := fetch(t, s.URL+"/certificates"); answer.StatusCode != http.StatusNotFound { // the store is empty
		t.Errorf("%s", answer.Status)
	}
	if answer := fetch(t, s.URL+"/?name=edge-one"); answer.StatusCode != http.StatusOK {
		t.Errorf("%s", answer.Status)
	}
}

// A fault of the program in a page ends that page, and not the pusher.
func TestAPageThatPanics(t *testing.T) {
	t.Parallel()
	var faulty atomic.Bool
	source, latest := changing(named("edge-one"))
	source.Fleet = func() Fleet {
		if faulty.Load() {
			panic("a fault")
		}
		return latest.Fleet()
	}
	s := serve(t, server(t, source))
	v := view(t, s.URL, "/", "")
	v.until("edge-one")
	faulty.Store(true)
	for _, path := range []string{"/", "/routes", "/nothing", "/api/v1/status"} {
		answer := fetch(t, s.URL+path)
		if body, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusInternalServerError || !strings.Contains(string(body), "cannot be shown") || strings.Contains(string(body), "a fault") {
			t.Errorf("%s: %s: %v: %s", path, answer.Status, err, body)
		}
	}
	latest.Set(Fleet{Status: named("edge-two")})
	v.until("cannot be shown")
	faulty.Store(false)
	latest.Set(Fleet{Status: named("edge-three")})
	v.until("edge-three")
}

// However many addresses a viewer follows, and however expensive they are, rendering uses a limited part of one
// processor. Cheap pages are not delayed.
func TestRenderingTakesAPartOfAProcessor(t *testing.T) {
	t.Parallel()
	all := make([]*topic, mostTopics)
	cost := func(i int) time.Duration {
		if i == 0 {
			return time.Millisecond
		}
		return 130 * time.Millisecond
	}
	for i := range all {
		all[i] = &topic{}
	}
	began := time.Unix(0, 0)
	now, busy, last, longest := began, time.Duration(0), began, time.Duration(0)
	for now.Sub(began) < 10*time.Minute {
		for _, c := range all {
			c.stale = true // as if something changed all the time
		}
		ready, _ := turn(all, now)
		for _, c := range ready {
			i := 0
			for all[i] != c {
				i++
			}
			if i == 0 {
				longest, last = max(longest, now.Sub(last)), now
			}
			from := now
			now = now.Add(cost(i))
			busy += cost(i)
			c.rendered(from, now, len(all))
		}
		now = now.Add(calm)
	}
	if share := busy.Seconds() / now.Sub(began).Seconds(); share > 0.35 {
		t.Errorf("rendering takes %.0f %% of a processor", share*100)
	}
	if longest > 25*time.Second { // at the beginning, when all of them are new
		t.Errorf("the page that takes little waited for %s", longest)
	}
	if ready, _ := turn([]*topic{{stale: true, cost: 5 * time.Second}, {stale: true}}, now); len(ready) != 1 || ready[0].cost != 0 {
		t.Errorf("it is the turn of %d", len(ready))
	}
	if ready, next := turn([]*topic{{stale: true, due: now.Add(time.Second)}, {due: now.Add(time.Millisecond)}}, now); len(ready) != 0 || !next.Equal(now.Add(time.Second)) {
		t.Errorf("%d are ready, the next at %s", len(ready), next)
	}
}

// A list is searched for a limited number of words, each once.
func TestWordsAreCounted(t *testing.T) {
	t.Parallel()
	h := shopPage(t)
	var many strings.Builder
	for i := range maxWords + 1 {
		fmt.Fprintf(&many, "+w%d", i)
	}
	if code, body := get(t, h, "/routes?q="+many.String()); !strings.Contains(body, "too many to search for") {
		t.Errorf("%d: %.300s", code, plainText(body))
	}
	if code, _ := get(t, h, "/api/v1/routes?q="+many.String()); code != http.StatusBadRequest {
		t.Errorf("%d", code)
	}
	if code, body := get(t, h, "/routes?q="+strings.Repeat("+shop", 500)); code != http.StatusOK || strings.Contains(body, "too many") {
		t.Errorf("%d: %.300s", code, plainText(body))
	}
}
