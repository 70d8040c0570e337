package compiler

import (
	"context"
	"fmt"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/render"
)

// The routes of an Ingress that is left out stay, closed, where it protects something. They may
// be at fault themselves: a path or a host is the value of a Secret, or a template of the user
// makes something of them that HAProxy refuses. Then they are dropped, and the translation
// closes what of their namespace their requests would get to (see routing.Config.Dropped). So a
// namespace never keeps others from being published, and nothing that it protects is served.

// drop drops closed routes that are at fault, and reports whether there were any.
func (c *compilation) drop(ctx context.Context, a attempt, usedUp bool) (bool, error) {
	if len(a.shut) == 0 {
		return false, nil // as nearly always
	}
	var at []culprit
	alone := false
	for _, f := range a.faults {
		objects := toBlame(f)
		alone = alone || len(objects) == 1
		if len(objects) == 1 && slices.Contains(a.shut, objects[0].Object) {
			at = append(at, culprit{objects[0].Object, objects[0].Position, f})
		}
	}
	if len(at) == 0 && !alone {
		found, err := c.searchClosed(ctx, a.shut, a.faults[0])
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
		for _, object := range a.shut {
			if object.Namespace == namespace {
				c.dropRoutes(object)
			}
		}
	}
	return len(at) > 0, nil
}

// searchClosed finds the object whose closed routes make the difference, if those of any do.
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
				Message: "is left out with all of namespace " + namespace + ": " + x.object.String() + " is at fault even without what it says",
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
