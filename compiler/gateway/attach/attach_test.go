package attach_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
	"github.com/hapsnap/hapsnap/compiler/inputs"
)

// read returns an object with a spec in YAML.
func read[T any](t *testing.T, kind, namespace, name, text string) inputs.Object[T] {
	t.Helper()
	value := new(T)
	if err := yaml.UnmarshalStrict([]byte("spec:\n"+text), value); err != nil {
		t.Fatal(err)
	}
	return inputs.Object[T]{Ref: diag.Object{Kind: kind, Namespace: namespace, Name: name}, Value: value}
}

func gatewayOf(t *testing.T, listeners ...string) *attach.Gateway {
	t.Helper()
	g := attach.NewGateway(read[gatewayv1.Gateway](t, "Gateway", "shop", "web", "  gatewayClassName: x\n  listeners:\n  - "+strings.Join(listeners, "\n  - ")))
	g.Judge()
	return g
}

// Each listener is checked by itself and against the others. Listeners with faults are not served, and the
// others are.
func TestListeners(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		listeners []string
		want      []string // for each listener: the reasons, or the kinds if it is served
	}{
		"one":                      {[]string{"{name: a, port: 80, protocol: HTTP}"}, []string{"[HTTPRoute GRPCRoute]"}},
		"two hosts":                {[]string{"{name: a, port: 80, protocol: HTTP}", "{name: b, port: 80, protocol: HTTP, hostname: b.example}"}, []string{"[HTTPRoute GRPCRoute]", "[HTTPRoute GRPCRoute]"}},
		"one host twice":           {[]string{"{name: a, port: 80, protocol: HTTP, hostname: B.example}", "{name: b, port: 80, protocol: HTTP, hostname: b.example}", "{name: c, port: 80, protocol: HTTP}"}, []string{"HostnameConflict", "HostnameConflict", "[HTTPRoute GRPCRoute]"}},
		"one host, two ports":      {[]string{"{name: a, port: 80, protocol: HTTP}", "{name: b, port: 81, protocol: HTTP}"}, []string{"[HTTPRoute GRPCRoute]", "[HTTPRoute GRPCRoute]"}},
		"one name twice":           {[]string{"{name: a, port: 80, protocol: HTTP}", "{name: a, port: 81, protocol: HTTP}"}, []string{"[HTTPRoute GRPCRoute]", "UnsupportedValue"}},
		"a protocol that is none":  {[]string{"{name: a, port: 80, protocol: HTTP}", "{name: b, port: 80, protocol: x.example/y}"}, []string{"[HTTPRoute GRPCRoute]", "UnsupportedProtocol"}},
		"UDP":                      {[]string{"{name: a, port: 53, protocol: UDP}"}, []string{"UnsupportedProtocol"}},
		"a port that is none":      {[]string{"{name: a, port: 65536, protocol: HTTP}"}, []string{"PortUnavailable"}},
		"a hostname that is none":  {[]string{"{name: a, port: 80, protocol: HTTP, hostname: \"a b\"}"}, []string{"UnsupportedValue"}},
		"an address as a hostname": {[]string{"{name: a, port: 80, protocol: HTTP, hostname: 192.0.2.1}"}, []string{"UnsupportedValue"}},
		"TLS without TLS":          {[]string{"{name: a, port: 80, protocol: HTTP, tls: {mode: Terminate}}"}, []string{"UnsupportedValue"}},
		"a kind that is none":      {[]string{"{name: a, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: PodRoute}]}}"}, []string{"InvalidRouteKinds"}},
		"a kind of another group":  {[]string{"{name: a, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: HTTPRoute, group: x.example}, {kind: GRPCRoute}]}}"}, []string{"InvalidRouteKinds [GRPCRoute]"}},
	} {
		var got []string
		for _, l := range gatewayOf(t, c.listeners...).Listeners {
			var words []string
			for _, v := range []attach.Verdict{l.Accepted, l.Conflicted, l.Resolved} {
				if !v.Fine() {
					words = append(words, v.Reason)
				}
			}
			if l.Serves() {
				words = append(words, fmt.Sprint(l.Kinds))
			}
			got = append(got, strings.Join(words, " "))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A route is attached to the listeners that its reference names, that allow it, and that have one of its hosts.
func TestAttach(t *testing.T) {
	t.Parallel()
	g := gatewayOf(t,
		"{name: all, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}",
		"{name: wild, port: 80, protocol: HTTP, hostname: '*.example', allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {team: a}}}}}",
		"{name: same, port: 81, protocol: HTTP, hostname: a.example}",
		"{name: none, port: 82, protocol: HTTP, allowedRoutes: {namespaces: {from: None}}}",
		"{name: broken, port: 83, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector}}}")
	w := attach.World{Namespaces: map[string]labels.Set{"team": {"team": "a"}}}
	w.Add(g)
	for name, c := range map[string]struct {
		namespace, ref string
		hosts          []string
		want           string // the listeners with their hosts, or the reason
	}{
		"without hosts":            {"shop", "{name: web}", nil, "all[] same[a.example]"},
		"from another namespace":   {"other", "{name: web, namespace: shop}", nil, "all[]"},
		"by labels":                {"team", "{name: web, namespace: shop}", []string{"b.a.example", ".example"}, "all[b.a.example .example] wild[b.a.example .example]"},
		"a wider wildcard":         {"team", "{name: web, namespace: shop, sectionName: wild}", []string{"example"}, "NoMatchingListenerHostname"},
		"a section":                {"shop", "{name: web, sectionName: same}", []string{".example", "a.example"}, "same[a.example]"},
		"a port":                   {"shop", "{name: web, port: 81}", []string{"b.example"}, "NoMatchingListenerHostname"},
		"a section on another one": {"shop", "{name: web, sectionName: same, port: 80}", nil, "NoMatchingParent"},
		"no section":               {"shop", "{name: web, sectionName: gone}", nil, "NoMatchingParent"},
		"not its namespace":        {"other", "{name: web, namespace: shop, sectionName: same}", nil, "NotAllowedByListeners"},
		"nobody's":                 {"shop", "{name: web, sectionName: none}", nil, "NotAllowedByListeners"},
		"a selector of nothing":    {"shop", "{name: web, sectionName: broken}", nil, "NotAllowedByListeners"},
		"another namespace's":      {"other", "{name: web}", nil, "no parent"},
		"a Service":                {"shop", "{name: web, kind: Service, group: ''}", nil, "no parent"},
	} {
		var ref gatewayv1.ParentReference
		if err := yaml.UnmarshalStrict([]byte(c.ref), &ref); err != nil {
			t.Fatal(err)
		}
		got := "no parent"
		if parent := w.Parent(c.namespace, ref); parent != nil {
			attachments, why := w.Attach(parent, ref, attach.Route{Kind: "HTTPRoute", Namespace: c.namespace, Hosts: c.hosts})
			var words []string
			for _, a := range attachments {
				var hosts []string
				for _, h := range a.Hosts {
					hosts = append(hosts, h.Name)
				}
				words = append(words, fmt.Sprint(a.Listener.Spec.Name, hosts))
			}
			got = why.Reason + strings.Join(words, " ")
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if _, why := w.Attach(&g.Owner, gatewayv1.ParentReference{Name: "web"}, attach.Route{Kind: "TCPRoute", Namespace: "shop"}); why.Reason != "NotAllowedByListeners" {
		t.Errorf("a route of another kind: %+v", why)
	}
}

// A grant permits exactly what it names: the referring kind and namespace, and the kind and name of the object.
func TestPermitted(t *testing.T) {
	t.Parallel()
	grant := func(namespace, from, to string) inputs.Object[gatewayv1.ReferenceGrant] {
		return read[gatewayv1.ReferenceGrant](t, "ReferenceGrant", namespace, "g", "  from: ["+from+"]\n  to: ["+to+"]\n")
	}
	const route = "{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: shop}"
	w := attach.World{Grants: []inputs.Object[gatewayv1.ReferenceGrant]{
		grant("all", route, "{group: '', kind: Service}"), grant("one", route, "{group: '', kind: Service, name: a}"),
		grant("gateways", "{group: gateway.networking.k8s.io, kind: Gateway, namespace: shop}", "{group: '', kind: Service}"), grant("secrets", route, "{group: '', kind: Secret}"),
	}}
	for to, want := range map[string]bool{
		"shop/a": true, "all/a": true, "all/b": true, "one/a": true, "one/b": false, "gateways/a": false, "secrets/a": false, "none/a": false,
	} {
		namespace, name, _ := strings.Cut(to, "/")
		if got := w.Permitted("HTTPRoute", "shop", attach.Reference{Kind: "Service", Namespace: namespace, Name: name}); got != want {
			t.Errorf("%s: %v, want %v", to, got, want)
		}
	}
	if w.Permitted("HTTPRoute", "other", attach.Reference{Kind: "Service", Namespace: "all", Name: "a"}) {
		t.Error("a grant is for everybody")
	}
}

// Listeners of ListenerSets come after those of the Gateway. If two listeners conflict, the later one is not
// served. Routes attach to a ListenerSet by its name and namespace.
func TestSets(t *testing.T) {
	t.Parallel()
	set := func(namespace, name string, listeners ...string) inputs.Object[gatewayv1.ListenerSet] {
		return read[gatewayv1.ListenerSet](t, "ListenerSet", namespace, name, "  parentRef: {name: web, namespace: shop}\n  listeners:\n  - "+strings.Join(listeners, "\n  - "))
	}
	const a, b, c, tls = "{name: l, port: 80, protocol: HTTP, hostname: a.example}", "{name: m, port: 80, protocol: HTTP, hostname: b.example}", "{name: o, port: 80, protocol: HTTP, hostname: c.example}", "{name: tls, port: 80, protocol: HTTPS, tls: {certificateRefs: [{name: x}]}}"
	g := attach.NewGateway(read[gatewayv1.Gateway](t, "Gateway", "shop", "web", "  gatewayClassName: x\n  allowedListeners: {namespaces: {from: Selector, selector: {matchLabels: {team: a}}}}\n  listeners:\n  - "+a),
		set("team", "one", a, b), set("team", "two", b, c), set("team", "three", tls))
	g.Judge()
	var got []string
	for _, l := range g.All() {
		got = append(got, fmt.Sprint(l.Name(), " ", l.Conflicted.Reason))
	}
	want := []string{"l ", "team/one/l HostnameConflict", "team/one/m ", "team/two/m HostnameConflict", "team/two/o ", "team/three/tls ProtocolConflict"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	w := attach.World{Namespaces: map[string]labels.Set{"team": {"team": "a"}}}
	w.Add(g)
	if w.Allows(g, "shop") || !w.Allows(g, "team") || w.Allows(gatewayOf(t, a), "shop") {
		t.Error("ListenerSets are allowed that are not, or the other way round")
	}
	kind := gatewayv1.Kind("ListenerSet")
	o := w.Parent("team", gatewayv1.ParentReference{Kind: &kind, Name: "one"})
	if o == nil || w.Parent("team", gatewayv1.ParentReference{Name: "one"}) != nil || w.Parent("shop", gatewayv1.ParentReference{Kind: &kind, Name: "one"}) != nil {
		t.Fatalf("%v", o)
	}
	if attached, why := w.Attach(o, gatewayv1.ParentReference{Name: "one"}, attach.Route{Kind: "HTTPRoute", Namespace: "team"}); len(attached) != 2 || !why.Fine() {
		t.Errorf("%v %v", attached, why)
	}
	if _, why := w.Attach(o, gatewayv1.ParentReference{Name: "one"}, attach.Route{Kind: "HTTPRoute", Namespace: "shop"}); why.Reason != "NotAllowedByListeners" {
		t.Error(why)
	}
}
