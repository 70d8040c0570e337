package gateway_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/routing/modeltest"
)

// tlsOf is a listener with a TLS mode.
func tlsOf(name string, port int, mode, more string) string {
	return fmt.Sprintf("{name: %s, port: %d, protocol: TLS, tls: {mode: %s, certificateRefs: [{name: cert}]}%s}", name, port, mode, more)
}

func gatewayWith(name string, listeners ...string) string {
	return object("Gateway", name, "{gatewayClassName: hapsnap, listeners: ["+strings.Join(listeners, ", ")+"]}")
}

// leads is the spec of a route with one rule.
func leads(parent, more, refs string) string {
	return fmt.Sprintf("{parentRefs: [{%s}], %srules: [{backendRefs: [%s]}]}", parent, more, refs)
}

const (
	fine       = "Accepted=Accepted !Conflicted=NoConflicts ResolvedRefs=ResolvedRefs"
	accepted   = "Accepted=Accepted ResolvedRefs=ResolvedRefs"
	unresolved = "Accepted=Accepted !ResolvedRefs="
	notServed  = " !Programmed=Invalid"
	web        = "name: web, port: 80"
	exact      = ", hostname: www.example.com"
)

// tcp is a listener for TCPRoutes.
func tcp(name string, port int) string {
	return fmt.Sprintf("{name: %s, port: %d, protocol: TCP, allowedRoutes: {kinds: [{kind: TCPRoute}]}}", name, port)
}

// tcpRouteCases are objects, with the expected status of routes, and of listeners with their kinds and numbers
// of routes.
func tcpRouteCases() map[string]connectionCase {
	return map[string]connectionCase{
		"TCPRouteInvalidBackendRefNonexistent": {
			gatewayWith("g", tcp("tcp", 9300)) + object("TCPRoute", "r", leads("name: g, sectionName: tcp", "", "{name: gone, port: 80}")),
			map[string]string{"r": unresolved + "BackendNotFound", "tcp": "[TCPRoute] 1 " + fine},
		},
		"TCPRouteInvalidCrossNamespaceBackendRef": {
			gatewayWith("g", tcp("tcp", 9321)) + strings.ReplaceAll(service("web"), "shop", "other") + object("TCPRoute", "r", leads("name: g, sectionName: tcp", "", "{"+web+", namespace: other}")),
			map[string]string{"r": unresolved + "RefNotPermitted", "tcp": "[TCPRoute] 1 " + fine},
		},
		"TCPRouteReferenceGrant": {
			gatewayWith("g", tcp("tcp", 9300)) + strings.ReplaceAll(service("web"), "shop", "other") + object("TCPRoute", "r", leads("name: g", "", "{"+web+", namespace: other}")) +
				"---\napiVersion: gateway.networking.k8s.io/v1\nkind: ReferenceGrant\nmetadata: {name: a, namespace: other}\nspec: {from: [{group: gateway.networking.k8s.io, kind: TCPRoute, namespace: shop}], to: [{group: \"\", kind: Service}]}\n",
			map[string]string{"r": accepted, "tcp": "[TCPRoute] 1 " + fine},
		},
		"TCPRouteInvalidNonTCPListener": {
			gatewayWith("g", "{name: http, port: 5300, protocol: HTTP, allowedRoutes: {kinds: [{kind: HTTPRoute}]}}") + object("TCPRoute", "r", leads("name: g, sectionName: http", "", "{"+web+"}")),
			map[string]string{"r": "!Accepted=NotAllowedByListeners ResolvedRefs=ResolvedRefs", "http": "[HTTPRoute] 0 " + fine},
		},
		"TCPRouteMultipleRoutesAttachment": {
			gatewayWith("g", tcp("tcp", 9310)) + object("TCPRoute", "older", leads("name: g", "", "{"+web+"}")) + object("TCPRoute", "newer", leads("name: g, sectionName: tcp", "", "{"+web+"}")),
			map[string]string{"older": accepted, "newer": accepted, "tcp": "[TCPRoute] 2 " + fine},
		},
		"TCPRouteParentRefPortAndSectionName": {
			gatewayWith("g", tcp("one", 9300), tcp("two", 9301), tcp("three", 9302)) + object("TCPRoute", "port", leads("name: g, port: 9300", "", "{"+web+"}")) +
				object("TCPRoute", "section", leads("name: g, sectionName: two", "", "{"+web+"}")) + object("TCPRoute", "both", leads("name: g, sectionName: three, port: 9302", "", "{"+web+"}")) +
				object("TCPRoute", "neither", leads("name: g, sectionName: three, port: 9301", "", "{"+web+"}")),
			map[string]string{"port": accepted, "section": accepted, "both": accepted, "neither": "!Accepted=NoMatchingParent ResolvedRefs=ResolvedRefs",
				"one": "[TCPRoute] 1 " + fine, "two": "[TCPRoute] 1 " + fine, "three": "[TCPRoute] 1 " + fine},
		},
		"TCPRouteParentRefAttachAll": {
			gatewayWith("g", tcp("one", 9310), tcp("two", 9311), "{name: http, port: 80, protocol: HTTP}") + object("TCPRoute", "r", leads("name: g", "", "{"+web+"}")),
			map[string]string{"r": accepted, "one": "[TCPRoute] 1 " + fine, "two": "[TCPRoute] 1 " + fine, "http": "[HTTPRoute GRPCRoute] 0 " + fine},
		},
	}
}

// tlsRouteCases are the same for TLSRoutes, and for several protocols on one port.
func tlsRouteCases() map[string]connectionCase {
	return map[string]connectionCase{
		"TLSRouteInvalidBackendRefNonexistent": {
			gatewayWith("g", tlsOf("tls", 8443, "Passthrough", "")) + object("TLSRoute", "r", leads("name: g", "hostnames: [example.com], ", "{name: gone, port: 80}")),
			map[string]string{"r": unresolved + "BackendNotFound", "tls": "[TLSRoute] 1 " + fine},
		},
		"TLSRouteInvalidBackendRefUnknownKind": {
			gatewayWith("g", tlsOf("tls", 8443, "Passthrough", "")) + object("TLSRoute", "r", leads("name: g", "hostnames: [example.com], ", "{name: web, kind: Unknown, group: unknown, port: 80}")),
			map[string]string{"r": unresolved + "InvalidKind", "tls": "[TLSRoute] 1 " + fine},
		},
		"more backends than the API server takes": {
			gatewayWith("g", tlsOf("tls", 8443, "Passthrough", "")) + object("TLSRoute", "r", leads("name: g", "hostnames: [example.com], ", strings.Repeat("{"+web+"}, ", 17))) +
				object("TLSRoute", "most", leads("name: g", "hostnames: [most.example.com], ", strings.Repeat("{"+web+"}, ", 16))),
			map[string]string{"r": "!Accepted=UnsupportedValue ResolvedRefs=ResolvedRefs", "most": accepted, "tls": "[TLSRoute] 1 " + fine},
		},
		"TLSRouteInvalidNoMatchingListenerHostname": {
			gatewayWith("g", tlsOf("tls", 8443, "Passthrough", exact)) + object("TLSRoute", "r", leads("name: g", "hostnames: [www.nomatch.com, '*.nomatch.com'], ", "{"+web+"}")),
			map[string]string{"r": "!Accepted=NoMatchingListenerHostname ResolvedRefs=ResolvedRefs", "tls": "[TLSRoute] 0 " + fine},
		},
		"TLSRouteInvalidNoMatchingListener": {
			gatewayWith("g", tlsOf("tls", 8443, "Passthrough", ""), "{name: http, port: 80, protocol: HTTP}", "{name: https, port: 8444, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}") +
				object("TLSRoute", "http-only", leads("name: g, sectionName: http", "hostnames: [tls.example.com], ", "{"+web+"}")) + object("TLSRoute", "https-only", leads("name: g, sectionName: https", "hostnames: [tls.example.com], ", "{"+web+"}")) +
				object("TLSRoute", "section", leads("name: g, sectionName: gone", "hostnames: [tls.example.com], ", "{"+web+"}")),
			map[string]string{"http-only": "!Accepted=NotAllowedByListeners ResolvedRefs=ResolvedRefs", "https-only": "!Accepted=NotAllowedByListeners ResolvedRefs=ResolvedRefs", "section": "!Accepted=NoMatchingParent ResolvedRefs=ResolvedRefs",
				"tls": "[TLSRoute] 0 " + fine, "http": "[HTTPRoute GRPCRoute] 0 " + fine, "https": "[HTTPRoute GRPCRoute] 0 " + fine},
		},
		"TLSRouteListenerPassthroughSupportedKinds": {
			gatewayWith("g", tlsOf("tls", 8443, "Passthrough", ", allowedRoutes: {kinds: [{kind: TCPRoute}, {kind: TLSRoute}]}")),
			map[string]string{"tls": "[TLSRoute] 0 Accepted=Accepted !Conflicted=NoConflicts !ResolvedRefs=InvalidRouteKinds"},
		},
		"TLSRouteListenerTerminateSupportedKinds": {
			gatewayWith("g", tlsOf("tls", 8443, "Terminate", exact)), map[string]string{"tls": "[TLSRoute] 0 " + fine},
		},
		"TLSRouteMixedTerminationSameNamespace": {
			gatewayWith("g", tlsOf("end", 8883, "Terminate", ", hostname: tls.example.com"), tlsOf("pass", 8883, "Passthrough", ", hostname: abc.example.com")) +
				object("TLSRoute", "passed", leads("name: g", "hostnames: [abc.example.com], ", "{"+web+"}")) + object("TLSRoute", "ended", leads("name: g", "hostnames: [tls.example.com], ", "{"+web+"}")),
			map[string]string{"passed": accepted, "ended": accepted, "end": "[TLSRoute] 1 " + fine, "pass": "[TLSRoute] 1 " + fine},
		},
		"a certificate that is not there": {
			gatewayWith("g", strings.Replace(tlsOf("tls", 8443, "Terminate", ""), "name: cert", "name: gone", 1), strings.Replace(tlsOf("pass", 8444, "Passthrough", ""), "name: cert", "name: gone", 1)),
			map[string]string{"tls": "[TLSRoute] 0 Accepted=Accepted !Conflicted=NoConflicts !ResolvedRefs=InvalidCertificateRef", "pass": "[TLSRoute] 0 " + fine},
		},
		"what cannot have one port": {
			gatewayWith("g", "{name: tcp, port: 90, protocol: TCP}", tlsOf("tls", 90, "Passthrough", exact), "{name: http, port: 91, protocol: HTTP, hostname: a.example}", tlsOf("pass", 91, "Passthrough", exact),
				tlsOf("same", 92, "Passthrough", exact), "{name: https, port: 92, protocol: HTTPS, hostname: www.example.com, tls: {certificateRefs: [{name: cert}]}}", "{name: udp, port: 93, protocol: UDP}", "{name: together, port: 93, protocol: TCP}"),
			map[string]string{
				"tcp": "[TCPRoute] 0 !Accepted=ProtocolConflict Conflicted=ProtocolConflict ResolvedRefs=ResolvedRefs !Programmed=ProtocolConflict", "tls": "[TLSRoute] 0 !Accepted=ProtocolConflict Conflicted=ProtocolConflict ResolvedRefs=ResolvedRefs !Programmed=ProtocolConflict",
				"http": "[HTTPRoute GRPCRoute] 0 !Accepted=ProtocolConflict Conflicted=ProtocolConflict ResolvedRefs=ResolvedRefs !Programmed=ProtocolConflict", "pass": "[TLSRoute] 0 !Accepted=ProtocolConflict Conflicted=ProtocolConflict ResolvedRefs=ResolvedRefs !Programmed=ProtocolConflict",
				"same": "[TLSRoute] 0 !Accepted=HostnameConflict Conflicted=HostnameConflict ResolvedRefs=ResolvedRefs !Programmed=HostnameConflict", "https": "[HTTPRoute GRPCRoute] 0 !Accepted=HostnameConflict Conflicted=HostnameConflict ResolvedRefs=ResolvedRefs !Programmed=HostnameConflict",
				"udp": "[] 0 !Accepted=UnsupportedProtocol !Conflicted=NoConflicts ResolvedRefs=ResolvedRefs" + notServed, "together": "[TCPRoute] 0 " + fine,
			},
		},
		"a port that is taken": {
			gatewayWith("g", tlsOf("tls", 443, "Passthrough", "")), map[string]string{"tls": "[TLSRoute] 0 !Accepted=PortUnavailable !Conflicted=NoConflicts ResolvedRefs=ResolvedRefs" + notServed},
		},
		"routes that are not supported": {
			gatewayWith("g", tlsOf("tls", 8443, "Passthrough", ""), "{name: tcp, port: 90, protocol: TCP}", "{name: udp, port: 53, protocol: UDP}") +
				object("TLSRoute", "no-host", leads("name: g", "", "{"+web+"}")) + object("TLSRoute", "bad-host", leads("name: g", "hostnames: ['a b'], ", "{"+web+"}")) +
				object("TCPRoute", "no-rule", "{parentRefs: [{name: g}]}") + object("TCPRoute", "rules", "{parentRefs: [{name: g}], rules: [{}, {}]}") + object("UDPRoute", "udp-route", leads("name: g", "", "{"+web+"}")),
			map[string]string{
				"no-host": "!Accepted=UnsupportedValue ResolvedRefs=ResolvedRefs", "bad-host": "!Accepted=UnsupportedValue ResolvedRefs=ResolvedRefs", "no-rule": "!Accepted=UnsupportedValue ResolvedRefs=ResolvedRefs",
				"rules": "!Accepted=UnsupportedValue ResolvedRefs=ResolvedRefs", "udp-route": "!Accepted=UnsupportedProtocol ResolvedRefs=ResolvedRefs",
				"tls": "[TLSRoute] 0 " + fine, "tcp": "[TCPRoute] 0 " + fine, "udp": "[] 0 !Accepted=UnsupportedProtocol !Conflicted=NoConflicts ResolvedRefs=ResolvedRefs" + notServed,
			},
		},
	}
}

type connectionCase struct {
	yaml string
	want map[string]string
}

// The status of TLSRoutes, TCPRoutes and their listeners is what the official conformance tests expect. Each
// case is named by the test with the same objects.
func TestConnectionVerdicts(t *testing.T) {
	t.Parallel()
	cases := tcpRouteCases()
	maps.Copy(cases, tlsRouteCases())
	for name, c := range cases {
		yaml := class + service("web") + c.yaml
		in := gathered(t, yaml)
		cfg := usual
		cfg.SecretsUnseen = !strings.Contains(name, "certificate")
		model, _, v := gateway.Translate(in, cfg)
		if err := modeltest.Check(model); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got := map[string]string{}
		for _, g := range v.Gateways {
			for _, l := range g.Status.Listeners {
				var kinds []string
				for _, k := range l.SupportedKinds {
					kinds = append(kinds, string(k.Kind))
				}
				got[string(l.Name)] = fmt.Sprint(kinds, " ", l.AttachedRoutes, " ", conditionsOf(l.Conditions))
			}
		}
		for _, r := range v.Routes {
			got[r.Ref.Name] = conditionsOf(r.Parents[0].Conditions)
		}
		for _, key := range slices.Sorted(maps.Keys(c.want)) {
			if got[key] != c.want[key] {
				t.Errorf("%s, %s:\n%s, want\n%s", name, key, got[key], c.want[key])
			}
			delete(got, key)
		}
		if len(got) > 0 {
			t.Errorf("%s: and %v", name, got)
		}
	}
}

// The order of objects does not matter. Of two routes with the same age, the first one by name wins.
func TestConnectionsIgnoreOrder(t *testing.T) {
	t.Parallel()
	in := gathered(t, class+service("a")+service("b")+gatewayWith("g", tcp("tcp", 90), tlsOf("pass", 91, "Passthrough", ""), tlsOf("end", 91, "Terminate", exact))+
		object("TCPRoute", "second", leads("name: g", "", "{name: b, port: 80}"))+object("TCPRoute", "first", leads("name: g", "", "{name: a, port: 80}"))+
		object("TLSRoute", "second", leads("name: g", "hostnames: ['*.example.com'], ", "{name: b, port: 80}"))+object("TLSRoute", "first", leads("name: g", "hostnames: ['*.example.com'], ", "{name: a, port: 80}")))
	cfg := usual
	cfg.SecretsUnseen = true
	model, found, verdicts := gateway.Translate(in, cfg)
	slices.Reverse(in.Gateway.TCPRoutes)
	slices.Reverse(in.Gateway.TLSRoutes)
	slices.Reverse(in.Services)
	again, said, judged := gateway.Translate(in, cfg)
	if !reflect.DeepEqual(again, model) || !reflect.DeepEqual(said, found) || !reflect.DeepEqual(judged, verdicts) {
		t.Error("another order means something else")
	}
	var got []string
	for _, l := range model.Listeners {
		for _, r := range l.Routes {
			got = append(got, fmt.Sprint(l.Port, " ", r.SNI, " ", r.Backend, " ", r.Terminate))
		}
	}
	if want := []string{"90  shop_a_80:tcp false", "91 .example.com shop_a_80:tls false", "91 www.example.com shop_a_80:tcp true"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Routes of two kinds with the same name share nothing.
func TestSplitsOfSeveralKinds(t *testing.T) {
	t.Parallel()
	refs := "{name: a, port: 80}, {name: b, port: 80}"
	model, _, _ := gateway.Translate(gathered(t, class+service("a")+service("b")+gatewayWith("g", "{name: http, port: 80, protocol: HTTP}", "{name: tcp, port: 90, protocol: TCP}", tlsOf("tls", 91, "Passthrough", ""))+
		object("HTTPRoute", "r", leads("name: g", "hostnames: [y.example], ", refs))+object("GRPCRoute", "r", leads("name: g", "hostnames: [x.example], ", refs))+object("TCPRoute", "r", leads("name: g", "", refs))+
		object("TLSRoute", "r", leads("name: g", "hostnames: [x.example], ", refs))), usual)
	if err := modeltest.Check(model); err != nil {
		t.Error(err)
	}
	if len(model.Splits) != 4 || len(model.ConnectionBackends) != 4 {
		t.Errorf("%d splits, %d backends of connections: %+v", len(model.Splits), len(model.ConnectionBackends), model.Splits)
	}
}
