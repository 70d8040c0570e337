package ui

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
)

// generous is how long a test waits.
const generous = time.Minute

// serve serves a server's handler on a free port.
func serve(t *testing.T, s *Server) *httptest.Server {
	t.Helper()
	out := httptest.NewServer(s.Handler())
	t.Cleanup(out.Close)
	return out
}

// viewer reads a stream.
type viewer struct {
	t      *testing.T
	lines  *bufio.Scanner
	lastID string
	end    context.CancelFunc
}

// view follows a page from the event after the given one.
func view(t *testing.T, base, page, after string) *viewer {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), generous)
	t.Cleanup(end)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+link("/events", "page", page), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if after != "" {
		r.Header.Set("Last-Event-ID", after)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("%s", answer.Status)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 16<<20)
	return &viewer{t: t, lines: lines, end: end}
}

// until reads events until a part has a text. It returns that part.
func (v *viewer) until(text string) string {
	v.t.Helper()
	var all strings.Builder
	found := false
	for v.lines.Scan() {
		line := v.lines.Text()
		all.WriteString(line + "\n")
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			v.lastID = id
		}
		found = found || strings.HasPrefix(line, "data: {") && strings.Contains(line, text)
		if found && line == "" && v.lastID != "" {
			return all.String()
		}
	}
	v.t.Fatalf("%q did not come: %v\n%s", text, v.lines.Err(), all.String())
	return ""
}

// changing returns a source with a fleet that the test changes.
func changing(s report.Status) (Source, *Latest) {
	latest := NewLatest()
	latest.Set(Fleet{Status: s})
	return Source{Fleet: latest.Fleet, Follow: latest.Follow, Store: &fakeStore{}}, latest
}

// named is the status of a fleet with one instance of this name.
func named(name string) report.Status {
	s := oneInstance()
	s.Instances[0].Name = name
	return s
}

// Changes arrive by themselves. A viewer that was cut off gets the missed ones.
func TestALostStreamHeals(t *testing.T) {
	t.Parallel()
	source, latest := changing(named("edge-one"))
	s := serve(t, server(t, source))
	v := view(t, s.URL, "/", "")
	v.until("edge-one")
	latest.Set(Fleet{Status: named("edge-two")})
	v.until("edge-two")
	v.end()
	w := view(t, s.URL, "/", v.lastID)
	latest.Set(Fleet{Status: named("edge-three")}) // the viewer is disconnected
	if all := w.until("edge-three"); strings.Contains(all, "edge-one") {
		t.Errorf("what is old came again: %s", all)
	}
	u := view(t, s.URL, "/", "another-9999")
	u.until("edge-three")
	if !strings.HasPrefix(u.lastID, strings.Split(w.lastID, "-")[0]) {
		t.Errorf("%s after %s", u.lastID, w.lastID)
	}
}

// A followed page changes to another snapshot once that is read, and says so if it cannot be read.
func TestAPageFollowsTheFleetToASnapshot(t *testing.T) {
	t.Parallel()
	first, second, lost := shop(1), shop(2), shop(3)
	store := storeOf(first, second, lost)
	delete(store.stored, lost.ID())
	latest := NewLatest()
	runs := func(id snapshots.ID) {
		f := shopFleet(id)()
		latest.Set(f)
	}
	runs(first.ID())
	s := serve(t, server(t, Source{Channel: "edge", Fleet: latest.Fleet, Follow: latest.Follow, Store: store}))
	for _, page := range []string{"/routes?scheme=http&host=shop.example.com&path=/", "/certificates"} {
		runs(first.ID())
		v := view(t, s.URL, page, "")
		v.until(short(first.ID()) + ", which the fleet runs")
		runs(second.ID())
		if all := v.until(short(second.ID()) + ", which the fleet runs"); strings.Contains(all, "not read") {
			t.Errorf("%s: the page was empty meanwhile: %s", page, all)
		}
		runs(lost.ID())
		v.until("not found")
		runs(first.ID())
		v.until(short(first.ID()) + ", which the fleet runs")
		v.end()
	}
}

// A page is rendered once for all of its viewers, and only if it may have changed.
func TestOneRendererForAll(t *testing.T) {
	t.Parallel()
	source, latest := changing(named("edge-one"))
	page := server(t, source)
	s := serve(t, page)
	const viewers = 100
	all := make([]*viewer, viewers)
	for i := range all {
		all[i] = view(t, s.URL, "/", "")
		all[i].until("edge-one")
	}
	before := page.hub.rendered()
	began := time.Now()
	latest.Set(Fleet{Status: named("edge-two")})
	var ready sync.WaitGroup
	for _, v := range all {
		ready.Go(func() { v.until("edge-two") })
	}
	ready.Wait()
	// One rendering is for the change. The others are the regular ones every few seconds.
	if n, most := page.hub.rendered()-before, 2+int(time.Since(began)/calm); n > most {
		t.Errorf("%d renderings for %d viewers, want at most %d", n, viewers, most)
	}
}

// rendered returns the number of renderings.
func (h *hub) rendered() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.renders
}

// The number of streams is limited. Beyond the limit, pages are still complete. A viewer that leaves makes room.
func TestStreamsAreLimited(t *testing.T) {
	t.Parallel()
	source, _ := changing(named("edge-one"))
	page := server(t, source)
	s := serve(t, page)
	for range mostStreams - 1 {
		if !page.hub.enter() {
			t.Fatal("there is no room")
		}
	}
	v := view(t, s.URL, "/", "")
	v.until("edge-one")
	answer := fetch(t, s.URL+"/events?page=/")
	if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
		t.Errorf("%s", answer.Status)
	}
	if answer := fetch(t, s.URL+"/"); answer.StatusCode != http.StatusOK {
		t.Errorf("the page itself: %s", answer.Status)
	}
	v.end()
	eventually.Holds(t, "a stream ends", func() bool { return page.hub.count() == mostStreams-1 })
	view(t, s.URL, "/", "").until("edge-one")
}

// The number of followed addresses is limited too, since each needs renderings.
func TestTopicsAreLimited(t *testing.T) {
	t.Parallel()
	source, _ := changing(named("edge-one"))
	page := server(t, source)
	s := serve(t, page)
	for n := range mostTopics {
		view(t, s.URL, fmt.Sprintf("/?name=edge&page=%d", n), "")
	}
	if answer := fetch(t, s.URL+"/events?page=/%3Fname%3Dother"); answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%s", answer.Status)
	}
}

func (h *hub) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.streams
}

// fetch returns a response whose body is not read.
func fetch(t *testing.T, address string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	return answer
}

// A viewer that receives nothing delays neither the pusher nor other viewers.
func TestAViewerWhoHangs(t *testing.T) {
	t.Parallel()
	source, latest := changing(named("edge-one"))
	s := serve(t, server(t, source))
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /events?page=/ HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	v := view(t, s.URL, "/", "")
	for n := range 20 {
		status := named(fmt.Sprintf("edge-%d-", n))
		for i := range 1000 { // more than the kernel buffers
			status.Instances = append(status.Instances, report.Instance{Name: fmt.Sprintf("other-%d-%d", n, i)})
		}
		latest.Set(Fleet{Status: status})
		v.until(fmt.Sprintf("other-%d-", n))
	}
}

// Only existing pages can be followed.
func TestStreamsOfWhatIsNoPage(t *testing.T) {
	t.Parallel()
	source, _ := changing(named("edge-one"))
	h := server(t, source).Handler()
	for page, want := range map[string]int{
		"": 400, "/nothing": 404, "http://attacker.example/": 400, "//attacker.example/": 400, "/static/page.js": 404, "/../": 404, "/api/v1/status": 404, "/events": 404, "%zz": 400,
	} {
		if code, body := get(t, h, link("/events", "page", page)); code != want {
			t.Errorf("%s: %d, want %d: %s", page, code, want, body)
		}
	}
}

// A pusher that stands by lets the leader answer. If it cannot reach the leader, it answers itself.
func TestStandbyAsksTheLeader(t *testing.T) {
	t.Parallel()
	leads, _ := changing(named("edge-of-the-leader"))
	leader := serve(t, server(t, leads))
	at := netip.MustParseAddrPort(leader.Listener.Addr().String())
	waits := report.Status{Updated: time.Now(), Standby: true, Channel: report.Channel{Hold: true, Message: "another pusher leads: pusher-1"}}
	ours, latest := changing(waits)
	known := Leader{Address: at, Status: named("edge-that-was")}
	var asked error
	page := New(t.Context(), Options{Source: ours, Log: quiet, Leader: func(context.Context) (Leader, error) { return known, asked }})
	s := serve(t, page)
	if body := read(t, s.URL+"/"); !strings.Contains(body, "edge-of-the-leader") {
		t.Errorf("the leader was not asked: %s", body)
	}
	if answer := fetch(t, s.URL+"/"); answer.Header.Get("Content-Security-Policy") != policy || len(answer.Header.Values("Content-Security-Policy")) != 1 {
		t.Errorf("%v", answer.Header)
	}
	v := view(t, s.URL, "/", "")
	v.until("edge-of-the-leader")
	leader.CloseClientConnections()
	leader.Close()
	body := read(t, s.URL+"/")
	for _, text := range []string{"another pusher leads: pusher-1", "edge-that-was", "what was said last"} {
		if !strings.Contains(body, text) {
			t.Errorf("%q is not on the page: %s", text, body)
		}
	}
	latest.Set(Fleet{Status: named("edge-of-our-own")})
	if body := read(t, s.URL+"/"); !strings.Contains(body, "edge-of-our-own") || strings.Contains(body, "another pusher leads") {
		t.Errorf("it leads by now: %s", body)
	}
}

// A stream ends when the pusher begins or stops leading, so that the viewer connects to the right one.
func TestStreamsEndWithTheTerm(t *testing.T) {
	t.Parallel()
	source, latest := changing(named("edge-one"))
	s := serve(t, New(t.Context(), Options{Source: source, Log: quiet, Leader: func(context.Context) (Leader, error) { return Leader{}, nil }}))
	v := view(t, s.URL, "/", "")
	v.until("edge-one")
	latest.Set(Fleet{Status: report.Status{Standby: true, Channel: report.Channel{Message: "no pusher leads: instances stay as they are"}}})
	for v.lines.Scan() { // until the stream ends
	}
	if err := v.lines.Err(); err != nil {
		t.Error(err)
	}
	if body := read(t, s.URL+"/"); !strings.Contains(body, "no pusher leads: instances stay as they are") {
		t.Error(body)
	}
}

// Two pushers that take each other for the leader do not send a request back and forth for ever.
func TestTwoThatStandBy(t *testing.T) {
	t.Parallel()
	waits := report.Status{Standby: true, Channel: report.Channel{Message: "another pusher leads"}}
	ours, _ := changing(waits)
	var at netip.AddrPort
	s := serve(t, New(t.Context(), Options{Source: ours, Log: quiet, Leader: func(context.Context) (Leader, error) { return Leader{Address: at}, nil }}))
	at = netip.MustParseAddrPort(s.Listener.Addr().String())
	if body := read(t, s.URL+"/"); !strings.Contains(body, "another pusher leads") {
		t.Error(body)
	}
}

func read(t *testing.T, address string) string {
	t.Helper()
	body, err := io.ReadAll(fetch(t, address).Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
