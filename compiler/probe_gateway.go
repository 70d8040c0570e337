package compiler

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// withProbeGateway adds a Gateway to the model of the probe. The Gateway has ports that nothing else has, and routes
// that use everything for which templates write something.
func withProbeGateway(model routing.Model, cfg config.Config) routing.Model {
	in := probeInputs()
	// Ports that neither the configuration nor a listener of the model has.
	taken := cfg.Ports()
	for _, l := range model.Listeners {
		taken[l.Port] = l.Name
	}
	var ports []gatewayv1.PortNumber
	for port := 65535; len(ports) < 7; port-- {
		if _, is := taken[port]; !is {
			ports = append(ports, gatewayv1.PortNumber(port))
		}
	}
	plain, encrypted, mixed, asking := ports[0], ports[1], ports[2], ports[5]
	in.ConfigMaps = append(in.ConfigMaps, inputs.Object[corev1.ConfigMap]{
		Ref: diag.Object{Kind: "ConfigMap", Namespace: "hapsnap", Name: "authorities"}, Value: &corev1.ConfigMap{Data: map[string]string{"ca.crt": probeAuthority}},
	})
	guarded := probeRoute("guarded", nil, []gatewayv1.HTTPRouteRule{{BackendRefs: probeRefs("probe")}})
	guarded.Value.Spec.ParentRefs[0].Name = "guarded"
	in.Gateway = inputs.GatewayAPI{
		Classes: []inputs.Object[gatewayv1.GatewayClass]{{
			Ref:   diag.Object{Kind: "GatewayClass", Name: "probe"},
			Value: &gatewayv1.GatewayClass{Spec: gatewayv1.GatewayClassSpec{ControllerName: probeController}},
		}},
		Gateways: []inputs.Object[gatewayv1.Gateway]{{
			Ref: probeOrigin("Gateway").Object,
			Value: &gatewayv1.Gateway{Spec: gatewayv1.GatewaySpec{GatewayClassName: "probe", TLS: probeClients(mixed, ports[3]), Listeners: []gatewayv1.Listener{
				{Name: "http", Port: plain, Protocol: gatewayv1.HTTPProtocolType},
				probeSecure("https", "", encrypted), probeSecure("wild", "*.secure.probe.invalid", encrypted), probeSecure("one", "one.secure.probe.invalid", encrypted),
				probeSecure("beside", "", mixed), probeTLS("ended", "ended.probe.invalid", mixed, gatewayv1.TLSModeTerminate), probeTLS("passed", "*.passed.probe.invalid", mixed, gatewayv1.TLSModePassthrough),
				probeTLS("end", "*.end.probe.invalid", ports[3], gatewayv1.TLSModeTerminate), {Name: "tcp", Port: ports[4], Protocol: gatewayv1.TCPProtocolType},
				probeSecure("asking", "", asking),
			}}},
		}, probeGuarded(ports[6])},
		HTTPRoutes: []inputs.Object[gatewayv1.HTTPRoute]{
			probeRoute("probe", []gatewayv1.Hostname{"*.probe.invalid", "a.probe.invalid"}, probeRules()),
			guarded, probeRoute("rest", nil, []gatewayv1.HTTPRouteRule{{BackendRefs: probeRefs("probe")}}),
		},
		TLSRoutes: []inputs.Object[gatewayv1.TLSRoute]{{
			Ref: diag.Object{Kind: "TLSRoute", Namespace: "hapsnap", Name: "probe"},
			Value: &gatewayv1.TLSRoute{Spec: gatewayv1.TLSRouteSpec{
				CommonRouteSpec: probeParent(), Hostnames: []gatewayv1.Hostname{"*.probe.invalid", "one.passed.probe.invalid"}, Rules: []gatewayv1.TLSRouteRule{{BackendRefs: probeBackends()}},
			}},
		}},
		TCPRoutes: []inputs.Object[gatewayv1.TCPRoute]{{
			Ref:   diag.Object{Kind: "TCPRoute", Namespace: "hapsnap", Name: "probe"},
			Value: &gatewayv1.TCPRoute{Spec: gatewayv1.TCPRouteSpec{CommonRouteSpec: probeParent(), Rules: []gatewayv1.TCPRouteRule{{BackendRefs: probeBackends()}}}},
		}},
	}
	part, _, _ := gateway.Translate(in, gateway.Config{Controller: probeController, Ports: cfg.Ports(), Form: routing.FormOf(cfg.Paths), SecretsUnseen: true})
	joined, _ := model.With(part) // the two models share no names
	return joined
}

// probeGuarded returns a Gateway with options that protect something.
func probeGuarded(port gatewayv1.PortNumber) inputs.Object[gatewayv1.Gateway] {
	ref := diag.Object{Kind: "Gateway", Namespace: "hapsnap", Name: "guarded"}
	return inputs.Object[gatewayv1.Gateway]{Ref: ref, Value: &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, Annotations: map[string]string{
			options.Prefix + "allow-list": "192.0.2.0/24", options.Prefix + "deny-list": "192.0.2.1", options.Prefix + "auth-basic": "probe",
		}},
		Spec: gatewayv1.GatewaySpec{GatewayClassName: "probe", Listeners: []gatewayv1.Listener{{Name: "guarded", Port: port, Protocol: gatewayv1.HTTPProtocolType}}},
	}}
}

// probeClients asks clients for certificates. At the strict ports it asks for one of an authority, at all others for
// any certificate.
func probeClients(strict ...gatewayv1.PortNumber) *gatewayv1.GatewayTLSConfig {
	validation := func(mode gatewayv1.FrontendValidationModeType) gatewayv1.TLSConfig {
		return gatewayv1.TLSConfig{Validation: &gatewayv1.FrontendTLSValidation{Mode: mode, CACertificateRefs: []gatewayv1.ObjectReference{{Kind: "ConfigMap", Name: "authorities"}}}}
	}
	out := &gatewayv1.FrontendTLSConfig{Default: validation(gatewayv1.AllowInsecureFallback)}
	for _, port := range strict {
		out.PerPort = append(out.PerPort, gatewayv1.TLSPortConfig{Port: port, TLS: validation(gatewayv1.AllowValidOnly)})
	}
	return &gatewayv1.GatewayTLSConfig{Frontend: out}
}

// probeAuthority is a certificate. Nobody has its key.
const probeAuthority = `-----BEGIN CERTIFICATE-----
MIIBiDCCAS2gAwIBAgIUL4QLUP/FSCJEK8Nj+3QjEiVHb50wCgYIKoZIzj0EAwIw
GDEWMBQGA1UEAwwNcHJvYmUuaW52YWxpZDAgFw0yNjExMjMyMjEwMjNaGA8yMTI2
MTAzMDIyMTAyM1owGDEWMBQGA1UEAwwNcHJvYmUuaW52YWxpZDBZMBMGByqGSM49
AgEGCCqGSM49AwEHA0IABHgOAWH9kwrU6CDB0QF7qa7VvY9DaYtCdLCwlumM2jIa
PCKslk2YxKkgmzTBOzCapp8hU2VgIt0/xLDRSF6v1e6jUzBRMB0GA1UdDgQWBBQz
Tf2MJeMaGH8ENkKEH4uJx2z17jAfBgNVHSMEGDAWgBQzTf2MJeMaGH8ENkKEH4uJ
x2z17jAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0kAMEYCIQCk4sTdcvxg
C7WYvxln7/ZHn/m1M4TjJUE7r+AIH4FnAwIhANU6o27EQdepvcrLcCT0mmkDecry
nmHpu0aBSZGV4J4H
-----END CERTIFICATE-----
`

const probeController = "probe.invalid/gateway-controller"

func probeSecure(name gatewayv1.SectionName, host gatewayv1.Hostname, port gatewayv1.PortNumber) gatewayv1.Listener {
	secret := gatewayv1.ObjectName("probe-" + string(name))
	return gatewayv1.Listener{
		Name: name, Hostname: &host, Port: port, Protocol: gatewayv1.HTTPSProtocolType,
		TLS: &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: secret}}},
	}
}

func probeTLS(name gatewayv1.SectionName, host gatewayv1.Hostname, port gatewayv1.PortNumber, mode gatewayv1.TLSModeType) gatewayv1.Listener {
	out := probeSecure(name, host, port)
	out.Protocol, out.TLS.Mode = gatewayv1.TLSProtocolType, &mode
	return out
}

func probeParent() gatewayv1.CommonRouteSpec {
	return gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "probe"}}}
}

func probeBackends() []gatewayv1.BackendRef {
	var out []gatewayv1.BackendRef
	for _, ref := range probeRefs("probe", "canary") {
		out = append(out, ref.BackendRef)
	}
	return out
}

func probeRoute(name string, hosts []gatewayv1.Hostname, rules []gatewayv1.HTTPRouteRule) inputs.Object[gatewayv1.HTTPRoute] {
	return inputs.Object[gatewayv1.HTTPRoute]{
		Ref: diag.Object{Kind: "HTTPRoute", Namespace: "hapsnap", Name: name},
		Value: &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "hapsnap", Name: name}, Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: probeParent(), Hostnames: hosts, Rules: rules,
		}},
	}
}

func probeRefs(services ...gatewayv1.ObjectName) []gatewayv1.HTTPBackendRef {
	var out []gatewayv1.HTTPBackendRef
	for _, s := range services {
		ref := gatewayv1.HTTPBackendRef{}
		ref.Name, ref.Port = s, new(gatewayv1.PortNumber(80))
		out = append(out, ref)
	}
	return out
}

// probeMirror returns a filter that copies a share of the requests.
func probeMirror(share int32) gatewayv1.HTTPRouteFilter {
	to := probeRefs("canary")[0].BackendObjectReference
	return gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterRequestMirror, RequestMirror: &gatewayv1.HTTPRequestMirrorFilter{BackendRef: to, Percent: &share}}
}

// probeRules returns rules with conditions of every kind, splits, and the filters that only routes of Gateways have.
func probeRules() []gatewayv1.HTTPRouteRule {
	path := func(value string) []gatewayv1.HTTPRouteMatch {
		return []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{Value: &value}}}
	}
	redirect := func(value string, r gatewayv1.HTTPRequestRedirectFilter) gatewayv1.HTTPRouteRule {
		return gatewayv1.HTTPRouteRule{Matches: path(value), Filters: []gatewayv1.HTTPRouteFilter{{Type: gatewayv1.HTTPRouteFilterRequestRedirect, RequestRedirect: &r}}}
	}
	cors := func(value string, c gatewayv1.HTTPCORSFilter) gatewayv1.HTTPRouteRule {
		return gatewayv1.HTTPRouteRule{Matches: path(value), Filters: []gatewayv1.HTTPRouteFilter{{Type: gatewayv1.HTTPRouteFilterCORS, CORS: &c}}, BackendRefs: probeRefs("probe")}
	}
	return []gatewayv1.HTTPRouteRule{
		{
			Matches: []gatewayv1.HTTPRouteMatch{{
				Path:        &gatewayv1.HTTPPathMatch{Type: new(gatewayv1.PathMatchRegularExpression), Value: new("/probe[0-9]")},
				Method:      new(gatewayv1.HTTPMethodGet),
				Headers:     []gatewayv1.HTTPHeaderMatch{{Name: "X-Probe", Value: "probe"}, {Type: new(gatewayv1.HeaderMatchRegularExpression), Name: "X-Other", Value: "probe"}},
				QueryParams: []gatewayv1.HTTPQueryParamMatch{{Name: "probe", Value: "probe"}, {Type: new(gatewayv1.QueryParamMatchRegularExpression), Name: "other", Value: "probe"}},
			}},
			BackendRefs: probeRefs("probe", "canary"),
		},
		{Matches: path("/mirrored"), Filters: []gatewayv1.HTTPRouteFilter{probeMirror(100), probeMirror(50)}, BackendRefs: probeRefs("probe")},
		{Matches: path("/missing"), BackendRefs: probeRefs("missing")},
		{Matches: path("/again"), Retry: &gatewayv1.HTTPRouteRetry{Codes: []gatewayv1.HTTPRouteRetryStatusCode{500}}, BackendRefs: probeRefs("probe")},
		redirect("/here", gatewayv1.HTTPRequestRedirectFilter{}),
		redirect("/there", gatewayv1.HTTPRequestRedirectFilter{Scheme: new("https"), Hostname: new(gatewayv1.PreciseHostname("probe.invalid")), Port: new(gatewayv1.PortNumber(8443))}),
		cors("/cors", gatewayv1.HTTPCORSFilter{AllowOrigins: []gatewayv1.CORSOrigin{"https://probe.invalid"}, AllowMethods: []gatewayv1.HTTPMethodWithWildcard{"*"}, AllowHeaders: []gatewayv1.HTTPHeaderName{"*"}}),
	}
}
