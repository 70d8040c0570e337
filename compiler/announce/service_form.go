package announce

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
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
	onlyOfType(&s.Spec)
}

// onlyOfType takes out what a Service has from another type. The API server does so only where nothing
// else changes with it, and refuses the rest.
func onlyOfType(spec *corev1.ServiceSpec) {
	spec.ExternalName = ""
	if spec.Type != corev1.ServiceTypeLoadBalancer {
		spec.LoadBalancerClass, spec.LoadBalancerIP, spec.LoadBalancerSourceRanges = nil, "", nil
		spec.AllocateLoadBalancerNodePorts, spec.HealthCheckNodePort = nil, 0
	}
	if spec.Type != corev1.ServiceTypeClusterIP {
		return
	}
	for i := range spec.Ports {
		spec.Ports[i].NodePort = 0
	}
	if len(spec.ExternalIPs) == 0 { // with these, any type has it
		spec.ExternalTrafficPolicy = ""
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

// slicesFor returns the EndpointSlices of a Service, one for each family of addresses.
func (t serviceTask) slicesFor(s *corev1.Service) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: t.name.Namespace, Name: sliceName(t.name.Name, family),
				Labels:          map[string]string{discoveryv1.LabelServiceName: t.name.Name, discoveryv1.LabelManagedBy: sliceManager},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: s.Name, UID: s.UID, Controller: new(true)}},
			},
			AddressType: family,
		}
		for _, text := range t.want.Addresses {
			if a, err := netip.ParseAddr(text); err == nil && a.Is4() == (family == discoveryv1.AddressTypeIPv4) {
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{text}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
			}
		}
		for _, port := range t.want.Ports {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: new(portName(port)), Port: new(int32(port)), Protocol: new(corev1.ProtocolTCP)})
		}
		out = append(out, slice)
	}
	return out
}

func sliceName(service string, family discoveryv1.AddressType) string {
	return service + map[discoveryv1.AddressType]string{discoveryv1.AddressTypeIPv4: "-v4", discoveryv1.AddressTypeIPv6: "-v6"}[family]
}
