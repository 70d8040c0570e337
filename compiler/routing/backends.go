package routing

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Unavailable is the name of the backend without targets that routes get whose
// backend cannot be named otherwise. Names of Services hold no underscore, so
// that those of their backends hold two.
const Unavailable = "hapsnap_unavailable"

// targetWeight is the weight of a Service that is alone in its backend.
const targetWeight = 100

// resolved is what a backend of an Ingress leads to. Without targets, finding
// says why.
type resolved struct {
	name    string
	service snapshots.SecretName
	targets []Target
	// port are the options that the Service's port stands for by itself.
	port    options.Values
	finding finding
}

// finding is something to say of a field of a backend.
type finding struct {
	severity      diag.Severity
	field         []any // within the backend
	message, hint string
}

// backend adds what an Ingress sends requests to, and returns its name. What
// stands in the way of a backend is said once for each Ingress.
func (t *translation) backend(ing ingress, ref networkingv1.IngressBackend, path []any) string {
	r := t.resolve(ing, ref)
	b := t.backends[r.name]
	if b == nil {
		b = &Backend{Name: r.name, Targets: r.targets}
		t.backends[r.name] = b
		t.applyOptions(b, ing, r)
	}
	// One Ingress is translated after the other, so that this one is the last.
	if n := len(b.Origins); n > 0 && b.Origins[n-1].Object == ing.Ref {
		return r.name
	}
	b.Origins = append(b.Origins, originOf(ing, path...))
	if f := r.finding; f.message != "" {
		t.report(f.severity, ing, ing.Position(sub(path, f.field...)...), f.message+"; requests for it are answered 503", f.hint)
	}
	return r.name
}

// resolve finds the Service port that a backend names. The same port by name
// and by number is the same backend, except that an Ingress which asks for
// something of its requests has backends of its own.
func (t *translation) resolve(ing ingress, ref networkingv1.IngressBackend) resolved {
	if t.asked.denied {
		return resolved{name: Unavailable}
	}
	r := t.resolveService(ing, ref)
	if ref.Service != nil {
		r.service = snapshots.SecretName{Namespace: ing.Ref.Namespace, Name: ref.Service.Name}
		if t.asked.needsOwnBackend {
			r.name += "." + ing.Ref.Name
		}
	}
	return r
}

func (t *translation) resolveService(ing ingress, ref networkingv1.IngressBackend) resolved {
	if ref.Service == nil {
		return resolved{name: Unavailable, finding: finding{
			diag.Error, []any{"resource"},
			fmt.Sprintf("backend is a resource, %s %s, which is not supported", ref.Resource.Kind, ref.Resource.Name),
			"use a Service",
		}}
	}
	name := snapshots.SecretName{Namespace: ing.Ref.Namespace, Name: ref.Service.Name}
	asked := ref.Service.Port.Name
	if asked == "" {
		asked = strconv.Itoa(int(ref.Service.Port.Number))
	}
	service, exists := t.services[name]
	if !exists {
		return resolved{name: backendName(name, asked), finding: finding{
			diag.Warning, []any{"service", "name"},
			fmt.Sprintf("Service %s does not exist", name), "create it, or correct the name",
		}}
	}
	return t.resolvePort(service.Value, name, ref.Service.Port, asked)
}

// resolvePort finds the port on a Service that exists.
func (t *translation) resolvePort(service *corev1.Service, name snapshots.SecretName, ref networkingv1.ServiceBackendPort, asked string) resolved {
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return t.external(service, name, ref, asked)
	}
	port, key, ok := portOf(service.Spec.Ports, ref)
	if !ok {
		return noPort(service, name, asked)
	}
	target := snapshots.ServicePort{Namespace: name.Namespace, Service: name.Name, Port: port.Name}
	r := resolved{name: backendName(name, key), targets: []Target{{Service: target, Weight: targetWeight}}}
	if port.AppProtocol != nil {
		r.port = options.AppProtocol(*port.AppProtocol)
	}
	return r
}

// portOf finds the TCP port that an Ingress names, and the name or number that
// stands for it.
func portOf(ports []corev1.ServicePort, ref networkingv1.ServiceBackendPort) (port corev1.ServicePort, key string, ok bool) {
	for _, port := range ports {
		isIt := port.Name == ref.Name
		if ref.Name == "" {
			isIt = port.Port == ref.Number
		}
		if isIt && (port.Protocol == "" || port.Protocol == corev1.ProtocolTCP) {
			return port, cmp.Or(port.Name, strconv.Itoa(int(port.Port))), true
		}
	}
	return corev1.ServicePort{}, "", false
}

// noPort is a backend whose Service lacks the port.
func noPort(service *corev1.Service, name snapshots.SecretName, asked string) resolved {
	return resolved{name: backendName(name, asked), finding: finding{
		diag.Warning, []any{"service", "port"},
		fmt.Sprintf("Service %s has no TCP port %s", name, asked), portsHint(service.Spec.Ports),
	}}
}

// backendName names the backend of a Service port. Neither part can hold an
// underscore or a dot, so that no two are confused, nor with those of a single
// Ingress, whose name follows a dot.
func backendName(service snapshots.SecretName, port string) string {
	return service.Namespace + "_" + service.Name + "_" + port
}

// portsHint lists the ports that a Service has.
func portsHint(ports []corev1.ServicePort) string {
	if len(ports) == 0 {
		return "it has no ports"
	}
	var names []string
	for _, p := range ports {
		name := strconv.Itoa(int(p.Port))
		if p.Protocol != "" && p.Protocol != corev1.ProtocolTCP {
			name += "/" + string(p.Protocol)
		}
		if p.Name != "" {
			name = p.Name + " (" + name + ")"
		}
		names = append(names, name)
	}
	return "it has " + strings.Join(names, ", ")
}

// SnippetLine is a line of haproxy.cfg that an object brings for its backends.
type SnippetLine struct {
	policy.Line
	Origin Origin
}

// addSnippet gives a backend the lines that its Ingress brings, and reports
// whether it may bring any.
func (t *translation) addSnippet(b *Backend, ing ingress, lines []policy.Line) bool {
	if len(lines) == 0 {
		return true
	}
	at := originOf(ing, annotationPath(options.SnippetOption)...)
	if !t.cfg.Snippets.Has(ing.Ref.Namespace) {
		t.report(diag.Error, ing, at.Position,
			fmt.Sprintf("annotation %s is not allowed in namespace %s; its routes answer 503", options.Prefix+options.SnippetOption, ing.Ref.Namespace),
			"the configuration lists the namespaces that may in snippets.namespaces")
		return false
	}
	for _, line := range lines {
		b.Snippet = append(b.Snippet, SnippetLine{line, at})
	}
	return true
}
