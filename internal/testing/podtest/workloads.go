package podtest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Labels of pods that name their owner, and their template.
const (
	ownerLabel    = "podtest/owner"
	templateLabel = "podtest/template"
)

// A workload has the fields that all kinds of workloads share.
type workload struct {
	kind, name     string
	replicas       int
	template       corev1.PodTemplateSpec
	surge, missing int // how many pods may be too many or too few in a rollout
	ordinals       bool
}

// workloads brings the pods of a namespace one step closer to what its workloads want.
func (k *Kubelet) workloads(ctx context.Context, namespace string, pods []corev1.Pod) error {
	var deployments appsv1.DeploymentList
	var daemons appsv1.DaemonSetList
	var sets appsv1.StatefulSetList
	for _, list := range []client.ObjectList{&deployments, &daemons, &sets} {
		if err := k.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
	}
	var all []workload
	for _, d := range deployments.Items {
		replicas := int(*d.Spec.Replicas)
		w := workload{kind: "Deployment", name: d.Name, replicas: replicas, template: d.Spec.Template}
		if r := d.Spec.Strategy.RollingUpdate; r != nil {
			w.surge, _ = intstr.GetScaledValueFromIntOrPercent(r.MaxSurge, replicas, true)
			w.missing, _ = intstr.GetScaledValueFromIntOrPercent(r.MaxUnavailable, replicas, false)
		}
		all = append(all, w)
	}
	for _, d := range daemons.Items {
		all = append(all, workload{kind: "DaemonSet", name: d.Name, replicas: 1, template: d.Spec.Template, missing: 1})
	}
	for _, s := range sets.Items {
		all = append(all, workload{kind: "StatefulSet", name: s.Name, replicas: int(*s.Spec.Replicas), template: s.Spec.Template, missing: 1, ordinals: true})
	}
	for _, w := range all {
		if err := k.reconcile(ctx, namespace, w, pods); err != nil {
			return fmt.Errorf("%s %s: %w", w.kind, w.name, err)
		}
	}
	return nil
}

// reconcile creates missing pods, and deletes surplus or old ones, as far as the strategy allows.
func (k *Kubelet) reconcile(ctx context.Context, namespace string, w workload, pods []corev1.Pod) error {
	text, err := json.Marshal(w.template)
	if err != nil {
		return err
	}
	hash := fmt.Sprintf("%x", sha256.Sum256(text))[:10]
	var fresh, old []corev1.Pod
	available, leaving, names := 0, 0, map[string]bool{}
	for _, p := range pods {
		if p.Labels[ownerLabel] != w.kind+"."+w.name {
			continue
		}
		names[p.Name] = true
		if p.DeletionTimestamp != nil {
			leaving++
			continue
		}
		if isReady(&p) {
			available++
		}
		if p.Labels[templateLabel] == hash {
			fresh = append(fresh, p)
		} else {
			old = append(old, p)
		}
	}
	if w.kind == "DaemonSet" && leaving > 0 {
		return nil // its controller waits until a node's pod has gone
	}
	for n := len(fresh) + len(old); len(fresh) < w.replicas && n < w.replicas+w.surge; n++ {
		name := w.podName(k, hash, names)
		if name == "" {
			break // one of that name is still ending
		}
		names[name] = true
		if err := k.create(ctx, namespace, name, w, hash); err != nil {
			return err
		}
		fresh = append(fresh, corev1.Pod{})
	}
	surplus := fresh[min(len(fresh), w.replicas):]
	// Those that serve no traffic come first.
	slices.SortStableFunc(old, func(a, b corev1.Pod) int { return cmp.Compare(served(&a), served(&b)) })
	for _, p := range slices.Concat(surplus, old) {
		if isReady(&p) {
			if available-1 < w.replicas-w.missing {
				break
			}
			available--
		}
		if err := client.IgnoreNotFound(k.client.Delete(ctx, &p)); err != nil {
			return err
		}
	}
	return nil
}

func served(p *corev1.Pod) int {
	if isReady(p) {
		return 1
	}
	return 0
}

// podName returns the name of the next pod. That of a Deployment's pod contains the template's, as in a
// cluster.
func (w workload) podName(k *Kubelet, template string, taken map[string]bool) string {
	if !w.ordinals {
		k.names++
		if w.kind == "Deployment" {
			return fmt.Sprintf("%s-%s-%d", w.name, template, k.names)
		}
		return fmt.Sprintf("%s-%d", w.name, k.names)
	}
	for i := range w.replicas {
		if name := fmt.Sprintf("%s-%d", w.name, i); !taken[name] {
			return name
		}
	}
	return ""
}

func (k *Kubelet) create(ctx context.Context, namespace, name string, w workload, hash string) error {
	pod := &corev1.Pod{ObjectMeta: *w.template.ObjectMeta.DeepCopy(), Spec: *w.template.Spec.DeepCopy()}
	pod.Namespace, pod.Name, pod.Spec.NodeName = namespace, name, node
	pod.Labels[ownerLabel], pod.Labels[templateLabel] = w.kind+"."+w.name, hash
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: w.kind, Name: w.name, UID: "00000000-0000-0000-0000-000000000000"}}
	return k.client.Create(ctx, pod)
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Addresses returns where clients of a Service's port, by its name, are sent: the ready endpoints. It does not
// ask the API server, which may be slow.
func (k *Kubelet) Addresses(service client.ObjectKey, port string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if slice := k.endpoints[service]; slice != nil {
		return readyAt(slice, port)
	}
	return nil
}

func readyAt(slice *discoveryv1.EndpointSlice, port string) []string {
	var out []string
	for _, p := range slice.Ports {
		for _, e := range slice.Endpoints {
			if *p.Name == port && *e.Conditions.Ready {
				out = append(out, net.JoinHostPort(e.Addresses[0], fmt.Sprint(*p.Port)))
			}
		}
	}
	return out
}

// publishEndpoints updates the EndpointSlices of Services according to the pods.
func (k *Kubelet) publishEndpoints(ctx context.Context, namespace string, pods []corev1.Pod) error {
	var services corev1.ServiceList
	if err := k.client.List(ctx, &services, client.InNamespace(namespace)); err != nil {
		return err
	}
	for i := range services.Items {
		s := &services.Items[i]
		if len(s.Spec.Selector) == 0 {
			continue
		}
		if err := k.endpointsOf(ctx, s, pods); err != nil && !errors.IsConflict(err) {
			return err
		}
	}
	return nil
}

// publishPorts makes the node ports of a Service lead to its ready endpoints.
func (k *Kubelet) publishPorts(s *corev1.Service, slice *discoveryv1.EndpointSlice) error {
	for _, port := range s.Spec.Ports {
		if port.NodePort == 0 || port.Protocol == corev1.ProtocolUDP {
			continue
		}
		if err := k.publish(port.NodePort, readyAt(slice, port.Name)); err != nil {
			return err
		}
	}
	return nil
}

func (k *Kubelet) endpointsOf(ctx context.Context, s *corev1.Service, pods []corev1.Pod) error {
	wanted := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	selector := labels.SelectorFromSet(s.Spec.Selector)
	for i := range pods {
		p := &pods[i]
		if !selector.Matches(labels.Set(p.Labels)) || p.Status.PodIP == "" {
			continue
		}
		serving, terminating := isReady(p), p.DeletionTimestamp != nil
		ready := serving && !terminating || s.Spec.PublishNotReadyAddresses
		wanted.Endpoints = append(wanted.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{p.Status.PodIP}, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name},
		})
		if wanted.Ports == nil {
			for _, port := range s.Spec.Ports {
				number := portOf(&p.Spec, port.TargetPort)
				if port.TargetPort == intstr.FromInt32(0) {
					number = port.Port
				}
				wanted.Ports = append(wanted.Ports, discoveryv1.EndpointPort{Name: &port.Name, Port: &number, Protocol: &port.Protocol})
			}
		}
	}
	if err := k.publishPorts(s, wanted); err != nil {
		return err
	}
	slices.SortFunc(wanted.Endpoints, func(a, b discoveryv1.Endpoint) int { return cmp.Compare(a.Addresses[0], b.Addresses[0]) })
	k.mu.Lock()
	k.endpoints[client.ObjectKeyFromObject(s)] = wanted.DeepCopy() // the client writes into the other
	k.mu.Unlock()
	var got discoveryv1.EndpointSlice
	err := k.client.Get(ctx, client.ObjectKeyFromObject(wanted), &got)
	switch {
	case errors.IsNotFound(err):
		return k.client.Create(ctx, wanted)
	case err != nil:
		return err
	case equality.Semantic.DeepEqual(got.Endpoints, wanted.Endpoints) && equality.Semantic.DeepEqual(got.Ports, wanted.Ports):
		return nil
	}
	got.Endpoints, got.Ports = wanted.Endpoints, wanted.Ports
	return k.client.Update(ctx, &got)
}
