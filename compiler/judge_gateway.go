package compiler

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/admission"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/objectname"
)

// Objects of the Gateway API are judged like Ingresses. They are translated together with the others that matter, and
// HAProxy checks their parts of the configuration. Waiting reviews are judged together. The objects are read once for
// all of them, and one check of HAProxy is enough if it accepts all parts.

// gatewayReview is the review of an object of the Gateway API that waits for its verdict.
type gatewayReview struct {
	ctx    context.Context //nolint:containedctx // as in reviewOf
	ref    diag.Object
	object metav1.Object
	done   chan outcomeOf         // takes one outcome
	asked  []types.NamespacedName // ConfigMaps that the object names and that are not known yet
}

// gatewayQueue has the reviews that wait, oldest first.
type gatewayQueue struct {
	mu      sync.Mutex
	waiting []*gatewayReview
	busy    bool // a goroutine takes reviews
}

// add adds a review. It reports whether no goroutine takes reviews yet.
func (q *gatewayQueue) add(r *gatewayReview) (first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, r)
	first, q.busy = !q.busy, true
	return first
}

// take removes up to n reviews whose clients still wait. If there are none, it notes that no goroutine takes reviews
// any more.
func (q *gatewayQueue) take(n int) []*gatewayReview {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := slices.DeleteFunc(q.waiting, func(r *gatewayReview) bool { return r.ctx.Err() != nil })
	taken := slices.Clone(waiting[:min(n, len(waiting))])
	q.waiting = slices.Clone(waiting[len(taken):])
	q.busy = len(taken) > 0
	return taken
}

// back puts back reviews that name objects which are not known yet.
func (q *gatewayQueue) back(reviews []*gatewayReview) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(slices.Clone(reviews), q.waiting...)
}

// asked returns the ConfigMaps for which reviews wait.
func (q *gatewayQueue) asked() []types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []types.NamespacedName
	for _, r := range q.waiting {
		if len(all) < maxAskedFor {
			all = objectname.Union(all, r.asked)
		}
	}
	return all
}

func (r *gatewayReview) deliver(v admission.Verdict, err error) {
	select {
	case r.done <- outcomeOf{v, unableIf(err != nil, err)}:
	default: // it has a verdict already
	}
}

// youngest is the age of an object that does not exist yet: it is younger than all that do. The API server knows the time of
// these by its clock, which may be ahead of ours.
var youngest = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Gateway judges an object of the Gateway API. It accepts an object that belongs to no Gateway of ours, or whose
// namespace is not read.
func (j *Judge) Gateway(ctx context.Context, kind string, object metav1.Object) (admission.Verdict, error) {
	newest := j.now()
	if !newest.source.Config.GatewayAPI.Enabled {
		return admission.Verdict{}, nil
	}
	if errors.Is(newest.err, errTooEarly) {
		return admission.Verdict{}, unable(errTooEarly)
	}
	if created := object.GetCreationTimestamp(); created.IsZero() {
		object.SetCreationTimestamp(metav1.NewTime(youngest))
	}
	r := &gatewayReview{ctx: ctx, object: object, done: make(chan outcomeOf, 1), ref: inputs.RefOf(inputs.GatewayVersion, kind, object.GetNamespace(), object.GetName())}
	if j.gateways.add(r) {
		go j.gatewayBatches()
	}
	select {
	case o := <-r.done:
		return o.verdict, o.err
	case <-ctx.Done():
		return admission.Verdict{}, &admission.UnableError{Reason: "it ran out of time", Again: true}
	}
}

// gatewayBatches judges the waiting reviews until there are none.
func (j *Judge) gatewayBatches() {
	for {
		reviews := j.gateways.take(maxBatch)
		if len(reviews) == 0 {
			j.ask(j.now()) // it asks for nothing now
			return
		}
		j.gatewayBatch(reviews)
	}
}

// guardedGateway runs a judgement. If it panics, reviews without a verdict get an error.
func guardedGateway(reviews []*gatewayReview, do func()) {
	defer func() {
		if p := recover(); p != nil {
			for _, r := range reviews {
				r.deliver(admission.Verdict{}, errors.New("the judge panicked"))
			}
		}
	}()
	do()
}

// amongGateways is a reviewed object of the Gateway API together with the others.
type amongGateways struct {
	*gatewayReview
	in, before inputs.Inputs // the objects that matter, with the reviewed one and as they were before
	part       routing.Model // what the reviewed object adds
	was        map[diag.Diagnostic]bool
	found      []diag.Diagnostic
}

// gatewayBatch judges several reviews.
func (j *Judge) gatewayBatch(reviews []*gatewayReview) {
	ctx, cancel := context.WithTimeout(context.Background(), maxBatchTime)
	defer cancel()
	guardedGateway(reviews, func() {
		newest := j.now()
		w, err := j.world(ctx, newest)
		if errors.Is(err, inputs.ErrIncomplete) { // perhaps objects for which reviews have asked
			j.gateways.back(reviews)
			j.ask(newest)
			<-time.After(pollObjects) // the loop handles notices of changes
			return
		}
		if err != nil {
			for _, r := range reviews {
				r.deliver(admission.Verdict{}, err)
			}
			return
		}
		ofIngresses := w.translate(w.objects).part
		ofIngresses = routing.Model{Listeners: ofIngresses.Listeners, NetworkLists: ofIngresses.NetworkLists} // ports and bytes that Gateways cannot have
		all := make([]*amongGateways, len(reviews))
		inParallel(len(reviews), func(i int) {
			guardedGateway(reviews[i:i+1], func() { all[i] = w.amongGateways(reviews[i], ofIngresses) })
		})
		all = slices.DeleteFunc(all, func(t *amongGateways) bool { return t == nil })
		later := slices.DeleteFunc(slices.Clone(reviews), func(r *gatewayReview) bool { return len(r.asked) == 0 })
		j.gateways.back(later)
		j.ask(newest)
		if len(all) == 0 && len(later) > 0 {
			<-time.After(pollObjects) // the loop handles notices of changes
		}
		if j.acceptsAll(ctx, w, all) {
			for _, t := range all {
				t.deliver(ofObject(t.ref, t.found, t.was), nil)
			}
			return
		}
		inParallel(len(all), func(i int) {
			guardedGateway([]*gatewayReview{all[i].gatewayReview}, func() { all[i].deliver(j.judgedGateway(ctx, w, all[i])) })
		})
	})
}

// amongGateways translates an object together with the others that matter for it. If that is enough for a verdict, it
// delivers the verdict and returns nil. It also returns nil if the object names a ConfigMap that is not known yet. The
// review then asks for that ConfigMap.
func (w *world) amongGateways(r *gatewayReview, ofIngresses routing.Model) *amongGateways {
	t := &amongGateways{gatewayReview: r, before: w.objects}
	t.before.Ingresses, t.before.Broken = nil, nil
	t.before.Gateway = t.before.Gateway.Around(r.ref, r.object)
	t.in = t.before.Without(r.ref)
	others := t.in.Gateway.Count()
	t.in.Gateway.Add(r.object)
	t.in = inputs.NewSelector(w.source.Config, w.objects.Namespaces).Objects(t.in)
	if t.in.Gateway.Count() == others { // its namespace is not read
		r.deliver(admission.Verdict{}, nil)
		return nil
	}
	translate := func(in inputs.Inputs) (routing.Model, []diag.Diagnostic) {
		model, found, _ := w.source.memories.Routes.Reader().Translate(in, w.input(in).gateways(ofIngresses))
		return model, found
	}
	before, found := translate(t.before)
	t.was = errorsOf(found)
	t.part, t.found = translate(t.in)
	r.asked = slices.DeleteFunc(w.unknown(t.part.Asked.ConfigMaps), func(name types.NamespacedName) bool { return slices.Contains(before.Asked.ConfigMaps, name) })
	if len(r.asked) > 0 {
		return nil
	}
	if v := ofObject(r.ref, t.found, t.was); len(v.Faults) > 0 {
		r.deliver(v, nil)
		return nil
	}
	t.part = t.part.Part(r.ref, nil)
	return t
}

// acceptsAll reports whether HAProxy accepts the parts of all reviews together.
func (j *Judge) acceptsAll(ctx context.Context, w *world, all []*amongGateways) bool {
	if len(all) < 2 || w.overlaid {
		return false
	}
	model := all[0].part
	for _, t := range all[1:] {
		both, fits := model.With(t.part)
		if !fits {
			return false
		}
		model = both
	}
	objects := func() (out []render.Object) {
		for _, t := range all {
			out = append(out, t.described()...)
		}
		return out
	}
	a, err := w.compilation(j, all[0].in).publishable(ctx, render.Input{Model: model, Config: w.source.Config, Objects: objects})
	return err == nil && len(a.faults) == 0
}

// described returns what templates can read about the object. The shipped templates read nothing about other objects.
func (t *amongGateways) described() []render.Object {
	var one inputs.Inputs
	one.Gateway.Add(t.object)
	return describe(one)
}

// judgedGateway returns HAProxy's verdict on one object.
func (j *Judge) judgedGateway(ctx context.Context, w *world, t *amongGateways) (admission.Verdict, error) {
	c := w.compilation(j, t.in)
	objects := t.described
	if w.overlaid {
		objects = func() []render.Object { return describe(t.in) }
	}
	a, err := c.publishable(ctx, render.Input{Model: t.part, Config: w.source.Config, Objects: objects})
	if err != nil || len(a.faults) == 0 {
		return ofObject(t.ref, t.found, t.was), err
	}
	if !w.overlaid && ownFaults(a.faults, t.ref) {
		for _, f := range a.faults {
			c.leaveOut(culprit{t.ref, toBlame(f)[0].Position, f})
		}
		return ofObject(t.ref, c.redacted(slices.Concat(t.found, c.reported)), t.was), nil
	}
	v, err := j.compared(ctx, t.ref, w.input(t.before), w.input(t.in))
	return forAsker(t.ref, v), err
}
