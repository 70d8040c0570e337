package ingress

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/snapshots"
)

// targetWeight is the weight of a Service that has its backend for itself.
const targetWeight = 100

// resolved is the Service port to which a backend of an Ingress leads. If there are no
// targets, finding says why; it is nil otherwise.
type resolved struct {
	name    string
	service types.NamespacedName
	targets []routing.Target
	// port are the options that follow from the Service's port itself.
	port    options.Values
	finding *finding
}

// finding is a message about a field of a backend.
type finding struct {
	severity      diag.Severity
	field         []any // its path within the backend
	message, hint string
}

// resolver finds the Service ports to which backends of Ingresses lead.
type resolver struct {
	names   ExternalNames
	service serviceFinder
}

func (s source) resolver() resolver { return resolver{s.scope.externalNames, s.service} }

// resolve finds the Service port that a backend names, for a namespace.
func (f resolver) resolve(namespace string, ref networkingv1.IngressBackend) resolved {
	if ref.Service == nil {
		return resolved{name: routing.Unavailable, finding: &finding{
			diag.Error, []any{"resource"},
			fmt.Sprintf("backend is a resource, %s %s, which is not supported", ref.Resource.Kind, ref.Resource.Name),
			"use a Service",
		}}
	}
	name := types.NamespacedName{Namespace: namespace, Name: ref.Service.Name}
	asked := ref.Service.Port.Name
	if asked == "" {
		asked = strconv.Itoa(int(ref.Service.Port.Number))
	}
	service, exists := f.service(name)
	if !exists {
		return resolved{name: backendName(name, asked), finding: &finding{
			diag.Warning, []any{"service", "name"},
			fmt.Sprintf("Service %s does not exist", name), "create it, or correct the name",
		}}
	}
	return f.port(service.Value, name, ref.Service.Port, asked)
}

// port finds a port of a Service that exists.
func (f resolver) port(service *corev1.Service, name types.NamespacedName, ref networkingv1.ServiceBackendPort, asked string) resolved {
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return f.external(service, name, ref, asked)
	}
	port, key, ok := portOf(service.Spec.Ports, ref)
	if !ok {
		return noPort(service, name, asked)
	}
	target := snapshots.ServicePort{Namespace: name.Namespace, Service: name.Name, Port: port.Name}
	r := resolved{name: backendName(name, key), targets: []routing.Target{{Service: target, Weight: targetWeight}}}
	if port.AppProtocol != nil {
		r.port = options.AppProtocol(*port.AppProtocol)
	}
	return r
}

// portOf finds the TCP port that an Ingress names. key is the name or number of the port in
// names of backends.
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

// noPort returns the result for a Service that does not have the port.
func noPort(service *corev1.Service, name types.NamespacedName, asked string) resolved {
	return resolved{name: backendName(name, asked), finding: &finding{
		diag.Warning, []any{"service", "port"},
		fmt.Sprintf("Service %s has no TCP port %s", name, asked), portsHint(service.Spec.Ports),
	}}
}

// backendName returns the name of the backend for a Service port. The parts contain neither
// underscores nor dots, so no two backends get the same name. Backends of a single Ingress
// have the name of the Ingress after a dot.
func backendName(service types.NamespacedName, port string) string {
	return service.Namespace + "_" + service.Name + "_" + port
}

// portsHint lists the ports of a Service.
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

// ExternalNames says to which names Services of type ExternalName may lead.
type ExternalNames struct {
	// Refuse serves no such Service.
	Refuse bool
	// Domains are the names to which such Services may lead. "*." stands for any number of
	// labels. If there are none, they may lead to every name that is not internal.
	Domains []string
}

// metadata are the names of the services in clouds that give machines their credentials.
var metadata = []string{
	"metadata.google.internal", "metadata.goog", "instance-data.ec2.internal", "metadata.azure.internal", "metadata.tencentyun.com",
}

// check says why a Service of a namespace may not lead to a name, which is in lower case.
// It only looks at names, since the addresses of a name are not known here.
func (e ExternalNames) check(namespace, name string) (message, hint string) {
	const listed = "; if it is meant, list it in externalNames.domains of the compiler's configuration"
	switch {
	case e.Refuse:
		return "which the configuration refuses", "use a Service with a selector, or set externalNames.policy to allow in the compiler's configuration"
	case hostname.IsAddress(name):
		return "is an IP address, and Kubernetes takes it for a name", "use a Service without a selector, and an EndpointSlice with the address"
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		return "is not a DNS name", "use one such as partner.example"
	case len(e.Domains) > 0:
		if slices.ContainsFunc(e.Domains, func(d string) bool { return isBelow(name, d) }) {
			return "", ""
		}
		return "is in none of the domains that the configuration allows", "use one of " + strings.Join(e.Domains, ", ") + ", or list it in externalNames.domains"
	case name == "localhost" || isBelow(name, "*.localhost") || isBelow(name, "*.localdomain"):
		return "leads to the machine of HAProxy", "use a Service with a selector" + listed
	case !strings.Contains(name, "."):
		return "is a name of one label, which no name server is asked for", "write it in full"
	case slices.Contains(metadata, name):
		return "leads to the metadata service of a cloud", "remove it" + listed
	case leavesNamespace(name, namespace):
		return "leads into the cluster, and not to a Service of its own namespace", "name the Service in an Ingress of its namespace" + listed
	}
	return "", ""
}

// isBelow reports whether a name is the domain. If the domain begins with "*.", it reports
// whether the name is below it.
func isBelow(name, domain string) bool {
	if suffix, ok := strings.CutPrefix(domain, "*"); ok {
		return strings.HasSuffix(name, suffix)
	}
	return name == domain
}

// leavesNamespace reports whether a name belongs to the cluster, but is not the name of a
// Service in the namespace. The domain of the cluster is not known, so leavesNamespace
// looks for NAME.NAMESPACE.svc anywhere but at the beginning.
func leavesNamespace(name, namespace string) bool {
	labels := strings.Split(name, ".")
	for i, label := range labels {
		if i < 2 || (label != "svc" && label != "pod") {
			continue
		}
		return label == "pod" || i != 2 || labels[1] != namespace
	}
	return strings.HasSuffix(name, ".cluster.local")
}

// external finds the target of a Service of type ExternalName.
func (f resolver) external(service *corev1.Service, name types.NamespacedName, ref networkingv1.ServiceBackendPort, asked string) resolved {
	host := hostname.Normal(service.Spec.ExternalName)
	if message, hint := f.names.check(name.Namespace, host); message != "" {
		what := fmt.Sprintf("Service %s is of type ExternalName, ", name)
		if !f.names.Refuse {
			what += "and its name " + printable.Quoted(host) + " "
		}
		return resolved{name: backendName(name, asked), finding: &finding{diag.Error, []any{"service", "name"}, what + message, hint}}
	}
	key, port := externalPort(service.Spec.Ports, ref)
	if port == 0 {
		return noPort(service, name, asked)
	}
	target := routing.Target{
		Service: snapshots.ServicePort{Namespace: name.Namespace, Service: name.Name, Port: ref.Name},
		Name:    &routing.ExternalName{Host: host, Port: port}, Weight: targetWeight,
	}
	return resolved{name: backendName(name, key), targets: []routing.Target{target}}
}

// externalPort returns the port to connect to, and its name or number. A Service of type
// ExternalName need not list its ports. If it lists none, the Ingress names the port.
func externalPort(ports []corev1.ServicePort, ref networkingv1.ServiceBackendPort) (key string, port int) {
	if len(ports) == 0 {
		return strconv.Itoa(int(ref.Number)), int(ref.Number)
	}
	p, key, ok := portOf(ports, ref)
	switch {
	case !ok:
		return "", 0
	case p.TargetPort.IntVal > 0:
		return key, int(p.TargetPort.IntVal)
	}
	return key, int(p.Port)
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

// appProtocol returns the appProtocol of a Service's port, or "".
func (f resolver) appProtocol(target routing.Target) string {
	service, exists := f.service(serviceOf(target))
	if !exists {
		return ""
	}
	for _, port := range service.Value.Spec.Ports {
		if port.Name == target.Service.Port && port.AppProtocol != nil {
			return *port.AppProtocol
		}
	}
	return ""
}
