package cluster

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/hapsnap/hapsnap/snapshots"
)

// The exported methods of this file are those of [cache.TransformingStore], which
// the reflector brings objects to.

// Transformer returns what trims objects.
func (f *follower) Transformer() cache.TransformFunc { return trim }

// Add takes a new object in.
func (f *follower) Add(o any) error { return f.put(o) }

// Update takes an object in again.
func (f *follower) Update(o any) error { return f.put(o) }

// Resync has nothing to do: nothing is made of events.
func (f *follower) Resync() error { return nil }

// Delete forgets an object, which the API server said is gone.
func (f *follower) Delete(o any) error {
	object, err := meta.Accessor(o)
	if err != nil {
		return fmt.Errorf("forget object: %w", err)
	}
	f.cluster.mu.Lock()
	defer f.cluster.mu.Unlock()
	if !f.ended {
		f.forget(keyOf(object), time.Now(), false)
		signal(f.cluster.changed)
	}
	return nil
}

// put takes in an object that is new or changed.
func (f *follower) put(o any) error {
	now := time.Now()
	f.cluster.mu.Lock()
	defer f.cluster.mu.Unlock()
	if f.ended {
		return nil
	}
	if err := f.take(o, now); err != nil {
		return err
	}
	signal(f.cluster.changed)
	return nil
}

// Replace takes what is there for all that there is. What is missing was perhaps deleted:
// it is told apart from what the API server said is gone.
func (f *follower) Replace(list []any, _ string) error {
	now := time.Now()
	f.cluster.mu.Lock()
	defer f.cluster.mu.Unlock()
	if f.ended {
		return nil
	}
	if !f.synced {
		now = time.Time{} // what is met for the first time did not change
	}
	there := make(map[string]bool, len(list))
	for _, o := range list {
		object, err := meta.Accessor(o)
		if err != nil {
			return fmt.Errorf("take in object: %w", err)
		}
		there[keyOf(object)] = true
	}
	for key := range f.known {
		if !there[key] {
			f.forget(key, now, true)
		}
	}
	for _, o := range list {
		if err := f.take(o, now); err != nil {
			return err
		}
	}
	f.synced = true
	f.cluster.tell()
	return nil
}

// end forgets all that is known, which nobody needs any more.
func (f *follower) end() {
	f.ended = true
	f.stop()
	for key := range f.known {
		f.forget(key, time.Time{}, false) // nothing happened to it
	}
}

// take notes an object.
func (f *follower) take(o any, now time.Time) error {
	trimmed, err := trim(o)
	if err != nil {
		return err
	}
	switch object := trimmed.(type) {
	case *discoveryv1.EndpointSlice:
		f.known[keyOf(object)] = true
		f.cluster.slices.put(keyOf(object), object, now)
	case *corev1.Secret:
		f.known[keyOf(object)] = true
		f.cluster.noteSecret(snapshots.SecretName{Namespace: object.Namespace, Name: object.Name}, object, now)
	default:
		return fmt.Errorf("take in %T: it is no %s", o, f.query.Kind)
	}
	return nil
}

// forget drops an object, which was deleted, or is missing in a list.
func (f *follower) forget(key string, now time.Time, missing bool) {
	delete(f.known, key)
	if f.query.Kind == kindSlice {
		f.cluster.slices.remove(key, now, missing)
		return
	}
	name := snapshots.SecretName{Namespace: f.query.Namespace, Name: f.query.Name}
	f.cluster.noteSecret(name, nil, now)
	f.cluster.missing[name] = missing
}

func (c *Cluster) noteSecret(name snapshots.SecretName, s *corev1.Secret, now time.Time) {
	c.secrets[name] = s
	delete(c.missing, name)
	if !now.IsZero() {
		c.since = append(c.since, now)
	}
}

func keyOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }
