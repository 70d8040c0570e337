package routing

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/internal/printable"
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

// nameCookie gives the cookie of sessions the name that it has unless one was
// asked for. Each Service port has its own, for the cookies of a host are sent
// with all of its paths: under one name, the Services of a host would take each
// other's sessions away.
func nameCookie(u *policy.Upstream, r resolved) {
	if u.Affinity == nil || u.Affinity.Cookie != "" {
		return
	}
	of := r.service.String()
	if len(r.targets) > 0 {
		of = r.targets[0].Service.String()
	}
	digest := sha256.Sum256([]byte(of))
	named := *u.Affinity
	named.Cookie = "hapsnap-" + hex.EncodeToString(digest[:4])
	u.Affinity = &named
}

// stickyCookie is what browsers tell cookies of a host apart by.
type stickyCookie struct{ name, path string }

// stickyClaim is a route whose sessions stay with servers of a Service.
type stickyClaim struct {
	claim
	cookie  stickyCookie
	service snapshots.ServicePort
}

// reportSharedCookies reports routes of a host whose cookie is also that of another
// Service: each answer gives the browser a cookie that the other does not know.
func (t *translation) reportSharedCookies() {
	for _, host := range slices.Sorted(maps.Keys(t.hosts)) {
		owners := map[stickyCookie]stickyClaim{}
		reported := map[diag.Object]bool{}
		for _, c := range t.stickyClaims(host) {
			owner, taken := owners[c.cookie]
			switch {
			case !taken:
				owners[c.cookie] = c
			case owner.service != c.service && !reported[c.by.Ref]:
				reported[c.by.Ref] = true
				t.report(diag.Warning, c.by, c.origin.Position, fmt.Sprintf("the cookie %s of Service %s%s is that of Service %s too, by %s: each takes the other's sessions away",
					c.cookie.name, c.service.Service, ofHost(host), owner.service.Service, owner.by.Ref),
					"set "+options.Prefix+"affinity-cookie-name or affinity-cookie-path")
			}
		}
	}
}

// stickyClaims returns the routes of a host whose sessions stay with servers, those of
// the oldest Ingress first.
func (t *translation) stickyClaims(host string) []stickyClaim {
	var out []stickyClaim
	for _, c := range t.hosts[host].routes {
		b := t.backends[c.backend]
		if b == nil || b.Upstream == nil || b.Upstream.Affinity == nil || len(b.Targets) == 0 {
			continue
		}
		a := b.Upstream.Affinity
		out = append(out, stickyClaim{c, stickyCookie{a.Cookie, cmp.Or(a.Path, "/")}, b.Targets[0].Service})
	}
	slices.SortFunc(out, func(a, b stickyClaim) int {
		return cmp.Or(compareAge(a.by, b.by), a.by.Ref.Compare(b.by.Ref), cmp.Compare(a.service.String(), b.service.String()), a.origin.compare(b.origin))
	})
	return out
}

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
