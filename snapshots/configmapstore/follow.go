package configmapstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
)

// followPauses is how long it takes until a watch that ended is begun again, at most
// where the API server is away or does not let us.
var followPauses = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 10 * time.Second}

// followTime is how long a watch is asked for; then it is begun anew, a little sooner
// or later than those of others.
const followTime = 5 * time.Minute

// Follow calls changed when something of the store may have changed, also while it
// could not be heard of, until ctx is done. It says nothing of errors to its caller,
// who looks into the store now and then anyway.
func (s *Store) Follow(ctx context.Context, changed func()) {
	pauses, interrupted := followPauses, false
	for {
		began := time.Now()
		err := s.follow(ctx, func() {
			if interrupted {
				s.log.Info("watch resumed", "store", s.String())
			}
			interrupted = false
			changed()
		})
		if ctx.Err() != nil {
			return
		}
		if err != nil && !interrupted {
			interrupted = true
			s.log.Warn("watch interrupted, the store is polled", "store", s.String(), "err", err)
		}
		if time.Since(began) > followPauses.Cap {
			pauses = followPauses
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pauses.Step()):
		}
	}
}

// follow watches until the watch ends: without an error, if its time is over.
func (s *Store) follow(ctx context.Context, changed func()) error {
	ctx, cancel := context.WithTimeout(ctx, 2*followTime)
	defer cancel()
	objects := s.metadata.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(s.namespace)
	events, err := s.events(ctx, objects)
	if err != nil {
		return err
	}
	defer events.Stop()
	changed() // what came before it began is seen now
	for event := range events.ResultChan() {
		if event.Type == watch.Error {
			return fmt.Errorf("watch: %w", apierrors.FromObject(event.Object))
		}
		changed()
	}
	return nil
}

// events begins a watch from now on: what is there is not sent once more. What readers
// say of themselves is no news to them.
func (s *Store) events(ctx context.Context, objects metadata.ResourceInterface) (watch.Interface, error) {
	selector := labels.Set{NameLabel: s.name}.String() + "," + PartLabel + "!=" + partStatus
	seconds := int64((followTime + rand.N(followTime/2)).Seconds())
	now, err := objects.List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	if now.ResourceVersion == "" {
		return nil, errors.New("list: it has no version to watch from")
	}
	events, err := objects.Watch(ctx, metav1.ListOptions{
		LabelSelector: selector, ResourceVersion: now.ResourceVersion, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	return events, nil
}
