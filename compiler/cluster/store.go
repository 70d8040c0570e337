package cluster

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// The methods of this file are those of [cache.TransformingStore], which the
// reflector brings objects to.

// Transformer returns what makes objects of what the API server sends.
func (f *follower) Transformer() cache.TransformFunc { return f.convert.object }

// Add takes a new object in.
func (f *follower) Add(o any) error { return f.put(o) }

// Update takes an object in again.
func (f *follower) Update(o any) error { return f.put(o) }

// Delete forgets an object.
func (f *follower) Delete(o any) error {
	object, err := meta.Accessor(o)
	if err != nil {
		return fmt.Errorf("forget object: %w", err)
	}
	f.mu.Lock()
	delete(f.objects, keyOf(object))
	f.mu.Unlock()
	f.changed()
	return nil
}

// Replace takes what is there for all that there is.
func (f *follower) Replace(list []any, _ string) error {
	objects := make(map[string]metav1.Object, len(list))
	for _, o := range list {
		object, err := f.accept(o)
		if err != nil {
			return err
		}
		objects[keyOf(object)] = object
	}
	f.mu.Lock()
	same := f.synced && len(objects) == len(f.objects)
	for key, object := range objects {
		if old, known := f.objects[key]; same && (!known || !equal(old, object)) {
			same = false
		}
	}
	f.objects, f.synced, f.absent = objects, true, false
	f.mu.Unlock()
	if !same {
		f.changed()
	}
	return nil
}

// Resync has nothing to do: nothing is made of events.
func (f *follower) Resync() error { return nil }

// put takes in an object that is new or changed. What changed only in what nothing
// is made of is no change.
func (f *follower) put(o any) error {
	object, err := f.accept(o)
	if err != nil {
		return err
	}
	f.mu.Lock()
	key := keyOf(object)
	old, known := f.objects[key]
	f.objects[key] = object
	f.mu.Unlock()
	if !known || !equal(old, object) {
		f.changed()
	}
	return nil
}

// accept converts what was not converted yet.
func (f *follower) accept(o any) (metav1.Object, error) {
	converted, err := f.convert.object(o)
	if err != nil {
		return nil, err
	}
	object, err := meta.Accessor(converted)
	if err != nil {
		return nil, fmt.Errorf("take in object: %w", err)
	}
	return object, nil
}

func keyOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }
