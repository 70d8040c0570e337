// Package gateways has the section gatewayAPI of the configuration: which Gateways are compiled, and which
// addresses and Services they get.
package gateways

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/config/field"
	"github.com/hapsnap/hapsnap/internal/objectname"
)

// API says which Gateways and routes are compiled, if any.
type API struct {
	// Enabled makes the compiler read the objects of the Gateway API. It is off by default, for two reasons:
	// people who may create a Gateway of a class can make HAProxy open ports, and the compiler needs
	// permission to read the objects. Kinds that the cluster does not know yet are read as soon as it knows
	// them.
	Enabled bool `json:"enabled"`
	// ControllerName is the controllerName of the GatewayClasses whose Gateways are compiled. Two compilers
	// in one cluster need different ones, unless all but one have a fleet.
	ControllerName string `json:"controllerName"`
	// Addresses are IP addresses and networks, such as 192.0.2.16/28. Each Gateway gets an address of its own
	// from them: the one that its spec.addresses names, or the first free one. HAProxy listens on it, so
	// every machine of the fleet needs all of them. Several Gateways can then have the same port, which may
	// also be a port of the configuration. If empty, Gateways share the addresses of bind, and each port
	// belongs to one Gateway.
	Addresses []string `json:"addresses"`
	// Ports are the ports that listeners of Gateways and ListenerSets may have: numbers, and ranges such as
	// 8000-8999. If empty, they may have any. A port that HAProxy may not open, or that another process uses
	// where HAProxy runs, makes the reload fail, and no check finds that before: every snapshot is rejected by
	// its canary, whoever changed something.
	Ports []string `json:"ports"`
	// Services says whether Gateways get Services.
	Services Services `json:"services"`
	// Fleet is the fleet of this compiler, as NAMESPACE/NAME. The compiler then compiles only the Gateways of
	// that namespace that name the fleet in spec.infrastructure.parametersRef (group hapsnap.dev, kind
	// Fleet), with what is attached to them. It compiles no other Gateway and no Ingress. If empty, the
	// compiler ignores Gateways that name a fleet.
	Fleet string `json:"fleet"`
}

// FleetGroup and FleetKind are the group and kind with which a Gateway names its fleet.
const (
	FleetGroup = "hapsnap.dev"
	FleetKind  = "Fleet"
)

// Services says whether the compiler makes a Service for each Gateway with addresses of its own.
type Services struct {
	// Enabled makes them. The compiler then needs permission to write Services and EndpointSlices in every
	// namespace that has Gateways. When it is turned off again, the compiler deletes the Services.
	Enabled bool `json:"enabled"`
	// Type is the type of the Services.
	Type ServiceType `json:"type"`
	// Labels are the keys that spec.infrastructure.labels of a Gateway may bring to its Service: whole keys,
	// example.com/* for all of a domain, or * for all. People who may write a Gateway can then set these
	// labels of its Service. "*" does not include the domains kubernetes.io and k8s.io, and no entry includes
	// those of hapsnap.dev.
	Labels []string `json:"labels"`
	// Annotations are the same for spec.infrastructure.annotations. With some annotations of a Service, the
	// cloud spends money, or opens the Service to the world.
	Annotations []string `json:"annotations"`
}

// Networks returns the addresses of a valid list as networks.
func (g API) Networks() []netip.Prefix { return field.Networks(g.Addresses) }

// controllerName matches valid names of controllers, as the Gateway API defines them.
var controllerName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+$`)

// nobodys are networks whose addresses no machine has. To listen on such an address means to listen on all
// addresses of the machine, or on none.
var nobodys = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("::/128"), netip.MustParsePrefix("::ffff:0:0/96"), netip.MustParsePrefix("ff00::/8"),
}

// Check checks the section. bind and status are the addresses on which the configuration and its status page
// listen.
func (g API) Check(f field.Errors, bind, status []string) {
	if len(g.ControllerName) > 253 || !controllerName.MatchString(g.ControllerName) {
		f.At("controllerName").Add(fmt.Sprintf("%q is not the name of a controller", g.ControllerName), "use a domain and a path, such as example.com/gateway-controller")
	}
	for i, text := range g.Addresses {
		at := f.At("addresses").Element(i)
		n, ok := field.Network(text)
		earlier := field.Networks(g.Addresses[:i])
		whole := slices.IndexFunc(earlier, func(e netip.Prefix) bool { return e.Bits() <= n.Bits() && e.Contains(n.Addr()) })
		switch {
		case !ok:
			at.Add(fmt.Sprintf("%q is neither an IP address nor a network", text), "use such as 192.0.2.10 or 192.0.2.16/28")
		case slices.ContainsFunc(nobodys, n.Overlaps):
			at.Add(fmt.Sprintf("%q has addresses that no machine has", text), "use such as 192.0.2.10 or 192.0.2.16/28")
		case whole >= 0:
			at.Add(fmt.Sprintf("is in %s, an entry further up", earlier[whole]), "leave it out")
		case firstIn(n, bind) != "":
			at.Add(fmt.Sprintf("has %s, which is one of bind.addresses", firstIn(n, bind)), "leave it out")
		case firstIn(n, status) != "":
			at.Add(fmt.Sprintf("has %s, which is one of status.addresses", firstIn(n, status)), "leave it out")
		}
	}
	field.CheckPorts(f.At("ports"), g.Ports)
	g.Services.check(f.At("services"), len(g.Addresses) > 0)
	if g.Fleet == "" {
		return
	}
	at := f.At("fleet")
	if name, err := objectname.Parse(g.Fleet); err != nil || len(validation.IsDNS1123Subdomain(name.Name)) > 0 || len(validation.IsDNS1123Label(name.Namespace)) > 0 {
		at.Add(fmt.Sprintf("%q is not the name of a fleet", g.Fleet), "use the namespace of its Gateways and a name, such as shop/payments")
	} else if !g.Enabled {
		at.Add("a fleet is for Gateways, and none are compiled", "set gatewayAPI.enabled to true")
	}
}

// ServiceType is the type of a Gateway's Service: `ClusterIP`, `NodePort` or `LoadBalancer`.
type ServiceType string

// The types of Services for Gateways.
const (
	ClusterIP    ServiceType = "ClusterIP"
	NodePort     ServiceType = "NodePort"
	LoadBalancer ServiceType = "LoadBalancer"
)

// metadataKeys matches what may be brought to a Service: a whole key, all keys of a domain, or all keys.
var metadataKeys = regexp.MustCompile(`^(\*|([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)|[a-z0-9]([-a-z0-9.]*[a-z0-9])?/\*)$`)

func (s Services) check(f field.Errors, placed bool) {
	if s.Enabled && !placed {
		f.At("enabled").Add("Gateways have no addresses of their own for Services to lead to", "set gatewayAPI.addresses")
	}
	if !slices.Contains([]ServiceType{ClusterIP, NodePort, LoadBalancer}, s.Type) {
		f.At("type").Add(fmt.Sprintf("%q is not a type of Services for Gateways", string(s.Type)), "use ClusterIP, NodePort or LoadBalancer")
	}
	checkKeys(f.At("labels"), s.Labels)
	checkKeys(f.At("annotations"), s.Annotations)
}

func checkKeys(f field.Errors, list []string) {
	for i, key := range list {
		if !metadataKeys.MatchString(key) {
			f.Element(i).Add(fmt.Sprintf("%q is neither a key nor a pattern of keys", key), "use such as example.com/team, example.com/* or *")
		}
	}
}

// firstIn returns the first of the addresses that is in a network, or "".
func firstIn(n netip.Prefix, addresses []string) string {
	for _, a := range addresses {
		if addr, err := netip.ParseAddr(a); err == nil && !addr.IsUnspecified() && n.Contains(addr.Unmap()) {
			return a
		}
	}
	return ""
}

// FleetOf returns the fleet that a Gateway names, as namespace/name, or "". It is always one of the Gateway's
// own namespace, so nobody can put a Gateway on the fleet of others.
func FleetOf(g *gatewayv1.Gateway) string {
	if g.Spec.Infrastructure == nil {
		return ""
	}
	ref := g.Spec.Infrastructure.ParametersRef
	if ref == nil || ref.Group != FleetGroup || ref.Kind != FleetKind {
		return ""
	}
	return g.Namespace + "/" + ref.Name
}

// AllowsSets reports whether ListenerSets of a namespace may bring listeners to a Gateway. namespaces has the
// labels of each namespace.
func AllowsSets(g *gatewayv1.Gateway, namespace string, namespaces map[string]labels.Set) bool {
	from, selector := gatewayv1.NamespacesFromNone, (*metav1.LabelSelector)(nil)
	if allowed := g.Spec.AllowedListeners; allowed != nil && allowed.Namespaces != nil {
		selector = allowed.Namespaces.Selector
		if allowed.Namespaces.From != nil {
			from = *allowed.Namespaces.From
		}
	}
	return Within(from, selector, g.Namespace, namespace, namespaces[namespace])
}

// Within reports whether a namespace with these labels is selected by an object of the namespace own.
func Within(from gatewayv1.FromNamespaces, selector *metav1.LabelSelector, own, namespace string, has labels.Set) bool {
	switch from {
	case gatewayv1.NamespacesFromAll:
		return true
	case gatewayv1.NamespacesFromSame:
		return namespace == own
	case gatewayv1.NamespacesFromSelector:
		s, err := metav1.LabelSelectorAsSelector(selector)
		return err == nil && selector != nil && s.Matches(labels.Merge(has, labels.Set{"kubernetes.io/metadata.name": namespace}))
	}
	return false
}

// ValidKey reports whether a text may be among the keys for [MayBring].
func ValidKey(key string) bool { return metadataKeys.MatchString(key) }

// MayBring reports whether a Gateway may bring a label or an annotation to an object that is made for it.
// Allowed are whole keys, "example.com/*" or "*". "*" does not include the keys with which Kubernetes, a
// cloud or hapsnap control an object.
func MayBring(key string, allowed []string) bool {
	domain, _, qualified := strings.Cut(key, "/")
	if !qualified {
		domain = ""
	}
	of := func(parent string) bool { return domain == parent || strings.HasSuffix(domain, "."+parent) }
	if of("hapsnap.dev") || of("gateway.networking.k8s.io") {
		return false
	}
	return slices.ContainsFunc(allowed, func(pattern string) bool {
		if pattern == "*" {
			return !of("kubernetes.io") && !of("k8s.io")
		}
		if prefix, wide := strings.CutSuffix(pattern, "*"); wide {
			return strings.HasPrefix(key, prefix)
		}
		return pattern == key
	})
}
