package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/controller"
	"github.com/hapsnap/hapsnap/compiler/controller/controllertest"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// chair is a leadership that tests control.
type chair struct {
	changed chan struct{}

	mu    sync.Mutex
	ended chan struct{} // nil: not leading
}

func newChair() *chair { return &chair{changed: make(chan struct{}, 1)} }

func (c *chair) Changed() <-chan struct{} { return c.changed }

func (c *chair) Term(ctx context.Context) (context.Context, context.CancelFunc, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		return ctx, func() {}, false
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := c.ended
	go func() {
		select {
		case <-ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel, true
}

func (c *chair) set(leading bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case leading && c.ended == nil:
		c.ended = make(chan struct{})
	case !leading && c.ended != nil:
		close(c.ended)
		c.ended = nil
	}
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// held is a store whose writer can be paused between its look and its write, like a paused process. It does not
// notice that its context has ended.
type held struct {
	*dirstore.Store
	begun, goOn chan struct{}
	result      chan error
}

func (h *held) Publish(_ context.Context, d snapshots.Draft) (snapshots.ID, bool, error) {
	if h.begun == nil {
		return h.Store.Publish(context.Background(), d)
	}
	h.begun <- struct{}{}
	<-h.goOn
	id, published, err := h.Store.Publish(context.Background(), d)
	h.result <- err
	return id, published, err
}

// candidate is one of several compilers for the same manifests and store.
type candidate struct {
	*chair
	status *controller.Status
}

func runCandidate(t *testing.T, manifests string, store *held, edits ...func(*controller.Options)) candidate {
	t.Helper()
	c := candidate{newChair(), &controller.Status{}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	o := controller.Options{
		Source: compiler.Source{Objects: compiler.Files(manifests), Config: config.Default()},
		Store:  store, Checker: controllertest.HAProxy(t), Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Status: c.status,
		Interval: 20 * time.Millisecond, MaxWait: 200 * time.Millisecond, Leader: c.chair,
	}
	for _, edit := range edits {
		edit(&o)
	}
	go func() { ended <- controller.Run(ctx, o) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("run ended with %v", err)
		}
	})
	return c
}

func awaitSubjects(t *testing.T, store *dirstore.Store, want ...string) []snapshots.ID {
	t.Helper()
	var ids []snapshots.ID
	controllertest.Await(t, "snapshots", func() error {
		view, err := store.View(t.Context())
		if err != nil {
			return err
		}
		ids = view.IDs
		var got []string
		for _, id := range ids {
			m, err := store.Manifest(t.Context(), id)
			if err != nil {
				return err
			}
			got = append(got, m.Spec.Subject)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("got %q, want %q", got, want)
		}
		return nil
	})
	return ids
}

// Followers compile and are ready, but publish only once they lead. Then their result is published at once.
// Each change is published once, whichever process leads.
func TestOnlyTheLeaderPublishes(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir, store := t.TempDir(), dirstore.Open(filepath.Join(root, "store"), dirstore.Options{})
	controllertest.Put(t, dir, "web.yaml", controllertest.Manifest("web", "5s"))
	one, two := runCandidate(t, dir, &held{Store: store}), runCandidate(t, dir, &held{Store: store})
	controllertest.Await(t, "first follower", one.status.Ready)
	controllertest.Await(t, "second follower", two.status.Ready)
	if _, err := os.Stat(filepath.Join(root, "store")); !errors.Is(err, os.ErrNotExist) || one.status.Leads() {
		t.Fatalf("followers published: %v", err)
	}
	web, api := "+1 backend, +1 route (Ingress shop/web)", "+1 backend, +1 route (Ingress shop/api)"
	one.set(true)
	first := awaitSubjects(t, store, web)
	controllertest.Await(t, "leader", func() error {
		if one.status.Head() != first[0] || !one.status.Leads() || two.status.Leads() {
			return errors.New("not known to lead")
		}
		return one.status.Ready()
	})
	one.set(false)
	controllertest.Put(t, dir, "api.yaml", controllertest.Manifest("api", "5s"))
	two.set(true)
	ids := awaitSubjects(t, store, web, api)
	// A process that leads again looks at the store, and finds nothing missing.
	two.set(false)
	one.set(true)
	controllertest.Await(t, "the head of the other", func() error {
		if one.status.Head() != ids[1] {
			return fmt.Errorf("head %s, want %s", one.status.Head(), ids[1])
		}
		return nil
	})
	awaitSubjects(t, store, web, api)
}

// A leader that is paused between its look at the store and its write may no longer lead afterwards. Then the
// write is refused.
func TestALateWriteUndoesNothing(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir, store := t.TempDir(), dirstore.Open(filepath.Join(root, "store"), dirstore.Options{})
	controllertest.Put(t, dir, "web.yaml", controllertest.Manifest("web", "5s"))
	paused := &held{Store: store, begun: make(chan struct{}), goOn: make(chan struct{}), result: make(chan error, 1)}
	old, next := runCandidate(t, dir, paused), runCandidate(t, dir, &held{Store: store})
	old.set(true)
	<-paused.begun // with the draft of web alone
	old.set(false)
	controllertest.Put(t, dir, "api.yaml", controllertest.Manifest("api", "5s"))
	controllertest.Await(t, "compiled", next.status.Ready)
	next.set(true)
	controllertest.Await(t, "both published", func() error {
		view, err := store.View(t.Context())
		if err != nil || len(view.IDs) == 0 {
			return fmt.Errorf("%v, %v", view.IDs, err)
		}
		s, err := store.Get(t.Context(), view.Head())
		if prefix, _ := s.File("maps/prefix.map"); err != nil || !strings.Contains(string(prefix), "web.example") || !strings.Contains(string(prefix), "api.example") {
			return fmt.Errorf("%s, %v", prefix, err)
		}
		return nil
	})
	before, err := store.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	close(paused.goOn)
	if err := <-paused.result; !errors.Is(err, snapshots.ErrMoved) {
		t.Errorf("the late write: %v", err)
	}
	if after, err := store.View(t.Context()); err != nil || after.Head() != before.Head() {
		t.Errorf("the head was %s and is %s, %v", before.Head(), after.Head(), err)
	}
}

// told records what an announcer was given last.
type told struct {
	mu        sync.Mutex
	found     []diag.Diagnostic
	served    map[diag.Object]bool
	ingresses int
	where     config.IngressStatus
	said      int // how often statuses of the Gateway API were given
	head      snapshots.ID
}

func (a *told) Compiled(_ inputs.Inputs, found []diag.Diagnostic) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.found = found
}

func (a *told) Published(in inputs.Inputs, served map[diag.Object]bool, c config.IngressStatus) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.served, a.ingresses, a.where = served, len(in.Ingresses), c
}

func (a *told) Gateways(_ inputs.Inputs, _ config.Config, said gateway.Verdicts, head snapshots.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.said, a.head = len(said.Statuses()), head
}

func (a *told) text() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	names := slices.SortedFunc(maps.Keys(a.served), diag.Object.Compare)
	return fmt.Sprintf("found %d, served %v of %d at %v", len(a.found), names, a.ingresses, a.where.Addresses)
}

// ofSnapshot returns an error unless it was given a snapshot, and no statuses of the Gateway API.
func (a *told) ofSnapshot() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.said != 0 || a.head.Revision == 0 {
		return fmt.Errorf("told of %d statuses of the Gateway API, and of the snapshot %s", a.said, a.head)
	}
	return nil
}

// An announcer gets every compile, and everything that is published. A protected Ingress with a fault answers
// 503, at the same address.
func TestAnAnnouncerIsTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	controllertest.Put(t, dir, "web.yaml", controllertest.Manifest("web", "5s"))
	controllertest.Put(t, dir, "other.yaml", strings.Replace(controllertest.Manifest("other", "5s"), "ingressClassName: hapsnap", "ingressClassName: another", 1))
	controllertest.Put(t, dir, "shut.yaml", strings.Replace(controllertest.Manifest("shut", "5s"), "{example.com/timeout: \"5s\"}", "{hapsnap.dev/allow-list: nobody}", 1))
	controllertest.Put(t, dir, "lost.yaml", strings.Replace(controllertest.Manifest("lost", "5s"), "path: /,", "path: \"\",", 1))
	heard := &told{}
	c := runCandidate(t, dir, &held{Store: dirstore.Open(filepath.Join(t.TempDir(), "store"), dirstore.Options{})}, func(o *controller.Options) {
		o.Announcer = heard
		o.Source.Config.IngressStatus.Addresses = []string{"192.0.2.1"}
	})
	say := func(want string) {
		t.Helper()
		controllertest.Await(t, "announcer", func() error {
			if got := heard.text(); got != want {
				return fmt.Errorf("told %q, want %q", got, want)
			}
			return nil
		})
	}
	say("found 2, served [] of 0 at []")
	c.set(true)
	// The host of a left-out Ingress is held, so that DNS keeps it.
	say("found 2, served [Ingress shop/lost Ingress shop/shut Ingress shop/web] of 4 at [192.0.2.1]")
	controllertest.Put(t, dir, "lost.yaml", controllertest.Manifest("lost", "5s"))
	say("found 1, served [Ingress shop/lost Ingress shop/shut Ingress shop/web] of 4 at [192.0.2.1]")
	controllertest.Await(t, "the snapshot, without statuses of the Gateway API", heard.ofSnapshot)
}
