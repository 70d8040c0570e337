package pusher

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hapsnap/hapsnap/internal/election"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/statestore"
)

// other is an additional pusher of a world.
type other struct {
	*process
	crown *crown
	keeps *hangingStateStore
	owns  []string // the instances of its fleet; none: all
}

// other returns one of several pushers of the same fleet. It has a state of its own. With an
// election, all of them share one.
func (w *world) other(name string) *other {
	if p := w.others[name]; p != nil {
		return p
	}
	o := w.options
	o.State = filepath.Join(w.dir, name, "state.json")
	p := &other{process: newProcess(w.t, "the pusher "+name, o)}
	w.others[name] = p
	return p
}

// equip sets the options of a pusher before it begins.
func (w *world) equip(name string, p *other) {
	o := &p.options
	o.Store, o.watch, o.http = &mortalStore{w.store, &life{world: w}}, w.watchFiles, &http.Client{Transport: &life{world: w}}
	o.StateStore, o.Cache, o.Metrics = nil, "", prometheus.NewRegistry()
	if len(p.owns) > 0 {
		o.Fleet = filepath.Join(w.dir, name+".yaml")
		w.writeFleetTo(filepath.Base(o.Fleet), p.owns...)
	}
	if w.kept != nil {
		p.keeps = newHangingStateStore(statestore.New(w.kept, "shop", "edge", name))
		p.crown = &crown{name: name, changed: make(chan struct{}, 1)}
		o.State, o.StateStore, o.Leader = "", p.keeps, p.crown
	}
}

// do carries out a command for a pusher, such as: second begins.
func (s *story) do(name string, words []string) {
	s.t.Helper()
	p := s.other(name)
	switch strings.Join(words[:min(2, len(words))], " ") {
	case "begins", "takes over":
		p.options.TakeOver = words[0] == "takes"
		s.equip(name, p)
		p.run()
	case "ends":
		p.kill()
	case "leads":
		p.crown.give()
	case "is deposed":
		p.crown.take()
	case "copies the":
		data, err := os.ReadFile(s.options.State)
		s.must(err)
		s.write(name+"/state.json", string(data))
	case "state hangs":
		p.keeps.hang(len(words) > 2)
	case "state answers":
		p.keeps.release()
	default:
		switch words[0] {
		case "has":
			p.owns = words[1:]
		case "sees": // the pusher sees other endpoints
			p.options.Live = filepath.Join(s.dir, name+"-live")
			s.endpointsOf("web", name+"-live/endpoints.yaml", words[1]+":80")
		case "soaks":
			soak := s.duration(words[1])
			p.options.Soak = &soak
		default:
			s.t.Fatalf("a pusher does not know how to do %q", words)
		}
	}
}

// othersView returns the view of the other pushers.
func (s *story) othersView() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.others)) {
		status := s.others[name].seen()
		if status.Updated.IsZero() {
			continue
		}
		lines := s.heads(status)
		if status.Standby {
			lines = slices.DeleteFunc(lines, func(line string) bool { return !strings.HasPrefix(line, "trouble ") })
			lines = append([]string{status.Channel.Message}, lines...)
		}
		if status.Term > 0 && !status.Standby {
			lines[0] += ", in term " + strconv.FormatInt(status.Term, 10)
		}
		by := map[string][]string{}
		for _, i := range status.Instances {
			how := map[bool]string{true: "in sync", false: "not in sync"}[i.InSync]
			if i.LedBy != "" {
				how = "led by another"
			}
			by[how] = append(by[how], i.Name)
		}
		for _, how := range slices.Sorted(maps.Keys(by)) {
			lines = append(lines, strings.Join(by[how], " ")+" "+how)
		}
		for _, line := range lines {
			out = append(out, name+": "+line)
		}
	}
	return out
}

// rolling reports whether some pusher has a rollout in progress.
func (s *story) rolling() bool {
	if s.seen().Rollout != nil {
		return true
	}
	for _, p := range s.others {
		if p.seen().Rollout != nil {
			return true
		}
	}
	return false
}

// secret is the Secret with a state. Its resourceVersion guards it, as with an API server.
type secret struct {
	mu      sync.Mutex
	version int
	kept    *corev1.Secret
	beside  *secret // the Secret with the fallback certificate
}

// of returns the Secret with a name.
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

func (s *secret) put(next *corev1.Secret) *corev1.Secret {
	s.version++
	s.kept = next.DeepCopy()
	s.kept.ResourceVersion = strconv.Itoa(s.version)
	return s.kept.DeepCopy()
}

// crown is an election in which the test decides who leads.
type crown struct {
	name    string
	changed chan struct{}

	mu    sync.Mutex
	ended chan struct{} // nil if it does not lead
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

// hangingStateStore is a state store that can stop answering.
type hangingStateStore struct {
	StateStore
	mu   sync.Mutex
	open chan struct{} // nil if it answers
	deaf bool          // it even ignores that its caller gave up

	takes time.Duration // how long a save takes
	saves int
}

func newHangingStateStore(k StateStore) *hangingStateStore { return &hangingStateStore{StateStore: k} }

func (k *hangingStateStore) hang(deaf bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open, k.deaf = make(chan struct{}), deaf
}

func (k *hangingStateStore) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.open)
	k.open = nil
}

// count sets how long saves take, and returns how many there were since the last call.
func (k *hangingStateStore) count(takes time.Duration) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	saves := k.saves
	k.saves, k.takes = 0, takes
	return saves
}

func (k *hangingStateStore) Save(ctx context.Context, data []byte) error {
	k.mu.Lock()
	open, heeded := k.open, ctx.Done()
	if k.deaf {
		heeded = nil
	}
	k.saves++
	takes := k.takes
	k.mu.Unlock()
	if takes > 0 {
		pass(takes)
	}
	if open != nil {
		select {
		case <-open:
		case <-heeded:
			return ctx.Err()
		}
	}
	return k.StateStore.Save(ctx, data)
}

// Two pushers begin at once with a fleet without a leader. Whichever is first, one of them leads
// each instance, and each instance is reloaded once.
func TestTwoPushersBeginAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStory(t)
		s.command("publish 1")
		s.command("second begins")
		s.command("pusher begins")
		s.calm()
		for name, i := range s.instances {
			leads := 0
			for _, status := range []report.Status{s.seen(), s.others["second"].seen()} {
				if of := statusOf(status, name); of.InSync && of.LedBy == "" && of.Running == s.ids["1"] {
					leads++
				}
			}
			if n := i.Now().Reloads; leads != 1 || n != 1 {
				t.Errorf("%s is led by %d pushers, and was reloaded %d times", name, leads, n)
			}
		}
		s.others["second"].kill()
		s.end()
	})
}
