package render

import (
	"cmp"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// objectIndex finds objects by kind and by name.
type objectIndex struct {
	all      []Object
	byKind   map[string][]Object
	byOrigin map[diag.Object]int
}

func indexObjects(objects []Object) *objectIndex {
	x := &objectIndex{byKind: map[string][]Object{}, byOrigin: map[diag.Object]int{}}
	x.all = slices.SortedFunc(slices.Values(objects), func(a, b Object) int {
		return cmp.Or(a.Object.Compare(b.Object), cmp.Compare(a.APIVersion, b.APIVersion))
	})
	for i, o := range x.all {
		gvk := o.APIVersion + "/" + o.Object.Kind
		x.byKind[gvk] = append(x.byKind[gvk], o)
		x.byOrigin[o.Object] = i
	}
	return x
}

// annotation returns the value of an annotation of the first of some objects that
// has it, or "".
func (x *objectIndex) annotation(origins []routing.Origin, name string) string {
	for _, origin := range origins {
		if i, ok := x.byOrigin[origin.Object]; ok {
			if value := x.all[i].Annotations[name]; value != "" {
				return value
			}
		}
	}
	return ""
}
