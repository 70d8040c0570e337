package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/consts"
	"sigs.k8s.io/gateway-api/pkg/features"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
)

// release is the release of the Gateway API whose types the compiler uses, such as "v1.6". Its patches change no field.
var release = consts.BundleVersion[:strings.LastIndex(consts.BundleVersion, ".")]

// api is what the CustomResourceDefinitions of a cluster say about its Gateway API.
type api struct {
	// bundles are the versions in the definitions, sorted, with "" for a definition without a version. If there are
	// none, nothing is known.
	bundles []string
	// unread says that the compiler may not read some of the definitions.
	unread bool
	// experimental says that all definitions are of the experimental channel.
	experimental bool
	// served are the versions of each kind that the cluster serves.
	served map[string][]string
}

func apiOf(in inputs.Inputs) api {
	out := api{served: map[string][]string{}, experimental: len(in.Gateway.Definitions) > 0}
	for _, d := range in.Gateway.Definitions {
		out.bundles = append(out.bundles, d.Value.Bundle())
		out.experimental = out.experimental && d.Value.IsExperimental()
		out.served[d.Value.Spec.Names.Kind] = d.Value.Serves()
	}
	slices.Sort(out.bundles)
	out.bundles = slices.Compact(out.bundles)
	out.unread = slices.ContainsFunc(in.Unread, func(o diag.Object) bool { return o.Kind == inputs.DefinitionKind })
	return out
}

// reads reports whether objects of a kind can be read. The compiler reads version v1.
func (a api) reads(kind string) bool {
	return len(a.bundles) == 0 || a.unread || slices.Contains(a.served[kind], "v1")
}

// unsupportedBundle reports whether a version belongs to another release than the types that the compiler uses.
func unsupportedBundle(bundle string) bool {
	patch, is := strings.CutPrefix(bundle, release+".")
	return !is || patch == "" || strings.Trim(patch, "0123456789") != ""
}

// version returns the condition of a class that says whether the cluster's version of the API is supported. If it is
// not, objects are still read, as far as the types of this release allow.
func (a api) version(generation int64) metav1.Condition {
	c := metav1.Condition{Type: string(gatewayv1.GatewayClassConditionStatusSupportedVersion), ObservedGeneration: generation}
	switch {
	case slices.ContainsFunc(a.bundles, unsupportedBundle):
		c.Status, c.Reason = metav1.ConditionFalse, string(gatewayv1.GatewayClassReasonUnsupportedVersion)
		c.Message = a.unsupported() + "; an object with a field that is not known is not accepted"
	case a.unread:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "NotPermitted", "the compiler may not read the CustomResourceDefinitions of the Gateway API"
	case len(a.bundles) == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "NotFound", "there is no CustomResourceDefinition of the Gateway API that says a version"
	default:
		c.Status, c.Reason = metav1.ConditionTrue, string(gatewayv1.GatewayClassReasonSupportedVersion)
	}
	return c
}

func (a api) unsupported() string {
	var named []string
	for _, b := range a.bundles {
		named = append(named, cmp.Or(b, "no version"))
	}
	return fmt.Sprintf("the CustomResourceDefinitions are of %s, and %s is supported", strings.Join(named, " and "), release)
}

// warnings returns what an operator should know about the cluster's version, sorted.
func (a api) warnings() []diag.Diagnostic {
	const install = "install the CustomResourceDefinitions of "
	var out []diag.Diagnostic
	warn := func(hint, format string, args ...any) {
		out = append(out, diag.Diagnostic{Severity: diag.Warning, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	if slices.ContainsFunc(a.bundles, unsupportedBundle) {
		warn(install+release, "%s", a.unsupported())
	}
	if a.unread {
		warn("apply the roles that `compiler rbac` prints", "the compiler may not read the CustomResourceDefinitions of the Gateway API, and does not know their version")
		return out
	}
	for _, k := range inputs.GatewayKinds() {
		kind := k.Name
		versions, is := a.served[kind]
		switch {
		case a.reads(kind):
		case is:
			lost := ""
			if kind == policyKind {
				lost = "; servers are spoken to as if there were none"
			}
			warn(install+release, "objects %s of %s are not read%s: the cluster has no v1 of them", kind, cmp.Or(strings.Join(versions, ", "), "no version"), lost)
		case kind == policyKind:
			warn(install+release, "the cluster has no %s: TLS to servers can only be asked for by annotations", kind)
		}
	}
	return out
}

const policyKind = "BackendTLSPolicy"

// supported are the features that the status of a class claims (GEP-2162), in the order of their names. The official
// conformance suite runs only the tests of these.
var supported = []features.FeatureName{
	features.SupportBackendTLSPolicy,
	features.SupportGRPCRoute,
	features.SupportGRPCRouteNamedRouteRule,
	features.SupportGateway,
	features.SupportGatewayAddressEmpty,
	features.SupportGatewayBackendClientCertificate,
	features.SupportGatewayFrontendClientCertificateValidation,
	features.SupportGatewayFrontendClientCertificateValidationInsecureFallback,
	features.SupportGatewayHTTPListenerIsolation,
	features.SupportGatewayHTTPSListenerDetectMisdirectedRequests,
	features.SupportGatewayInfrastructure,
	features.SupportGatewayPort8080,
	features.SupportGatewayStaticAddresses,
	features.SupportHTTPRoute,
	features.SupportHTTPRoute303RedirectStatusCode,
	features.SupportHTTPRoute307RedirectStatusCode,
	features.SupportHTTPRoute308RedirectStatusCode,
	features.SupportHTTPRouteBackendProtocolH2C,
	features.SupportHTTPRouteBackendProtocolWebSocket,
	features.SupportHTTPRouteBackendRequestHeaderModification,
	features.SupportHTTPRouteBackendTimeout,
	features.SupportHTTPRouteCORS,
	features.SupportHTTPRouteDestinationPortMatching,
	features.SupportHTTPRouteHostRewrite,
	features.SupportHTTPRouteMethodMatching,
	features.SupportHTTPRouteNamedRouteRule,
	features.SupportHTTPRouteParentRefPort,
	features.SupportHTTPRoutePathRedirect,
	features.SupportHTTPRoutePathRewrite,
	features.SupportHTTPRoutePortRedirect,
	features.SupportHTTPRouteQueryParamMatching,
	features.SupportHTTPRouteRequestMirror,
	features.SupportHTTPRouteRequestMultipleMirrors,
	features.SupportHTTPRouteRequestPercentageMirror,
	features.SupportHTTPRouteRequestTimeout,
	features.SupportHTTPRouteResponseHeaderModification,
	features.SupportHTTPRouteRetry,
	features.SupportHTTPRouteRetryBackendTimeout,
	features.SupportHTTPRouteRetryConnectionError,
	features.SupportHTTPRouteSchemeRedirect,
	features.SupportListenerSet,
	features.SupportReferenceGrant,
	features.SupportTCPRoute,
	features.SupportTLSRoute,
	features.SupportTLSRouteModeMixed,
	features.SupportTLSRouteModeTerminate,
}

// experimental are the features that need fields of the experimental channel. TLSRouteModeMixed needs none. But if a
// class does not claim it, the suite expects that the listeners conflict.
var experimental = func() map[features.FeatureName]bool {
	out := map[features.FeatureName]bool{}
	for _, f := range features.AllFeatures.UnsortedList() {
		out[f.Name] = f.Channel == features.FeatureChannelExperimental && f.Name != features.SupportTLSRouteModeMixed
	}
	return out
}()

// supportedFeatures returns the features that a class claims. Gateways have addresses and Services only if the
// configuration says so. Features for which the cluster lacks kinds or fields are left out.
func (c Config) supportedFeatures(of api) []gatewayv1.SupportedFeature {
	var out []gatewayv1.SupportedFeature
	for _, name := range supported {
		missing := func(kind inputs.GatewayKind) bool {
			return strings.HasPrefix(string(name), kind.Name) && !of.reads(kind.Name)
		}
		if experimental[name] && !of.experimental || slices.ContainsFunc(inputs.GatewayKinds(), missing) {
			continue
		}
		switch name {
		case features.SupportGatewayStaticAddresses, features.SupportGatewayAddressEmpty:
			if len(c.Addresses) == 0 {
				continue
			}
		case features.SupportGatewayInfrastructure:
			if !c.Services.Enabled {
				continue
			}
		}
		out = append(out, gatewayv1.SupportedFeature{Name: gatewayv1.FeatureName(name)})
	}
	return out
}
