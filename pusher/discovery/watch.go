package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hapsnap/hapsnap/internal/kubewatch"
	"github.com/hapsnap/hapsnap/pusher/fleet"
)

// Plan returns what is watched to find these pods. Nodes are in no namespace.
func Plan(spec fleet.Pods) []kubewatch.Query {
	out := []kubewatch.Query{{APIVersion: "v1", Kind: "Pod", Namespace: spec.Namespace, Labels: spec.Selector}}
	for _, name := range []string{spec.Secret, spec.CASecret, spec.ClientSecret} {
		if name != "" {
			out = append(out, kubewatch.Query{APIVersion: "v1", Kind: "Secret", Namespace: spec.Namespace, Name: name})
		}
	}
	if spec.NodeZoneLabel != "" {
		out = append(out, kubewatch.Query{APIVersion: "v1", Kind: "Node"})
	}
	return out
}

// Watch reports the instances among the pods now and whenever they change, until ctx
// is done. With an error and no instances nothing new is known.
func Watch(ctx context.Context, client kubernetes.Interface, spec fleet.Pods, log *slog.Logger, report func([]fleet.Instance, error)) {
	watches := kubewatch.New(kubewatch.Options{
		Open: func(_ context.Context, q kubewatch.Query) (kubewatch.Resource, bool, error) {
			switch q.Kind {
			case "Pod":
				return kubewatch.Typed(client.CoreV1().Pods(q.Namespace)), true, nil
			case "Secret":
				return kubewatch.Typed(client.CoreV1().Secrets(q.Namespace)), true, nil
			}
			return kubewatch.Typed(client.CoreV1().Nodes()), true, nil
		},
		Convert: func(kubewatch.Query) func(any) (any, error) { return trim },
	})
	watches.Plan(Plan(spec))
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { watches.Run(ctx, log) })
	for {
		known, err := read(watches, spec)
		if ctx.Err() != nil {
			return // and nothing is known any more
		}
		if err != nil {
			report(nil, err)
		} else {
			report(instances(spec, known))
		}
		select {
		case <-ctx.Done():
			return
		case <-watches.Changes():
		}
	}
}

// read returns what is known now, or an error as long as that is not all.
func read(watches *kubewatch.Set, spec fleet.Pods) (objects, error) {
	out := objects{secrets: map[string]*corev1.Secret{}, nodes: map[string]*corev1.Node{}}
	all, reasons := true, []string(nil)
	watches.Read(func(list []kubewatch.Standing) {
		for _, s := range list {
			if all = all && s.Synced; !s.Synced && s.Err != nil {
				reasons = append(reasons, fmt.Sprintf("%s (%v)", s.Query, s.Err))
			}
			for _, o := range s.Objects {
				switch o := o.(type) {
				case *corev1.Pod:
					out.pods = append(out.pods, o)
				case *corev1.Secret:
					out.secrets[o.Name] = o
				case *corev1.Node:
					out.nodes[o.Name] = o
				}
			}
		}
	})
	switch {
	case all:
		return out, nil
	case len(reasons) > 0:
		return out, fmt.Errorf("the pods in %s were not read yet: %s", spec.Namespace, strings.Join(reasons, ", "))
	}
	return out, fmt.Errorf("the pods in %s were not read yet", spec.Namespace)
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
