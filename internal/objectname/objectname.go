// Package objectname reads and orders the names of objects in namespaces, as people write them:
// NAMESPACE/NAME. It does not check whether an object can have such a name.
package objectname

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Parse reads NAMESPACE/NAME. Neither part is empty.
func Parse(text string) (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return types.NamespacedName{}, fmt.Errorf("%q is not namespace/name", text)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// Compare orders by namespace, then by name.
func Compare(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Union returns the names that are in any of the two lists, sorted.
func Union(a, b []types.NamespacedName) []types.NamespacedName {
	all := slices.Concat(a, b)
	slices.SortFunc(all, Compare)
	return slices.Compact(all)
}

// Within reports whether all names are in a sorted list.
func Within(names, sorted []types.NamespacedName) bool {
	return !slices.ContainsFunc(names, func(name types.NamespacedName) bool {
		_, found := slices.BinarySearchFunc(sorted, name, Compare)
		return !found
	})
}
