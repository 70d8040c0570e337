package cluster

import (
	"iter"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/internal/objectname"
)

// order is the order of the objects of a query: by namespace and name. A compile sorts what it reads, and does so in a
// fraction of the time if it is sorted already. The order of the last Read is used again, since few objects come or go.
type order struct {
	names  []types.NamespacedName
	sorted int // how often it was sorted
}

// of yields objects in their order.
func (o *order) of(objects map[types.NamespacedName]metav1.Object) iter.Seq[metav1.Object] {
	o.names = slices.DeleteFunc(o.names, func(name types.NamespacedName) bool { return objects[name] == nil })
	if len(o.names) < len(objects) {
		known := make(map[types.NamespacedName]bool, len(o.names))
		for _, name := range o.names {
			known[name] = true
		}
		for name := range objects {
			if !known[name] {
				o.names = append(o.names, name)
			}
		}
		slices.SortFunc(o.names, objectname.Compare)
		o.sorted++
	}
	return func(yield func(metav1.Object) bool) {
		for _, name := range o.names {
			if !yield(objects[name]) {
				return
			}
		}
	}
}
