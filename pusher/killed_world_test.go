package pusher

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"

	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// settling is all that outlives a pusher: the store, its folder, and the instances; and
// the live objects. It is played in a bubble of time (testing/synctest), in which hours
// are over at once.
type settling struct {
	dir       string
	at        time.Time
	instances map[string]*fakeInstance
	live      binding.Objects
	options   Options
	// cluster is where live objects come from, nil for live.
	cluster func() Cluster
	away    atomic.Bool // the store is out of reach
	// terms is set where the state is one that has terms, and taken is how often it was.
	terms bool
	taken atomic.Int64
	// unkilled is set where no pusher is killed, so that nobody counts its steps.
	unkilled bool
	// logs are the event logs of all lives, where they are recorded.
	recorded bool
	logs     []*eventLines
}

// clone returns the same once more.
func (s *settling) clone(t *testing.T) *settling {
	t.Helper()
	c := settling{
		dir: t.TempDir(), at: s.at, instances: map[string]*fakeInstance{}, live: s.live, options: s.options, cluster: s.cluster,
		terms: s.terms, recorded: s.recorded,
	}
	c.taken.Store(s.taken.Load())
	if err := os.CopyFS(c.dir, os.DirFS(s.dir)); err != nil {
		t.Fatal(err)
	}
	for name, i := range s.instances {
		c.instances[name] = i.clone()
	}
	return &c
}

func (s *settling) store() *dirstore.Store {
	return dirstore.Open(filepath.Join(s.dir, "store"), dirstore.Options{})
}

// play is a settling with a pusher that lives in it, until it is killed.
type play struct {
	*settling
	t    *testing.T
	life *life
}

var errKilled = errors.New("killed")

// life is that of one pusher.
type life struct {
	*settling
	reachable map[string]*fakeInstance // also those that the test no longer counts
	folder    string                   // of its state
	stop      context.CancelFunc
	ended     chan struct{}
	engine    chan *engine

	mu     sync.Mutex
	left   int // the step at which it is killed, from now on; 0 is never
	killed bool
	steps  []string // since it is known at which
	saved  []byte
	status observe.Status
}

// begin starts a pusher.
func (p *play) begin(folder string) {
	p.t.Helper()
	ctx, stop := context.WithCancel(p.t.Context())
	l := &life{settling: p.settling, reachable: maps.Clone(p.instances), folder: folder, stop: stop, ended: make(chan struct{}), engine: make(chan *engine, 1)}
	p.life = l
	for _, i := range p.instances {
		i.midst = func(what string) { l.step(i.name + " is in the middle of " + what) }
	}
	o := p.options
	o.Store, o.State = &mortalStore{p.store(), l}, filepath.Join(folder, "state.json")
	if o.Live = "memory"; p.cluster != nil {
		o.Live, o.Cluster = "", p.cluster()
	}
	o.http = &http.Client{Transport: l}
	if p.recorded {
		lines := &eventLines{}
		o.eventsTo, p.logs = lines.add, append(p.logs, lines)
	}
	o.Log, o.Status = slog.New(slog.NewTextHandler(l, nil)), l.see
	o = o.withDefaults()
	go func() {
		defer close(l.ended)
		if err := l.run(ctx, o); err != nil {
			p.t.Error(err)
		}
	}()
}

// run is Run without what watches files, which is outside the bubble.
func (l *life) run(ctx context.Context, o Options) error {
	release, err := lockState(o.State)
	if err != nil {
		return err
	}
	defer release()
	s, err := readState(o.State)
	if err != nil {
		return err
	}
	fallback, err := fallbackCertificate(filepath.Join(l.folder, "fallback.pem"), newFallback(time.Now()))
	if err != nil {
		return err
	}
	members, err := fleet.Read(filepath.Join(l.dir, "fleet.yaml"))
	if err != nil {
		return err
	}
	if s.ID == "" {
		if s.ID = "play"; s.save(ctx, o.keeper()) != nil {
			return errKilled
		}
	}
	e := newEngine(o, s, fallback, time.Now())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	term := l.term()
	fence := push.NewFence(term, func() error { return ctx.Err() })
	fence.Sign(push.Pusher{State: s.ID, Place: "play"}, false)
	e.lead(term, fence, nil)
	e.take(FleetRead{members, nil}, time.Now())
	if o.Cluster == nil {
		e.take(LiveRead{cloned(l.live), nil}, time.Now())
	} else {
		e.inbox.start(func() { o.Cluster.Run(ctx) })
		e.inbox.start(func() { e.inbox.watchCluster(ctx, o.Cluster) })
	}
	e.inbox.start(func() { e.inbox.watchStore(ctx, o) })
	l.engine <- e
	e.loop(ctx)
	cancel()
	e.finish(ctx)
	return nil
}

// term returns that of a new pusher. Where there are terms, each has a later one.
func (l *life) term() int64 {
	if l.terms {
		return l.taken.Add(1)
	}
	return 0
}

// end stops the pusher as SIGTERM does, and lets what was sent arrive.
func (l *life) end() {
	l.stop()
	<-l.ended
	pass(time.Minute)
}

// step is where a pusher can be killed: whenever something that outlives it has changed,
// or is about to, for in between there is nothing by which two kills could differ. It
// returns false for one that is dead. What is on disk by then is left to the next, and
// nothing more.
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
	l.killed = true
	l.stop()
	leave(l.folder, l.folder+".left")
	return false
}

// leave copies a folder as it is at one moment. A file may go while it is copied, for
// what writes there has not yet heard that it is dead.
func leave(from, to string) {
	for {
		if err := os.CopyFS(to, os.DirFS(from)); err == nil {
			return
		}
		if err := os.RemoveAll(to); err != nil {
			panic(err) // a folder of the test's
		}
	}
}

// killAfter has the pusher killed at one of the next steps, 0 for never.
func (l *life) killAfter(steps int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.steps = steps, nil
}

// last returns the step at which it was killed.
func (l *life) last() string {
	trail := l.trail()
	return trail[len(trail)-1]
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

// see takes the status after each turn.
func (l *life) see(s observe.Status) {
	l.mu.Lock()
	l.status = s
	l.mu.Unlock()
	l.lookAtState()
}

// Write takes the log. What is worth a line was often saved just before.
func (l *life) Write(line []byte) (int, error) {
	l.lookAtState()
	return len(line), nil
}

// lookAtState takes a step if the state was saved.
func (l *life) lookAtState() {
	if l.unkilled {
		return
	}
	data, _ := os.ReadFile(filepath.Join(l.folder, "state.json")) // absent: nothing was saved
	_, rest, _ := bytes.Cut(data, []byte(`,"rollout":`))          // what is before tells the time
	l.mu.Lock()
	changed := !bytes.Equal(rest, l.saved)
	l.saved = rest
	l.mu.Unlock()
	if changed {
		l.step("the state is saved")
	}
}

func (l *life) seen() observe.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// RoundTrip brings a request to its instance. What was sent arrives, whatever becomes
// of who sent it.
func (l *life) RoundTrip(q *http.Request) (*http.Response, error) {
	i := l.reachable[strings.TrimSuffix(q.URL.Hostname(), ".test")]
	what, changes := fmt.Sprintf("%s %s %s", i.name, q.Method, q.URL.RequestURI()), q.Method != http.MethodGet
	if l.dead() || (changes && !l.step("before "+what)) {
		return nil, errKilled
	}
	if trace := httptrace.ContextClientTrace(q.Context()); trace != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	if i.hangs.Load() {
		<-q.Context().Done()
		return nil, q.Context().Err()
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
	go func() {
		pass(fakeWay)
		w := httptest.NewRecorder()
		i.api.ServeHTTP(w, sent)
		pass(fakeWay)
		answered <- w.Result()
	}()
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
		return answer, nil
	}
}

// mortalStore is what a pusher that may be dead has of the store.
type mortalStore struct {
	*dirstore.Store
	life *life
}

// View implements [Store].
func (s *mortalStore) View(ctx context.Context) (channel.View, error) {
	if s.life.away.Load() {
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

// cloned returns what the pusher may keep and change.
func cloned(d binding.Objects) binding.Objects {
	d.Endpoints, d.Certificates = maps.Clone(d.Endpoints), maps.Clone(d.Certificates)
	return d
}

// take gives the pusher other live objects.
func (p *play) take(live binding.Objects) {
	p.live = live
	e := <-p.life.engine
	p.life.engine <- e
	e.inbox.sendUntil(p.t.Context(), LiveRead{cloned(live), nil})
}

// The pace at which a play is looked at, and for how long nothing may move.
const (
	look    = 2 * time.Second
	calmFor = 16 * time.Second
	longest = time.Hour
)

// settle waits until the fleet runs a snapshot, all is done, and nothing has moved for a
// while, or the pusher is killed.
func (p *play) settle(want snapshots.ID, missing func(p *play) string) {
	p.t.Helper()
	quiet := time.Duration(0)
	for began := time.Now(); quiet < calmFor && !p.life.dead(); pass(look) {
		quiet += look
		if why := cmp.Or(p.unsettled(want), missing(p)); why != "" {
			quiet = 0
			if time.Since(began) > longest {
				p.t.Fatalf("the fleet does not come to rest: %s; troubles are %+v\n%s", why, p.life.seen().Troubles, strings.Join(p.life.trail(), "\n"))
			}
		}
	}
}

// unsettled says what is not as it should be in the end.
func (p *play) unsettled(want snapshots.ID) string {
	s := p.life.seen()
	if s.Good != want || s.Rollout != nil || len(s.Instances) != len(p.instances) {
		return fmt.Sprintf("good is %s, want %s; the rollout is %+v", s.Good, want, s.Rollout)
	}
	for _, i := range s.Instances {
		is := p.instances[i.Name].state()
		names := is.worker.node
		if i.Loaded == names { // it was changed since, to what is on disk
			is.load()
			names = is.worker.node
		}
		if i.Running != want || !i.InSync || !strings.HasPrefix(names, want.String()) {
			return fmt.Sprintf("%s runs %s: %+v", i.Name, is.worker.node, i)
		}
	}
	return ""
}

// left returns what became of each instance, and what was done to it since.
func (p *play) left(since *settling) map[string]fakeState {
	out := map[string]fakeState{}
	for _, name := range slices.Sorted(maps.Keys(p.instances)) {
		before, now := since.instances[name].state(), p.instances[name].state()
		now.reloads -= before.reloads
		now.writes = now.writes[len(before.writes):]
		out[name] = now
	}
	return out
}

// pass lets time pass in a bubble of time, where that takes none.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // it is over as soon as everybody waits for it
}
