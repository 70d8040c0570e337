package compiler

import (
	"slices"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/render"
)

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
		named = namespacesOf(c.out)
	}
	before := len(c.yielded.hosts)
	for _, namespace := range named {
		c.yielded.hosts[namespace] = true
	}
	return len(c.yielded.hosts) > before
}

// namespacesOf returns the namespaces of the Ingresses among objects.
func namespacesOf(objects []diag.Object) []string {
	var out []string
	for _, o := range objects {
		if o.Kind == "Ingress" {
			out = append(out, o.Namespace)
		}
	}
	return out
}
