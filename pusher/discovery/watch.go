// Package discovery finds the instances of a fleet among the pods of a cluster, with
// the credentials that Secrets hold for them.
//
// A pod is an instance as soon as it has an address, ready or not: only a push makes an instance
// ready. A pod that terminates is a draining instance: it no longer belongs to the fleet, and only
// gets live data. A pod that has ended is not an instance.
//
// While the API server is out of reach, or a Secret is missing or unusable, the package keeps
// what it found: an instance never leaves because something could not be read.
//
// # Decisions
//
// New credentials go into the existing client of an instance. The instance stays the same:
// its state is kept and its work goes on. A call that was refused with the old credentials is
// made again, since a 401 changed nothing.
//
// A pod is an instance before it is ready, since only a push makes it ready. The state of an
// instance names the UID of its pod, so that another pod of the same name begins anew. Jobs
// end when their pod begins to terminate, since a reload would keep it from ending; after
// that the pusher only changes servers at run time. These changes end with the pod, since
// another pod may get its address at any moment.
package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/hapsnap/hapsnap/internal/kubewatch"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
)

// Plan returns the queries with which these pods are found. Nodes are in no namespace.
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

// Watch reports the instances among the pods now and whenever they change, until ctx is done. An error
// without instances means that the previous ones are still the last known.
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

// read returns the known objects, or an error while some are not known.
func read(watches *kubewatch.Set, spec fleet.Pods) (objects, error) {
	out := objects{secrets: map[string]*corev1.Secret{}, nodes: map[string]*corev1.Node{}}
	all, reasons := true, []string(nil)
	watches.Read(func(list []kubewatch.QueryState) {
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

// trim drops unused fields of an object before it is kept.
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

// objects is what is known of the cluster.
type objects struct {
	pods    []*corev1.Pod
	secrets map[string]*corev1.Secret
	nodes   map[string]*corev1.Node
}

// instances returns the instances among the pods, by name. If a pod does not have the port, it also returns
// an error. If a Secret is faulty, it returns only an error.
func instances(spec fleet.Pods, o objects) ([]fleet.Instance, error) {
	access, err := accessOf(spec, o.secrets)
	if err != nil {
		return nil, err
	}
	var out []fleet.Instance
	var errs []error
	for _, pod := range o.pods {
		if !isThere(pod) {
			continue
		}
		port, err := portOf(pod, spec.Port)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		i := access
		i.Name, i.UID, i.Zone = pod.Name, string(pod.UID), zoneOf(spec, pod, o.nodes)
		i.Draining = pod.DeletionTimestamp != nil
		i.URL = spec.Scheme + "://" + net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(port)))
		i.Also = alsoOf(pod)
		out = append(out, i)
	}
	slices.SortFunc(out, func(a, b fleet.Instance) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return out, errors.Join(errs...)
}

// alsoOf returns what else leads to a pod: see [fleet.Instance].
func alsoOf(pod *corev1.Pod) string {
	var out []string
	for _, ip := range pod.Status.PodIPs {
		if ip.IP != pod.Status.PodIP {
			out = append(out, ip.IP)
		}
	}
	node := []string{pod.Status.HostIP}
	for _, ip := range pod.Status.HostIPs {
		node = append(node, ip.IP)
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, p := range c.Ports {
			for _, ip := range node {
				if ip != "" && p.HostPort != 0 {
					out = append(out, net.JoinHostPort(ip, strconv.Itoa(int(p.HostPort))))
				}
			}
		}
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), " ")
}

// isThere reports whether the pod has an address, and a container that may answer there.
func isThere(pod *corev1.Pod) bool {
	return pod.Status.PodIP != "" &&
		pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

func portOf(pod *corev1.Pod, port intstr.IntOrString) (int32, error) {
	if port.StrVal == "" {
		return port.IntVal, nil
	}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == port.StrVal {
				return p.ContainerPort, nil
			}
		}
	}
	for _, c := range pod.Spec.InitContainers { // a sidecar is one
		for _, p := range c.Ports {
			if p.Name == port.StrVal {
				return p.ContainerPort, nil
			}
		}
	}
	return 0, fmt.Errorf("pod %s/%s has no port %q", pod.Namespace, pod.Name, port.StrVal)
}

func zoneOf(spec fleet.Pods, pod *corev1.Pod, nodes map[string]*corev1.Node) string {
	if spec.NodeZoneLabel == "" {
		return pod.Labels[spec.ZoneLabel]
	}
	if node := nodes[pod.Spec.NodeName]; node != nil {
		return node.Labels[spec.NodeZoneLabel]
	}
	return ""
}

// accessOf returns the access that all instances have in common.
func accessOf(spec fleet.Pods, secrets map[string]*corev1.Secret) (fleet.Instance, error) {
	var errs []error
	for _, name := range slices.Compact([]string{spec.Secret, spec.CASecret, spec.ClientSecret}) {
		if name != "" && secrets[name] == nil {
			errs = append(errs, fmt.Errorf("there is no Secret %s/%s", spec.Namespace, name))
		}
	}
	value := func(secret, key string) string {
		s := secrets[secret]
		if s == nil {
			return ""
		}
		if len(s.Data[key]) == 0 {
			errs = append(errs, fmt.Errorf("there is no %s in Secret %s/%s", key, spec.Namespace, secret))
		}
		return string(s.Data[key])
	}
	i := fleet.Instance{
		Username: value(spec.Secret, spec.UsernameKey), Password: value(spec.Secret, spec.PasswordKey), Layout: spec.Layout,
		TLS: dataplane.TLS{
			CA:          value(spec.CASecret, fleet.CAKey),
			Certificate: value(spec.ClientSecret, corev1.TLSCertKey), Key: value(spec.ClientSecret, corev1.TLSPrivateKeyKey),
			ServerName: spec.ServerName,
		},
	}
	if len(errs) == 0 {
		if err := i.TLS.Check(); err != nil {
			errs = append(errs, fmt.Errorf("use the Secrets of the pods in %s: %w", spec.Namespace, err))
		}
	}
	return i, errors.Join(errs...)
}
