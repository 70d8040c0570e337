// Package objectname reads and orders the names of objects in namespaces, as people write them:
// NAMESPACE/NAME. It does not check whether an object can have such a name.
package objectname

import (
	"cmp"
	"fmt"
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
