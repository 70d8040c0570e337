package announce

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// provide creates or changes a Service and its EndpointSlices. It returns why not, if it is somebody
// else's.
func (s *gatewayServices) provide(ctx context.Context, t serviceTask) (string, error) {
	client := s.services.Services(t.name.Namespace)
	has, err := client.Get(ctx, t.name.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		if len(t.want.Ports) == 0 {
			return "", nil
		}
		want := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: t.name.Namespace, Name: t.name.Name, OwnerReferences: []metav1.OwnerReference{t.ownerReference()}}}
		want.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack)
		t.shape(want)
		if has, err = client.Create(ctx, want, metav1.CreateOptions{FieldManager: manager}); err != nil {
			return "", err
		}
		s.wrote("Service created", t.name)
	case err != nil:
		return "", err
	case has.DeletionTimestamp != nil:
		return fmt.Sprintf("the Service %s is being deleted", t.name.Name), nil
	case t.owns(has) && has.Annotations[compilerAnnotation] != "" && !t.made(has):
		return fmt.Sprintf("the Service %s was made by the compiler with the Lease %s", t.name.Name, has.Annotations[compilerAnnotation]), nil
	case !t.owns(has):
		return fmt.Sprintf("there is a Service %s that is not of this Gateway", t.name.Name), nil
	case len(t.want.Ports) == 0:
		return "", nil
	default:
		want := has.DeepCopy()
		t.shape(want)
		if !reflect.DeepEqual(want, has) {
			if has, err = client.Update(ctx, want, metav1.UpdateOptions{FieldManager: manager}); err != nil {
				return "", err
			}
			s.wrote("Service changed", t.name)
		}
	}
	return s.provideSlices(ctx, t, has)
}

func (s *gatewayServices) wrote(what string, name types.NamespacedName) {
	s.written.WithLabelValues("written").Inc()
	s.log.Info("service of a gateway written", "what", what, "service", name.String())
}

// provideSlices brings the EndpointSlices of a Service to what they should be. One without endpoints is
// none.
func (s *gatewayServices) provideSlices(ctx context.Context, t serviceTask, service *corev1.Service) (string, error) {
	client := s.slices.EndpointSlices(t.name.Namespace)
	// There is one for each family of addresses.
	var wants []*discoveryv1.EndpointSlice
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: t.name.Namespace, Name: sliceName(t.name.Name, family),
				Labels:          map[string]string{discoveryv1.LabelServiceName: t.name.Name, discoveryv1.LabelManagedBy: sliceManager},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: service.Name, UID: service.UID, Controller: new(true)}},
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
		wants = append(wants, slice)
	}
	for _, want := range wants {
		has, err := client.Get(ctx, want.Name, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		switch {
		case err != nil && !missing:
			return "", err
		case missing && len(want.Endpoints) == 0:
			continue
		case missing:
			_, err = client.Create(ctx, want, metav1.CreateOptions{FieldManager: manager})
		case !ownsSlice(has, service):
			return fmt.Sprintf("there is an EndpointSlice %s that is not of this Gateway", want.Name), nil
		case len(want.Endpoints) == 0:
			err = client.Delete(ctx, want.Name, exactly(has.UID, has.ResourceVersion))
		default:
			next := has.DeepCopy()
			next.Labels = replaced(has.Labels, nil, want.Labels)
			next.Endpoints, next.Ports = want.Endpoints, want.Ports
			if reflect.DeepEqual(next, has) {
				continue
			}
			_, err = client.Update(ctx, next, metav1.UpdateOptions{FieldManager: manager})
		}
		if err != nil {
			return "", err
		}
		s.wrote("EndpointSlice "+want.Name, t.name)
	}
	return "", nil
}

func ownsSlice(has *discoveryv1.EndpointSlice, service *corev1.Service) bool {
	owner := metav1.GetControllerOf(has)
	return owner != nil && owner.UID == service.UID && has.Labels[discoveryv1.LabelManagedBy] == sliceManager
}

// exactly deletes an object only if it is the one that was looked at.
func exactly(uid types.UID, version string) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}}
}

// remove deletes a Service that was made by us, with its EndpointSlices.
func (s *gatewayServices) remove(ctx context.Context, t serviceTask) error {
	client := s.services.Services(t.name.Namespace)
	has, err := client.Get(ctx, t.name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	owner := metav1.GetControllerOf(has)
	if owner == nil || owner.Kind != "Gateway" || !t.made(has) || has.DeletionTimestamp != nil {
		return nil
	}
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		slice, err := s.slices.EndpointSlices(t.name.Namespace).Get(ctx, sliceName(t.name.Name, family), metav1.GetOptions{})
		if err == nil && ownsSlice(slice, has) {
			err = s.slices.EndpointSlices(t.name.Namespace).Delete(ctx, slice.Name, exactly(slice.UID, slice.ResourceVersion))
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	if err := client.Delete(ctx, t.name.Name, exactly(has.UID, has.ResourceVersion)); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	s.wrote("Service deleted", t.name)
	return nil
}

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
	// Fields that a Service has from another type are removed. The API server removes them itself only if nothing else
	// changes, and refuses other changes.
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
