package binding

import (
	"bytes"
	"reflect"
	"weak"

	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// sharedBound is a snapshot that is bound once for all instances of a layout that get it with the same live data. A
// large one takes tens of megabytes, and a rollout may push it to many instances at the same time. Whoever gets the
// bound snapshot must not change it.
type sharedBound struct {
	inputs bind.Inputs
	bind   func() (bind.Bound, error)
}

// share returns the bound snapshot for these inputs: the one that the last call returned for that snapshot and layout,
// if the inputs are the same and somebody still uses it. The bindings themselves do not keep it: without jobs that use
// it, it is garbage.
func (b *Bindings) share(p Prepared, inputs bind.Inputs) *sharedBound {
	key := nodeKey{p.Snapshot.ID(), inputs.Layout}
	if s := b.shared[key].Value(); s != nil && sameInputs(s.inputs, inputs) {
		return s
	}
	// The lists for other layouts are equal, as a rule, and each instance keeps one of what its worker has.
	s := &sharedBound{inputs: inputs, bind: b.binder.Once(p.Snapshot, inputs, p.Servers)}
	if b.shared == nil {
		b.shared = map[nodeKey]weak.Pointer[sharedBound]{}
	}
	b.shared[key] = weak.Make(s)
	return s
}

// sameInputs reports whether a snapshot is bound to the same with both. It compares maps by address, since a map of
// inputs is never changed, but replaced: jobs read it while the next decision is made. So equal inputs may count as
// different, and then the snapshot is bound once more.
func sameInputs(a, b bind.Inputs) bool {
	x, y := reflect.ValueOf(a.Live), reflect.ValueOf(b.Live)
	for n := range x.NumField() {
		if x.Field(n).Kind() == reflect.Map && x.Field(n).Pointer() != y.Field(n).Pointer() {
			return false
		}
	}
	return a.Layout == b.Layout && bytes.Equal(a.Live.Fallback, b.Live.Fallback) &&
		reflect.ValueOf(a.Slots).Pointer() == reflect.ValueOf(b.Slots).Pointer()
}
