package inputs

import (
	"slices"

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
	Grants     []Object[gatewayv1.ReferenceGrant]
}

// GatewayController is the controllerName of GatewayClasses that are ours.
const GatewayController = "hapsnap.dev/gateway-controller"

// isOurs reports whether a class is ours. If none is, the objects are all somebody else's.
func (in GatewayAPI) isOurs() bool {
	return slices.ContainsFunc(in.Classes, func(c Object[gatewayv1.GatewayClass]) bool { return c.Value.Spec.ControllerName == GatewayController })
}

// withoutGatewayAPI returns findings but for those on objects of the Gateway API.
func withoutGatewayAPI(found []diag.Diagnostic) []diag.Diagnostic {
	return slices.DeleteFunc(found, func(d diag.Diagnostic) bool {
		return d.Object.APIVersion == "" && slices.Contains(gatewayKinds, d.Object.Kind)
	})
}

// gatewayGroup is the group of the Gateway API.
const gatewayGroup = "gateway.networking.k8s.io"

// gatewayKinds are the kinds of the group that are read. The fields of v1beta1 are those of v1.
var gatewayKinds = []string{"GatewayClass", "Gateway", "ListenerSet", "HTTPRoute", "GRPCRoute", "ReferenceGrant"}

// gatewayAPI adds an object of the Gateway API, and reports whether it is one.
func (g *gatherer) gatewayAPI(o manifests.Object) bool {
	if o.APIVersion != gatewayGroup+"/v1" && o.APIVersion != gatewayGroup+"/v1beta1" {
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
	case "ReferenceGrant":
		in.Grants = gather(g, in.Grants, o, validation.IsDNS1123Subdomain)
	default:
		return false
	}
	return true
}

func (in GatewayAPI) without(out map[diag.Object]bool) GatewayAPI {
	return GatewayAPI{
		Classes: without(in.Classes, out), Gateways: without(in.Gateways, out), Sets: without(in.Sets, out),
		HTTPRoutes: without(in.HTTPRoutes, out), GRPCRoutes: without(in.GRPCRoutes, out), Grants: without(in.Grants, out),
	}
}

func (in GatewayAPI) record(out []snapshots.Input) []snapshots.Input {
	version := gatewayv1.GroupVersion.String()
	out = record(out, version, in.Classes)
	out = record(out, version, in.Gateways)
	out = record(out, version, in.Sets)
	out = record(out, version, in.HTTPRoutes)
	out = record(out, version, in.GRPCRoutes)
	return record(out, version, in.Grants)
}

// kept returns the objects in namespaces that are read. A GatewayClass is in none, and always read.
func (in GatewayAPI) kept(keep func(diag.Object) bool) GatewayAPI {
	in.Gateways, in.Sets, in.Grants = kept(in.Gateways, keep), kept(in.Sets, keep), kept(in.Grants, keep)
	in.HTTPRoutes, in.GRPCRoutes = kept(in.HTTPRoutes, keep), kept(in.GRPCRoutes, keep)
	return in
}

func (in GatewayAPI) ageless() GatewayAPI {
	in.Gateways = ageless(in.Gateways, func(g *gatewayv1.Gateway) *metav1.Time { return &g.CreationTimestamp })
	in.Sets = ageless(in.Sets, func(s *gatewayv1.ListenerSet) *metav1.Time { return &s.CreationTimestamp })
	in.HTTPRoutes = ageless(in.HTTPRoutes, func(r *gatewayv1.HTTPRoute) *metav1.Time { return &r.CreationTimestamp })
	in.GRPCRoutes = ageless(in.GRPCRoutes, func(r *gatewayv1.GRPCRoute) *metav1.Time { return &r.CreationTimestamp })
	return in
}
