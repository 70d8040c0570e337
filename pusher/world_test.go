package pusher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest/memory"
	"github.com/hapsnap/hapsnap/pusher/statestore"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// world is a site whose instances are in memory. It runs in a bubble of time (testing/synctest), in
// which hours pass at once.
type world struct {
	*site
	instances map[string]*memory.Instance // of the fleet
	all       map[string]*memory.Instance // and those that left the fleet
	life      *life
	keeps     *hangingStateStore // of the pusher
	others    map[string]*other  // additional pushers
	kept      *secret            // the state that they share if there is an election
	gone      atomic.Bool        // the store is unreachable
	// terms is set if each pusher has a later term than the one before. taken is how many terms
	// there were.
	terms bool
	taken int64
	// watched is set if a pusher may be killed, so that its steps are counted.
	watched bool
	// logs are the event logs of all lives, if recorded is set.
	recorded bool
	logs     []*eventLines

	guard   sync.Mutex
	watches []chan struct{}
}

// newWorld returns a world whose instances run nothing yet.
func newWorld(t *testing.T, names ...string) *world {
	t.Helper()
	w := &world{site: newSite(t), instances: map[string]*memory.Instance{}, all: map[string]*memory.Instance{}, others: map[string]*other{}}
	soak := 6 * time.Second
	w.options.Soak, w.options.PollInterval, w.options.DrainTime, w.options.PersistInterval = &soak, 2*time.Second, 3*time.Second, 3*time.Second
	w.options.InspectInterval, w.options.CollectAfter = 5*time.Second, 8*time.Second
	w.rollout, w.entry = "  rollout: {waves: ['1', 100%]}\n", func(name string) string {
		return fmt.Sprintf("  - {name: %s, url: 'http://%s.test', username: admin, password: secret, "+
			"directories: {maps: /etc/haproxy/maps, certificates: /etc/haproxy/ssl, general: /etc/haproxy/general}}\n", name, name)
	}
	w.changed = w.filesChanged
	for _, name := range names {
		w.join(name)
	}
	if len(names) > 0 {
		w.endpoints("10.0.0.1:80")
	}
	return w
}

// join adds an instance to the fleet. An instance that left comes back as it was.
func (w *world) join(name string) {
	w.instances[name] = w.named(name)
	w.writeFleet(slices.Sorted(maps.Keys(w.instances))...)
}

// named returns an instance. It is made at the first call.
func (w *world) named(name string) *memory.Instance {
	w.guard.Lock()
	defer w.guard.Unlock()
	if w.all[name] == nil {
		w.all[name] = memory.New(name, "v3.4.2")
	}
	return w.all[name]
}

// leave removes an instance from the fleet. The instance goes on running.
func (w *world) leave(name string) {
	delete(w.instances, name)
	w.writeFleet(slices.Sorted(maps.Keys(w.instances))...)
}

// clone copies the world for another bubble. No pusher runs in the copy.
func (w *world) clone(t *testing.T) *world {
	t.Helper()
	c := newWorld(t)
	if err := os.CopyFS(c.dir, os.DirFS(w.dir)); err != nil {
		t.Fatal(err)
	}
	for name, i := range w.instances {
		c.instances[name] = i.Clone()
		c.all[name] = c.instances[name]
	}
	own := c.options
	c.options = w.options
	c.options.Log, c.options.Status, c.options.Notify, c.options.Events = own.Log, own.Status, own.Notify, own.Events
	c.options.State, c.options.Fleet, c.options.Live = own.State, own.Fleet, own.Live
	c.terms, c.taken, c.recorded = w.terms, w.taken, w.recorded
	return c
}

// watchFiles tells the pusher about changed files. Notifications of the kernel would not follow the
// time of the bubble.
func (w *world) watchFiles(context.Context, ...string) <-chan struct{} {
	w.guard.Lock()
	defer w.guard.Unlock()
	c := make(chan struct{}, 1)
	w.watches = append(w.watches, c)
	return c
}

func (w *world) filesChanged() {
	w.guard.Lock()
	defer w.guard.Unlock()
	for _, c := range w.watches {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

var errKilled = errors.New("killed")

// life is the life of one pusher.
type life struct {
	*world
	mu     sync.Mutex
	left   int // how many steps are left until it is killed; 0 means never
	killed bool
	steps  []string // since killAfter
	saved  []byte
}

// begin starts a pusher.
func (w *world) begin() {
	w.t.Helper()
	l := &life{world: w}
	if w.life != nil && w.life.dead() {
		folder := filepath.Dir(w.options.State)
		w.must(os.RemoveAll(folder))
		w.must(os.Rename(folder+".left", folder))
	}
	w.life = l
	for _, i := range w.instances {
		i.Midst = func(what string) { l.step(i.Name + " is in the middle of " + what) }
	}
	o := &w.options
	o.Store, o.watch, o.http = &mortalStore{w.store, l}, w.watchFiles, &http.Client{Transport: l}
	w.keeps = newHangingStateStore(statestore.NewFile(o.State))
	o.StateStore, o.Cache, o.Metrics = w.keeps, KeptFolder(o.State), prometheus.NewRegistry()
	if w.terms {
		w.taken++
		o.StateStore = &termStateStore{w.keeps, w.taken}
	}
	if w.recorded {
		lines := &eventLines{}
		o.eventsTo, w.logs = lines.add, append(w.logs, lines)
	}
	w.heard(l.lookAtState)
	w.run()
}

// termStateStore adds a term to a state without one.
type termStateStore struct {
	StateStore
	term int64
}

func (k *termStateStore) Take(ctx context.Context, fallback func() ([]byte, error)) (statestore.Taken, error) {
	taken, err := k.StateStore.Take(ctx, fallback)
	taken.Term = k.term
	return taken, err
}

// end kills the pusher, and lets requests that were sent arrive.
func (w *world) end() {
	w.kill()
	pass(time.Minute)
}

// step is a point at which a pusher can be killed. There is one whenever something that outlives it
// changes: between two such points, all kills have the same result. It returns false if the pusher
// is dead.
func (l *life) step(what string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.killed {
		return false
	}
	l.steps = append(l.steps, what)
	if l.left--; l.left != 0 {
		return true
	}
	l.die()
	return false
}

// die kills the pusher. The next one gets what is on disk at this moment, and nothing more.
func (l *life) die() {
	l.killed = true
	l.stop()
	folder := filepath.Dir(l.options.State)
	for { // a file may vanish while it is copied, since a writer may not know yet that it is dead
		if err := os.CopyFS(folder+".left", os.DirFS(folder)); err == nil {
			return
		}
		if err := os.RemoveAll(folder + ".left"); err != nil {
			panic(err) // it is a folder of the test
		}
	}
}

// killAfter kills the pusher at one of the next steps. 0 means never.
func (l *life) killAfter(steps int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.steps = steps, nil
}

func (l *life) dead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.killed
}

func (l *life) trail() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.steps)
}

// lookAtState takes a step if the state was saved. It is called after each log line and each
// status, which often follow a save.
func (l *life) lookAtState() {
	if !l.watched {
		return
	}
	data, _ := os.ReadFile(l.options.State)              // no file: nothing was saved
	_, rest, _ := bytes.Cut(data, []byte(`,"rollout":`)) // the part before has the time
	l.mu.Lock()
	changed := !bytes.Equal(rest, l.saved)
	l.saved = rest
	l.mu.Unlock()
	if changed {
		l.step("the state is saved")
	}
}

// RoundTrip sends a request to its instance. A request that was sent arrives even if its sender
// dies.
func (l *life) RoundTrip(q *http.Request) (*http.Response, error) {
	i := l.named(strings.TrimSuffix(q.URL.Hostname(), ".test"))
	what, changes := fmt.Sprintf("%s %s %s", i.Name, q.Method, q.URL.RequestURI()), q.Method != http.MethodGet
	if l.dead() || (changes && !l.step("before "+what)) {
		return nil, errKilled
	}
	if trace := httptrace.ContextClientTrace(q.Context()); trace != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	sent := q.Clone(context.WithoutCancel(q.Context()))
	if q.Body != nil {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return nil, err
		}
		sent.Body = io.NopCloser(bytes.NewReader(body))
	}
	answered := make(chan *http.Response, 1)
	go func() { i.Serve(sent, q.Context().Done(), answered) }()
	if changes && !l.step("on the way is "+what) {
		return nil, errKilled
	}
	select {
	case <-q.Context().Done():
		return nil, q.Context().Err()
	case answer := <-answered:
		if l.dead() || (changes && !l.step("answered was "+what)) {
			return nil, errKilled
		}
		if answer == nil {
			return nil, fmt.Errorf("read tcp %s.test: connection reset by peer", i.Name)
		}
		return answer, nil
	}
}

// mortalStore is the store of a pusher that may be dead. It does not report changes, since
// simulated time stands still while something waits for the kernel.
type mortalStore struct {
	Store
	life *life
}

var errGone = errors.New("no route to the store")

// View implements [Store].
func (s *mortalStore) View(ctx context.Context) (channel.View, error) {
	if s.life.gone.Load() {
		return channel.View{}, errGone
	}
	return s.Store.View(ctx)
}

// UpdateChannel implements [Store].
func (s *mortalStore) UpdateChannel(ctx context.Context, subject string, now time.Time, edit func(*channel.Channel) error) error {
	if !s.life.step("before the channel is changed") {
		return errKilled
	}
	err := s.Store.UpdateChannel(ctx, subject, now, edit)
	if !s.life.step("the channel is changed") {
		return errKilled
	}
	return err
}

// pass lets time pass in a bubble of time, which takes no real time.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // it ends as soon as everything in the bubble waits
}
