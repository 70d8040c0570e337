package gateway_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/features"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/inputs"
)

// definition is the relevant part of a CustomResourceDefinition of the Gateway API.
func definition(kind, plural, annotations string, served ...string) string {
	var versions []string
	for _, v := range served {
		versions = append(versions, fmt.Sprintf("{name: %s, served: true}", v))
	}
	return fmt.Sprintf("---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: %s.gateway.networking.k8s.io, annotations: {%s}}\nspec: {group: gateway.networking.k8s.io, names: {kind: %s}, versions: [%s, {name: v0, served: false}]}\n",
		plural, annotations, kind, strings.Join(versions, ", "))
}

func bundle(version, channel string) string {
	return fmt.Sprintf("gateway.networking.k8s.io/bundle-version: %s, gateway.networking.k8s.io/channel: %s", version, channel)
}

// definitions are the definitions of all kinds, except for some.
func definitions(annotations string, but ...string) string {
	out := ""
	for _, kind := range inputs.GatewayKinds() {
		if !slices.Contains(but, kind.Name) {
			out += definition(kind.Name, kind.Resource, annotations, "v1")
		}
	}
	return out
}

// The status of the class says whether the version of the API is supported. It claims the features that the
// cluster's channel and kinds allow. What an operator should know is reported.
func TestAPIOfTheCluster(t *testing.T) {
	t.Parallel()
	const all, noPolicies = "BackendTLSPolicy HTTPRoute TCPRoute TLSRouteModeMixed", "HTTPRoute TCPRoute TLSRouteModeMixed"
	for name, c := range map[string]struct {
		definitions                   string
		unread                        bool
		version, message, has, report string
	}{
		"nothing is known":           {"", false, "Unknown NotFound", "there is no CustomResourceDefinition", all, ""},
		"standard":                   {definitions(bundle("v1.6.3", "standard")), false, "True SupportedVersion", "", all, ""},
		"a later patch":              {definitions(bundle("v1.6.12", "standard")), false, "True SupportedVersion", "", all, ""},
		"experimental":               {definitions(bundle("v1.6.3", "experimental")), false, "True SupportedVersion", "", "BackendTLSPolicy HTTPRoute HTTPRouteDestinationPortMatching HTTPRouteRetry TCPRoute TLSRouteModeMixed", ""},
		"one is not experimental":    {definitions(bundle("v1.6.3", "experimental"), "TCPRoute") + definition("TCPRoute", "tcproutes", bundle("v1.6.3", "standard"), "v1"), false, "True SupportedVersion", "", all, ""},
		"a later release":            {definitions(bundle("v1.7.0", "standard")), false, "False UnsupportedVersion", "are of v1.7.0, and v1.6 is supported; an object with a field that is not known", all, "are of v1.7.0, and v1.6 is supported"},
		"a release with more digits": {definitions(bundle("v1.60.0", "standard")), false, "False UnsupportedVersion", "are of v1.60.0", all, "are of v1.60.0"},
		"a candidate":                {definitions(bundle("v1.6.0-rc.1", "standard")), false, "False UnsupportedVersion", "are of v1.6.0-rc.1", all, "v1.6.0-rc.1"},
		"no annotation":              {definitions("a: b"), false, "False UnsupportedVersion", "are of no version", all, "of no version"},
		"two":                        {definitions(bundle("v1.6.3", "standard"), "Gateway") + definition("Gateway", "gateways", bundle("v1.4.0", "standard"), "v1"), false, "False UnsupportedVersion", "are of v1.4.0 and v1.6.3", all, "v1.4.0 and v1.6.3"},
		"no policies":                {definitions(bundle("v1.6.3", "standard"), "BackendTLSPolicy"), false, "True SupportedVersion", "", noPolicies, "the cluster has no BackendTLSPolicy: TLS to servers"},
		"policies of another version": {definitions(bundle("v1.6.3", "standard"), "BackendTLSPolicy") + definition("BackendTLSPolicy", "backendtlspolicies", bundle("v1.6.3", "standard"), "v1alpha3"),
			false, "True SupportedVersion", "", noPolicies, "objects BackendTLSPolicy of v1alpha3 are not read; servers are spoken to as if there were none"},
		"routes of another version": {definitions(bundle("v1.6.3", "standard"), "TCPRoute") + definition("TCPRoute", "tcproutes", bundle("v1.6.3", "standard"), "v1alpha2"),
			false, "True SupportedVersion", "", "BackendTLSPolicy HTTPRoute TLSRouteModeMixed", "objects TCPRoute of v1alpha2 are not read: "},
		"they may not be read": {"", true, "Unknown NotPermitted", "may not read", all, "may not read"},
	} {
		in := gathered(t, class+c.definitions)
		if c.unread {
			in.Unread = append(in.Unread, diag.Object{APIVersion: inputs.DefinitionVersion, Kind: inputs.DefinitionKind, Name: "gateways.gateway.networking.k8s.io"})
		}
		_, found, v := gateway.Translate(in, usual)
		status := v.Classes[0].Status
		condition := gateway.Condition(status.Conditions, "SupportedVersion")
		if got := string(condition.Status) + " " + condition.Reason; got != c.version || !strings.Contains(condition.Message, c.message) || c.message == "" && condition.Message != "" {
			t.Errorf("%s: %s, %q, want %s, %q", name, got, condition.Message, c.version, c.message)
		}
		if accepted := gateway.Condition(status.Conditions, "Accepted"); accepted.Status != "True" {
			t.Errorf("%s: the class is not accepted", name)
		}
		var has []string
		for _, f := range status.SupportedFeatures {
			if slices.Contains([]features.FeatureName{
				features.SupportBackendTLSPolicy, features.SupportHTTPRoute, features.SupportTCPRoute, features.SupportTLSRouteModeMixed,
				features.SupportHTTPRouteDestinationPortMatching, features.SupportHTTPRouteRetry,
			}, features.FeatureName(f.Name)) {
				has = append(has, string(f.Name))
			}
		}
		if got := strings.Join(has, " "); got != c.has {
			t.Errorf("%s: features %s, want %s", name, got, c.has)
		}
		switch {
		case c.report == "" && len(found) == 0:
		case len(found) != 1 || found[0].Object.Kind != "GatewayClass" || found[0].Severity != diag.Warning || !strings.Contains(found[0].Message, c.report) || found[0].Hint == "":
			t.Errorf("%s: %v, want %q", name, found, c.report)
		}
	}
}

// An object with a field of a later version is not served as if the field were missing.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	const route = `{parentRefs: [{name: one}], rules: [{backendRefs: [{name: web, port: 80}]}]}`
	text := class + service("web") + object("Gateway", "one", `{gatewayClassName: hapsnap, allowedListeners: {namespaces: {from: Same}}, listeners: [{name: a, port: 80, protocol: HTTP}, {name: t, port: 90, protocol: TCP}]}`) +
		object("ListenerSet", "more", "{parentRef: {name: one}, listeners: [{name: b, port: 81, protocol: HTTP}]}") +
		object("HTTPRoute", "http", strings.Replace(route, "rules", "hostnames: [h.example], rules", 1)) + object("GRPCRoute", "grpc", `{parentRefs: [{name: one}], hostnames: [g.example], rules: [{backendRefs: [{name: web, port: 80}]}]}`) +
		object("TCPRoute", "tcp", `{parentRefs: [{name: one, sectionName: t}], rules: [{backendRefs: [{name: web, port: 80}]}]}`) +
		object("BackendTLSPolicy", "policy", `{targetRefs: [{group: "", kind: Service, name: web}], validation: {hostname: web.example, wellKnownCACertificates: System}}`)
	accepted := func(v gateway.Verdicts) string {
		var out []string
		add := func(name string, reason string) { out = append(out, name+" "+reason) }
		for _, g := range v.Gateways {
			add(g.Ref.Name, gateway.Condition(g.Status.Conditions, "Accepted").Reason)
		}
		for _, s := range v.Sets {
			add(s.Ref.Name, gateway.Condition(s.Status.Conditions, "Accepted").Reason)
		}
		for _, r := range v.Routes {
			add(r.Ref.Name, gateway.Condition(r.Parents[0].Conditions, "Accepted").Reason)
		}
		for _, p := range v.Policies {
			add(p.Ref.Name, gateway.Condition(p.Ancestors[0].Conditions, "Accepted").Reason)
		}
		slices.Sort(out)
		return strings.Join(out, ", ")
	}
	for name, c := range map[string]struct {
		note func(in inputs.Inputs)
		want string
	}{
		"none":        {func(inputs.Inputs) {}, "grpc Accepted, http Accepted, more Accepted, one Accepted, policy Accepted, tcp Accepted"},
		"HTTPRoute":   {func(in inputs.Inputs) { inputs.NoteUnknown(in.Gateway.HTTPRoutes[0].Value, "spec.x") }, "grpc Accepted, http UnsupportedValue, more Accepted, one Accepted, policy Accepted, tcp Accepted"},
		"GRPCRoute":   {func(in inputs.Inputs) { inputs.NoteUnknown(in.Gateway.GRPCRoutes[0].Value, "spec.x") }, "grpc UnsupportedValue, http Accepted, more Accepted, one Accepted, policy Accepted, tcp Accepted"},
		"TCPRoute":    {func(in inputs.Inputs) { inputs.NoteUnknown(in.Gateway.TCPRoutes[0].Value, "spec.x") }, "grpc Accepted, http Accepted, more Accepted, one Accepted, policy Accepted, tcp UnsupportedValue"},
		"policy":      {func(in inputs.Inputs) { inputs.NoteUnknown(in.Gateway.Policies[0].Value, "spec.x") }, "grpc Accepted, http Accepted, more Accepted, one Accepted, policy Invalid, tcp Accepted"},
		"ListenerSet": {func(in inputs.Inputs) { inputs.NoteUnknown(in.Gateway.Sets[0].Value, "spec.x") }, "grpc Accepted, http Accepted, more Invalid, one Accepted, policy Accepted, tcp Accepted"},
		"Gateway":     {func(in inputs.Inputs) { inputs.NoteUnknown(in.Gateway.Gateways[0].Value, "spec.x") }, "grpc Accepted, http Accepted, more ParentNotAccepted, one Invalid, policy Accepted, tcp Accepted"},
	} {
		in := gathered(t, text)
		c.note(in)
		_, found, v := gateway.Translate(in, usual)
		if got := accepted(v); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if reported := slices.ContainsFunc(found, func(d diag.Diagnostic) bool { return strings.Contains(d.Message, "the field spec.x is not known") }); reported != (name != "none") {
			t.Errorf("%s: reported %v: %v", name, reported, found)
		}
	}
}

// The note that an object has such a field comes only from the compiler. Notes from others are not shown.
func TestNotesOfUnknownFields(t *testing.T) {
	t.Parallel()
	for note, want := range map[string]string{"": "", "spec.rules[0].a-b_c": "spec.rules[0].a-b_c", "spec." + strings.Repeat("x", 300): "spec", "spec.a\nb": "spec", "other": "spec"} {
		r := &gatewayv1.HTTPRoute{}
		r.Annotations = map[string]string{"gateway.hapsnap.dev/unknown-field": "spec.forged", "other": "kept"}
		inputs.NoteUnknown(r, note)
		if got := inputs.UnknownField(r); got != want || r.Annotations["other"] != "kept" {
			t.Errorf("%q: %q, want %q: %v", note, got, want, r.Annotations)
		}
	}
	r := &gatewayv1.HTTPRoute{}
	for _, forged := range []string{"x", "spec.\x1b[31m", strings.Repeat("spec", 1000)} {
		r.Annotations = map[string]string{"gateway.hapsnap.dev/unknown-field": forged}
		if got := inputs.UnknownField(r); got != "" {
			t.Errorf("%q is shown", got)
		}
	}
}

// A grant with a field of a later version permits nothing.
func TestGrantWithUnknownField(t *testing.T) {
	t.Parallel()
	in := gathered(t, class+object("Gateway", "one", `{gatewayClassName: hapsnap, listeners: [{name: a, port: 80, protocol: HTTP}]}`)+
		strings.Replace(service("web"), "namespace: shop", "namespace: other", 1)+
		strings.Replace(object("ReferenceGrant", "all", `{from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: shop}], to: [{group: "", kind: Service}]}`), "namespace: shop}\nspec", "namespace: other}\nspec", 1)+
		object("HTTPRoute", "web", `{parentRefs: [{name: one}], rules: [{backendRefs: [{name: web, namespace: other, port: 80}]}]}`))
	resolved := func() string {
		_, _, v := gateway.Translate(in, usual)
		return gateway.Condition(v.Routes[0].Parents[0].Conditions, "ResolvedRefs").Reason
	}
	if got := resolved(); got != "ResolvedRefs" {
		t.Errorf("with the grant: %s", got)
	}
	inputs.NoteUnknown(in.Gateway.Grants[0].Value, "spec.to[0].x")
	if got := resolved(); got != "RefNotPermitted" {
		t.Errorf("with a field that limits it: %s", got)
	}
}
