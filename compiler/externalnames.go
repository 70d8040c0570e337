package compiler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// manyNames returns a fault for each object that leads to names of ExternalName Services of which its namespace has more than
// it may. HAProxy asks the name servers, which are everybody's, about each name every few seconds. The oldest objects of a
// namespace are kept, and those that lead only to names that others of the namespace lead to.
func manyNames(in Input, model routing.Model) (out []render.Fault) {
	most := in.Config.Limits.NamespaceExternalNames
	if most == 0 {
		return nil
	}
	of, origins := map[diag.Object]map[string]bool{}, map[diag.Object]routing.Origin{}
	for _, b := range model.Backends {
		for _, target := range b.Targets {
			if target.Name == nil {
				continue
			}
			for _, o := range b.Origins {
				if !o.Routes() && o.Object.Kind != "Service" {
					continue
				}
				if of[o.Object] == nil {
					of[o.Object], origins[o.Object] = map[string]bool{}, o
				}
				of[o.Object][target.Name.Host] = true
			}
		}
	}
	if len(of) == 0 {
		return nil // nearly always
	}
	ages := born(in.Objects)
	oldest := slices.SortedFunc(maps.Keys(of), func(a, b diag.Object) int {
		return cmp.Or(ages[a].Compare(ages[b]), a.Compare(b))
	})
	names := map[string]map[string]bool{} // by namespace
	for _, object := range oldest {
		has, more := names[object.Namespace], 0
		if has == nil {
			has = map[string]bool{}
			names[object.Namespace] = has
		}
		for name := range of[object] {
			if !has[name] {
				more++
			}
		}
		if more > 0 && len(has)+more > most {
			out = append(out, render.Fault{
				Message: fmt.Sprintf("is left out: with it namespace %s would lead to %d names of ExternalName Services, and may lead to %d", object.Namespace, len(has)+more, most),
				Hint:    "lead to fewer names, or have limits.namespaceExternalNames of the configuration raised; the oldest objects of a namespace are kept",
				Origin:  render.LineOrigin{Objects: []routing.Origin{origins[object]}},
			})
			continue
		}
		maps.Copy(has, of[object])
	}
	return out
}
