package gateway

import (
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/features"

	"github.com/hapsnap/hapsnap/compiler/inputs"
)

// supported are the features that the status of a class claims (GEP-2162), in the order of their names.
// The official conformance suite runs the tests of those and of no others.
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

// experimental are the features that need fields of the experimental channel. TLSRouteModeMixed needs none,
// and the suite wants the listeners of who does not claim it to be in conflict.
var experimental = func() map[features.FeatureName]bool {
	out := map[features.FeatureName]bool{}
	for _, f := range features.AllFeatures.UnsortedList() {
		out[f.Name] = f.Channel == features.FeatureChannelExperimental && f.Name != features.SupportTLSRouteModeMixed
	}
	return out
}()

// supportedFeatures are those of a class. Gateways have addresses, and Services, only if the configuration
// gives them some; and what the cluster has no kinds and fields for, it is not told.
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
