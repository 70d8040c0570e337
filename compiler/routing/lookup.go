package routing

import (
	"slices"

	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/snapshots"
)

// lookup finds objects by name, and remembers which ones it was asked for.
type lookup[T any] struct {
	byName map[snapshots.SecretName]inputs.Object[T]
	asked  map[snapshots.SecretName]bool
}

func newLookup[T any](objects []inputs.Object[T]) lookup[T] {
	return lookup[T]{byName: byName(objects), asked: map[snapshots.SecretName]bool{}}
}

func (l lookup[T]) find(name snapshots.SecretName) (o inputs.Object[T], exists bool) {
	l.asked[name] = true
	o, exists = l.byName[name]
	return o, exists
}

// names returns what was asked for, sorted.
func (l lookup[T]) names() []snapshots.SecretName {
	out := make([]snapshots.SecretName, 0, len(l.asked))
	for name := range l.asked {
		out = append(out, name)
	}
	slices.SortFunc(out, snapshots.SecretName.Compare)
	return out
}
