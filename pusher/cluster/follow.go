package cluster

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// follower keeps the objects of one query as they are in the cluster. What it knows
// is guarded by the cluster's lock.
type follower struct {
	query     Query
	cluster   *Cluster
	following context.Context //nolint:containedctx // ends what run does
	stop      context.CancelFunc

	known  map[string]bool // the objects, by namespace/name
	synced bool            // all of them were known once
	ended  bool
	err    error // why nothing new is heard, or nil
}

// newFollower returns a follower that is to run until ctx is done, or stop is called.
func newFollower(ctx context.Context, q Query, c *Cluster) *follower {
	f := &follower{query: q, cluster: c, known: map[string]bool{}}
	f.following, f.stop = context.WithCancel(ctx)
	return f
}

// run follows until ctx is done. What is in the way is told by the status. The reflector is
// not waited for: between two tries of a list it does not look whether it is to end.
func (f *follower) run(ctx context.Context, c Connection) {
	list, object := f.listWatch(c)
	reflector := cache.NewReflectorWithOptions(list, object, f, cache.ReflectorOptions{
		Name: f.query.String(), TypeDescription: f.query.Kind,
		Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: f.patience()},
	})
	go reflector.RunWithContext(klog.NewContext(ctx, logr.Discard()))
	<-ctx.Done()
}

// patience is how long to wait at most between tries. There may be thousands of
// Secrets, which shall not come all at once when the API server is back.
func (f *follower) patience() time.Duration {
	if f.query.Name != "" {
		return 30 * time.Second
	}
	return 5 * time.Second
}

// listWatch lists and watches the query's objects.
func (f *follower) listWatch(c Connection) (cache.ListerWatcher, runtime.Object) {
	if f.query.Kind == kindSecret {
		secrets := c.Secrets.Secrets(f.query.Namespace)
		return &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				list, err := secrets.List(ctx, f.narrow(o))
				return list, f.heard(err)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				w, err := secrets.Watch(ctx, f.narrow(o))
				return w, f.heard(err)
			},
		}, &corev1.Secret{}
	}
	endpointSlices := c.EndpointSlices.EndpointSlices(f.query.Namespace)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := endpointSlices.List(ctx, f.narrow(o))
			return list, f.heard(err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := endpointSlices.Watch(ctx, f.narrow(o))
			return w, f.heard(err)
		},
	}, &discoveryv1.EndpointSlice{}
}

func (f *follower) narrow(o metav1.ListOptions) metav1.ListOptions {
	if f.query.Name != "" {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", f.query.Name).String()
	}
	return o
}

// heard takes note of why nothing new is heard; nil means that it is.
func (f *follower) heard(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return err // a list from the start follows
	}
	f.cluster.mu.Lock()
	defer f.cluster.mu.Unlock()
	news := (err == nil) != (f.err == nil) || err != nil && err.Error() != f.err.Error()
	if f.err = err; news && !f.ended {
		f.cluster.tell()
	}
	return err
}

// standing says how the query stands.
func (f *follower) standing() standing {
	return standing{
		query: f.query, synced: f.synced, objects: len(f.known),
		err: f.err, forbidden: apierrors.IsForbidden(f.err),
	}
}
