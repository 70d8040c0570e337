package cluster

import (
	"fmt"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Objects come by namespace and name, whichever come and go, and a change of one sorts nothing.
func TestObjectsAreInOrder(t *testing.T) {
	objects, o := map[types.NamespacedName]metav1.Object{}, &order{}
	put := func(namespace, name string) {
		objects[types.NamespacedName{Namespace: namespace, Name: name}] = &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	check := func(what string, sorted int) {
		t.Helper()
		var got, want []string
		for object := range o.of(objects) {
			name := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
			if objects[name] != object {
				t.Errorf("%s: %s is an earlier version", what, name)
			}
			got = append(got, name.String())
		}
		for name := range objects {
			want = append(want, name.String())
		}
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("%s: the objects come as %v, want %v", what, got, want)
		}
		if o.sorted != sorted {
			t.Errorf("%s: sorted %d times, want %d", what, o.sorted, sorted)
		}
	}
	for i := range 50 {
		put(fmt.Sprint("team-", 9-i%10), fmt.Sprint("app-", 10+i))
	}
	check("at first", 1)
	check("again", 1)
	put("team-3", "app-16")
	check("with one changed", 1)
	delete(objects, types.NamespacedName{Namespace: "team-3", Name: "app-16"})
	check("without one", 1)
	put("team-0", "app-00")
	check("with a new one", 2)
	delete(objects, types.NamespacedName{Namespace: "team-0", Name: "app-00"})
	put("team-9", "zz")
	check("with another in place of one", 3)
	clear(objects)
	check("with none", 3)
}
