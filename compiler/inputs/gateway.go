package inputs

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/snapshots"
)

// GatewayAPI are the objects of the group gateway.networking.k8s.io, in any order. What its
// schema has defaults for may be missing, as in a manifest.
type GatewayAPI struct {
	Classes    []Object[gatewayv1.GatewayClass]
	Gateways   []Object[gatewayv1.Gateway]
	Sets       []Object[gatewayv1.ListenerSet]
	HTTPRoutes []Object[gatewayv1.HTTPRoute]
	GRPCRoutes []Object[gatewayv1.GRPCRoute]
	TLSRoutes  []Object[gatewayv1.TLSRoute]
	TCPRoutes  []Object[gatewayv1.TCPRoute]
	UDPRoutes  []Object[gatewayv1.UDPRoute]
	Grants     []Object[gatewayv1.ReferenceGrant]
	Policies   []Object[gatewayv1.BackendTLSPolicy]
	// Definitions say of which version and channel the kinds are.
	Definitions []Object[Definition]
}

// of returns the objects if a class is that of a controller. If none is, they are all somebody else's.
func (in GatewayAPI) of(controller string) GatewayAPI {
	if slices.ContainsFunc(in.Classes, func(c Object[gatewayv1.GatewayClass]) bool { return string(c.Value.Spec.ControllerName) == controller }) {
		return in
	}
	return GatewayAPI{}
}

// isGatewayAPI reports whether an object is one of the Gateway API.
func isGatewayAPI(o diag.Object) bool {
	return o.APIVersion == "" && slices.Contains(gatewayKinds, o.Kind)
}

const (
	// gatewayGroup is the group of the Gateway API.
	gatewayGroup = "gateway.networking.k8s.io"
	// GatewayVersion is the apiVersion of its objects as a cluster is asked for them. The fields of
	// v1beta1 are the same.
	GatewayVersion = gatewayGroup + "/v1"
	// ControllerAnnotation is on the Services that compilers make for Gateways.
	ControllerAnnotation = "gateway.hapsnap.dev/controller"
)

// gatewayKinds are the kinds of the group that are read.
var gatewayKinds = []string{"GatewayClass", "Gateway", "ListenerSet", "HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute", "ReferenceGrant", "BackendTLSPolicy"}

// GatewayKinds returns the kinds of the group that are read. Objects of all but GatewayClass are in
// namespaces.
func GatewayKinds() []string { return slices.Clone(gatewayKinds) }

// NewGatewayObject returns what makes an object of one of the kinds.
func NewGatewayObject(kind string) func() any {
	switch kind {
	case "GatewayClass":
		return func() any { return new(gatewayv1.GatewayClass) }
	case "Gateway":
		return func() any { return new(gatewayv1.Gateway) }
	case "ListenerSet":
		return func() any { return new(gatewayv1.ListenerSet) }
	case "HTTPRoute":
		return func() any { return new(gatewayv1.HTTPRoute) }
	case "GRPCRoute":
		return func() any { return new(gatewayv1.GRPCRoute) }
	case "TLSRoute":
		return func() any { return new(gatewayv1.TLSRoute) }
	case "TCPRoute":
		return func() any { return new(gatewayv1.TCPRoute) }
	case "UDPRoute":
		return func() any { return new(gatewayv1.UDPRoute) }
	case "BackendTLSPolicy":
		return func() any { return new(gatewayv1.BackendTLSPolicy) }
	default:
		return func() any { return new(gatewayv1.ReferenceGrant) }
	}
}

// WithoutStatus takes the status out of an object of one of the kinds, and reports whether it is one. No
// compile looks at it, and it is for us to write.
func WithoutStatus(object any) bool {
	switch o := object.(type) {
	case *gatewayv1.GatewayClass:
		o.Status = gatewayv1.GatewayClassStatus{}
	case *gatewayv1.Gateway:
		o.Status = gatewayv1.GatewayStatus{}
	case *gatewayv1.ListenerSet:
		o.Status = gatewayv1.ListenerSetStatus{}
	case *gatewayv1.HTTPRoute:
		o.Status = gatewayv1.HTTPRouteStatus{}
	case *gatewayv1.GRPCRoute:
		o.Status = gatewayv1.GRPCRouteStatus{}
	case *gatewayv1.TLSRoute:
		o.Status = gatewayv1.TLSRouteStatus{}
	case *gatewayv1.TCPRoute:
		o.Status = gatewayv1.TCPRouteStatus{}
	case *gatewayv1.UDPRoute:
		o.Status = gatewayv1.UDPRouteStatus{}
	case *gatewayv1.BackendTLSPolicy:
		o.Status = gatewayv1.PolicyStatus{}
	case *gatewayv1.ReferenceGrant:
	default:
		return false
	}
	return true
}

// Add adds an object that a cluster has, if it is of one of the kinds.
func (in *GatewayAPI) Add(object metav1.Object) {
	switch o := object.(type) {
	case *gatewayv1.GatewayClass:
		in.Classes = append(in.Classes, gatewayObject("GatewayClass", o))
	case *gatewayv1.Gateway:
		in.Gateways = append(in.Gateways, gatewayObject("Gateway", o))
	case *gatewayv1.ListenerSet:
		in.Sets = append(in.Sets, gatewayObject("ListenerSet", o))
	case *gatewayv1.HTTPRoute:
		in.HTTPRoutes = append(in.HTTPRoutes, gatewayObject("HTTPRoute", o))
	case *gatewayv1.GRPCRoute:
		in.GRPCRoutes = append(in.GRPCRoutes, gatewayObject("GRPCRoute", o))
	case *gatewayv1.TLSRoute:
		in.TLSRoutes = append(in.TLSRoutes, gatewayObject("TLSRoute", o))
	case *gatewayv1.TCPRoute:
		in.TCPRoutes = append(in.TCPRoutes, gatewayObject("TCPRoute", o))
	case *gatewayv1.UDPRoute:
		in.UDPRoutes = append(in.UDPRoutes, gatewayObject("UDPRoute", o))
	case *gatewayv1.ReferenceGrant:
		in.Grants = append(in.Grants, gatewayObject("ReferenceGrant", o))
	case *gatewayv1.BackendTLSPolicy:
		in.Policies = append(in.Policies, gatewayObject("BackendTLSPolicy", o))
	case *Definition:
		in.Definitions = append(in.Definitions, Object[Definition]{Ref: RefOf(DefinitionVersion, DefinitionKind, "", o.Name), Value: o})
	}
}

func gatewayObject[T any](kind string, value *T) Object[T] {
	named, _ := any(value).(metav1.Object)
	return Object[T]{Ref: RefOf(GatewayVersion, kind, named.GetNamespace(), named.GetName()), Value: value}
}

// gatewayAPI adds an object of the Gateway API, and reports whether it is one.
func (g *gatherer) gatewayAPI(o manifests.Object) bool {
	if o.APIVersion == DefinitionVersion && o.Kind == DefinitionKind {
		return g.definition(o)
	}
	if group, _, _ := strings.Cut(o.APIVersion, "/"); group == gatewayGroup && o.Kind == "BackendTLSPolicy" && o.APIVersion != GatewayVersion {
		g.report(o, inFile(o.Position("apiVersion")), "a BackendTLSPolicy of "+o.APIVersion+" is not read, and nothing is sent to the servers that it is for", "write it as "+GatewayVersion)
		var policy gatewayv1.BackendTLSPolicy
		_ = o.Decode(&policy) // what can be read says which servers
		policy.Spec.Validation = gatewayv1.BackendTLSPolicyValidation{}
		complete(&policy, o.Namespace)
		g.in.Gateway.Policies = append(g.in.Gateway.Policies, gatewayObject("BackendTLSPolicy", &policy))
		return true
	}
	if o.APIVersion != GatewayVersion && o.APIVersion != gatewayGroup+"/v1beta1" {
		return false
	}
	in := &g.in.Gateway
	switch o.Kind {
	case "GatewayClass":
		in.Classes = gather(g, in.Classes, o, validation.IsDNS1123Subdomain)
	case "Gateway":
		in.Gateways = gather(g, in.Gateways, o, validation.IsDNS1123Subdomain)
	case "ListenerSet":
		in.Sets = gather(g, in.Sets, o, validation.IsDNS1123Subdomain)
	case "HTTPRoute":
		in.HTTPRoutes = gather(g, in.HTTPRoutes, o, validation.IsDNS1123Subdomain)
	case "GRPCRoute":
		in.GRPCRoutes = gather(g, in.GRPCRoutes, o, validation.IsDNS1123Subdomain)
	case "TLSRoute":
		in.TLSRoutes = gather(g, in.TLSRoutes, o, validation.IsDNS1123Subdomain)
	case "TCPRoute":
		in.TCPRoutes = gather(g, in.TCPRoutes, o, validation.IsDNS1123Subdomain)
	case "UDPRoute":
		in.UDPRoutes = gather(g, in.UDPRoutes, o, validation.IsDNS1123Subdomain)
	case "ReferenceGrant":
		in.Grants = gather(g, in.Grants, o, validation.IsDNS1123Subdomain)
	case "BackendTLSPolicy":
		policy, sound := decode[gatewayv1.BackendTLSPolicy](g, o, validation.IsDNS1123Subdomain)
		if !sound { // what it was to protect is not served in the clear
			policy.Value.Spec.Validation = gatewayv1.BackendTLSPolicyValidation{}
		}
		in.Policies = append(in.Policies, policy)
	default:
		return false
	}
	return true
}

func (in GatewayAPI) without(out map[diag.Object]bool) GatewayAPI {
	return GatewayAPI{
		Classes: without(in.Classes, out), Gateways: without(in.Gateways, out), Sets: without(in.Sets, out),
		HTTPRoutes: without(in.HTTPRoutes, out), GRPCRoutes: without(in.GRPCRoutes, out),
		TLSRoutes: without(in.TLSRoutes, out), TCPRoutes: without(in.TCPRoutes, out), UDPRoutes: without(in.UDPRoutes, out),
		Grants: without(in.Grants, out), Policies: without(in.Policies, out), Definitions: in.Definitions,
	}
}

func (in GatewayAPI) record(out []snapshots.Input) []snapshots.Input {
	version := gatewayv1.GroupVersion.String()
	out = record(out, version, in.Classes)
	out = record(out, version, in.Gateways)
	out = record(out, version, in.Sets)
	out = record(out, version, in.HTTPRoutes)
	out = record(out, version, in.GRPCRoutes)
	out = record(out, version, in.TLSRoutes)
	out = record(out, version, in.TCPRoutes)
	out = record(out, version, in.UDPRoutes)
	out = record(out, version, in.Grants)
	return record(out, version, in.Policies)
}

// kept returns the objects in namespaces that are read. A GatewayClass is in none, and always read.
func (in GatewayAPI) kept(keep func(diag.Object) bool) GatewayAPI {
	in.Gateways, in.Sets, in.Grants = kept(in.Gateways, keep), kept(in.Sets, keep), kept(in.Grants, keep)
	in.HTTPRoutes, in.GRPCRoutes = kept(in.HTTPRoutes, keep), kept(in.GRPCRoutes, keep)
	in.TLSRoutes, in.TCPRoutes, in.UDPRoutes = kept(in.TLSRoutes, keep), kept(in.TCPRoutes, keep), kept(in.UDPRoutes, keep)
	in.Policies = kept(in.Policies, keep)
	return in
}

// Around returns the objects that may matter for what is said of one: of the routes of other namespaces only
// those that may have one of its hosts, which are all if it is a route without any, and none if it is no route.
func (in GatewayAPI) Around(ref diag.Object, object metav1.Object) GatewayAPI {
	var hosts []gatewayv1.Hostname
	isRoute := true
	switch o := object.(type) {
	case *gatewayv1.HTTPRoute:
		hosts = o.Spec.Hostnames
	case *gatewayv1.GRPCRoute:
		hosts = o.Spec.Hostnames
	case *gatewayv1.TLSRoute:
		hosts = o.Spec.Hostnames
	case *gatewayv1.TCPRoute, *gatewayv1.UDPRoute:
	default:
		isRoute = false
	}
	matters := func(route diag.Object, own []gatewayv1.Hostname) bool {
		return route.Namespace == ref.Namespace || isRoute && (len(hosts) == 0 || len(own) == 0 || slices.ContainsFunc(own, func(a gatewayv1.Hostname) bool {
			return slices.ContainsFunc(hosts, func(b gatewayv1.Hostname) bool { return overlap(string(a), string(b)) })
		}))
	}
	in.HTTPRoutes = routesThat(matters, in.HTTPRoutes, func(r *gatewayv1.HTTPRoute) []gatewayv1.Hostname { return r.Spec.Hostnames })
	in.GRPCRoutes = routesThat(matters, in.GRPCRoutes, func(r *gatewayv1.GRPCRoute) []gatewayv1.Hostname { return r.Spec.Hostnames })
	in.TLSRoutes = routesThat(matters, in.TLSRoutes, func(r *gatewayv1.TLSRoute) []gatewayv1.Hostname { return r.Spec.Hostnames })
	return in
}

func routesThat[T any](matter func(diag.Object, []gatewayv1.Hostname) bool, routes []Object[T], of func(*T) []gatewayv1.Hostname) []Object[T] {
	return slices.DeleteFunc(slices.Clone(routes), func(r Object[T]) bool { return !matter(r.Ref, of(r.Value)) })
}

// overlap reports whether a request may be for two hostnames, of which each may be a wildcard.
func overlap(a, b string) bool {
	a, b = strings.TrimPrefix(strings.ToLower(a), "*"), strings.TrimPrefix(strings.ToLower(b), "*")
	return a == b || strings.HasPrefix(a, ".") && strings.HasSuffix(b, a) || strings.HasPrefix(b, ".") && strings.HasSuffix(a, b)
}

// Count returns how many objects there are.
func (in GatewayAPI) Count() int {
	return len(in.Classes) + len(in.Gateways) + len(in.Sets) + len(in.HTTPRoutes) + len(in.GRPCRoutes) + len(in.TLSRoutes) + len(in.TCPRoutes) + len(in.UDPRoutes) + len(in.Grants) + len(in.Policies)
}

func (in GatewayAPI) ageless() GatewayAPI {
	in.Gateways = ageless(in.Gateways, func(g *gatewayv1.Gateway) *metav1.Time { return &g.CreationTimestamp })
	in.Sets = ageless(in.Sets, func(s *gatewayv1.ListenerSet) *metav1.Time { return &s.CreationTimestamp })
	in.HTTPRoutes = ageless(in.HTTPRoutes, func(r *gatewayv1.HTTPRoute) *metav1.Time { return &r.CreationTimestamp })
	in.GRPCRoutes = ageless(in.GRPCRoutes, func(r *gatewayv1.GRPCRoute) *metav1.Time { return &r.CreationTimestamp })
	in.TLSRoutes = ageless(in.TLSRoutes, func(r *gatewayv1.TLSRoute) *metav1.Time { return &r.CreationTimestamp })
	in.TCPRoutes = ageless(in.TCPRoutes, func(r *gatewayv1.TCPRoute) *metav1.Time { return &r.CreationTimestamp })
	in.UDPRoutes = ageless(in.UDPRoutes, func(r *gatewayv1.UDPRoute) *metav1.Time { return &r.CreationTimestamp })
	in.Policies = ageless(in.Policies, func(p *gatewayv1.BackendTLSPolicy) *metav1.Time { return &p.CreationTimestamp })
	return in
}
