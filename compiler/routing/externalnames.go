package routing

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/snapshots"
)

// ExternalNames says which names Services of type ExternalName may lead to.
type ExternalNames struct {
	// Refuse serves none.
	Refuse bool
	// Domains are those that may be led to, "*." standing for any number of
	// labels. Without any, every name may that is not internal.
	Domains []string
}

// metadata are the names of clouds for what tells a machine its credentials.
var metadata = []string{
	"metadata.google.internal", "metadata.goog", "instance-data.ec2.internal", "metadata.azure.internal", "metadata.tencentyun.com",
}

// check says what keeps a name in lower case from being led to by a Service of
// a namespace. It is about names: which addresses they have is not known here.
func (e ExternalNames) check(namespace, name string) (message, hint string) {
	const listed = "; if it is meant, list it in externalNames.domains of the compiler's configuration"
	switch {
	case e.Refuse:
		return "which the configuration refuses", "use a Service with a selector, or set externalNames.policy to allow in the compiler's configuration"
	case isAddress(name):
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

// isBelow reports whether a name is the domain, or below it if that begins with
// "*.".
func isBelow(name, domain string) bool {
	if suffix, ok := strings.CutPrefix(domain, "*"); ok {
		return strings.HasSuffix(name, suffix)
	}
	return name == domain
}

// leavesNamespace reports whether a name is one of the cluster's own, other than
// that of a Service in the namespace. The domain of the cluster is not known, so
// that NAME.NAMESPACE.svc is looked for anywhere but at the start.
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

// external finds what a Service of type ExternalName leads to.
func (t *translation) external(service *corev1.Service, name snapshots.SecretName, ref networkingv1.ServiceBackendPort, asked string) resolved {
	host := normalHost(service.Spec.ExternalName)
	if message, hint := t.cfg.ExternalNames.check(name.Namespace, host); message != "" {
		what := fmt.Sprintf("Service %s is of type ExternalName, ", name)
		if !t.cfg.ExternalNames.Refuse {
			what += "and its name " + printable.Quoted(host) + " "
		}
		return resolved{name: backendName(name, asked), finding: finding{diag.Error, []any{"service", "name"}, what + message, hint}}
	}
	key, port := externalPort(service.Spec.Ports, ref)
	if port == 0 {
		return noPort(service, name, asked)
	}
	target := Target{
		Service: snapshots.ServicePort{Namespace: name.Namespace, Service: name.Name, Port: ref.Name},
		Name:    &ExternalName{Host: host, Port: port}, Weight: targetWeight,
	}
	return resolved{name: backendName(name, key), targets: []Target{target}}
}

// externalPort returns the port to connect to, and its name or number. A Service
// of type ExternalName need not list its ports: then the Ingress names it.
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
