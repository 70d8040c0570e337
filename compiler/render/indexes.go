package render

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/diag"
)

// kindIndex is the objects of a kind, sorted, and finds them by what they hold.
// Several goroutines may use it.
type kindIndex struct {
	objects []Object
	named   bool // by the configuration: then they have content
	// indexes are made when the first template asks.
	indexes map[string]func() map[string][]Object
}

// newKindIndex prepares the indexes of a kind that the configuration names.
func newKindIndex(paths map[string]string) *kindIndex {
	k := &kindIndex{named: true, indexes: map[string]func() map[string][]Object{}}
	for name, path := range paths {
		k.indexes[name] = sync.OnceValue(func() map[string][]Object { return indexBy(k.objects, path) })
	}
	return k
}

// has reports whether an object is one of those with content. They are sorted.
func (k *kindIndex) has(ref diag.Object) bool {
	_, found := slices.BinarySearchFunc(k.objects, ref, func(o Object, ref diag.Object) int { return o.Object.Compare(ref) })
	return found && k.named
}

// by returns the objects that hold a value where an index looks.
func (k *kindIndex) by(index string, value any) ([]Object, error) {
	find, ok := k.indexes[index]
	if !ok {
		there := strings.Join(slices.Sorted(maps.Keys(k.indexes)), ", ")
		return nil, mistake{fmt.Sprintf("there is no index %q of that kind", index), "list it in indexes of the kind; there are: " + there}
	}
	text, err := scalar(value)
	return find()[text], err
}

// indexBy returns the objects by the plain values that a JSONPath leads to, in
// their order; each is there once for a value.
func indexBy(objects []Object, path string) map[string][]Object {
	out := map[string][]Object{}
	for _, o := range objects {
		for _, text := range valuesAt(o.Whole, path) {
			out[text] = append(out[text], o)
		}
	}
	return out
}

// valuesAt returns the plain values that a JSONPath leads to, each once. What it
// does not fit has none.
func valuesAt(content map[string]any, path string) []string {
	j, err := kinds.JSONPath(path) // holds a state, and so is not shared
	if err != nil {
		return nil
	}
	found, err := j.FindResults(content)
	if err != nil {
		return nil
	}
	var out []string
	for _, values := range found {
		for _, v := range values {
			if !v.IsValid() || !v.CanInterface() {
				continue
			}
			if text, err := scalar(v.Interface()); err == nil {
				out = append(out, text)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
