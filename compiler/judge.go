package compiler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/admission"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/leak"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/validate"
)

// pollObjects is how often it is looked whether objects are known that a review
// asked for. The signal of a change is for [Run] alone.
const pollObjects = 20 * time.Millisecond

// Judge says what would come of an object, by the same compile that [Run] would
// make of it; nothing of that is published. It compiles for one review at a time,
// with a memory of its own, and nothing until Run has compiled once. It may be
// used by several goroutines.
type Judge struct {
	check    *validate.Checker
	override func(*config.Config)
	memo     *render.Memo
	secrets  *leak.Memo
	seals    *sealMemo
	turn     chan struct{} // held by the review that compiles

	mu     sync.Mutex
	newest compiled
}

// compiled is what Run compiled last, and what came of it.
type compiled struct {
	source  Source
	classes []inputs.Object[networkingv1.IngressClass]
	found   []diag.Diagnostic
	err     error
}

// errTooEarly is said until Run has compiled.
var errTooEarly = errors.New("nothing was compiled yet")

// NewJudge returns a Judge for the option of Run. Override puts over a reviewed
// configuration what is put over the one in use; it may be nil. The failure
// policy is that of the source until Run has compiled.
func NewJudge(source Source, check *validate.Checker, override func(*config.Config)) *Judge {
	if override == nil {
		override = func(*config.Config) {}
	}
	return &Judge{
		check: check, override: override, memo: render.NewMemo(), secrets: &leak.Memo{}, seals: newSealMemo(), turn: make(chan struct{}, 1),
		newest: compiled{source: source, err: errTooEarly},
	}
}

// note takes in what Run compiled.
func (j *Judge) note(c compiled) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.newest = c
}

func (j *Judge) now() compiled {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.newest
}

// FailsClosed reports whether what cannot be judged is to be denied.
func (j *Judge) FailsClosed() bool {
	return j.now().source.Config.Admission.FailurePolicy == config.FailClosed
}

// Ingress judges an Ingress. One that is not ours, or in a namespace that nothing is
// read from, is sound.
func (j *Judge) Ingress(ctx context.Context, ing *networkingv1.Ingress) (admission.Verdict, error) {
	before := j.now()
	c := before.source.Config
	switch ours := routing.IsOurs(ing, before.classes, routing.Config{
		IngressClass: c.IngressClass, ControllerClass: c.ControllerClass, WatchWithoutClass: c.WatchIngressWithoutClass,
	}); {
	case errors.Is(before.err, errTooEarly):
		return admission.Verdict{}, errTooEarly
	case !ours:
		return admission.Verdict{}, nil
	}
	object := inputs.Object[networkingv1.Ingress]{
		Ref:   diag.Object{Kind: "Ingress", Namespace: ing.Namespace, Name: ing.Name},
		Value: ing,
	}
	r, err := j.compile(ctx, before.source, c, func(in inputs.Inputs) inputs.Inputs {
		read := inputs.NewSelector(c, in.Namespaces).Objects(inputs.Inputs{Ingresses: []inputs.Object[networkingv1.Ingress]{object}})
		in = in.Without(object.Ref)
		in.Ingresses = slices.Concat(in.Ingresses, read.Ingresses)
		return in
	})
	return verdict(object.Ref, before, r.Diagnostics, err)
}

// Configuration judges a configuration, with the objects that are followed for
// the one in use: what only the new one asks for is not there yet.
func (j *Judge) Configuration(ctx context.Context, document []byte) (admission.Verdict, error) {
	before := j.now()
	c, found := config.Parse(admission.ConfigKey, document)
	if len(found) > 0 {
		return admission.Verdict{Faults: found}, nil
	}
	j.override(&c)
	faults, err := j.check.Settings(ctx, c)
	if faults = append(c.Check(), faults...); err != nil || len(faults) > 0 {
		return admission.Verdict{Faults: fieldFaults(faults)}, err
	}
	if errors.Is(before.err, errTooEarly) {
		return admission.Verdict{}, errTooEarly
	}
	source := before.source
	source.Config = c
	r, err := j.compile(ctx, source, before.source.Config, func(in inputs.Inputs) inputs.Inputs {
		return inputs.NewSelector(c, in.Namespaces).Objects(in)
	})
	return verdict(diag.Object{}, before, r.Diagnostics, err)
}

// compile compiles the source with a change of its objects, which are those that
// a configuration asks for. It waits until those are known that only the change
// asks for.
func (j *Judge) compile(ctx context.Context, s Source, c config.Config, change func(inputs.Inputs) inputs.Inputs) (Result, error) {
	select {
	case j.turn <- struct{}{}:
		defer func() { <-j.turn }()
	case <-ctx.Done():
		return Result{}, errors.New("there was no time left after the reviews before")
	}
	reviewed := reviewedObjects{Objects: s.Objects, config: c, change: change}
	if shared, ok := s.Objects.(*sharedObjects); ok {
		reviewed.ask = shared.ask
		defer shared.ask(routing.Asked{})
	}
	s.Objects, s.memo, s.secrets, s.seals, s.Stages = reviewed, j.memo, j.secrets, j.seals, nil
	for {
		r, _, err := s.attempt(ctx, j.check, time.Now(), "review")
		if !errors.Is(err, inputs.ErrIncomplete) {
			return r, err
		}
		select {
		case <-ctx.Done():
			return r, fmt.Errorf("there was no time left: %w", err)
		case <-time.After(pollObjects):
		}
	}
}
