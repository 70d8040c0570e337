package discovery

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/hapsnap/hapsnap/pusher/fleet"
)

// Watch reports the instances among the pods now and whenever they change, until ctx
// is done. With an error and no instances nothing new is known.
func Watch(ctx context.Context, client kubernetes.Interface, spec fleet.Pods, log *slog.Logger, report func([]fleet.Instance, error)) {
	w := newWatcher(client, spec)
	for _, i := range w.all() {
		if err := w.follow(i, log); err != nil {
			report(nil, err)
			return
		}
	}
	report(nil, fmt.Errorf("the pods in %s were not read yet", spec.Namespace))
	for _, i := range w.all() {
		go i.RunWithContext(ctx)
	}
	if !cache.WaitForCacheSync(ctx.Done(), w.synced()...) {
		return
	}
	for {
		report(instances(spec, w.objects()))
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
		}
	}
}

// watcher is one Watch.
type watcher struct {
	changed chan struct{} // holds a signal when there may be something new
	pods    cache.SharedIndexInformer
	secrets map[string]cache.SharedIndexInformer // each reads one by its name
	nodes   cache.SharedIndexInformer            // nil where none are needed
}

func newWatcher(client kubernetes.Interface, spec fleet.Pods) *watcher {
	factory := func(options ...informers.SharedInformerOption) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(client, 0, options...)
	}
	in := informers.WithNamespace(spec.Namespace)
	w := &watcher{changed: make(chan struct{}, 1), secrets: map[string]cache.SharedIndexInformer{}}
	w.pods = factory(in, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = spec.Selector
	})).Core().V1().Pods().Informer()
	for _, name := range []string{spec.Secret, spec.CASecret, spec.ClientSecret} {
		if name != "" && w.secrets[name] == nil {
			w.secrets[name] = factory(in, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
				o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
			})).Core().V1().Secrets().Informer()
		}
	}
	if spec.NodeZoneLabel != "" {
		w.nodes = factory().Core().V1().Nodes().Informer()
	}
	return w
}

func (w *watcher) all() []cache.SharedIndexInformer {
	out := []cache.SharedIndexInformer{w.pods}
	for _, i := range w.secrets {
		out = append(out, i)
	}
	if w.nodes != nil {
		out = append(out, w.nodes)
	}
	return out
}

func (w *watcher) synced() []cache.InformerSynced {
	var out []cache.InformerSynced
	for _, i := range w.all() {
		out = append(out, i.HasSynced)
	}
	return out
}

// follow has an informer signal changes, and say in the log what is in its way.
func (w *watcher) follow(i cache.SharedIndexInformer, log *slog.Logger) error {
	signal := func() {
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
	err := i.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		log.Warn("watch of the fleet interrupted, what was known is held", "err", err)
	})
	if err == nil {
		err = i.SetTransform(trim)
	}
	if err == nil {
		_, err = i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { signal() }, UpdateFunc: func(any, any) { signal() }, DeleteFunc: func(any) { signal() },
		})
	}
	if err != nil {
		return fmt.Errorf("watch the pods of the fleet: %w", err)
	}
	return nil
}

// trim drops what nobody looks at before an object is kept.
func trim(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
		o.SetAnnotations(nil)
	}
	if node, ok := object.(*corev1.Node); ok {
		node.Status = corev1.NodeStatus{}
	}
	return object, nil
}

// objects returns what is known now.
func (w *watcher) objects() objects {
	o := objects{secrets: map[string]*corev1.Secret{}, nodes: map[string]*corev1.Node{}}
	o.pods = listed[corev1.Pod](w.pods)
	for _, i := range w.secrets {
		for _, s := range listed[corev1.Secret](i) {
			o.secrets[s.Name] = s
		}
	}
	if w.nodes != nil {
		for _, n := range listed[corev1.Node](w.nodes) {
			o.nodes[n.Name] = n
		}
	}
	return o
}

func listed[T any](i cache.SharedIndexInformer) []*T {
	var out []*T
	for _, object := range i.GetStore().List() {
		if o, ok := object.(*T); ok {
			out = append(out, o)
		}
	}
	return out
}
