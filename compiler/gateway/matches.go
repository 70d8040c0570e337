package gateway

import (
	"fmt"
	"regexp"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/expression"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// match is a match of a rule, without hosts.
type match struct {
	routing.PathMatch
	conditions []routing.Condition
}

// isPattern reports whether the path is a regular expression.
func (m match) isPattern() bool {
	return len(m.conditions) > 0 && m.conditions[0].Of == routing.PathPattern
}

// matchesOf returns the matches of a rule. A rule without matches takes every request. The problem says which part is
// not supported.
func matchesOf(rule gatewayv1.HTTPRouteRule, form routing.PathForm) ([]match, *problem) {
	if len(rule.Matches) == 0 {
		return []match{{PathMatch: routing.PathMatch{Type: routing.Prefix}}}, nil
	}
	var out []match
	for i, m := range rule.Matches {
		one, p := matchOf(m, form)
		if p != nil {
			return nil, p.in("matches", i)
		}
		out = append(out, one)
	}
	return out, nil
}

func matchOf(in gatewayv1.HTTPRouteMatch, form routing.PathForm) (match, *problem) {
	out, p := pathOf(in.Path, form)
	if p != nil {
		return match{}, p.in("path")
	}
	if in.Method != nil {
		if !isToken.MatchString(string(*in.Method)) {
			return match{}, unsupported("method %q is not supported", *in.Method).in("method")
		}
		out.conditions = append(out.conditions, routing.Condition{Of: routing.Method, Value: string(*in.Method)})
	}
	headers, params := map[string]bool{}, map[string]bool{}
	for i, h := range in.Headers {
		kind := gatewayv1.HeaderMatchExact
		if h.Type != nil {
			kind = *h.Type
		}
		name := strings.ToLower(string(h.Name))
		if headers[name] {
			continue // the specification says that only the first one with a name counts
		}
		headers[name] = true
		c, p := conditionOf(name, h.Value, string(kind), routing.Header, routing.HeaderPattern)
		if p != nil {
			return match{}, p.in("headers", i)
		}
		out.conditions = append(out.conditions, c)
	}
	for i, q := range in.QueryParams {
		kind := gatewayv1.QueryParamMatchExact
		if q.Type != nil {
			kind = *q.Type
		}
		if params[string(q.Name)] {
			continue
		}
		params[string(q.Name)] = true
		c, p := conditionOf(string(q.Name), q.Value, string(kind), routing.Query, routing.QueryPattern)
		if p != nil {
			return match{}, p.in("queryParams", i)
		}
		out.conditions = append(out.conditions, c)
	}
	return out, nil
}

// isToken matches names of headers and parameters that can be written into rules. The API allows a few more characters,
// which have a meaning for HAProxy.
var isToken = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

func conditionOf(name, value, kind string, exact, pattern routing.Part) (routing.Condition, *problem) {
	if !isToken.MatchString(name) {
		return routing.Condition{}, unsupported("name %q holds characters that are not supported", name)
	}
	switch kind {
	case "Exact":
		if value == "" || strings.Trim(value, " \t") != value || len(value) > 4096 {
			return routing.Condition{}, unsupported("value %q is none that a request can have", value)
		}
		return routing.Condition{Of: exact, Name: name, Value: value}, nil
	case "RegularExpression":
		text, p := patternOf(value)
		return routing.Condition{Of: pattern, Name: name, Value: text}, p
	}
	return routing.Condition{}, unsupported("type %q is not supported", kind)
}

// patternOf returns an expression that matches whole values. HAProxy compares it with at most 1024 bytes of a value. A
// longer value matches nothing, so no expression matches only the beginning of a value. If the expression begins with
// (?i), case does not count.
func patternOf(text string) (string, *problem) {
	const anyCase = "(?i)"
	plain, flags := text, ""
	if rest, ok := strings.CutPrefix(text, anyCase); ok {
		plain, flags = rest, anyCase
	}
	if _, err := expression.Parse(flags + "^(?:" + plain + ")$"); err != nil {
		return "", unsupported("expression %q: %v", text, err)
	}
	if _, err := regexp.Compile(text); err != nil {
		return "", unsupported("expression %q: %v", text, err)
	}
	return flags + `^(?=[\s\S]{0,1023}\z)(?:` + plain + `)\z`, nil
}

func pathOf(in *gatewayv1.HTTPPathMatch, form routing.PathForm) (match, *problem) {
	kind, value := gatewayv1.PathMatchPathPrefix, "/"
	if in != nil && in.Type != nil {
		kind = *in.Type
	}
	if in != nil && in.Value != nil {
		value = *in.Value
	}
	if kind == gatewayv1.PathMatchRegularExpression {
		text, p := patternOf(value)
		return match{routing.PathMatch{Type: routing.Prefix}, []routing.Condition{{Of: routing.PathPattern, Value: text}}}, p
	}
	if p := checkPath(value); p != nil {
		return match{}, p
	}
	path := form.Of(value)
	switch kind {
	case gatewayv1.PathMatchExact:
		return match{PathMatch: routing.PathMatch{Type: routing.Exact, Path: path}}, nil
	case gatewayv1.PathMatchPathPrefix:
		return match{PathMatch: routing.PathMatch{Type: routing.Prefix, Path: strings.TrimRight(path, "/")}}, nil
	}
	return match{}, unsupported("type %q is not supported", kind)
}

// checkPath says why a path cannot be matched. The API server already refuses most such paths.
func checkPath(path string) *problem {
	if !strings.HasPrefix(path, "/") {
		return unsupported("path %q does not begin with a slash", path)
	}
	if message, _ := routing.CheckUsable(path); message != "" {
		return unsupported("path %q %s", path, message)
	}
	for _, part := range []string{"//", "/./", "/../", "%2f", "%2F"} {
		if strings.Contains(path, part) {
			return unsupported("path %q holds %q", path, part)
		}
	}
	if strings.HasSuffix(path, "/.") || strings.HasSuffix(path, "/..") {
		return unsupported("path %q ends in dots", path)
	}
	return nil
}

// problem is the reason why a rule, or a reference in it, does not have its effect. Path is the path of the field.
type problem struct {
	reason, message string
	path            []any
}

func unsupported(format string, args ...any) *problem {
	return &problem{reason: string(gatewayv1.RouteReasonUnsupportedValue), message: fmt.Sprintf(format, args...)}
}

// in moves the path of the problem below a field.
func (p *problem) in(path ...any) *problem {
	p.path = append(append([]any{}, path...), p.path...)
	return p
}

// asHTTP returns a GRPCRoute as an HTTPRoute that takes the same requests. A call of a method is a request for the path
// /SERVICE/METHOD.
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

// callOf returns the match for a call.
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

// callPath returns the match for the path of a call. Parts that the match leaves out are not compared.
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
		return path(gatewayv1.PathMatchType(kind), "/") // this kind is not supported
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
