package compiler

import (
	"context"
	"fmt"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
)

// If an Ingress protects something and is left out, its routes stay, but closed. Closed routes may be at fault too: a
// path or a host may be the value of a Secret, or the user's template may make lines of them that HAProxy refuses. Then
// they are dropped, and the translation closes those routes of the same namespace that would get their requests (see
// ingress.Config.Dropped). So no namespace can prevent others from being published, and nothing is served without its
// protection.

// drop drops the closed routes that are at fault. It reports whether there were any.
func (c *compilation) drop(ctx context.Context, a attempt, usedUp bool) (bool, error) {
	if len(a.closed) == 0 {
		return false, nil // nearly always
	}
	var at []culprit
	alone := false
	for _, f := range a.faults {
		objects := toBlame(f)
		alone = alone || len(objects) == 1
		if len(objects) == 1 && slices.Contains(a.closed, objects[0].Object) {
			at = append(at, culprit{objects[0].Object, objects[0].Position, f})
		}
	}
	if len(at) == 0 && !alone {
		found, err := c.searchClosed(ctx, a.closed, a.faults[0])
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
		for _, object := range a.closed {
			if object.Namespace == namespace {
				c.dropRoutes(object)
			}
		}
	}
	return len(at) > 0, nil
}

// searchClosed finds the object whose closed routes cause the error, if there is such an object.
func (c *compilation) searchClosed(ctx context.Context, closed []diag.Object, fault render.Fault) ([]culprit, error) {
	passes := func(n int) (bool, error) {
		except := givenUp{hosts: c.givenUp.hosts, routes: map[diag.Object]bool{}}
		for _, o := range closed[n:] {
			except.routes[o] = true
		}
		for o := range c.givenUp.routes {
			except.routes[o] = true
		}
		a, err := c.tryHolding(ctx, c.out, except)
		return len(a.faults) == 0, err
	}
	n, err := boundary(len(closed), passes)
	if err != nil || n < 0 {
		return nil, err
	}
	return []culprit{{closed[n], c.positionOf(closed[n]), fault}}, nil
}

// banish is the last resort, for culprits that are already left out. It leaves out all objects of their namespaces,
// releases their hosts and drops their closed routes. It reports whether it changed anything.
func (c *compilation) banish(culprits []culprit) bool {
	before := len(c.out) + len(c.givenUp.hosts) + len(c.givenUp.routes)
	for _, x := range culprits {
		namespace := x.object.Namespace
		for _, o := range c.objectsOf(namespace) {
			c.leaveOut(culprit{o, c.positionOf(o), render.Fault{
				Message: "is left out with all of namespace " + namespace + ": " + x.object.String() + " has an error even without its content",
				Hint:    "mend " + x.object.String() + ", or delete it",
			}})
		}
		c.givenUp.hosts[namespace] = true
		for _, o := range c.out {
			if o.Namespace == namespace && o.Kind == "Ingress" {
				c.dropRoutes(o)
			}
		}
	}
	return len(c.out)+len(c.givenUp.hosts)+len(c.givenUp.routes) > before
}

// dropRoutes drops the closed routes of an Ingress, and reports that.
func (c *compilation) dropRoutes(object diag.Object) {
	if c.givenUp.routes[object] {
		return
	}
	c.givenUp.routes[object] = true
	c.reported = append(c.reported, diag.Diagnostic{
		Severity: diag.Error, Position: c.positionOf(object), Object: object,
		Message: "its routes are not even closed, since what they say is refused too; what else namespace " + object.Namespace + " serves for its hosts answers 503",
		Hint:    fmt.Sprintf("mend %s, or delete it", object),
	})
}

// releaseHosts releases the held hosts of Ingresses that are left out, if these hosts may be at fault now. It reports
// whether there were any. HAProxy only looks up names of hosts, but the user's template may write them elsewhere. All
// hosts of a namespace are released together. If no single object is at fault, those of every namespace are. So
// releasing takes at most one round for each namespace, and held hosts never prevent publishing.
func (c *compilation) releaseHosts(faults []render.Fault) bool {
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
	before := len(c.givenUp.hosts)
	for _, namespace := range named {
		c.givenUp.hosts[namespace] = true
	}
	return len(c.givenUp.hosts) > before
}

// Each round of leaving out objects takes a check of everything, and HAProxy reports some errors one by one. So the
// number of rounds that a namespace may cause is limited. When its rounds are used up, the namespace loses objects, and
// the others do not wait.
const (
	// patientRounds is how many rounds leave out the faulty objects of a namespace one by one.
	patientRounds = 8
	// siftingRounds is how many checks the bisection may take after that. It looks for the sound objects among the rest
	// of the namespace.
	siftingRounds = 32
	// maxRounds limits the rounds of a compile. After them, every namespace with a faulty object is left out as a
	// whole.
	maxRounds = 100
)

// overdrawn counts this round for the namespaces of culprits. It returns the namespaces that have used up their rounds,
// sorted. If the compile has no rounds left, it returns all of them.
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

// sift finds the sound objects of a namespace by bisection. It leaves out the objects that have errors, and those that
// it cannot check with the given number of checks.
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

// concerns reports whether an object of a namespace may be at fault. If the fault names no object, any object may be.
func concerns(f render.Fault, namespace string) bool {
	objects := toBlame(f)
	for _, o := range objects {
		if o.Object.Namespace == namespace {
			return true
		}
	}
	return len(objects) == 0
}

// objectsOf returns the objects of a namespace that are not left out.
func (c *compilation) objectsOf(namespace string) []diag.Object {
	return slices.DeleteFunc(c.candidates(), func(o diag.Object) bool { return o.Namespace != namespace })
}

// positionOf returns the position of an object in its file.
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
