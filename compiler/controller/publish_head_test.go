package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// seen is a store that only lists.
type seen struct {
	store
	ids []snapshots.ID
}

func (s seen) IDs(context.Context) ([]snapshots.ID, error) { return s.ids, nil }

// elsewhere is an election that this process has won.
type elsewhere struct{ alone }

// A leader notices that the store lacks what it published, and compiles again. Nothing else triggers that.
func TestALeaderLooksAtTheHead(t *testing.T) {
	t.Parallel()
	published := backends(1).Number(2, snapshots.ID{})
	ours, others := published.ID(), snapshots.ID{Revision: 3, Short: "9876543210"}
	for name, test := range map[string]struct {
		leader  leader
		head    snapshots.ID
		compile error
		want    bool
	}{
		"what was published":                  {elsewhere{}, ours, nil, false},
		"another":                             {elsewhere{}, others, nil, true},
		"another, and nothing can be done":    {elsewhere{}, others, compiler.ErrTemplates, false},
		"another, and nobody else could lead": {alone{}, others, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLoop(Options{
				Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Status: &Status{},
				Store: seen{ids: []snapshots.ID{test.head}}, Leader: test.leader,
			})
			l.Status.published(published, nil, time.Now())
			l.Status.compiled(compiler.Result{}, test.compile, time.Now())
			l.elected(t.Context(), time.Now().Add(-2*headInterval))
			l.debounce.begin()
			l.leads = true
			if due(l.verify, time.Now()) {
				l.verifyHead(t.Context())
			}
			if got := !l.debounce.due().IsZero(); got != test.want {
				t.Errorf("compiles again: %v, want %v", got, test.want)
			}
		})
	}
}

// damaged is a store with some whole snapshots. All others are corrupt.
type damaged struct {
	ids   []snapshots.ID
	whole map[snapshots.ID]snapshots.Snapshot
	reads int
	draft snapshots.Draft // the draft that was published last
}

func (s *damaged) IDs(context.Context) ([]snapshots.ID, error) { return s.ids, nil }

func (s *damaged) Get(_ context.Context, id snapshots.ID) (snapshots.Snapshot, error) {
	s.reads++
	if snapshot, ok := s.whole[id]; ok {
		return snapshot, nil
	}
	return snapshots.Snapshot{}, fmt.Errorf("read: %w", snapshots.ErrCorrupt)
}

func (s *damaged) Publish(_ context.Context, d snapshots.Draft) (snapshots.ID, bool, error) {
	s.draft = d
	return snapshots.NewID(d.After.Revision+1, d.Digest()), true, nil
}

// A draft is published after a corrupt snapshot, and compared with the newest readable one. So the guard
// against mass losses still works.
func TestPublishAfterACorruptSnapshot(t *testing.T) {
	t.Parallel()
	good := backends(20).Number(1, snapshots.ID{})
	var corrupt []snapshots.ID
	for n := range uint64(maxCorrupt + 5) {
		corrupt = append(corrupt, snapshots.ID{Revision: n + 2, Short: "9876543210"})
	}
	guard := config.ShrinkGuard{LostPercent: 50, MinLost: 5}
	for name, test := range map[string]struct {
		ids  []snapshots.ID
		left int // how many backends are left
		held bool
	}{
		"corrupt":                {append([]snapshots.ID{good.ID()}, corrupt[0]), 19, false},
		"corrupt, and much lost": {append([]snapshots.ID{good.ID()}, corrupt[:3]...), 3, true},
		"nothing can be read":    {corrupt, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &damaged{ids: test.ids, whole: map[snapshots.ID]snapshots.Snapshot{good.ID(): good}}
			_, published, err := Publish(t.Context(), s, compiler.Result{Draft: backends(test.left)}, guard)
			if _, held := errors.AsType[*ShrinkError](err); held != test.held || published == held {
				t.Fatalf("published %v, %v", published, err)
			}
			if newest := test.ids[len(test.ids)-1]; published && *s.draft.After != newest {
				t.Errorf("it follows %s, want %s", s.draft.After, newest)
			}
			if s.reads > maxCorrupt {
				t.Errorf("%d snapshots were read", s.reads)
			}
		})
	}
}

// listed is a store that counts how often it was listed.
type listed struct {
	*dirstore.Store
	lists int
}

func (s *listed) IDs(ctx context.Context) ([]snapshots.ID, error) {
	s.lists++
	return s.Store.IDs(ctx)
}

// A compiler lists the store before its first publish, and then only if somebody else published, or if the guard holds a
// draft back. It publishes on top of what is there, always.
func TestPublishListsTheStoreOnce(t *testing.T) {
	t.Parallel()
	s := &listed{Store: dirstore.Open(t.TempDir(), dirstore.Options{})}
	if _, _, err := s.Publish(t.Context(), backends(20)); err != nil {
		t.Fatal(err)
	}
	l := newLoop(Options{
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Status: &Status{}, Store: s, Leader: alone{},
	})
	l.Source.Config.ShrinkGuard = config.ShrinkGuard{LostPercent: 50, MinLost: 5}
	publish := func(n int, revision uint64, lists int) {
		t.Helper()
		before := s.lists
		draft := backends(n)
		l.pending = &compiler.Result{Draft: draft, Artifact: render.Artifact{Files: draft.Files}}
		l.timeline = BeginTimeline(t.Context(), noop.NewTracerProvider(), "test")
		l.publish(t.Context())
		ids, err := s.Store.IDs(t.Context())
		if err != nil || ids[len(ids)-1].Revision != revision || s.lists-before != lists {
			t.Errorf("%d backends: %v, %v after %d lists; want revision %d and %d lists", n, ids, err, s.lists-before, revision, lists)
		}
	}
	other := func(n int) {
		t.Helper()
		if _, _, err := s.Publish(t.Context(), backends(n)); err != nil {
			t.Fatal(err)
		}
	}
	publish(21, 2, 1)
	publish(22, 3, 0)
	publish(22, 3, 0) // it is there
	publish(23, 4, 0)
	other(40)
	publish(24, 6, 1)
	publish(25, 7, 0)
	other(26)
	publish(26, 8, 1) // somebody else published the same
	publish(27, 9, 0)
	publish(3, 9, 1) // held back
	other(4)
	publish(3, 11, 1) // no longer
	publish(5, 12, 0)
	m, err := s.Get(t.Context(), l.previous.ID())
	if err != nil || strings.Count(m.Manifest.Provenance.Trigger, "; compiler ") != 1 {
		t.Errorf("the trigger is %q, %v", m.Manifest.Provenance.Trigger, err)
	}
}

// What a namespace lost need not have been deleted: the log line says how many of its objects are left out.
func TestLossOfOneNamespaceIsLogged(t *testing.T) {
	t.Parallel()
	store, log := dirstore.Open(t.TempDir(), dirstore.Options{}), make(lines, 10)
	id, _, err := store.Publish(t.Context(), backends(30))
	if err != nil {
		t.Fatal(err)
	}
	l := newLoop(Options{Log: slog.New(slog.NewTextHandler(log, nil)), Metrics: prometheus.NewRegistry(), Status: &Status{}, Store: store, Leader: alone{}})
	l.Source.Config.ShrinkGuard = config.Default().ShrinkGuard
	l.losses = shrinkGuard{newest: id, size: sizeOf(backends(30).Files), owned: map[string]size{"shop": {backends: 20}, "quiet": {backends: 10}}}
	draft := backends(10)
	draft.Quarantined = []snapshots.Quarantined{{Kind: "Ingress", Namespace: "shop", Name: "a"}, {Kind: "Ingress", Namespace: "other", Name: "b"}}
	l.pending = &compiler.Result{Draft: draft, Artifact: render.Artifact{Files: draft.Files}}
	l.timeline = BeginTimeline(t.Context(), noop.NewTracerProvider(), "test")
	l.publish(t.Context())
	if line := <-log; !strings.Contains(line, "were deleted or are left out") || !strings.Contains(line, "namespaces=[shop]") || !strings.Contains(line, "quarantined=1 ") {
		t.Error(line)
	}
}

// hanging is a store that answers when it is told to.
type hanging struct {
	store
	answer chan error
}

func (s hanging) IDs(context.Context) ([]snapshots.ID, error) { return nil, <-s.answer }

// lines is a log as a channel of lines.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// A store that does not answer is reported once while the compiler waits for it, and so is its next answer.
func TestAStoreThatHangs(t *testing.T) {
	t.Parallel()
	log, store := make(lines, 10), hanging{answer: make(chan error)}
	l := newLoop(Options{Log: slog.New(slog.NewTextHandler(log, nil)), Metrics: prometheus.NewRegistry(), Status: &Status{}, Store: store})
	attended, _ := l.Store.(*attended)
	attended.within = time.Millisecond
	ended := make(chan struct{})
	ask := func() { l.verifyHead(t.Context()); ended <- struct{}{} }
	go ask()
	if line := <-log; !strings.Contains(line, "level=WARN") || !strings.Contains(line, `asked="to list its snapshots"`) {
		t.Error(line)
	}
	l.Status.mu.Lock()
	if l.Status.ask == nil {
		t.Fatal("the status knows nothing of it")
	}
	l.Status.ask.Since = l.Status.ask.Since.Add(-silence)
	l.Status.mu.Unlock()
	if a := l.Status.Report().Compiler.Unanswered; a == nil || a.To != "list its snapshots" {
		t.Errorf("the status says %+v", a)
	}
	store.answer <- errors.New("given up")
	<-ended
	if a := l.Status.Report().Compiler.Unanswered; a != nil {
		t.Errorf("after the answer the status says %+v", a)
	}
	attended.within = time.Hour
	for _, err := range []error{errors.New("refused"), nil, nil} {
		go ask()
		store.answer <- err
		<-ended
	}
	if line := <-log; !strings.Contains(line, `msg="the store answers again"`) || len(log) > 0 {
		t.Error(line, len(log))
	}
}

// stuck are objects whose reading takes as long as the test wants, so that their compile does.
type stuck struct {
	compiler.Given
	reads chan error
}

func (s stuck) Read(context.Context, config.Config) (inputs.Gathered, error) {
	return inputs.Gathered{}, <-s.reads
}

// A compile that does not end, as with a HAProxy that hangs, is reported while it goes on, and no longer once it has
// ended. One that ends soon is not.
func TestACompileThatHangs(t *testing.T) {
	t.Parallel()
	log, objects := make(lines, 10), stuck{compiler.Given{Name: "memory"}, make(chan error)}
	l := newLoop(Options{
		Log: slog.New(slog.NewTextHandler(log, nil)), Metrics: prometheus.NewRegistry(), Status: &Status{}, Store: seen{},
		Source: compiler.Source{Objects: objects, Config: config.Default()},
	})
	ended := make(chan struct{})
	compile := func() { l.compile(t.Context(), time.Time{}); ended <- struct{}{} }
	l.longCompile = time.Millisecond
	go compile()
	if line := <-log; !strings.Contains(line, "level=WARN") || !strings.Contains(line, "HAProxy may hang while it checks") {
		t.Error(line)
	}
	if err := l.Status.Ready(); err == nil || !strings.Contains(err.Error(), "compile: it has not ended since ") {
		t.Errorf("ready says %v", err)
	}
	r := l.Status.Report().Compiler
	if !strings.Contains(r.CompileError, "it has not ended since ") || !meta.IsStatusConditionTrue(r.Conditions, "Degraded") {
		t.Errorf("the status says %+v", r)
	}
	l.longCompile = time.Hour
	for range 2 {
		objects.reads <- inputs.ErrIncomplete
		<-ended
		if err := l.Status.Ready(); err == nil || strings.Contains(err.Error(), "ended") {
			t.Errorf("after it has ended, ready says %v", err)
		}
		go compile()
	}
	objects.reads <- inputs.ErrIncomplete
	<-ended
	for range len(log) {
		if line := <-log; strings.Contains(line, "WARN") {
			t.Error(line)
		}
	}
}

// What no object is to blame for is logged as such. What is not known of it is not logged as empty.
func TestFindingsAreLogged(t *testing.T) {
	t.Parallel()
	web := diag.Object{Kind: "Ingress", Namespace: "shop", Name: "web"}
	for want, d := range map[string]diag.Diagnostic{
		`level=ERROR msg="input has an error" reason="haproxy refuses it"`:                                                       {Severity: diag.Error, Message: "haproxy refuses it"},
		`level=ERROR msg="object left out" object="Ingress shop/web" position=web.yaml:7:3 reason="no such path" hint="write /"`: {Severity: diag.Error, Object: web, Position: diag.Position{File: "web.yaml", Line: 7, Column: 3}, Message: "no such path", Hint: "write /"},
		`level=WARN msg="input has a fault" object="Ingress shop/web" reason="no such Secret"`:                                   {Severity: diag.Warning, Object: web, Message: "no such Secret"},
	} {
		log := make(lines, 10)
		l := newLoop(Options{Log: slog.New(slog.NewTextHandler(log, nil)), Metrics: prometheus.NewRegistry(), Status: &Status{}, Store: seen{}})
		l.logFindings(compiler.Result{Diagnostics: []diag.Diagnostic{d}})
		l.logFindings(compiler.Result{Diagnostics: []diag.Diagnostic{d}}) // once
		if line := <-log; !strings.HasSuffix(line, want+"\n") || len(log) > 0 {
			t.Errorf("%s%d more, want %s", line, len(log), want)
		}
	}
}
