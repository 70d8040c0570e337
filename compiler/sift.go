package compiler

import (
	"context"
	"fmt"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
)

// A round of leaving objects out costs a check of everything, and some errors of HAProxy come
// one a round. So that nobody's objects keep the others waiting, the rounds that a namespace
// causes are bounded, and in the end the namespace pays, not everybody.
const (
	// patientRounds is for how many rounds the objects of a namespace are left out as they
	// are found.
	patientRounds = 8
	// siftingRounds is how many checks it may take after that to find out, by halves, which
	// of its other objects are sound.
	siftingRounds = 32
	// maxRounds bounds the rounds of a compile. After them every namespace that is still at
	// fault is left out as a whole.
	maxRounds = 100
)

// overdrawn returns the namespaces that have caused more rounds than they may, counting this
// one, sorted: all that did, where the rounds of the compile are used up.
func (c *compilation) overdrawn(culprits []culprit, usedUp bool) []string {
	var out []string
	seen := map[string]bool{}
	for _, x := range culprits {
		if seen[x.object.Namespace] {
			continue
		}
		seen[x.object.Namespace] = true
		if c.rounds[x.object.Namespace]++; usedUp || c.rounds[x.object.Namespace] > patientRounds {
			out = append(out, x.object.Namespace)
		}
	}
	slices.Sort(out)
	return out
}

// sift leaves out the objects of a namespace that are at fault, and those of which that
// cannot be told in so many checks.
func (c *compilation) sift(ctx context.Context, namespace string, checks int) error {
	all := c.objectsOf(namespace)
	var kept, unsound []diag.Object
	for queue := [][]diag.Object{all}; len(queue) > 0; queue = queue[1:] {
		part := queue[0]
		if checks--; checks < 0 {
			unsound = append(unsound, part...)
			continue
		}
		without := slices.DeleteFunc(slices.Clone(all), func(o diag.Object) bool {
			return slices.Contains(kept, o) || slices.Contains(part, o)
		})
		a, err := c.try(ctx, slices.Concat(c.out, without))
		switch {
		case err != nil:
			return err
		case !slices.ContainsFunc(a.faults, func(f render.Fault) bool { return concerns(f, namespace) }):
			kept = append(kept, part...)
		case len(part) == 1:
			unsound = append(unsound, part...)
		default:
			queue = append(queue, part[:len(part)/2], part[len(part)/2:])
		}
	}
	slices.SortFunc(unsound, diag.Object.Compare)
	for _, o := range unsound {
		c.leaveOut(culprit{object: o, at: c.positionOf(o), fault: render.Fault{
			Message: fmt.Sprintf("is left out: HAProxy refuses more objects of namespace %s than are looked for one by one", namespace),
			Hint:    "mend the objects that are named with a reason of their own; this one may be sound",
		}})
	}
	return nil
}

// concerns reports whether an object of a namespace may be at fault. A fault of no object
// may be anybody's.
func concerns(f render.Fault, namespace string) bool {
	objects := toBlame(f)
	for _, o := range objects {
		if o.Object.Namespace == namespace {
			return true
		}
	}
	return len(objects) == 0
}

// objectsOf returns the objects of a namespace that are still in.
func (c *compilation) objectsOf(namespace string) []diag.Object {
	return slices.DeleteFunc(c.candidates(), func(o diag.Object) bool { return o.Namespace != namespace })
}

// positionOf returns where an object is.
func (c *compilation) positionOf(object diag.Object) diag.Position {
	in := c.in.Objects
	for _, at := range []func(diag.Object) (diag.Position, bool){
		positionIn(in.Ingresses), positionIn(in.Broken), positionIn(in.Services), positionIn(in.Others),
	} {
		if position, ok := at(object); ok {
			return position
		}
	}
	return diag.Position{}
}

func positionIn[T any](objects []inputs.Object[T]) func(diag.Object) (diag.Position, bool) {
	return func(object diag.Object) (diag.Position, bool) {
		i := slices.IndexFunc(objects, func(o inputs.Object[T]) bool { return o.Ref == object })
		if i < 0 {
			return diag.Position{}, false
		}
		return objects[i].Position(), true
	}
}
