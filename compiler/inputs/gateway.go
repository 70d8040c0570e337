package inputs

import (
	"reflect"
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
	_, is := GatewayKindOf(o.Kind)
	return o.APIVersion == "" && is
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

// WithoutStatus takes the status out of an object of one of the kinds, and reports whether it is one. No
// compile looks at it, and it is for us to write.
func WithoutStatus(object any) bool {
	for _, k := range gatewayKinds {
		if !k.objects.has(object) {
			continue
		}
		if k.Status {
			reflect.ValueOf(object).Elem().FieldByName("Status").SetZero()
		}
		return true
	}
	return false
}

// Add adds an object that a cluster has, if it is of one of the kinds.
func (in *GatewayAPI) Add(object metav1.Object) {
	if d, is := object.(*Definition); is {
		in.Definitions = append(in.Definitions, Object[Definition]{Ref: RefOf(DefinitionVersion, DefinitionKind, "", d.Name), Value: d})
		return
	}
	for _, k := range gatewayKinds {
		if k.objects.add(in, k.Name, object) {
			return
		}
	}
}

// gatewayAPI adds an object of the Gateway API, and reports whether it is one.
func (g *gatherer) gatewayAPI(o manifests.Object) bool {
	if o.APIVersion == DefinitionVersion && o.Kind == DefinitionKind {
		return g.definition(o)
	}
	if group, _, _ := strings.Cut(o.APIVersion, "/"); group == gatewayGroup && o.Kind == policyKind {
		g.policy(o)
		return true
	}
	if o.APIVersion != GatewayVersion && o.APIVersion != gatewayGroup+"/v1beta1" {
		return false
	}
	kind, is := GatewayKindOf(o.Kind)
	if is {
		kind.objects.gather(g, o)
	}
	return is
}

// policy adds a BackendTLSPolicy. One that cannot be read loses what it asks of servers: these are not spoken to in the
// clear, but not at all.
func (g *gatherer) policy(o manifests.Object) {
	var policy Object[gatewayv1.BackendTLSPolicy]
	sound := false
	if o.APIVersion == GatewayVersion {
		policy, sound = decode[gatewayv1.BackendTLSPolicy](g, o, validation.IsDNS1123Subdomain)
	} else {
		g.report(o, inFile(o.Position("apiVersion")), "a BackendTLSPolicy of "+o.APIVersion+" is not read, and nothing is sent to the servers that it is for", "write it as "+GatewayVersion)
		policy.Ref, policy.Value = RefOf(GatewayVersion, policyKind, o.Namespace, o.Name), &gatewayv1.BackendTLSPolicy{}
		_ = o.Decode(policy.Value) // what can be read says which servers
		complete(policy.Value, o.Namespace)
	}
	if !sound {
		policy.Value.Spec.Validation = gatewayv1.BackendTLSPolicyValidation{}
	}
	g.in.Gateway.Policies = append(g.in.Gateway.Policies, policy)
}

func (in GatewayAPI) without(out map[diag.Object]bool) GatewayAPI {
	for _, k := range gatewayKinds {
		k.objects.filter(&in, func(o diag.Object) bool { return !out[o] })
	}
	return in
}

func (in GatewayAPI) record(out []snapshots.Input) []snapshots.Input {
	for _, k := range gatewayKinds {
		out = k.objects.record(&in, out)
	}
	return out
}

// kept returns the objects in namespaces that are read. A GatewayClass is in none, and always read.
func (in GatewayAPI) kept(keep func(diag.Object) bool) GatewayAPI {
	for _, k := range gatewayKinds {
		if !k.EveryNamespace {
			k.objects.filter(&in, keep)
		}
	}
	return in
}

// Around returns the objects that may matter for what is said of one: of the routes of other namespaces only
// those that may have one of its hosts, which are all if it is a route without any, and none if it is no route.
func (in GatewayAPI) Around(ref diag.Object, object metav1.Object) GatewayAPI {
	hosts, isRoute := hostnamesOf(object)
	matters := func(route diag.Object, own []gatewayv1.Hostname) bool {
		return route.Namespace == ref.Namespace || isRoute && (len(hosts) == 0 || len(own) == 0 || slices.ContainsFunc(own, func(a gatewayv1.Hostname) bool {
			return slices.ContainsFunc(hosts, func(b gatewayv1.Hostname) bool { return overlap(string(a), string(b)) })
		}))
	}
	in.HTTPRoutes = routesThat(matters, in.HTTPRoutes)
	in.GRPCRoutes = routesThat(matters, in.GRPCRoutes)
	in.TLSRoutes = routesThat(matters, in.TLSRoutes)
	return in
}

// hostnamesOf returns the hostnames of a route, and whether the object is one.
func hostnamesOf(object metav1.Object) (hosts []gatewayv1.Hostname, isRoute bool) {
	switch o := object.(type) {
	case *gatewayv1.HTTPRoute:
		return o.Spec.Hostnames, true
	case *gatewayv1.GRPCRoute:
		return o.Spec.Hostnames, true
	case *gatewayv1.TLSRoute:
		return o.Spec.Hostnames, true
	case *gatewayv1.TCPRoute, *gatewayv1.UDPRoute:
		return nil, true
	}
	return nil, false
}

// Hostnames returns those of all routes.
func (in GatewayAPI) Hostnames() map[diag.Object][]gatewayv1.Hostname {
	out := map[diag.Object][]gatewayv1.Hostname{}
	for _, o := range in.Each() {
		if hosts, isRoute := hostnamesOf(o.Value); isRoute {
			out[o.Ref] = hosts
		}
	}
	return out
}

func routesThat[T any, P metaObject[T]](matter func(diag.Object, []gatewayv1.Hostname) bool, routes []Object[T]) []Object[T] {
	return slices.DeleteFunc(slices.Clone(routes), func(r Object[T]) bool {
		hosts, _ := hostnamesOf(P(r.Value))
		return !matter(r.Ref, hosts)
	})
}

// overlap reports whether a request may be for two hostnames, of which each may be a wildcard.
func overlap(a, b string) bool {
	a, b = strings.TrimPrefix(strings.ToLower(a), "*"), strings.TrimPrefix(strings.ToLower(b), "*")
	return a == b || strings.HasPrefix(a, ".") && strings.HasSuffix(b, a) || strings.HasPrefix(b, ".") && strings.HasSuffix(a, b)
}

// Count returns how many objects there are.
func (in GatewayAPI) Count() int {
	n := 0
	for _, k := range gatewayKinds {
		n += k.objects.count(&in)
	}
	return n
}

func (in GatewayAPI) ageless() GatewayAPI {
	for _, k := range gatewayKinds {
		k.objects.ageless(&in)
	}
	return in
}
