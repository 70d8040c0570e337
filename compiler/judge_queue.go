package compiler

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/admission"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/snapshots"
)

// reviewOf is an Ingress that waits for its verdict.
type reviewOf struct {
	ctx      context.Context //nolint:containedctx // a queue of calls: each has its own time
	ingress  inputs.Object[networkingv1.Ingress]
	mistakes []diag.Diagnostic // that were found on the object alone
	done     chan outcomeOf    // takes one

	since time.Time
	why   error                  // it could not be judged so far
	asked []snapshots.SecretName // ConfigMaps that it names
}

type outcomeOf struct {
	verdict admission.Verdict
	err     error
}

// reviewQueue are the reviews that wait, oldest first.
type reviewQueue struct {
	mu      sync.Mutex
	waiting []*reviewOf
	late    time.Time // since when reviews ran out of time, without a verdict in between
}

func (q *reviewQueue) add(ctx context.Context, ing inputs.Object[networkingv1.Ingress], mistakes []diag.Diagnostic) *reviewOf {
	r := &reviewOf{ctx: ctx, ingress: ing, mistakes: mistakes, done: make(chan outcomeOf, 1), since: time.Now()}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, r)
	return r
}

// leave takes a review out, whether it was judged or not.
func (q *reviewQueue) leave(r *reviewOf) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.DeleteFunc(q.waiting, func(o *reviewOf) bool { return o == r })
}

// take takes out up to n reviews, of each namespace in turn, so that none keeps the others
// waiting however many it has.
func (q *reviewQueue) take(n int) []*reviewOf {
	q.mu.Lock()
	defer q.mu.Unlock()
	var namespaces []string
	of := map[string][]*reviewOf{}
	for _, r := range q.waiting {
		if r.ctx.Err() != nil {
			continue // whoever asked has gone
		}
		namespace := r.ingress.Ref.Namespace
		if of[namespace] == nil {
			namespaces = append(namespaces, namespace)
		}
		of[namespace] = append(of[namespace], r)
	}
	var out []*reviewOf
	for round := 0; len(out) < n; round++ {
		before := len(out)
		for _, namespace := range namespaces {
			if round < len(of[namespace]) && len(out) < n {
				out = append(out, of[namespace][round])
			}
		}
		if len(out) == before {
			break
		}
	}
	q.waiting = slices.DeleteFunc(q.waiting, func(o *reviewOf) bool { return slices.Contains(out, o) })
	return out
}

// back puts reviews back that could not be judged yet, and says why.
func (q *reviewQueue) back(reviews []*reviewOf, why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range reviews {
		r.why = why
	}
	q.waiting = append(slices.Clone(reviews), q.waiting...)
}

func (q *reviewQueue) why(r *reviewOf) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return r.why
}

// asked returns the ConfigMaps that those ask for who wait for them.
func (q *reviewQueue) asked() routing.Asked {
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []snapshots.SecretName
	for _, r := range q.waiting {
		if len(all) < maxAskedFor {
			all = union(all, r.asked)
		}
	}
	return routing.Asked{ConfigMaps: all}
}

// maxAskedFor bounds the ConfigMaps that are asked for at a time on behalf of reviews.
const maxAskedFor = 100

// deliver gives a review its verdict.
func (q *reviewQueue) deliver(r *reviewOf, v admission.Verdict, err error) {
	if unable, is := errors.AsType[*admission.UnableError](err); !is || !unable.Again {
		q.mu.Lock()
		q.late = time.Time{}
		q.mu.Unlock()
	}
	select {
	case r.done <- outcomeOf{v, err}:
	default: // it has one
	}
}

// stuck takes note that a review ran out of time, and reports whether all have for so long.
func (q *reviewQueue) stuck(r *reviewOf, after time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.late.IsZero() {
		q.late = r.since
	}
	return time.Since(q.late) > after
}
