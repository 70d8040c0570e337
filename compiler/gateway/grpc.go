package gateway

import (
	"regexp"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/inputs"
)

// asHTTP returns a GRPCRoute as the HTTPRoute that takes the same requests: a call of a method is a
// request for the path /SERVICE/METHOD.
func asHTTP(o inputs.Object[gatewayv1.GRPCRoute]) inputs.Object[gatewayv1.HTTPRoute] {
	in := o.Value
	out := &gatewayv1.HTTPRoute{TypeMeta: in.TypeMeta, ObjectMeta: in.ObjectMeta}
	out.Spec.CommonRouteSpec, out.Spec.Hostnames = in.Spec.CommonRouteSpec, in.Spec.Hostnames
	for _, r := range in.Spec.Rules {
		rule := gatewayv1.HTTPRouteRule{Name: r.Name, Filters: filtersOf(r.Filters), SessionPersistence: r.SessionPersistence}
		for _, m := range r.Matches {
			rule.Matches = append(rule.Matches, callOf(m))
		}
		for _, ref := range r.BackendRefs {
			rule.BackendRefs = append(rule.BackendRefs, gatewayv1.HTTPBackendRef{BackendRef: ref.BackendRef, Filters: filtersOf(ref.Filters)})
		}
		out.Spec.Rules = append(out.Spec.Rules, rule)
	}
	return inputs.Object[gatewayv1.HTTPRoute]{Ref: o.Ref, Value: out, At: o.At}
}

// callOf returns the match of a call.
func callOf(in gatewayv1.GRPCRouteMatch) gatewayv1.HTTPRouteMatch {
	var out gatewayv1.HTTPRouteMatch
	for _, h := range in.Headers {
		header := gatewayv1.HTTPHeaderMatch{Name: gatewayv1.HTTPHeaderName(h.Name), Value: h.Value}
		if h.Type != nil {
			kind := gatewayv1.HeaderMatchType(*h.Type)
			header.Type = &kind
		}
		out.Headers = append(out.Headers, header)
	}
	if m := in.Method; m != nil {
		out.Path = callPath(*m)
	}
	return out
}

// callPath returns the path of a call. Nothing that is left out is compared.
func callPath(m gatewayv1.GRPCMethodMatch) *gatewayv1.HTTPPathMatch {
	kind := gatewayv1.GRPCMethodMatchExact
	if m.Type != nil {
		kind = *m.Type
	}
	service, method := "", ""
	if m.Service != nil {
		service = *m.Service
	}
	if m.Method != nil {
		method = *m.Method
	}
	path := func(kind gatewayv1.PathMatchType, value string) *gatewayv1.HTTPPathMatch {
		return &gatewayv1.HTTPPathMatch{Type: &kind, Value: &value}
	}
	const some = "[^/]+"
	switch {
	case kind != gatewayv1.GRPCMethodMatchExact && kind != gatewayv1.GRPCMethodMatchRegularExpression:
		return path(gatewayv1.PathMatchType(kind), "/") // which is not supported
	case service == "" && method == "":
		return nil
	case kind == gatewayv1.GRPCMethodMatchExact && method == "":
		return path(gatewayv1.PathMatchPathPrefix, "/"+service)
	case kind == gatewayv1.GRPCMethodMatchExact && service == "":
		return path(gatewayv1.PathMatchRegularExpression, "/"+some+"/"+regexp.QuoteMeta(method))
	case kind == gatewayv1.GRPCMethodMatchExact:
		return path(gatewayv1.PathMatchExact, "/"+service+"/"+method)
	}
	if service == "" {
		service = some
	}
	if method == "" {
		method = some
	}
	return path(gatewayv1.PathMatchRegularExpression, "/(?:"+service+")/(?:"+method+")")
}

func filtersOf(in []gatewayv1.GRPCRouteFilter) []gatewayv1.HTTPRouteFilter {
	var out []gatewayv1.HTTPRouteFilter
	for _, f := range in {
		out = append(out, gatewayv1.HTTPRouteFilter{
			Type: gatewayv1.HTTPRouteFilterType(f.Type), RequestHeaderModifier: f.RequestHeaderModifier, ResponseHeaderModifier: f.ResponseHeaderModifier,
			RequestMirror: f.RequestMirror, ExtensionRef: f.ExtensionRef,
		})
	}
	return out
}
