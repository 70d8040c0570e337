package pusher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hapsnap/hapsnap/internal/election"
	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/pusher/statestore"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// secret is the Secret that a state is in, guarded by its resourceVersion as an API
// server guards it.
type secret struct {
	mu      sync.Mutex
	version int
	kept    *corev1.Secret
	beside  *secret // the one with the fallback certificate
}

// of returns the Secret of a name.
func (s *secret) of(name string) *secret {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != statestore.FallbackName("edge") {
		return s
	}
	if s.beside == nil {
		s.beside = &secret{}
	}
	return s.beside
}

func (s *secret) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Secret, error) {
	s = s.of(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, "edge")
	}
	return s.kept.DeepCopy(), nil
}

func (s *secret) Create(_ context.Context, next *corev1.Secret, _ metav1.CreateOptions) (*corev1.Secret, error) {
	s = s.of(next.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept != nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "secrets"}, "edge")
	}
	return s.put(next), nil
}

func (s *secret) Update(_ context.Context, next *corev1.Secret, _ metav1.UpdateOptions) (*corev1.Secret, error) {
	s = s.of(next.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil || s.kept.ResourceVersion != next.ResourceVersion {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, "edge", errors.New("changed"))
	}
	return s.put(next), nil
}

// paused is the Secret as a pusher sees it that is paused whenever it is to save, until it
// goes on.
type paused struct {
	*secret
	goOn chan struct{}
	on   atomic.Bool
}

func (p *paused) Update(ctx context.Context, next *corev1.Secret, o metav1.UpdateOptions) (*corev1.Secret, error) {
	if p.on.Load() && p.of(next.Name) == p.secret {
		<-p.goOn
	}
	return p.secret.Update(ctx, next, o)
}

func (s *secret) put(next *corev1.Secret) *corev1.Secret {
	s.version++
	s.kept = next.DeepCopy()
	s.kept.ResourceVersion = strconv.Itoa(s.version)
	return s.kept.DeepCopy()
}

// status returns the status that was saved last.
func (s *secret) status(t *testing.T) observe.Status {
	t.Helper()
	data, err := statestore.Read(t.Context(), s, "shop", "edge")
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseStatus(data, "secret")
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// crown is an election in which a test says who leads.
type crown struct {
	name    string
	changed chan struct{}

	mu    sync.Mutex
	ended chan struct{} // nil: does not lead
	using sync.WaitGroup
}

func (c *crown) give() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = make(chan struct{})
	c.changed <- struct{}{}
}

// take ends the term, and waits until nothing uses it any more.
func (c *crown) take() {
	c.mu.Lock()
	close(c.ended)
	c.ended = nil
	c.mu.Unlock()
	c.using.Wait()
}

func (c *crown) Term(ctx context.Context) (context.Context, context.CancelFunc, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		return ctx, func() {}, false
	}
	ended := c.ended
	during, cancel := context.WithCancelCause(ctx)
	c.using.Go(func() {
		select {
		case <-ended:
			cancel(election.ErrNotLeading)
		case <-during.Done():
		}
	})
	c.using.Add(1)
	return during, sync.OnceFunc(func() { cancel(nil); c.using.Done() }), true
}

func (c *crown) Leads() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		return election.ErrNotLeading
	}
	return nil
}

func (c *crown) Holder() string           { return c.name }
func (c *crown) Changed() <-chan struct{} { return c.changed }
func (c *crown) Trouble() error           { return nil }

// member is one of several pushers with one state.
type member struct {
	*rig
	crown *crown

	mu     sync.Mutex
	status observe.Status
	log    bytes.Buffer
	stop   func()
}

func (m *member) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.log.Write(p)
}

func (m *member) seen() observe.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status
}

func (m *member) until(what string, ok func(observe.Status) bool) observe.Status {
	m.t.Helper()
	var last observe.Status
	eventually(m.t, what, func() bool { last = m.seen(); return ok(last) })
	return last
}

// member starts a pusher that stands by, and edits its options before.
func (r *rig) member(name string, kept *secret, edit ...func(*Options)) *member {
	r.t.Helper()
	m := &member{rig: r, crown: &crown{name: name, changed: make(chan struct{}, 1)}}
	o := r.options
	o.State, o.Keeper, o.Leader = "", statestore.New(kept, "shop", "edge", name), m.crown
	o.Log = slog.New(slog.NewTextHandler(m, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o.Status = func(s observe.Status) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.status = s
	}
	for _, e := range edit {
		e(&o)
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, o) }()
	m.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("%s ended with: %v", name, err)
		}
	})
	r.t.Cleanup(func() {
		m.stop()
		if r.t.Failed() {
			r.t.Logf("log of %s:\n%s", name, m.log.String())
		}
	})
	return m
}

// inTerm returns the number of instances whose file says that it is of a term.
func (r *rig) inTerm(term int) int {
	r.t.Helper()
	n := 0
	for _, name := range r.names {
		text, err := r.instances[name].Config()
		if err != nil {
			r.t.Fatal(err)
		}
		if strings.Contains(text, fmt.Sprintf("\n# hapsnap term %d\n", term)) && strings.Count(text, "# hapsnap term") == 1 {
			n++
		}
	}
	return n
}

// A successor goes on with the rollout where the one before left it, and pushes nothing
// twice.
func TestSuccessorContinuesTheRollout(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a", "b", "c")
	soak := time.Hour
	r.options.Soak = &soak
	r.endpoints(echo(t, "one"))
	id := r.publish(config("1", ""))
	kept := &secret{}
	one, two := r.member("one", kept), r.member("two", kept)
	one.crown.give()
	s := one.until("the canary soaks", phase(rollout.Soaking))
	if s.Leader != "one" || s.Term != 1 || s.Standby {
		t.Errorf("the leader says %+v", s)
	}
	if s := two.until("stands by", func(s observe.Status) bool { return s.Standby }); s.Channel.Message != "another pusher leads: two" || len(s.Instances) > 0 {
		t.Errorf("the other one says %+v", s) // the crown of a test knows its own name only
	}
	eventually(t, "all are claimed", func() bool { return r.inTerm(1) == 3 })
	one.crown.take()
	one.until("stands by", func(s observe.Status) bool { return s.Standby })

	short := time.Millisecond
	three := r.member("three", kept, func(o *Options) { o.Soak = &short })
	three.crown.give()
	s = three.until("all run it", func(s observe.Status) bool { return s.Good == id && s.Rollout == nil && s.InSync() == 3 })
	if s.Leader != "three" || s.Term != 2 {
		t.Errorf("the successor says %+v", s)
	}
	for _, name := range r.names {
		if n := r.pushes(name); n != 1 {
			t.Errorf("%s got %d pushes", name, n)
		}
	}
	eventually(t, "all are claimed again", func() bool { return r.inTerm(2) == 3 })
	eventually(t, "the status is saved", func() bool { return kept.status(t).Good == id })

	// The stamp is no drift.
	workers := r.workers()
	eventually(t, "all were inspected", func() bool {
		n := 0
		for _, name := range r.names {
			n += min(1, strings.Count(fmt.Sprint(r.instances[name].Requests()), "/storage/maps"))
		}
		return n == 3
	})
	if got := r.workers(); !cmp.Equal(got, workers) {
		t.Errorf("the workers are %v, and were %v", got, workers)
	}
}

// gate is a proxy that holds back a request.
type gate struct {
	mu   sync.Mutex
	hold func(*http.Request) bool
	held chan struct{} // closed when one is held back
	open chan struct{}
}

func newGate(t *testing.T, to string) (*gate, string) {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{hold: func(*http.Request) bool { return false }, held: make(chan struct{}), open: make(chan struct{})}
	proxy := httputil.NewSingleHostReverseProxy(target)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		g.mu.Lock()
		hold := g.hold(request)
		if hold {
			g.hold = func(*http.Request) bool { return false }
		}
		g.mu.Unlock()
		if hold {
			body, _ := io.ReadAll(request.Body) // it goes on though its sender may be gone by then
			request.Body = io.NopCloser(bytes.NewReader(body))
			request = request.WithContext(context.WithoutCancel(request.Context()))
			close(g.held)
			<-g.open
		}
		proxy.ServeHTTP(w, request)
	}))
	t.Cleanup(server.Close)
	return g, server.URL
}

// once has the next post of a configuration wait until the gate is opened.
func (g *gate) once() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hold = func(r *http.Request) bool {
		return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/configuration/raw")
	}
}

// throughGate restarts the pusher, to whom the instance is behind a gate from then on.
func (r *rig) throughGate(name string) *gate {
	r.t.Helper()
	fleet, err := os.ReadFile(r.options.Fleet)
	if err != nil {
		r.t.Fatal(err)
	}
	r.kill()
	g, proxy := newGate(r.t, r.instances[name].URL())
	r.write(filepath.Base(r.options.Fleet), strings.Replace(string(fleet), r.instances[name].URL(), proxy, 1))
	r.run()
	return g
}

// A leader that was paused in the middle of a push, and whose post arrives when another
// leads, overwrites nothing, though it still takes itself for the leader.
func TestFailureTwoPushersOneOfThemPaused(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	r.endpoints(echo(t, "one"))
	first := r.publish(config("1", ""))
	g, proxy := newGate(t, r.instances["a"].URL())
	fleet, err := os.ReadFile(r.options.Fleet)
	if err != nil {
		t.Fatal(err)
	}
	r.write("fleet-of-one.yaml", strings.Replace(string(fleet), r.instances["a"].URL(), proxy, 1))
	kept := &secret{}
	seen := &paused{secret: kept, goOn: make(chan struct{})}
	one := r.member("one", kept, func(o *Options) {
		o.Fleet, o.Keeper = filepath.Join(r.dir, "fleet-of-one.yaml"), statestore.New(seen, "shop", "edge", "one")
	})
	one.crown.give()
	one.until("runs the first", func(s observe.Status) bool { return s.Good == first && s.InSync() == 1 })
	eventually(t, "claimed", func() bool { return r.inTerm(1) == 1 })

	g.once()
	second := r.publish(config("2", ""))
	<-g.held // with its files in place, and the version of the API known to be the newest
	seen.on.Store(true)

	r.channel(func(c channel.Channel) channel.Channel { return c.Pinned(channel.Pin{Snapshot: first}) })
	two := r.member("two", kept)
	two.crown.give()
	two.until("the successor holds the first", func(s observe.Status) bool {
		return s.Term == 2 && s.Channel.Wanted == first && s.Rollout == nil && s.InSync() == 1
	})
	eventually(t, "claimed again", func() bool { return r.inTerm(2) == 1 })
	worker := r.workers()[0]
	before := r.pushes("a")
	close(g.open)
	eventually(t, "the late post arrives", func() bool { return r.pushes("a") == before+1 })
	close(seen.goOn)
	one.until("has heard of the other", func(s observe.Status) bool {
		return s.Standby && len(s.Troubles) == 1 && strings.Contains(s.Troubles[0].Error, "another pusher has taken over")
	})
	if got := r.workers()[0]; got != worker {
		t.Errorf("the worker is %d, and was %d", got, worker)
	}
	if n := r.pushes("a"); n != before+1 {
		t.Errorf("it was pushed to %d times since, want the one post that is refused", n-before)
	}
	if revision, _, err := r.get("a"); revision != "1" || err != nil {
		t.Errorf("it answers of revision %q: %v", revision, err)
	}
	if r.inTerm(2) != 1 {
		t.Error("its file is not of the successor's term")
	}
	if s := kept.status(t); s.Term != 2 || s.Leader != "two" {
		t.Errorf("the state is of %s in term %d", s.Leader, s.Term)
	}
	one.crown.take()
	r.channel(channel.Channel.Unpinned)
	two.until("the successor goes on", func(s observe.Status) bool { return s.Good == second && s.InSync() == 1 })
}

// Where the state was lost, and began anew, the term is raised above what instances have
// of the time before.
func TestTermIsRaisedAboveThoseThatAreMet(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a", "b")
	r.endpoints(echo(t, "one"))
	first := r.publish(config("1", ""))
	kept := &secret{kept: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "0"}, Data: map[string][]byte{"term": []byte("40")}}}
	before := r.member("before", kept)
	before.crown.give()
	before.until("runs the first", func(s observe.Status) bool { return s.Good == first && s.InSync() == 2 })
	eventually(t, "claimed", func() bool { return r.inTerm(41) == 2 })
	before.stop()

	second := r.publish(config("2", ""))
	lost := &secret{}
	after := r.member("after", lost)
	after.crown.give()
	s := after.until("runs the second", func(s observe.Status) bool { return s.Good == second && s.InSync() == 2 })
	if s.Term != 42 {
		t.Errorf("the term is %d", s.Term)
	}
	eventually(t, "claimed in the raised term", func() bool { return r.inTerm(42) == 2 })
}
