package announce

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// gatewayAnnotation names the Gateway of a Service.
const gatewayAnnotation = "gateway.hapsnap.dev/gateway"

func (t serviceTask) ownerReference() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: gatewayv1.GroupVersion.String(), Kind: "Gateway", Name: t.owner.Name, UID: t.owner.UID, Controller: new(true)}
}

// made reports whether a Service was made by the compilers of this Lease.
func (t serviceTask) made(has *corev1.Service) bool {
	return t.lease != "" && has.Annotations[compilerAnnotation] == t.lease
}

// owns reports whether a Service was made for the Gateway with its controllerName.
func (t serviceTask) owns(has *corev1.Service) bool {
	owner := metav1.GetControllerOf(has)
	return owner != nil && owner.UID == t.owner.UID && has.Annotations[controllerAnnotation] == t.controller
}

// brought are the keys of a Service that are of its Gateway.
type brought struct {
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
}

// shape gives a Service what it should have, and leaves what others have given it.
func (t serviceTask) shape(s *corev1.Service) {
	var before brought
	_ = json.Unmarshal([]byte(s.Annotations[broughtAnnotation]), &before) // what cannot be read lists nothing
	now := brought{Labels: slices.Sorted(maps.Keys(t.want.Labels)), Annotations: slices.Sorted(maps.Keys(t.want.Annotations))}
	s.Labels = replaced(s.Labels, before.Labels, t.want.Labels)
	s.Annotations = replaced(s.Annotations, before.Annotations, t.want.Annotations)
	text, _ := json.Marshal(now)
	s.Labels[managedBy] = "hapsnap"
	s.Annotations[broughtAnnotation], s.Annotations[controllerAnnotation], s.Annotations[gatewayAnnotation] = string(text), t.controller, t.owner.Name
	s.Annotations[compilerAnnotation] = t.lease
	was := map[int32]corev1.ServicePort{}
	for _, p := range s.Spec.Ports {
		was[p.Port] = p
	}
	s.Spec.Ports = nil
	for _, port := range t.want.Ports {
		p := was[int32(port)]
		p.Name, p.Port, p.TargetPort, p.Protocol = portName(port), int32(port), intstr.FromInt32(int32(port)), corev1.ProtocolTCP
		s.Spec.Ports = append(s.Spec.Ports, p)
	}
	s.Spec.Selector, s.Spec.Type = nil, t.kind
	// What a Service has from another type is taken out. The API server does so only where nothing else changes
	// with it, and refuses the rest.
	s.Spec.ExternalName = ""
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		s.Spec.LoadBalancerClass, s.Spec.LoadBalancerIP, s.Spec.LoadBalancerSourceRanges = nil, "", nil
		s.Spec.AllocateLoadBalancerNodePorts, s.Spec.HealthCheckNodePort = nil, 0
	}
	if s.Spec.Type != corev1.ServiceTypeClusterIP {
		return
	}
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].NodePort = 0
	}
	if len(s.Spec.ExternalIPs) == 0 { // with these, any type has it
		s.Spec.ExternalTrafficPolicy = ""
	}
}

func portName(port int) string { return fmt.Sprintf("port-%d", port) }

// replaced returns a map without some keys and with others.
func replaced(has map[string]string, without []string, with map[string]string) map[string]string {
	out := maps.Clone(has)
	if out == nil {
		out = map[string]string{}
	}
	for _, key := range without {
		delete(out, key)
	}
	maps.Copy(out, with)
	return out
}

func sliceName(service string, family discoveryv1.AddressType) string {
	return service + map[discoveryv1.AddressType]string{discoveryv1.AddressTypeIPv4: "-v4", discoveryv1.AddressTypeIPv6: "-v6"}[family]
}
