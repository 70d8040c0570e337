package routing

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/snapshots"
)

// modelRoutes returns the routes of a claim in the order in which they are tried. Where there is
// a fallback, all others go on to the next one while they have no usable server.
func (c claim) modelRoutes() []Route {
	out := append(slices.Clone(c.before), Route{Backend: c.backend, Protects: c.guard.unsafe, Origin: c.origin})
	if c.fallback == "" {
		return out
	}
	for i := range out {
		out[i].Yields = true
	}
	return append(out, Route{Backend: c.fallback, Protects: c.guard.unsafe, Origin: c.origin})
}

// fallbackOf returns the backend that is like the one of a route of the Ingress at hand, but has
// the endpoints of the fallback Service. It is "" where there is none, and where the route is
// answered 503 whatever endpoints there are: what is closed stays so.
func (t *translation) fallbackOf(ing ingress, c claim) string {
	ref := t.asked.fallback
	if ref.Name == "" || t.asked.denied || t.closed[c.backend] || c.backend == Unavailable {
		return ""
	}
	const option = "fallback-service"
	at := originOf(ing, annotationPath(option)...)
	refuse := func(message, hint string) string {
		t.report(diag.Warning, ing, at.Position, "annotation "+options.Prefix+option+": "+message+"; without it, requests are answered 503", hint)
		return ""
	}
	name := snapshots.SecretName{Namespace: ing.Ref.Namespace, Name: ref.Name}
	service, exists := t.services[name]
	switch {
	case !exists:
		return refuse(fmt.Sprintf("Service %s does not exist", name), "create it, or correct the name")
	}
	from := t.backends[c.backend]
	var served corev1.Service
	if len(from.Targets) > 0 {
		served = *t.services[serviceOf(from.Targets[0])].Value
	}
	if own := options.Different(service.Value.Annotations, served.Annotations, ing.Value.Annotations); len(own) > 0 {
		return refuse(fmt.Sprintf("Service %s has %s%s, which does not hold for the route", name, options.Prefix, own[0]), "its endpoints are asked as those of the route are: set it on the Ingress")
	}
	port := networkingv1.ServiceBackendPort{Number: int32(ref.Port)}
	if ref.Port == 0 {
		port.Number = firstPort(service.Value)
	}
	r := t.resolvePort(service.Value, name, port, fmt.Sprint(port.Number))
	switch {
	case len(r.targets) == 0:
		return refuse(r.finding.message, r.finding.hint)
	case len(from.Targets) > 0 && from.Targets[0].Service == r.targets[0].Service:
		return refuse(fmt.Sprintf("Service %s is that of the route", name), "name another one")
	case len(from.Targets) > 0 && ing.Value.Annotations[options.Prefix+"backend-protocol"] == "" && !options.SameProtocol(t.appProtocol(from.Targets[0]), t.appProtocol(r.targets[0])):
		return refuse(fmt.Sprintf("Service %s has another appProtocol than that of the route", name), "give both ports the same, or set "+options.Prefix+"backend-protocol")
	}
	backend := from.Name + "_" + serviceAndPort(r)
	t.variant(from, c, backend, r.targets, at)
	return backend
}

// firstPort returns the number of the first TCP port of a Service, 0 if it has none.
func firstPort(service *corev1.Service) int32 {
	for _, p := range service.Spec.Ports {
		if p.Protocol == "" || p.Protocol == corev1.ProtocolTCP {
			return p.Port
		}
	}
	return 0
}
