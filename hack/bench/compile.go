package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/controller"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/testing/worlds"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/difference"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
	"github.com/hapsnap/hapsnap/snapshots/gitstore"
)

// compileRows are the rows about the compiler in memory.
var compileRows = []row{
	{name: "compile", what: "full compile, from objects in memory to a validated draft", limit: haproxyCheck, goal: 1.8, unit: seconds, measure: compileAll},
	{name: "routes", what: "the same of HTTPRoutes", limit: haproxyCheck, goal: 1.8, unit: seconds, measure: compileRoutes},
	{name: "change", what: "one Ingress changed, to the published snapshot (directory)", limit: haproxyCheck, goal: 1.3, unit: seconds, measure: changeInDirectory},
	{name: "change-git", what: "one Ingress changed, to the published snapshot (git)", limit: haproxyCheck, goal: 1.3, unit: seconds, measure: changeInGit},
	{name: "host", what: "a host more on a served Service, to the published snapshot (directory)", limit: haproxyCheck, goal: 1.5, unit: seconds, measure: hostInDirectory},
	{name: "host-git", what: "a host more on a served Service, to the published snapshot (git)", limit: haproxyCheck, goal: 1.5, unit: seconds, measure: hostInGit},
	{name: "webhook", what: "verdict of the admission webhook on one Ingress", limit: wholeCheck, goal: 0.4, unit: seconds, measure: webhook},
	{name: "diff", what: "two worlds that differ by one Ingress compared, in memory", limit: wholeCheck, goal: 0.4, unit: seconds, measure: diffInMemory},
	{name: "faults", what: "objects at fault found: one Ingress of a hundred has a line that HAProxy refuses", limit: wholeCheck, goal: 5, unit: seconds, measure: faults},
}

func compileAll(ctx context.Context, w *world) (Cell, error) {
	limit, err := w.haproxyCheck(ctx)
	if err != nil {
		return Cell{}, err
	}
	return w.inTurns(ctx, limit, plain(func() error {
		_, err := w.compiled(ctx, w.input())
		return err
	}))
}

func compileRoutes(ctx context.Context, w *world) (Cell, error) {
	in := w.input()
	in.Objects, in.Config.GatewayAPI.Enabled = worlds.Routes(w.n), true
	r, err := w.compiled(ctx, in)
	if err != nil {
		return Cell{}, err
	}
	dir, err := w.stage(r.Draft)
	if err != nil {
		return Cell{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	return w.inTurns(ctx, w.haproxyAt(ctx, dir), plain(func() error {
		in.Config.Timeouts = w.unseenConfig().Timeouts
		_, err := w.compiled(ctx, in)
		return err
	}))
}

// store is what the loop of a compiler calls of a store.
type store interface {
	Publish(ctx context.Context, d snapshots.Draft) (id snapshots.ID, published bool, err error)
	IDs(ctx context.Context) ([]snapshots.ID, error)
}

// publisher compiles and publishes one change after the other, as the loop of a compiler does.
type publisher struct {
	*world
	store    store
	in       compiler.Input
	previous snapshots.Snapshot
	result   compiler.Result
}

func newPublisher(ctx context.Context, w *world, s store) (*publisher, error) {
	p := &publisher{world: w, store: s, in: w.remembering()}
	return p, p.publish(ctx, true)
}

func (p *publisher) publish(ctx context.Context, first bool) error {
	r, err := p.compiled(ctx, p.in)
	if err != nil {
		return err
	}
	if _, err := p.store.IDs(ctx); err != nil && !first {
		return err
	}
	before := p.previous.ID()
	r.Draft.Subject, r.Draft.After = compiler.Subject(p.previous, r), &before
	id, published, err := p.store.Publish(ctx, r.Draft)
	if err != nil || !published {
		return errors.Join(err, fmt.Errorf("published: %t", published))
	}
	p.previous, p.result = r.Draft.Number(id.Revision, before), r
	return nil
}

// changes has one thing changed each time.
func changes(ctx context.Context, w *world, s store, change func(in inputs.Inputs, n int) inputs.Inputs) (Cell, error) {
	limit, err := w.haproxyCheck(ctx)
	if err != nil {
		return Cell{}, err
	}
	p, err := newPublisher(ctx, w, s)
	if err != nil {
		return Cell{}, err
	}
	n := 0
	return w.inTurns(ctx, limit, func(context.Context) (func() error, error) {
		n++
		p.in.Objects = change(p.in.Objects, n)
		return func() error { return p.publish(ctx, false) }, nil
	})
}

func changeInDirectory(ctx context.Context, w *world) (Cell, error) {
	return changes(ctx, w, newDirectory(w), w.annotated)
}

func hostInDirectory(ctx context.Context, w *world) (Cell, error) {
	return changes(ctx, w, newDirectory(w), w.hosted)
}

func changeInGit(ctx context.Context, w *world) (Cell, error) { return inGit(ctx, w, w.annotated) }

func hostInGit(ctx context.Context, w *world) (Cell, error) { return inGit(ctx, w, w.hosted) }

func inGit(ctx context.Context, w *world, change func(in inputs.Inputs, n int) inputs.Inputs) (Cell, error) {
	s, _, err := newGit(ctx, w)
	if err != nil {
		return Cell{}, err
	}
	defer func() { _ = s.Close() }()
	return changes(ctx, w, s, change)
}

// newDirectory makes a store.
func newDirectory(w *world) store {
	dir, err := os.MkdirTemp(w.dir, "store-")
	if err != nil {
		panic(err)
	}
	return dirstore.Open(dir, dirstore.Options{})
}

// newGit makes a repository, and the store in it.
func newGit(ctx context.Context, w *world) (*gitstore.Store, string, error) {
	dir, err := os.MkdirTemp(w.dir, "git-")
	if err != nil {
		return nil, "", err
	}
	path := filepath.Join(dir, "edge.git")
	if out, err := exec.CommandContext(ctx, "git", "init", "--quiet", "--bare", path).CombinedOutput(); err != nil {
		return nil, "", fmt.Errorf("git init: %w: %s", err, out)
	}
	s, err := gitstore.Open(gitstore.Options{URL: path, Branch: "edge", CacheDir: filepath.Join(dir, "cache")})
	return s, path, err
}

// inMemory are objects that are read from nowhere.
type inMemory struct {
	compiler.Given
	objects inputs.Inputs
}

func (m inMemory) Read(context.Context, config.Config) (inputs.Gathered, error) {
	return inputs.Gathered{Objects: m.objects}, nil
}

// webhook has a compiler run that has compiled the world once, and asks it about changes of an Ingress.
func webhook(ctx context.Context, w *world) (Cell, error) {
	limit, err := w.wholeCheck(ctx)
	if err != nil {
		return Cell{}, err
	}
	source := compiler.Source{Objects: inMemory{compiler.Given{Name: "memory"}, w.objects}, Config: w.unseenConfig()}
	judge, status := compiler.NewJudge(source, w.check, nil), &controller.Status{}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- controller.Run(ctx, controller.Options{
			Source: source, Store: dirstore.Open(filepath.Join(w.dir, fmt.Sprint("judged-", w.n)), dirstore.Options{}), Checker: w.check,
			Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Status: status, Judge: judge,
		})
	}()
	defer stop()
	for status.Ready() != nil {
		select {
		case err := <-done:
			return Cell{}, err
		case <-time.After(10 * time.Millisecond):
		}
	}
	n := 0
	return w.inTurns(ctx, limit, func(context.Context) (func() error, error) {
		n++
		ing := w.annotated(w.objects, n).Ingresses[w.n/2].Value
		return func() error {
			v, err := judge.Ingress(ctx, ing)
			if err == nil && len(v.Faults) > 0 {
				err = fmt.Errorf("refused: %s", v.Faults[0])
			}
			return err
		}, nil
	})
}

func diffInMemory(ctx context.Context, w *world) (Cell, error) {
	limit, err := w.wholeCheck(ctx)
	if err != nil {
		return Cell{}, err
	}
	return w.inTurns(ctx, limit, plain(func() error {
		defer w.check.Reuse()()
		source := compiler.Source{Config: w.unseenConfig()}.Remembering()
		side := func(objects inputs.Inputs) (difference.Side, error) {
			source.Objects = inMemory{compiler.Given{Name: "memory"}, objects}
			s, _, err := source.Side(ctx, w.check, now)
			return s, err
		}
		a, err := side(w.objects)
		if err != nil {
			return err
		}
		b, err := side(w.annotated(w.objects, 1))
		if err != nil {
			return err
		}
		d, err := difference.Compare(a, b)
		if err == nil && d.Verdict != difference.Reload {
			err = fmt.Errorf("the verdict is %v", d.Verdict)
		}
		return err
	}))
}

// faults has one Ingress in a hundred add a line that HAProxy refuses.
func faults(ctx context.Context, w *world) (Cell, error) {
	limit, err := w.wholeCheck(ctx)
	if err != nil {
		return Cell{}, err
	}
	in, bad := w.input(), 0
	in.Config.Snippets.Namespaces = config.Namespaces{"*"}
	in.Objects.Ingresses = append(in.Objects.Ingresses[:0:0], in.Objects.Ingresses...)
	for i := 7; i < w.n; i += 100 {
		changed := in.Objects.Ingresses[i].Value.DeepCopy()
		changed.Annotations = map[string]string{"hapsnap.dev/snippet": "http-request frobnicate"}
		in.Objects.Ingresses[i].Value = changed
		bad++
	}
	return w.inTurns(ctx, limit, plain(func() error {
		in.Config.Timeouts = w.unseenConfig().Timeouts
		r, err := compiler.Compile(ctx, in, w.check)
		if err == nil && len(r.Draft.Quarantined) != bad {
			err = fmt.Errorf("%d objects left out, want %d", len(r.Draft.Quarantined), bad)
		}
		return err
	}))
}
