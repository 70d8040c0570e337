package compiler

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/admission"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/validate"
)

const (
	// maxBatch is how many reviews are judged together.
	maxBatch = 64
	// maxBatchTime is how long a batch may take.
	maxBatchTime = 30 * time.Second
	// largeBytes and largePaths are the sizes from which on an Ingress is judged separately, so
	// that it does not delay others.
	largeBytes, largePaths = 64 << 10, 200
	// pollObjects is how often a review checks whether the objects that it asked for are known. It
	// has to poll, since only the loop of package compiler/controller gets the signal of a change.
	pollObjects = 20 * time.Millisecond
)

// batches judges the waiting reviews until there are none, and then ends its turn.
func (j *Judge) batches() {
	defer func() { <-j.turn }()
	for {
		reviews := j.queue.take(maxBatch)
		if len(reviews) == 0 {
			return
		}
		j.guarded(reviews, func() { j.batch(reviews) })
	}
}

// batch judges several reviews together.
//
// It translates each Ingress without errors of its own, together with the existing objects but
// without the other reviews, so that no verdict depends on those. Then one run of HAProxy checks
// all parts of the configuration that the reviewed Ingresses add. If HAProxy accepts that, all are
// accepted. If not, HAProxy checks each part alone, so that no Ingress is blamed for an error of
// another one.
func (j *Judge) batch(reviews []*reviewOf) {
	ctx, cancel := context.WithTimeout(context.Background(), maxBatchTime)
	defer cancel()
	newest := j.now()
	w, err := j.world(ctx, newest)
	if err == nil {
		w.found = errorsOf(w.translate(w.objects).found)
		w.scope = newScope(w.objects)
		reviews = j.known(w, reviews)
	}
	switch {
	case errors.Is(err, inputs.ErrIncomplete):
		j.queue.back(reviews, err)
		j.ask(newest)
		<-time.After(pollObjects) // the loop handles notices of changes
		return
	case err != nil:
		for _, r := range reviews {
			j.queue.deliver(r, admission.Verdict{}, unable(err))
		}
		return
	}
	var ordinary []*reviewOf
	for _, r := range reviews {
		if isLarge(r) {
			go j.alone(r, w)
			continue
		}
		ordinary = append(ordinary, r)
	}
	j.ask(newest)
	j.together(ctx, w, ordinary)
}

// translate translates objects as they would be in this world.
func (w *world) translate(in inputs.Inputs) translated {
	model, found := w.source.memories.Claims.Reader().Translate(in, w.input(in).ingresses(nil))
	return translated{in: in, part: model, found: found}
}

// known returns the reviews for which all named objects are known. It puts the others back into the
// queue.
func (j *Judge) known(w *world, reviews []*reviewOf) []*reviewOf {
	var ready, later []*reviewOf
	for _, r := range reviews {
		r.asked = nil
		if in, ok := w.with(r.ingress); ok && w.known != nil {
			in.Ingresses = in.Ingresses[len(in.Ingresses)-1:] // the Ingress names the same objects, whatever else exists
			model, _ := w.source.memories.Claims.Reader().Translate(in, w.input(in).ingresses(nil))
			r.asked = w.unknown(model.Asked.ConfigMaps)
		}
		if len(r.asked) > 0 {
			later = append(later, r)
		} else {
			ready = append(ready, r)
		}
	}
	if len(later) > 0 {
		j.queue.back(later, inputs.ErrIncomplete)
	}
	return ready
}

// ask asks for the objects that waiting reviews name.
func (j *Judge) ask(newest compiled) {
	if shared, ok := newest.source.Objects.(*sharedObjects); ok {
		shared.ask(j.queue.asked().And(routing.Asked{ConfigMaps: j.gateways.asked()}))
	}
}

// isLarge reports whether an Ingress is judged separately because of its size.
func isLarge(r *reviewOf) bool {
	size, paths := 0, 0
	for key, value := range r.ingress.Value.Annotations {
		size += len(key) + len(value)
	}
	for _, rule := range r.ingress.Value.Spec.Rules {
		paths++
		if rule.HTTP != nil {
			paths += len(rule.HTTP.Paths)
		}
	}
	for _, entry := range r.ingress.Value.Spec.TLS {
		paths += 1 + len(entry.Hosts)
	}
	return size > largeBytes || paths > largePaths
}

// alone judges one large review while the batches go on. Only one is judged at a time.
func (j *Judge) alone(r *reviewOf, w *world) {
	select {
	case j.slow <- struct{}{}:
		defer func() { <-j.slow }()
	case <-r.ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, maxBatchTime)
	defer cancel()
	j.guarded([]*reviewOf{r}, func() {
		t, ok := j.among(w, r)
		if !ok {
			return
		}
		v, decided, err := j.judged(ctx, w, t)
		if !decided && err == nil {
			v, err = j.withAndWithout(ctx, w, t)
		}
		j.deliver(r, v, err)
	})
}

// guarded runs a judgement. If it panics, all reviews without a verdict get an error, and the
// process goes on.
func (j *Judge) guarded(reviews []*reviewOf, do func()) {
	defer func() {
		if p := recover(); p != nil {
			for _, r := range reviews {
				j.queue.deliver(r, admission.Verdict{}, unable(errors.New("the judge panicked")))
			}
		}
	}()
	do()
}

// together judges reviews of Ingresses that are not large.
func (j *Judge) together(ctx context.Context, w *world, reviews []*reviewOf) {
	out := make([]*translated, len(reviews))
	inParallel(len(reviews), func(i int) {
		j.guarded(reviews[i:i+1], func() {
			if t, ok := j.among(w, reviews[i]); ok {
				out[i] = &t
			}
		})
	})
	var groups []group
	for _, t := range out {
		if t != nil {
			groups = addTo(groups, *t, w.overlaid)
		}
	}
	inParallel(len(groups), func(i int) {
		reviews := make([]*reviewOf, len(groups[i].of))
		for n, t := range groups[i].of {
			reviews[n] = t.review
		}
		j.guarded(reviews, func() { j.group(ctx, w, groups[i]) })
	})
}

// inParallel calls a function for 0 to n-1, on all processors.
func inParallel(n int, do func(i int)) {
	var running sync.WaitGroup
	places := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range n {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			do(i)
		})
	}
	running.Wait()
}

// among translates a reviewed Ingress together with the others. If that is enough for a verdict, it
// delivers the verdict and returns false.
func (j *Judge) among(w *world, r *reviewOf) (translated, bool) {
	in, read := w.with(r.ingress)
	if !read {
		j.queue.deliver(r, admission.Verdict{}, nil)
		return translated{}, false
	}
	if len(r.mistakes) > 0 {
		j.queue.deliver(r, ofObject(r.ingress.Ref, r.mistakes, nil), nil)
		return translated{}, false
	}
	t := w.among(in, r.ingress)
	t.review = r
	if v := ofObject(r.ingress.Ref, t.found, t.before); len(v.Faults) > 0 {
		j.queue.deliver(r, v, nil)
		return translated{}, false
	}
	return t, true
}

// among translates an Ingress together with the others that matter for it. in are all objects,
// including the Ingress.
func (w *world) among(in inputs.Inputs, ing inputs.Object[networkingv1.Ingress]) translated {
	words := mentioned(in, ing.Ref.Namespace, ing.Value.Annotations)
	var t translated
	if some, less := w.scoped(ing); less && len(words) == 0 {
		t = w.translate(replaced(some, ing, []inputs.Object[networkingv1.Ingress]{ing}))
		t.before = errorsOf(w.translate(some).found)
	} else {
		t = w.translate(in)
		t.before = w.found
	}
	t.in, t.part = in, t.part.Part(ing.Ref, words)
	return t
}

// mentioned returns the words that may be names of backends, in annotations of an Ingress and of
// the Services of its namespace.
func mentioned(in inputs.Inputs, namespace string, annotations map[string]string) map[string]bool {
	words := map[string]bool{}
	add := func(annotations map[string]string) {
		for _, value := range annotations {
			for _, word := range strings.FieldsFunc(value, func(r rune) bool {
				return r <= ' ' || strings.ContainsRune(`(),;'"{}[]%=`, r)
			}) {
				if strings.Contains(word, "_") { // names of backends have one
					words[word] = true
				}
			}
		}
	}
	add(annotations)
	for _, s := range in.Services {
		if s.Ref.Namespace == namespace {
			add(s.Value.Annotations)
		}
	}
	return words
}

// group is a set of reviews whose parts of a configuration fit into one configuration.
type group struct {
	model routing.Model
	of    []translated
}

// addTo adds a review to the first group into which it fits. If apart is set, it makes a group of
// its own: an administrator's templates may write more for several Ingresses together than for
// each.
func addTo(groups []group, t translated, apart bool) []group {
	for i, g := range groups {
		if apart {
			break
		}
		if both, ok := g.model.With(t.part); ok {
			groups[i] = group{both, append(g.of, t)}
			return groups
		}
	}
	return append(groups, group{t.part, []translated{t}})
}

// group makes HAProxy check a group. If HAProxy refuses the group, it checks each review alone.
func (j *Judge) group(ctx context.Context, w *world, g group) {
	if len(g.of) == 1 {
		j.separately(ctx, w, g.of[0])
		return
	}
	a, err := j.publishable(ctx, w, g.model, g.of)
	if err == nil && len(a.faults) == 0 {
		for _, t := range g.of {
			j.queue.deliver(t.review, ofObject(t.review.ingress.Ref, t.found, t.before), nil)
		}
		return
	}
	apart := g.of
	blamed := func(t translated) bool { return isBlamed(t, a.faults) }
	if rest := slices.DeleteFunc(slices.Clone(g.of), blamed); err == nil && len(rest) > 0 && len(rest) < len(g.of) {
		apart = slices.DeleteFunc(slices.Clone(g.of), func(t translated) bool { return !blamed(t) })
		defer j.group(ctx, w, joined(rest))
	}
	inParallel(len(apart), func(i int) {
		j.guarded([]*reviewOf{apart[i].review}, func() { j.separately(ctx, w, apart[i]) })
	})
}

func isBlamed(t translated, faults []render.Fault) bool {
	return slices.ContainsFunc(faults, func(f render.Fault) bool {
		return slices.ContainsFunc(f.Origin.Objects, func(o routing.Origin) bool { return o.Object == t.review.ingress.Ref })
	})
}

// joined makes a group of translated reviews, whose parts fit together.
func joined(of []translated) group {
	g := group{of[0].part, of[:1]}
	for _, t := range of[1:] {
		g.model, _ = g.model.With(t.part) // addTo has checked that they fit
		g.of = append(g.of[:len(g.of):len(g.of)], t)
	}
	return g
}

// publishable makes HAProxy check a part of a configuration.
func (j *Judge) publishable(ctx context.Context, w *world, model routing.Model, of []translated) (attempt, error) {
	c := w.compilation(j, of[0].in)
	return c.publishable(ctx, render.Input{Model: model, Config: w.source.Config, Objects: func() []render.Object {
		// The shipped templates only read the annotations of objects of the backend that they
		// write.
		if w.overlaid {
			return describe(of[0].in)
		}
		var in inputs.Inputs
		for _, t := range of {
			in.Ingresses = append(in.Ingresses, t.review.ingress)
		}
		return describe(in)
	}})
}

// compilation returns a compilation of objects of the world.
func (w *world) compilation(j *Judge, objects inputs.Inputs) *compilation {
	in := w.input(objects)
	in.Probed = &j.probed
	return &compilation{
		in: in, check: remembering{j.check, &j.passed}, private: privateOf(in),
		secrets: map[types.NamespacedName]bool{}, configMaps: map[types.NamespacedName]bool{}, rounds: map[string]int{},
	}
}

// remembering is a check that remembers what HAProxy accepted, and does not check the same again.
type remembering struct {
	check  checker
	passed *passedMemo
}

func (r remembering) Check(ctx context.Context, in validate.Input) (validate.Verdict, error) {
	h := sha256.New()
	for _, f := range in.Artifact.Files {
		fmt.Fprintf(h, "%q %d\n", f.Path, len(f.Content))
		h.Write(f.Content)
	}
	for _, c := range in.Artifact.Certificates {
		fmt.Fprintf(h, "%q %q %q\n", c.File, c.Secret, c.Use)
	}
	key := [sha256.Size]byte(h.Sum(nil))
	if r.passed.has(key) {
		return validate.Verdict{}, nil
	}
	v, err := r.check.Check(ctx, in)
	if err == nil && len(v.Faults) == 0 {
		r.passed.add(key)
	}
	return v, err
}

// separately makes HAProxy judge one review. If that takes longer, the review is judged while the
// batches go on.
func (j *Judge) separately(ctx context.Context, w *world, t translated) {
	v, decided, err := j.judged(ctx, w, t)
	if decided || err != nil {
		j.deliver(t.review, v, err)
		return
	}
	go j.aside(w, t)
}

// aside judges a review by compiling its namespace, while the batches go on. Only one is judged at
// a time.
func (j *Judge) aside(w *world, t translated) {
	select {
	case j.slow <- struct{}{}:
		defer func() { <-j.slow }()
	case <-t.review.ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeout(t.review.ctx, maxBatchTime)
	defer cancel()
	j.guarded([]*reviewOf{t.review}, func() {
		v, err := j.withAndWithout(ctx, w, t)
		j.deliver(t.review, v, err)
	})
}

func (j *Judge) deliver(r *reviewOf, v admission.Verdict, err error) {
	j.queue.deliver(r, v, unableIf(err != nil, err))
}

// judged returns the verdict on one review if all faults that HAProxy finds are in lines of its
// Ingress. Otherwise something else may be at fault, and decided is false.
func (j *Judge) judged(ctx context.Context, w *world, t translated) (v admission.Verdict, decided bool, err error) {
	object := t.review.ingress.Ref
	a, err := j.publishable(ctx, w, t.part, []translated{t})
	if err != nil || len(a.faults) == 0 {
		return ofObject(object, t.found, t.before), true, err
	}
	c := w.compilation(j, t.in)
	wrong, err := c.ofTemplates(ctx, a)
	if err != nil {
		return admission.Verdict{}, false, err
	}
	if len(wrong) == 0 && !w.overlaid && ownFaults(a.faults, object) {
		for _, f := range a.faults {
			c.leaveOut(culprit{object, toBlame(f)[0].Position, f})
		}
		return ofObject(object, c.redacted(slices.Concat(t.found, c.reported)), t.before), true, nil
	}
	return admission.Verdict{}, false, nil
}

// withAndWithout judges a review by comparing two compiles of its namespace: with the reviewed
// Ingress and without it.
func (j *Judge) withAndWithout(ctx context.Context, w *world, t translated) (admission.Verdict, error) {
	object := t.review.ingress.Ref
	before, after := ofNamespace(w.objects, object.Namespace), ofNamespace(t.in, object.Namespace)
	v, err := j.compared(ctx, object, w.input(before), w.input(after))
	if err == nil && len(v.Faults) == 0 {
		also := ofObject(object, t.found, t.before)
		v.Warnings = diag.Sort(slices.Concat(v.Warnings, also.Warnings))
	}
	return forAsker(object, v), err
}

// ownFaults reports whether all faults are in lines of one object.
func ownFaults(faults []render.Fault, object diag.Object) bool {
	return !slices.ContainsFunc(faults, func(f render.Fault) bool {
		objects := toBlame(f)
		return len(objects) != 1 || objects[0].Object != object
	})
}
