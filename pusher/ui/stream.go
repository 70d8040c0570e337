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

// The limits of streams, and their pace.
const (
	mostStreams = 256
	// mostTopics is how many different addresses are rendered for streams.
	mostTopics = 128
	// calm is how long is waited after a change for more of them.
	calm = 250 * time.Millisecond
	// look is how often pages are rendered though nothing is known to have changed: the store may have.
	look = 3 * time.Second
	// retry is how long a browser waits that lost its stream before it connects again.
	retry = time.Second
	// heartbeat is how often a stream says that it lives, and what time it is.
	heartbeat = 5 * time.Second
	// writeTimeout is how long a viewer may take to take an event. Who takes longer is cut off, and
	// comes back.
	writeTimeout = 30 * time.Second
	// renderTimeout bounds one rendering. What it asks for is in memory, or is left out.
	renderTimeout = 5 * time.Second
)

// hub renders pages that somebody looks at, once for all who look at the same, and numbers what
// changes.
//
// Events have an ID, of the life of this hub and a number that grows. Who was cut off says which
// event it had last, and gets the parts that changed since, in their newest form: no queue is kept
// for anybody. Who names another life, such as after a restart, gets all of them.
type hub struct {
	render  func(ctx context.Context, a address) made
	life    string
	changes chan struct{}

	mu      sync.Mutex
	number  uint64
	topics  map[string]*topic
	streams int
	renders int // how many renderings there were, for tests
}

// topic is a page that at least one viewer looks at.
type topic struct {
	address address
	viewers int
	parts   []rendered
	numbers map[string]uint64 // of the last event of each part, by name
	changed chan struct{}     // closed when there is something new, and replaced

	// What the renderer alone knows: whether something may have changed since the last rendering, how long that
	// took, and when it is the turn of the next one.
	stale bool
	cost  time.Duration
	due   time.Time
}

func newHub(render func(ctx context.Context, a address) made) *hub {
	return &hub{render: render, life: rand.Text()[:8], changes: make(chan struct{}, 1), topics: map[string]*topic{}}
}

// change has the hub render anew. It waits for nothing.
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

// since returns the number in an event ID, 0 for one of another life.
func (h *hub) since(id string) uint64 {
	life, number, _ := strings.Cut(id, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || life != h.life {
		return 0
	}
	return n
}

// run renders until ctx is done. It is the one renderer for all viewers.
func (h *hub) run(ctx context.Context) {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	var later <-chan time.Time // when it is the turn of a topic that was left out
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
			if began.Sub(round) > mostRound { // nobody knew how long new ones take
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

// Renderings take a part of a processor of one in renderShare at most, however many addresses are followed and
// however long each takes. What takes long comes more rarely, and what takes little need not wait for it.
const (
	renderShare = 4
	mostRound   = time.Second
)

// turn returns the topics that are to be rendered now, those first that take little, and when the turn of the next
// one is, zero if there is none.
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

// rendered takes down how long a rendering took, beside all others.
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

// update renders a topic, and numbers what is other than before.
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
	for name, p := range before { // it is empty from now on
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

// join adds a viewer to a page, and returns false where there are too many already.
func (h *hub) join(a address) (key string, t *topic, ok bool) {
	key = a.r.URL.RequestURI()
	h.mu.Lock()
	defer h.mu.Unlock()
	t = h.topics[key]
	if h.streams >= mostStreams || t == nil && len(h.topics) >= mostTopics {
		return "", nil, false
	}
	if t == nil {
		a.r = a.r.WithContext(context.Background()) // the request ends before the topic
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

// news returns the parts that changed after an event, the number of the last event, and what is
// closed when there is more.
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

// enter counts a stream that another pusher answers, and reports false where there are too many.
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

// sent is a part as an event has it.
type sent struct {
	ID   string `json:"id"`
	HTML string `json:"html"`
}

// stream sends the parts of a page that change, for as long as somebody looks.
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
	w.Header().Set("X-Accel-Buffering", "no") // of a proxy in front
	s.follow(r.Context(), &events{w: w, to: http.NewResponseController(w)}, t, s.hub.since(id))
}

// follow sends what is new until ctx is done, or the viewer takes nothing.
func (s *Server) follow(ctx context.Context, out *events, t *topic, since uint64) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	out.write(fmt.Sprintf("retry: %d\n", retry.Milliseconds()))
	out.send("", "alive", time.Now().UTC().Format(time.RFC3339))
	for stoodBy := s.standsBy(); out.err == nil && s.standsBy() == stoodBy; { // who begins or ceases to lead is not who is to answer
		parts, number, changed := s.hub.news(t, since)
		for n, p := range parts {
			id := "" // a viewer that is cut off in between gets all of them again
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

// events writes server-sent events. Nothing is written after the first error.
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
	_ = e.to.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every writer has one
	_, e.err = io.WriteString(e.w, text)
}

func (e *events) flush() {
	if e.err == nil {
		e.err = e.to.Flush()
	}
}
