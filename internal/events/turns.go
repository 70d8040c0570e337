package events

import (
	"cmp"
	"maps"
	"slices"
)

// Turns remembers when each namespace had its last turn, so that namespaces take turns: whoever makes more work in one
// namespace than the rate allows holds up nobody in another one. The zero value is ready to use.
type Turns struct {
	last map[string]int // from 1 on, or for a namespace that had none, the last one of others when it came
	n    int
}

// Took notes that a namespace has its turn now.
func (t *Turns) Took(namespace string) {
	if t.last == nil {
		t.last = map[string]int{}
	}
	t.n++
	t.last[namespace] = t.n
}

// Compare is negative if the last turn of a is longer ago than that of b.
func (t *Turns) Compare(a, b string) int { return cmp.Compare(t.last[a], t.last[b]) }

// Keep forgets all other namespaces. One that is new comes after those that wait already: if it came first, somebody with many
// namespaces that come and go would always be first.
func (t *Turns) Keep(there map[string]bool) {
	maps.DeleteFunc(t.last, func(namespace string, _ int) bool { return !there[namespace] })
	if t.last == nil {
		t.last = map[string]int{}
	}
	for namespace := range there {
		if _, known := t.last[namespace]; !known {
			t.last[namespace] = t.n
		}
	}
}

// Queue holds things to write. Of each namespace it keeps their order, and namespaces take turns, also from one filling to
// the next. The zero value is an empty queue.
type Queue[T any] struct {
	turns Turns
	of    map[string][]T
	order []string // of the namespaces, the next one first
}

// Fill replaces what is in the queue.
func (q *Queue[T]) Fill(all []T, namespace func(T) string) {
	q.of, q.order = map[string][]T{}, nil
	there := map[string]bool{}
	for _, one := range all {
		n := namespace(one)
		if len(q.of[n]) == 0 {
			q.order, there[n] = append(q.order, n), true
		}
		q.of[n] = append(q.of[n], one)
	}
	q.turns.Keep(there)
	slices.SortStableFunc(q.order, q.turns.Compare)
}

// Next takes the next thing that is due from the queue. It drops what is not due on the way there. A namespace of which
// nothing was due keeps its turn for the next filling.
func (q *Queue[T]) Next(due func(T) bool) (next T, ok bool) {
	for len(q.order) > 0 {
		namespace := q.order[0]
		q.order = q.order[1:]
		for len(q.of[namespace]) > 0 {
			one := q.of[namespace][0]
			q.of[namespace] = q.of[namespace][1:]
			if due(one) {
				q.order = append(q.order, namespace)
				q.turns.Took(namespace)
				return one, true
			}
		}
	}
	return next, false
}
