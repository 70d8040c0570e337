package objectname_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/internal/objectname"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]types.NamespacedName{
		"shop/web": {Namespace: "shop", Name: "web"},
		"":         {}, "web": {}, "/web": {}, "shop/": {}, "shop/web/x": {}, "/": {},
	} {
		got, err := objectname.Parse(text)
		if got != want || (err == nil) != (want.Name != "") {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	list := []types.NamespacedName{{Namespace: "b", Name: "a"}, {Namespace: "a", Name: "b"}, {Namespace: "a", Name: "a"}}
	slices.SortFunc(list, objectname.Compare)
	if list[0].String() != "a/a" || list[1].String() != "a/b" || list[2].String() != "b/a" {
		t.Error(list)
	}
}

func TestUnion(t *testing.T) {
	t.Parallel()
	name := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "a", Name: name} }
	all := objectname.Union([]types.NamespacedName{name("b"), name("a")}, []types.NamespacedName{name("c"), name("b")})
	if !slices.Equal(all, []types.NamespacedName{name("a"), name("b"), name("c")}) {
		t.Error(all)
	}
	if !objectname.Within([]types.NamespacedName{name("c"), name("a")}, all) || objectname.Within([]types.NamespacedName{name("a"), name("d")}, all) || !objectname.Within(nil, nil) {
		t.Error("Within is wrong")
	}
}
