package gatewayapi_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/migrate/gatewayapi"
	"github.com/hapsnap/hapsnap/compiler/options"
)

// The API server with its schemas accepts the result of every annotation, for several paths of several hosts.
func TestEveryAnnotationIsTaken(t *testing.T) {
	cluster := withGatewayAPI(t)
	namespace := cluster.Namespace(t)
	set := service(namespace, "web")
	for _, o := range options.All() {
		if o.On == options.OnService || o.Example == "" {
			continue
		}
		metadata := fmt.Sprintf(", annotations: {%s: %q}", options.Prefix+o.Name, o.Example)
		set += pathsOf(namespace, o.Name, metadata, ofClass, o.Name+".example", "/", "/a", "/b/c") + pathsOf(namespace, o.Name+"-any", metadata, ofClass, "*."+o.Name+".example", "/a", "/b")
	}
	set += pathsOf(namespace, "whole", `, annotations: {hapsnap.dev/rewrite-path: "/"}`, ofClass, "whole.example", "/a", "/b")
	o := standard()
	o.Gateway.Namespace = namespace
	m := movedTo(t, o, set)
	replacing := 0
	for _, r := range m.routes {
		for _, rule := range r.Spec.Rules {
			if slices.ContainsFunc(rule.Filters, func(f gatewayv1.HTTPRouteFilter) bool {
				return f.URLRewrite != nil && f.URLRewrite.Path != nil && f.URLRewrite.Path.Type == gatewayv1.PrefixMatchHTTPPathModifier
			}) {
				replacing++
			}
		}
	}
	if len(m.routes) < 50 || replacing < 2 {
		t.Errorf("%d routes, and %d rules that replace a prefix", len(m.routes), replacing)
	}
	cluster.Apply(t, string(m.Manifests))
}

// Listeners for connections that are passed through have names of their own, whatever the hosts. If the Service
// speaks another protocol to endpoints than the Ingress, the connections are closed.
func TestPassedOn(t *testing.T) {
	cluster := withGatewayAPI(t)
	const passed = `, annotations: {hapsnap.dev/ssl-passthrough: "true"%s}`
	long := strings.Repeat(strings.Repeat("a", 60)+".", 4) + "example"
	set := service("shop", "web") + pathsOf("shop", "w", fmt.Sprintf(passed, ""), ofClass, "*.foo.com", "/") +
		pathsOf("shop", "a", fmt.Sprintf(passed, `, hapsnap.dev/send-proxy-protocol: v2`), ofClass, "any.foo.com", "/") +
		pathsOf("shop", "l", fmt.Sprintf(passed, ""), ofClass, long, "/")
	m := movedTo(t, standard(), set)
	names := map[gatewayv1.SectionName]bool{}
	passing := 0
	for _, l := range m.gateway.Spec.Listeners {
		if names[l.Name] || len(l.Name) > 253 {
			t.Errorf("listener %s", l.Name)
		}
		names[l.Name] = true
		if l.Protocol == gatewayv1.TLSProtocolType {
			passing++
		}
	}
	if passing != 3 || !m.says("Ingress shop/a", "connections for host any.foo.com cannot be moved", "they are closed") {
		t.Error(passing, m.Findings)
	}
	for _, r := range m.tls {
		if !slices.Contains([]string{"w", "l"}, r.Name) || !names[*r.Spec.ParentRefs[0].SectionName] {
			t.Errorf("TLSRoute %s: %+v", r.Name, r.Spec)
		}
	}
	if len(m.tls) != 2 {
		t.Error(len(m.tls))
	}
	o := standard()
	o.Gateway.Namespace = cluster.Namespace(t)
	cluster.Apply(t, string(movedTo(t, o, strings.ReplaceAll(set, "namespace: shop", "namespace: "+o.Gateway.Namespace)).Manifests))
}

// Every route attaches to listeners for its hosts.
func TestHostsStayWithTheirListeners(t *testing.T) {
	const hosts = 70
	set := service("shop", "web") + "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {namespace: shop, name: many}\nspec:\n  tls:\n"
	rules := "  rules:\n"
	for n := range hosts {
		set += fmt.Sprintf("  - {secretName: c%d, hosts: [h%d.example]}\n", n, n)
		rules += fmt.Sprintf("  - {host: h%d.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}\n", n)
	}
	o := standard()
	o.HTTPPort = 0
	m := movedTo(t, o, set+rules)
	listeners := map[gatewayv1.SectionName]gatewayv1.Hostname{}
	for _, l := range m.gateway.Spec.Listeners {
		listeners[l.Name] = *l.Hostname
	}
	for _, s := range m.sets {
		for _, l := range s.Spec.Listeners {
			listeners[l.Name] = *l.Hostname
		}
	}
	served := map[gatewayv1.Hostname]int{}
	for _, r := range m.routes {
		var attached []gatewayv1.Hostname
		for _, p := range r.Spec.ParentRefs {
			attached = append(attached, listeners[*p.SectionName])
		}
		slices.Sort(attached)
		if !slices.Equal(attached, slices.Sorted(slices.Values(r.Spec.Hostnames))) {
			t.Errorf("route %s for %v attaches to listeners of %v", r.Name, r.Spec.Hostnames, attached)
		}
		for _, h := range r.Spec.Hostnames {
			served[h]++
		}
	}
	if len(served) != hosts || len(m.routes) != 5 {
		t.Error(len(served), len(m.routes))
	}
}

// Ingresses without a class have the default class. Ingresses that have none are named.
func TestIngressesWithoutClass(t *testing.T) {
	class := func(name, more string) string {
		return fmt.Sprintf("---\n{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: %s, annotations: {ingressclass.kubernetes.io/is-default-class: \"true\"}%s}, spec: {controller: hapsnap.dev/ingress-controller}}\n", name, more)
	}
	set := service("shop", "web") + pathsOf("shop", "a", "", ofClass, "a.example", "/") + pathsOf("shop", "b", "", "", "b.example", "/")
	chosen, watching := standard(), standard()
	chosen.IngressClass, watching.IngressClass = "hapsnap", "hapsnap"
	watching.Ingresses.WatchWithoutClass, watching.Ingresses.IngressClass = true, "hapsnap"
	for name, c := range map[string]struct {
		o   gatewayapi.Options
		set string
	}{
		"default": {standard(), set + class("hapsnap", "")}, "chosen": {chosen, set + class("hapsnap", "")}, "configured": {watching, set},
		"newest": {chosen, set + class("ahapsnap", `, creationTimestamp: "2020-01-01T00:00:00Z"`) + class("hapsnap", `, creationTimestamp: "2021-01-01T00:00:00Z"`)},
	} {
		if m := movedTo(t, c.o, c.set); m.Ingresses != 2 || len(m.routes) != 2 {
			t.Error(name, string(m.Manifests), m.Findings)
		}
	}
	if m := movedTo(t, chosen, set); m.Ingresses != 1 || !m.says("Ingress shop/b", "it names no class, and is not moved") {
		t.Error(m.Findings)
	}
}

// Objects in the manifests are not overwritten.
func TestObjectsThatAreThere(t *testing.T) {
	object := func(kind, namespace, name, spec string) string {
		return fmt.Sprintf("---\n{apiVersion: gateway.networking.k8s.io/v1, kind: %s, metadata: {namespace: %s, name: %s}, spec: %s}\n", kind, namespace, name, spec)
	}
	set := service("shop", "web") + pathsOf("shop", "web", "", "  ingressClassName: hapsnap\n  tls: [{hosts: [a.example], secretName: c}]\n", "a.example", "/") +
		pathsOf("shop", "pass", `, annotations: {hapsnap.dev/ssl-passthrough: "true"}`, ofClass, "p.example", "/") +
		object("HTTPRoute", "shop", "web", "{parentRefs: [{name: other}], hostnames: [z.example]}") +
		object("TLSRoute", "shop", "pass", "{parentRefs: [{name: other}], hostnames: [z.example], rules: [{backendRefs: [{name: web, port: 80}]}]}") +
		object("ReferenceGrant", "shop", "gateway-infra-web", "{from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: x}], to: [{group: '', kind: Secret}]}")
	m := movedTo(t, standard(), set)
	if len(m.routes) == 0 || len(m.tls) != 1 || m.tls[0].Name == "pass" || len(m.grants) != 1 || m.grants[0].Name != "gateway-infra-web-2" || slices.ContainsFunc(m.routes, func(r gatewayv1.HTTPRoute) bool { return r.Name == "web" }) {
		t.Error(string(m.Manifests))
	}
	directory(t, []byte(set+object("Gateway", "infra", "web", "{gatewayClassName: hapsnap, listeners: [{name: x, port: 9000, protocol: HTTP}]}")))
	_, err := gatewayapi.Directory(".", standard())
	if exists, is := errors.AsType[*gatewayapi.ExistsError](err); !is || fmt.Sprint(exists.Objects) != "[Gateway infra/web]" {
		t.Error(err)
	}
}

// An Ingress with thousands of paths that lead to as many Services takes seconds. The same test shows that paths to one
// Service are joined.
func TestManyPaths(t *testing.T) {
	const many = 6000
	var paths []string
	manifests := service("shop", "web")
	for n := range many {
		manifests += service("shop", fmt.Sprint("w", n))
		paths = append(paths, fmt.Sprintf("/p%d Prefix w%d", n, n), fmt.Sprintf("/q%d Prefix web", n))
	}
	directory(t, []byte(manifests+ingressOf("i", "a.example", "", paths...)))
	o := standard()
	o.HTTPSPort = 0
	began := time.Now()
	result, err := gatewayapi.Directory(".", o)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
	const joined = (many + 63) / 64
	if got := strings.Count(string(result.Manifests), "backendRefs:"); got != many+joined {
		t.Errorf("there are %d rules, want %d", got, many+joined)
	}
}
