package kubewatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/hapsnap/hapsnap/internal/kubeconfig"
)

// Resource lists and watches the objects of a kind, of one namespace or of all.
type Resource interface {
	List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// Typed returns the Resource of a client for one kind, whose lists are of type L.
func Typed[L runtime.Object](client interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}) Resource {
	return typed[L]{client.List, client.Watch}
}

type typed[L runtime.Object] struct {
	list  func(ctx context.Context, o metav1.ListOptions) (L, error)
	watch func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

func (t typed[L]) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	return t.list(ctx, o)
}

func (t typed[L]) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return t.watch(ctx, o)
}

// watcher keeps the objects of one query as they are in the cluster. The lock of its Set guards its fields,
// except for the first three, which do not change.
type watcher struct {
	set   *Set
	query Query
	keep  func(object any) (any, error) // Convert, for the query

	log      *slog.Logger
	stop     context.CancelFunc // nil: not begun
	ended    bool
	resource Resource // nil: not opened yet
	objects  map[types.NamespacedName]metav1.Object
	synced   bool
	absent   bool
	err      error
	since    time.Time
}

func newWatcher(s *Set, q Query) *watcher {
	w := &watcher{set: s, query: q, log: slog.New(slog.DiscardHandler), objects: map[types.NamespacedName]metav1.Object{}}
	if w.keep = func(object any) (any, error) { return object, nil }; s.options.Convert != nil {
		w.keep = s.options.Convert(q)
	}
	return w
}

// run watches until ctx is done. It reports its errors in the log and in its state.
func (w *watcher) run(ctx context.Context, patience time.Duration, log *slog.Logger) {
	w.set.mu.Lock()
	w.log = log
	w.set.mu.Unlock()
	reflector := cache.NewReflectorWithOptions(&cache.ListWatch{ListWithContextFunc: w.list, WatchFuncWithContext: w.watch}, nil, w, cache.ReflectorOptions{
		Name: w.query.String(), TypeDescription: w.query.Kind,
		Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: patience},
	})
	reflector.RunWithContext(klog.NewContext(ctx, logr.Discard()))
}

// patience is the longest time between two tries of one watch, given how many watches there are. A plan may
// have thousands for single objects. When an API server is back, they send no more than about 50 requests a
// second.
func patience(watches int) time.Duration {
	return min(max(5*time.Second, time.Duration(watches)*20*time.Millisecond), 30*time.Second)
}

// unknownError says that the cluster certainly does not know a kind.
type unknownError struct{ query Query }

func (e unknownError) Error() string {
	return fmt.Sprintf("the cluster does not know %s of %s", e.query.Kind, e.query.APIVersion)
}

func (w *watcher) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	resource, err := w.open(ctx)
	if err != nil {
		return nil, err
	}
	list, err := resource.List(ctx, w.query.narrow(o))
	if err != nil {
		w.failed(err)
	}
	return list, err
}

func (w *watcher) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	resource, err := w.open(ctx)
	if err != nil {
		return nil, err
	}
	watch, err := resource.Watch(ctx, w.query.narrow(o))
	switch {
	case err == nil:
		w.resumed()
	case o.SendInitialEvents != nil && apierrors.IsInvalid(err):
		// The API server does not send lists that way. A list follows.
	default:
		w.failed(err)
	}
	return watch, err
}

// open returns how the objects are listed.
func (w *watcher) open(ctx context.Context) (Resource, error) {
	w.set.mu.Lock()
	resource := w.resource
	w.set.mu.Unlock()
	if resource != nil {
		return resource, nil
	}
	resource, found, err := w.set.options.Open(ctx, w.query)
	if err == nil && !found {
		err = unknownError{w.query}
	}
	if err != nil {
		w.failed(err)
		return nil, err
	}
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	w.resource = resource
	return resource, nil
}

// failed records why nothing new is known.
func (w *watcher) failed(err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // a list from the start follows
	}
	notFound := apierrors.IsNotFound(err)
	err = bare(err)
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	if notFound {
		w.resource = nil // a definition may have gone, or be another one
	}
	if w.ended || w.err != nil && same(w.err, err) {
		return
	}
	if w.err == nil {
		w.since = time.Now()
	}
	_, unknown := errors.AsType[unknownError](err)
	w.absent = w.absent || unknown // until it was listed
	if w.err = err; unknown && w.query.Optional && len(w.objects) == 0 {
		w.log.Info("the cluster does not know an optional kind", "objects", w.query.String(), "of", w.query.APIVersion)
	} else {
		w.log.Warn("watch interrupted, keeping the objects known so far", "objects", w.query.String(), "err", err)
	}
	w.otherwise()
}

// same reports whether an error is no news after another one. Where something may not be read, the API server refuses watches
// and lists in turn, with different texts. What answers in its place may name each request.
func same(before, now error) bool {
	return before.Error() == now.Error() || apierrors.IsForbidden(before) && apierrors.IsForbidden(now) ||
		errors.Is(before, kubeconfig.ErrForeign) && errors.Is(now, kubeconfig.ErrForeign)
}

// resumed records that the watch receives changes from now on. A successful list is not enough: if watching is
// forbidden, later changes stay unknown.
func (w *watcher) resumed() {
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	if w.ended || w.err == nil {
		return
	}
	w.log.Info("watch resumed", "objects", w.query.String())
	w.err, w.since = nil, time.Time{}
	w.otherwise()
}

// otherwise reports that the state of the query changed.
func (w *watcher) otherwise() {
	if !w.synced {
		Signal(w.set.changed) // somebody may wait for it
	}
	w.set.stands()
}

// bare returns an error without the request in it, whose text differs each time.
func bare(err error) error {
	if requested, ok := errors.AsType[*url.Error](err); ok {
		return requested.Err
	}
	return err
}

func (w *watcher) state() QueryState {
	out := QueryState{Query: w.query, Synced: w.synced, Absent: w.absent, Err: w.err, Since: w.since, Count: len(w.objects)}
	if w.set.options.Handle == nil {
		out.Objects = w.objects
	}
	return out
}

// end forgets all objects, since no query wants them any more. The Set is locked.
func (w *watcher) end() {
	w.ended = true
	if w.stop != nil {
		w.stop()
	}
	for name := range w.objects {
		w.drop(name, time.Time{}, false)
	}
}

// The exported methods are those of [cache.TransformingStore], which a reflector fills.

// Transformer returns the function that converts objects.
func (w *watcher) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		converted, err := w.convert(object)
		if err == nil {
			return converted, nil
		}
		if accessor, unnamed := meta.Accessor(object); unnamed == nil {
			return unusable{accessor, err}, nil
		}
		return nil, err
	}
}

// unusable is an object that could not be converted.
type unusable struct {
	metav1.Object
	err error
}

func (w *watcher) convert(object any) (any, error) {
	if bad, ok := object.(unusable); ok {
		return nil, bad.err
	}
	return w.keep(object)
}

// Add stores a new object.
func (w *watcher) Add(object any) error { return w.put(object) }

// Update stores a new version of an object.
func (w *watcher) Update(object any) error { return w.put(object) }

// Resync does nothing.
func (w *watcher) Resync() error { return nil }

func (w *watcher) put(object any) error {
	n, err := w.newsOf(object)
	if err != nil {
		return err
	}
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	if !w.ended && w.take(n, time.Now()) {
		Signal(w.set.changed)
	}
	return nil
}

// Delete forgets an object that the API server says is gone.
func (w *watcher) Delete(object any) error {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return fmt.Errorf("forget object: %w", err)
	}
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	if !w.ended {
		w.drop(nameOf(accessor), time.Now(), false)
		Signal(w.set.changed)
	}
	return nil
}

// Replace takes a list for all objects that exist.
func (w *watcher) Replace(list []any, _ string) error {
	now, all := time.Now(), make([]news, 0, len(list))
	there := make(map[types.NamespacedName]bool, len(list))
	for _, object := range list {
		n, err := w.newsOf(object)
		if err != nil {
			return err
		}
		all, there[n.name] = append(all, n), true
	}
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	if w.ended {
		return nil
	}
	if !w.synced {
		now = time.Time{} // an object that is seen for the first time has not changed
	}
	changed := !w.synced
	for name := range w.objects {
		if !there[name] {
			w.drop(name, now, true)
			changed = true
		}
	}
	for _, n := range all {
		changed = w.take(n, now) || changed
	}
	if w.synced, w.absent = true, false; changed {
		Signal(w.set.changed)
	}
	w.set.stands()
	return nil
}

// news is an object that is new or changed, or the reason why it cannot be used.
type news struct {
	name   types.NamespacedName
	object metav1.Object
	err    error
}

// newsOf converts an object.
func (w *watcher) newsOf(object any) (news, error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return news{}, fmt.Errorf("take in object: %w", err)
	}
	n := news{name: nameOf(accessor)}
	converted, err := w.convert(object)
	if err == nil {
		n.object, err = meta.Accessor(converted)
	}
	n.err = err
	return n, nil
}

// take stores an object, and reports whether it differs from the one before. An object that cannot be
// converted is held as it was.
func (w *watcher) take(n news, at time.Time) (changed bool) {
	if n.err != nil {
		w.log.Warn("object cannot be used, keeping its last usable version", "object", w.query.Kind+" "+n.name.String(), "err", n.err)
		return false
	}
	old, known := w.objects[n.name]
	if handle := w.set.options.Handle; handle != nil {
		w.objects[n.name] = nil
		handle(Event{Query: w.query, Name: n.name, Object: n.object, At: at})
		return true
	}
	w.objects[n.name] = n.object
	return !known || w.set.options.Equal == nil || !w.set.options.Equal(old, n.object)
}

// drop forgets an object that was deleted, that is missing in a list, or that no query wants.
func (w *watcher) drop(name types.NamespacedName, at time.Time, missing bool) {
	delete(w.objects, name)
	if handle := w.set.options.Handle; handle != nil {
		handle(Event{Query: w.query, Name: name, Missing: missing, At: at})
	}
}

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}
