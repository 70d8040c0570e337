package discovery

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
)

// objects is what is known of the cluster.
type objects struct {
	pods    []*corev1.Pod
	secrets map[string]*corev1.Secret
	nodes   map[string]*corev1.Node
}

// instances returns the instances among the pods, by name. A pod that cannot be
// spoken to is an error beside them; for one of the Secrets there are none.
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
		i.URL = spec.Scheme + "://" + net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(port)))
		out = append(out, i)
	}
	slices.SortFunc(out, func(a, b fleet.Instance) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return out, errors.Join(errs...)
}

// isThere reports whether the pod has an address and is to keep it for a while.
func isThere(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.PodIP != "" &&
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

// accessOf returns what all instances have in common.
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
