package gatewayapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/migrate/gatewayapi"
)

// pathsOf is an Ingress with paths of a host, for the Service web of its namespace.
func pathsOf(namespace, name, metadata, spec, host string, paths ...string) string {
	out := fmt.Sprintf("---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {namespace: %s, name: %s%s}\nspec:\n%s  rules:\n  - host: %q\n    http:\n      paths:\n", namespace, name, metadata, spec, host)
	for _, path := range paths {
		out += fmt.Sprintf("      - {path: %q, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}\n", path)
	}
	return out
}

const ofClass = "  ingressClassName: hapsnap\n"

func service(namespace, name string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {namespace: %s, name: %s}\nspec: {ports: [{port: 80}]}\n", namespace, name)
}

// made is the result for some manifests.
type made struct {
	gatewayapi.Result
	gateway gatewayv1.Gateway
	sets    []gatewayv1.ListenerSet
	routes  []gatewayv1.HTTPRoute
	tls     []gatewayv1.TLSRoute
	grants  []gatewayv1.ReferenceGrant
}

// movedTo moves manifests.
func movedTo(t *testing.T, o gatewayapi.Options, manifests string) made {
	t.Helper()
	directory(t, []byte(manifests))
	result, err := gatewayapi.Directory(".", o)
	if err != nil {
		t.Fatal(err)
	}
	out := made{Result: result}
	for text := range strings.SplitSeq(string(result.Manifests), "---\n") {
		var kind struct{ Kind string }
		read := func(into any) {
			if err := yaml.Unmarshal([]byte(text), into); err != nil {
				t.Fatal(err, text)
			}
		}
		read(&kind)
		switch kind.Kind {
		case "Gateway":
			read(&out.gateway)
		case "ListenerSet":
			out.sets = append(out.sets, gatewayv1.ListenerSet{})
			read(&out.sets[len(out.sets)-1])
		case "HTTPRoute":
			out.routes = append(out.routes, gatewayv1.HTTPRoute{})
			read(&out.routes[len(out.routes)-1])
		case "TLSRoute":
			out.tls = append(out.tls, gatewayv1.TLSRoute{})
			read(&out.tls[len(out.tls)-1])
		case "ReferenceGrant":
			out.grants = append(out.grants, gatewayv1.ReferenceGrant{})
			read(&out.grants[len(out.grants)-1])
		}
	}
	return out
}

// says reports whether a finding contains all parts.
func (m made) says(parts ...string) bool {
	for _, d := range m.Findings {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(d.String(), part) }) {
			return true
		}
	}
	return false
}

// allowed returns the namespaces that may attach routes to each listener. "Same" stands for the Gateway's
// namespace.
func (m made) allowed(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, l := range m.gateway.Spec.Listeners {
		out[string(l.Name)] = "Same"
		if l.AllowedRoutes == nil {
			continue
		}
		by := l.AllowedRoutes.Namespaces
		if *by.From != gatewayv1.NamespacesFromSelector || len(by.Selector.MatchExpressions) != 1 || by.Selector.MatchExpressions[0].Key != "kubernetes.io/metadata.name" || by.Selector.MatchExpressions[0].Operator != "In" {
			t.Errorf("listener %s allows %+v", l.Name, *by)
			continue
		}
		out[string(l.Name)] = strings.Join(by.Selector.MatchExpressions[0].Values, " ")
	}
	return out
}

// Only namespaces with routes on a listener may attach routes to it. Hosts that the configuration reserves for
// a namespace cannot be taken by others.
func TestKeptHosts(t *testing.T) {
	set := service("shop", "web") + service("evil", "web") + pathsOf("shop", "web", "", ofClass, "www.corp.example", "/") + pathsOf("evil", "x", "", ofClass, "evil.example", "/")
	m := movedTo(t, standard(), set)
	if got := fmt.Sprint(m.allowed(t)); got != "map[http:evil shop]" || m.says("listener http has routes") {
		t.Error(got, m.Findings)
	}
	for _, owned := range []bool{true, false} {
		o := standard()
		o.Ingresses.OwnedHosts = owned
		if !owned {
			o.Ingresses.ReservedDomains = []config.ReservedDomain{{Domain: "corp.example", Namespaces: []string{"shop"}}}
		}
		m = movedTo(t, o, set)
		if got := m.allowed(t); got["http"] != "Same" || got["http-www.corp.example"] != "shop" || got["http-evil.example"] != "evil" || m.says("listener http") {
			t.Error(got, m.Findings)
		}
		all := "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {namespace: other, name: all}\nspec: {ingressClassName: hapsnap, defaultBackend: {service: {name: web, port: {number: 80}}}}\n"
		m = movedTo(t, o, set+service("other", "web")+all)
		if got := m.allowed(t); got["http"] != "other" || got["http-www.corp.example"] != "other shop" || !m.says("Gateway infra/web", "listener http-www.corp.example has routes of the namespaces other, shop", "may take paths of www.corp.example") || m.says("listener http has") {
			t.Error(got, m.Findings)
		}
	}
	o := standard()
	o.Gateway.Namespace = "shop"
	if got := fmt.Sprint(movedTo(t, o, service("shop", "web")+pathsOf("shop", "web", "", ofClass, "a.example", "/")).allowed(t)); got != "map[http:Same]" {
		t.Error(got)
	}
}

// Namespaces from which the configuration reads nothing take no hosts.
func TestNamespacesThatAreNotRead(t *testing.T) {
	set := service("shop", "web") + service("aevil", "web") + pathsOf("shop", "web", "", ofClass, "shop.example", "/") + pathsOf("aevil", "z", "", ofClass, "shop.example", "/") +
		"---\n{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {of: us}}}\n"
	byName, byLabel := standard(), standard()
	byName.Config.Namespaces = []string{"shop"}
	byLabel.Config.NamespaceSelector = "of=us"
	for _, o := range []gatewayapi.Options{byName, byLabel} {
		m := movedTo(t, o, set)
		if len(m.routes) != 1 || m.routes[0].Namespace != "shop" || m.Ingresses != 1 || !m.says("Ingress aevil/z", "it is not moved, since the configuration reads nothing from its namespace") {
			t.Error(string(m.Manifests), m.Findings)
		}
	}
}

// The age in a manifest counts only if the configuration trusts it.
func TestAgesOfManifests(t *testing.T) {
	set := service("shop", "web") + service("zevil", "web") + pathsOf("shop", "web", "", ofClass, "shop.example", "/") + pathsOf("zevil", "z", `, creationTimestamp: "2000-01-01T00:00:00Z"`, ofClass, "shop.example", "/")
	for trusts, want := range map[bool]string{false: "shop", true: "zevil"} {
		o := standard()
		o.Config.TrustFileAges = trusts
		if m := movedTo(t, o, set); len(m.routes) != 1 || m.routes[0].Namespace != want {
			t.Error(trusts, string(m.Manifests))
		}
	}
}
