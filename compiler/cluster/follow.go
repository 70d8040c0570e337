package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/hapsnap/hapsnap/compiler/inputs"
)

// follower keeps the objects of one query as they are in the cluster.
type follower struct {
	query   Query
	convert converter
	changed func()

	mu      sync.Mutex
	objects map[string]metav1.Object // by namespace/name
	synced  bool                     // all of them were known once
	absent  bool                     // the cluster does not know the kind
	err     error                    // why nothing new is heard, or nil
	since   time.Time                // of err
}

func newFollower(q Query, changed func()) *follower {
	return &follower{query: q, convert: converterFor(q), changed: changed, objects: map[string]metav1.Object{}}
}

// run follows until ctx is done. A kind that the cluster does not know is asked for
// again and again.
func (f *follower) run(ctx context.Context, client dynamic.Interface, kinds resolver, poll time.Duration, log *slog.Logger) {
	var resource schema.GroupVersionResource
	for {
		var found bool
		var err error
		resource, found, err = kinds.resolve(f.query.APIVersion, f.query.Kind)
		if found {
			break
		}
		f.unresolved(err, log)
		select {
		case <-ctx.Done():
			return
		case <-time.After(poll):
		}
	}
	// It is not waited for: between two tries of a list it does not look whether it is to end.
	reflector := cache.NewReflectorWithOptions(f.listWatch(client.Resource(resource), log), &unstructured.Unstructured{}, f, cache.ReflectorOptions{
		Name: f.query.String(), TypeDescription: f.query.Kind,
		Backoff: &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: f.patience()},
	})
	go reflector.RunWithContext(ctx)
	<-ctx.Done()
}

// patience is how long to wait at most between tries. There may be thousands of
// single objects that cannot be read.
func (f *follower) patience() time.Duration {
	if f.query.Name != "" {
		return 30 * time.Second
	}
	return 5 * time.Second
}

// unresolved takes note of a kind that is not known; without an error, for certain.
func (f *follower) unresolved(err error, log *slog.Logger) {
	f.mu.Lock()
	news := f.absent != (err == nil)
	f.absent = err == nil
	f.mu.Unlock()
	switch {
	case err == nil && !f.query.Optional:
		f.failed(fmt.Errorf("the cluster does not know %s of %s", f.query.Kind, f.query.APIVersion), log)
	case err != nil:
		f.failed(err, log)
	case news:
		log.Info("the cluster does not know an optional kind", "objects", f.query.String(), "of", f.query.APIVersion)
	}
	if news {
		f.changed()
	}
}

// listWatch lists and watches the query's objects, and takes note of whether that
// can be done.
func (f *follower) listWatch(client dynamic.NamespaceableResourceInterface, log *slog.Logger) cache.ListerWatcher {
	objects := dynamic.ResourceInterface(client)
	if f.query.Namespace != "" {
		objects = client.Namespace(f.query.Namespace)
	}
	narrow := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector, o.FieldSelector = f.query.Labels, f.query.fieldSelector()
		return o
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := objects.List(ctx, narrow(o))
			f.failed(err, log)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := objects.Watch(ctx, narrow(o))
			f.failed(err, log)
			return w, err
		},
	}
}

// failed takes note of why nothing new is heard; nil means that it is.
func (f *follower) failed(err error, log *slog.Logger) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // a list from the start follows
	}
	f.mu.Lock()
	before, known := f.err, f.synced
	f.err = err
	if before == nil && err != nil {
		f.since = time.Now()
	}
	f.mu.Unlock()
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		log.Warn("watch interrupted, what was known is held", "objects", f.query.String(), "err", err)
		if !known {
			f.changed() // what a compile waits for has another reason
		}
	case err == nil && before != nil:
		log.Info("watch resumed", "objects", f.query.String())
	}
}

// settled reports whether all is known that can be: all objects, or that there is no
// such kind where it is optional, or that a single object may not be read. That harms
// only those who name it.
func (f *follower) settled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.synced || f.absent && f.query.Optional || f.query.Name != "" && apierrors.IsForbidden(f.err)
}

// waits says what is waited for.
func (f *follower) waits() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		return f.query.String()
	}
	return fmt.Sprintf("%s (%v)", f.query, f.err)
}

// addTo adds the objects to those of a compile.
func (f *follower) addTo(in *inputs.Inputs) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.objects {
		add(in, f.query, o)
	}
}
