package ui

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// These limits bound streams, and how often pages are rendered.
const (
	mostStreams = 256
	// mostTopics is how many different addresses are rendered for streams.
	mostTopics = 128
	// calm is the pause after a rendering, in which more changes may come.
	calm = 250 * time.Millisecond
	// look is how often pages are rendered without a known change: the store may have changed.
	look = 3 * time.Second
	// retry is how long a browser waits before it connects again.
	retry = time.Second
	// heartbeat is how often a stream sends the time, as a sign of life.
	heartbeat = 5 * time.Second
	// writeTimeout is how long a viewer may take to receive an event. A slower viewer is disconnected, and its
	// browser connects again.
	writeTimeout = 30 * time.Second
	// renderTimeout bounds one rendering. A rendering takes only what is in memory.
	renderTimeout = 5 * time.Second
)

// hub renders each page that has viewers once for all of them, and numbers the changes.
//
// The ID of an event consists of the life of this hub and a number that grows. A viewer that connects again sends the
// ID of its last event. It gets the parts that changed since, as they are now, so no viewer needs a queue. If the ID
// is of another life, as after a restart, the viewer gets all parts.
type hub struct {
	render  func(ctx context.Context, a address) made
	life    string
	changes chan struct{}

	mu      sync.Mutex
	number  uint64
	topics  map[string]*topic
	streams int
	renders int // for tests
}

// topic is a page with at least one viewer.
type topic struct {
	address address
	viewers int
	parts   []rendered
	numbers map[string]uint64 // number of the last event of each part, by name
	changed chan struct{}     // closed and replaced at each change

	// Only the renderer uses these: whether something may have changed since the last rendering, how long that took,
	// and when the next one is due.
	stale bool
	cost  time.Duration
	due   time.Time
}

func newHub(render func(ctx context.Context, a address) made) *hub {
	return &hub{render: render, life: rand.Text()[:8], changes: make(chan struct{}, 1), topics: map[string]*topic{}}
}

// change makes the hub render again. It does not wait.
func (h *hub) change() {
	select {
	case h.changes <- struct{}{}:
	default:
	}
}

// event returns the ID of the last event.
func (h *hub) event() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.id(h.number)
}

func (h *hub) id(number uint64) string { return h.life + "-" + strconv.FormatUint(number, 10) }

// since returns the number of an event ID, 0 for an ID of another life.
func (h *hub) since(id string) uint64 {
	life, number, _ := strings.Cut(id, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || life != h.life {
		return 0
	}
	return n
}

// run renders until ctx is done. It is the only renderer.
func (h *hub) run(ctx context.Context) {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	var later <-chan time.Time // fires when a topic that was left out is due
	for {
		changed := true
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-h.changes:
		case <-later:
			changed = false
		}
		all := h.watched()
		for _, t := range all {
			t.stale = t.stale || changed
		}
		round := time.Now()
		ready, next := turn(all, round)
		for _, t := range ready {
			began := time.Now()
			if began.Sub(round) > mostRound { // the cost of a new topic was not known before
				next = began
				break
			}
			h.update(ctx, t)
			t.rendered(began, time.Now(), len(all))
		}
		later = nil
		if !next.IsZero() {
			later = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(calm):
		}
	}
}

// renderShare bounds renderings to one part in renderShare of one processor, whatever the number of addresses and
// their cost. mostRound bounds a round. Expensive pages are rendered less often, and do not delay cheap ones.
const (
	renderShare = 4
	mostRound   = time.Second
)

// turn returns the topics to render now, the cheapest first. It also returns when the next one is due, zero if none
// is.
func turn(all []*topic, now time.Time) (ready []*topic, next time.Time) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *topic) int { return cmp.Compare(a.cost, b.cost) })
	var sum time.Duration
	for _, t := range all {
		switch at := t.due; {
		case !t.stale:
		case len(ready) > 0 && sum+t.cost > mostRound:
			next = now // in the next round
		case at.After(now):
			if next.IsZero() || at.Before(next) {
				next = at
			}
		default:
			ready = append(ready, t)
			sum += t.cost
		}
	}
	return ready, next
}

// rendered records how long a rendering took, and when the next one is due. All is the number of topics.
func (t *topic) rendered(began, ended time.Time, all int) {
	t.stale, t.cost = false, ended.Sub(began)
	t.due = ended.Add(t.cost * renderShare * time.Duration(all))
}

func (h *hub) watched() []*topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]*topic, 0, len(h.topics))
	for _, t := range h.topics {
		out = append(out, t)
	}
	return out
}

// update renders a topic, and gives the parts that changed a new number.
func (h *hub) update(ctx context.Context, t *topic) {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, nowait{}, true), renderTimeout)
	defer cancel()
	m := h.render(ctx, t.address)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renders++
	if m.waits {
		m.parts = slices.Concat(m.parts[:len(frameParts)], t.parts[min(len(t.parts), len(frameParts)):])
	}
	before := map[string]rendered{}
	for _, p := range t.parts {
		before[p.Name] = p
	}
	number, other := h.number+1, false
	for _, p := range m.parts {
		if old, known := before[p.Name]; !known || old.HTML != p.HTML {
			t.numbers[p.Name], other = number, true
		}
		delete(before, p.Name)
	}
	t.parts = m.parts
	for name, p := range before { // only parts that are gone are left: they are empty from now on
		if p.HTML != "" {
			t.numbers[name], other = number, true
		}
		t.parts = append(t.parts, rendered{Name: name})
	}
	if other {
		h.number = number
		close(t.changed)
		t.changed = make(chan struct{})
	}
}

// join adds a viewer to a page. It returns false if there are too many viewers or pages.
func (h *hub) join(a address) (key string, t *topic, ok bool) {
	key = a.r.URL.RequestURI()
	h.mu.Lock()
	defer h.mu.Unlock()
	t = h.topics[key]
	if h.streams >= mostStreams || t == nil && len(h.topics) >= mostTopics {
		return "", nil, false
	}
	if t == nil {
		a.r = a.r.WithContext(context.Background()) // the topic outlives the request
		t = &topic{address: a, numbers: map[string]uint64{}, changed: make(chan struct{})}
		h.topics[key] = t
	}
	t.viewers++
	h.streams++
	return key, t, true
}

func (h *hub) leave(key string, t *topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams--
	if t.viewers--; t.viewers == 0 {
		delete(h.topics, key)
	}
}

// news returns the parts that changed after an event, the number of the last event, and a channel that is closed at
// the next change.
func (h *hub) news(t *topic, since uint64) (parts []rendered, number uint64, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range t.parts {
		if t.numbers[p.Name] > since {
			parts = append(parts, p)
		}
	}
	return parts, h.number, t.changed
}

// enter counts a stream that the leader answers. It reports false if there are too many streams.
func (h *hub) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams >= mostStreams {
		return false
	}
	h.streams++
	return true
}

func (h *hub) exit() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams--
}

// tooMany tells a viewer to come back later.
func tooMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "30")
	http.Error(w, fmt.Sprintf("%d pages are being followed already; load the page again to see what is new", mostStreams), http.StatusServiceUnavailable)
}

// sent is a part in an event.
type sent struct {
	ID   string `json:"id"`
	HTML string `json:"html"`
}

// stream sends the parts of a page that change, until the viewer leaves.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	asked, err := http.NewRequestWithContext(r.Context(), http.MethodGet, r.URL.Query().Get("page"), http.NoBody)
	if err != nil || !strings.HasPrefix(asked.URL.Path, "/") || asked.URL.Host != "" {
		http.Error(w, "name a page: /events?page=/", http.StatusBadRequest)
		return
	}
	a, ok := s.find(asked)
	if !ok {
		http.Error(w, "there is no such page", http.StatusNotFound)
		return
	}
	key, t, ok := s.hub.join(a)
	if !ok {
		tooMany(w)
		return
	}
	defer s.hub.leave(key, t)
	s.hub.change()
	id := r.Header.Get("Last-Event-ID")
	if id == "" {
		id = r.URL.Query().Get("since")
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy must not buffer the stream
	s.follow(r.Context(), &events{w: w, to: http.NewResponseController(w)}, t, s.hub.since(id))
}

// follow sends the changes until ctx is done or a write fails.
func (s *Server) follow(ctx context.Context, out *events, t *topic, since uint64) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	out.write(fmt.Sprintf("retry: %d\n", retry.Milliseconds()))
	out.send("", "alive", time.Now().UTC().Format(time.RFC3339))
	for stoodBy := s.standsBy(); out.err == nil && s.standsBy() == stoodBy; { // after a change of leader, the browser connects again and reaches the right pusher
		parts, number, changed := s.hub.news(t, since)
		for n, p := range parts {
			id := "" // only the last part has an ID: a viewer that is cut off before it gets all parts again
			if n == len(parts)-1 {
				id = s.hub.id(number)
			}
			data, err := json.Marshal(sent{p.Name, string(p.HTML)})
			if err != nil {
				s.log.Error("cannot write a part of a page", "part", p.Name, "err", err)
				return
			}
			out.send(id, "part", string(data))
		}
		since = number
		out.flush()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-beat.C:
			out.send("", "alive", time.Now().UTC().Format(time.RFC3339))
		}
	}
}

// events writes server-sent events. It writes nothing after the first error.
type events struct {
	w   http.ResponseWriter
	to  *http.ResponseController
	err error
}

func (e *events) send(id, name, data string) {
	if id != "" {
		id = "id: " + id + "\n"
	}
	e.write(fmt.Sprintf("%sevent: %s\ndata: %s\n\n", id, name, data))
}

func (e *events) write(text string) {
	if e.err != nil {
		return
	}
	_ = e.to.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every writer has a deadline
	_, e.err = io.WriteString(e.w, text)
}

func (e *events) flush() {
	if e.err == nil {
		e.err = e.to.Flush()
	}
}
