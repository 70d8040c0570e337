package compiler

import (
	"context"
	"fmt"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
)

// The routes of an Ingress that is left out stay, closed, where it protects something. They may
// be at fault themselves: a path or a host is the value of a Secret, or a template of the user
// makes something of them that HAProxy refuses. Then they are dropped, and the translation
// closes what of their namespace their requests would get to (see ingress.Config.Dropped). So a
// namespace never keeps others from being published, and nothing that it protects is served.

// drop drops closed routes that are at fault, and reports whether there were any.
func (c *compilation) drop(ctx context.Context, a attempt, usedUp bool) (bool, error) {
	if len(a.denied) == 0 {
		return false, nil // as nearly always
	}
	var at []culprit
	alone := false
	for _, f := range a.faults {
		objects := toBlame(f)
		alone = alone || len(objects) == 1
		if len(objects) == 1 && slices.Contains(a.denied, objects[0].Object) {
			at = append(at, culprit{objects[0].Object, objects[0].Position, f})
		}
	}
	if len(at) == 0 && !alone {
		found, err := c.searchClosed(ctx, a.denied, a.faults[0])
		if err != nil {
			return false, err
		}
		at = found
	}
	for _, x := range at {
		if !slices.Contains(c.out, x.object) {
			c.leaveOut(x)
		}
		c.dropRoutes(x.object)
	}
	for _, namespace := range c.overdrawn(at, usedUp) {
		for _, object := range a.denied {
			if object.Namespace == namespace {
				c.dropRoutes(object)
			}
		}
	}
	return len(at) > 0, nil
}

// searchClosed finds the object whose closed routes cause the error, if those of any do.
func (c *compilation) searchClosed(ctx context.Context, closed []diag.Object, fault render.Fault) ([]culprit, error) {
	passes := func(n int) (bool, error) {
		y := yielded{hosts: c.yielded.hosts, routes: map[diag.Object]bool{}}
		for _, o := range closed[n:] {
			y.routes[o] = true
		}
		for o := range c.yielded.routes {
			y.routes[o] = true
		}
		a, err := c.tryHolding(ctx, c.out, y)
		return len(a.faults) == 0, err
	}
	n, err := boundary(len(closed), passes)
	if err != nil || n < 0 {
		return nil, err
	}
	return []culprit{{closed[n], c.positionOf(closed[n]), fault}}, nil
}

// banish leaves out all objects of the namespaces of culprits that were left out already, with
// all that was kept of those, and reports whether that is anything. It is the last resort.
func (c *compilation) banish(culprits []culprit) bool {
	before := len(c.out) + len(c.yielded.hosts) + len(c.yielded.routes)
	for _, x := range culprits {
		namespace := x.object.Namespace
		for _, o := range c.objectsOf(namespace) {
			c.leaveOut(culprit{o, c.positionOf(o), render.Fault{
				Message: "is left out with all of namespace " + namespace + ": " + x.object.String() + " has an error even without its content",
				Hint:    "mend " + x.object.String() + ", or delete it",
			}})
		}
		c.yielded.hosts[namespace] = true
		for _, o := range c.out {
			if o.Namespace == namespace && o.Kind == "Ingress" {
				c.dropRoutes(o)
			}
		}
	}
	return len(c.out)+len(c.yielded.hosts)+len(c.yielded.routes) > before
}

// dropRoutes drops the closed routes of an Ingress and reports it.
func (c *compilation) dropRoutes(object diag.Object) {
	if c.yielded.routes[object] {
		return
	}
	c.yielded.routes[object] = true
	c.reported = append(c.reported, diag.Diagnostic{
		Severity: diag.Error, Position: c.positionOf(object), Object: object,
		Message: "its routes are not even closed, since what they say is refused too; what else namespace " + object.Namespace + " serves for its hosts answers 503",
		Hint:    fmt.Sprintf("mend %s, or delete it", object),
	})
}

// letGo releases the held hosts of Ingresses that were left out, where they may be what is at
// fault now, and reports whether there were any. A host's name says nothing to HAProxy, but a
// template of the user may do more with it. A namespace is released as a
// whole, and every namespace where nobody alone is at fault, so that this takes a round for
// each namespace at most, and holding hosts never keeps anything from being published.
func (c *compilation) letGo(faults []render.Fault) bool {
	var named []string
	alone := false
	for _, f := range faults {
		objects := toBlame(f)
		alone = alone || len(objects) == 1
		for _, o := range objects {
			if o.Object.Kind == "Ingress" && slices.Contains(c.out, o.Object) {
				named = append(named, o.Object.Namespace)
			}
		}
	}
	if len(named) == 0 && !alone {
		var out []string
		for _, o := range c.out {
			if o.Kind == "Ingress" {
				out = append(out, o.Namespace)
			}
		}
		named = out
	}
	before := len(c.yielded.hosts)
	for _, namespace := range named {
		c.yielded.hosts[namespace] = true
	}
	return len(c.yielded.hosts) > before
}

// A round of leaving objects out costs a check of everything, and some errors of HAProxy come
// one a round. So that nobody's objects keep the others waiting, the rounds that a namespace
// causes are bounded, and in the end the namespace pays, not everybody.
const (
	// patientRounds is how many rounds the objects of a namespace are left out one by one,
	// as they are found.
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

// sift leaves out the objects of a namespace that have errors, and those that cannot be
// checked within a number of checks.
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
		positionIn(in.Ingresses), positionIn(in.Broken), positionIn(in.Services), positionIn(in.ConfigMaps), positionIn(in.Others),
	} {
		if position, ok := at(object); ok {
			return position
		}
	}
	for _, o := range in.Gateway.Each() {
		if o.Ref == object {
			return o.Position()
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
