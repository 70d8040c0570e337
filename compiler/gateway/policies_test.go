package gateway_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/modeltest"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

// authorityMap is a ConfigMap of the namespace shop with an authority.
func authorityMap(t *testing.T, name string) string {
	t.Helper()
	text := pemtest.NewAuthority(t).PEM
	return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: shop}\ndata:\n  ca.crt: |\n    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") + "\n"
}

// policy is a BackendTLSPolicy with the authorities of the ConfigMap ca.
func policy(name, created, target, more string) string {
	if target == "" {
		target = "name: web"
	}
	if more == "" {
		more = "hostname: a.internal, caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]"
	}
	text := object("BackendTLSPolicy", name, "{targetRefs: [{group: '', kind: Service, "+target+"}], validation: {"+more+"}}")
	return strings.Replace(text, "namespace: shop}", "namespace: shop, creationTimestamp: "+created+"}", 1)
}

const (
	oneGateway = `{gatewayClassName: hapsnap, listeners: [{name: a, port: 80, protocol: HTTP}]}`
	first      = "2024-01-01T00:00:00Z"
	second     = "2024-01-02T00:00:00Z"
)

// toWeb is a route of both Gateways to the Service web.
func toWeb(name string, port int) string {
	return object("HTTPRoute", name, fmt.Sprintf("{parentRefs: [{name: one}, {name: two}], hostnames: [%s.example], rules: [{backendRefs: [{name: web, port: %d}]}]}", name, port))
}

const twoPorts = "---\napiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {ports: [{name: a, port: 80}, {name: b, port: 81}]}\n"

// Of several policies for one target the oldest applies, whatever it says. A policy for a port comes first. The
// status of another one says why it does not apply, for each Gateway whose routes lead there.
func TestPolicyConflicts(t *testing.T) {
	t.Parallel()
	const (
		holds    = "Accepted=Accepted ResolvedRefs=ResolvedRefs"
		conflict = "!Accepted=Conflicted ResolvedRefs=ResolvedRefs"
		missing  = "!Accepted=TargetNotFound ResolvedRefs=ResolvedRefs"
		nothing  = "!Accepted=NoValidCACertificate !ResolvedRefs=InvalidCACertificateRef"
	)
	gone := "hostname: a.internal, caCertificateRefs: [{group: '', kind: ConfigMap, name: gone}]"
	for name, c := range map[string]struct {
		policies string
		want     map[string]string // the conditions of each policy
		closed   []string          // the ports of the Service that get no requests
		server   map[string]string // the names by which servers of the other ports are verified
	}{
		"one for all":         {policy("p", first, "", ""), map[string]string{"p": holds}, nil, map[string]string{"a": "a.internal", "b": "a.internal"}},
		"the oldest":          {policy("a", second, "", "hostname: b.internal, wellKnownCACertificates: System") + policy("b", first, "", ""), map[string]string{"a": conflict, "b": holds}, nil, map[string]string{"a": "a.internal", "b": "a.internal"}},
		"the first by name":   {policy("b", first, "", "hostname: b.internal, wellKnownCACertificates: System") + policy("a", first, "", ""), map[string]string{"b": conflict, "a": holds}, nil, map[string]string{"a": "a.internal", "b": "a.internal"}},
		"one for a port":      {policy("all", first, "", "") + policy("b", second, "name: web, sectionName: b", "hostname: b.internal, wellKnownCACertificates: System"), map[string]string{"all": holds, "b": holds}, nil, map[string]string{"a": "a.internal", "b": "b.internal"}},
		"an older broken one": {policy("a", first, "", gone) + policy("b", second, "", ""), map[string]string{"a": nothing, "b": conflict}, []string{"a", "b"}, nil},
		"a broken one for b":  {policy("a", first, "name: web, sectionName: b", gone), map[string]string{"a": nothing}, []string{"b"}, map[string]string{"a": ""}},
		"no such port":        {policy("a", first, "name: web, sectionName: c", ""), map[string]string{"a": missing}, nil, map[string]string{"a": "", "b": ""}},
		"nobody's Service":    {policy("a", first, "name: other", ""), map[string]string{}, nil, map[string]string{"a": "", "b": ""}},
		"no Service":          {policy("a", first, "name: lost", ""), map[string]string{"a": missing}, nil, map[string]string{"a": "", "b": ""}},
		"another kind":        {strings.Replace(policy("a", first, "", ""), "kind: Service", "kind: Widget", 1), map[string]string{}, nil, map[string]string{"a": "", "b": ""}},
		"two names":           {policy("a", first, "", "hostname: a.internal, wellKnownCACertificates: System, subjectAltNames: [{type: Hostname, hostname: a.internal}, {type: Hostname, hostname: b.internal}]"), map[string]string{"a": "!Accepted=UnsupportedValue ResolvedRefs=ResolvedRefs"}, []string{"a", "b"}, nil},
		"both authorities":    {policy("a", first, "", "hostname: a.internal, wellKnownCACertificates: System, caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]"), map[string]string{"a": "!Accepted=Invalid ResolvedRefs=ResolvedRefs"}, []string{"a", "b"}, nil},
		"strange authorities": {policy("a", first, "", "hostname: a.internal, wellKnownCACertificates: other.example/x"), map[string]string{"a": "!Accepted=Invalid ResolvedRefs=ResolvedRefs"}, []string{"a", "b"}, nil},
		"no hostname":         {policy("a", first, "", "hostname: '*.internal', wellKnownCACertificates: System"), map[string]string{"a": "!Accepted=Invalid ResolvedRefs=ResolvedRefs"}, []string{"a", "b"}, nil},
		"a Secret":            {policy("a", first, "", "hostname: a.internal, caCertificateRefs: [{group: '', kind: Secret, name: ca}]"), map[string]string{"a": "!Accepted=NoValidCACertificate !ResolvedRefs=InvalidKind"}, []string{"a", "b"}, nil},
		"one of two":          {policy("a", first, "", "hostname: a.internal, caCertificateRefs: [{group: '', kind: ConfigMap, name: gone}, {group: '', kind: ConfigMap, name: ca}]"), map[string]string{"a": "Accepted=Accepted !ResolvedRefs=InvalidCACertificateRef"}, nil, map[string]string{"a": "a.internal", "b": "a.internal"}},
		"options":             {strings.Replace(policy("a", first, "", ""), "validation:", "options: {example.com/x: z}, validation:", 1), map[string]string{"a": "!Accepted=UnsupportedValue ResolvedRefs=ResolvedRefs"}, []string{"a", "b"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := usual
			cfg.Ports = nil
			model, _, v := gateway.Translate(gathered(t, class+object("Gateway", "one", oneGateway)+object("Gateway", "two", strings.Replace(oneGateway, "port: 80", "port: 81", 1))+
				object("Gateway", "three", strings.Replace(oneGateway, "port: 80", "port: 82", 1))+
				twoPorts+authorityMap(t, "ca")+toWeb("a", 80)+toWeb("b", 81)+object("HTTPRoute", "lost", "{parentRefs: [{name: one}, {name: two}], rules: [{backendRefs: [{name: lost, port: 80}]}]}")+c.policies), cfg)
			if err := modeltest.Check(model); err != nil {
				t.Error(err)
			}
			got := map[string]string{}
			for _, p := range v.Policies {
				var gateways []string
				for _, a := range p.Ancestors {
					gateways = append(gateways, string(a.AncestorRef.Name))
					got[p.Ref.Name] = conditionsOf(a.Conditions)
				}
				if !slices.Equal(gateways, []string{"one", "two"}) {
					t.Errorf("%s has the ancestors %v", p.Ref.Name, gateways)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("conditions (-want +got)\n%s", diff)
			}
			var closed []string
			names := map[string]string{}
			for _, b := range model.Backends {
				port, _, _ := strings.Cut(strings.TrimPrefix(b.Name, "shop_web_"), ":")
				switch {
				case !strings.HasPrefix(b.Name, "shop_web_"):
				case len(b.Targets) == 0:
					closed = append(closed, port)
				case b.Upstream != nil && b.Upstream.TLS != nil && b.Upstream.TLS.Verify:
					names[port] = b.Upstream.TLS.ServerName
				default:
					names[port] = ""
				}
			}
			if c.server != nil && c.closed == nil && !maps.Equal(names, c.server) || !slices.Equal(closed, c.closed) {
				t.Errorf("closed %v, servers are known by %v; want %v, %v", closed, names, c.closed, c.server)
			}
		})
	}
}

// If the manifest of a policy breaks its schema, the policy's target stays closed.
func TestBrokenPolicyCloses(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]string{
		"a type":           policy("a", first, "", "hostname: [a], wellKnownCACertificates: System"),
		"an unknown field": policy("a", first, "", "hostname: a.internal, wellKnownCACertificates: System, verify: false"),
		"a name":           strings.Replace(policy("a", first, "", ""), "name: a,", "name: A_b,", 1),
	} {
		in, faults := gather(t, class+object("Gateway", "one", oneGateway)+service("web")+authorityMap(t, "ca")+
			object("HTTPRoute", "a", "{parentRefs: [{name: one}], rules: [{backendRefs: [{name: web, port: 80}]}]}")+broken)
		model, _, _ := gateway.Translate(in, usual)
		if len(faults) == 0 || len(model.Backends) != 1 || len(model.Backends[0].Targets) != 0 {
			t.Errorf("%s: %v %v", name, faults, model.Backends)
		}
	}
}

// If a Gateway has a client certificate for servers, its backends differ from those of other Gateways, but only
// there. The same objects in another order mean the same.
func TestShownCertificates(t *testing.T) {
	t.Parallel()
	shows := func(name string, port int, secret string) string {
		return object("Gateway", name, fmt.Sprintf("{gatewayClassName: hapsnap, tls: {backend: {clientCertificateRef: {name: %s}}}, listeners: [{name: a, port: %d, protocol: HTTP}]}", secret, port))
	}
	yaml := class + object("Gateway", "none", strings.Replace(oneGateway, "port: 80", "port: 90", 1)) + shows("x", 91, "x") + shows("w", 92, "w") + shows("z", 93, "x") +
		service("web") + service("plain") + authorityMap(t, "ca") + policy("web", first, "", "") +
		object("HTTPRoute", "r", "{parentRefs: [{name: none}, {name: x}, {name: w}, {name: z}], rules: [{matches: [{path: {value: /web}}], backendRefs: [{name: web, port: 80}]}, {matches: [{path: {value: /plain}}], backendRefs: [{name: plain, port: 80}]}, {matches: [{path: {value: /both}}], backendRefs: [{name: web, port: 80}, {name: plain, port: 80}]}]}")
	in := gathered(t, yaml)
	model, _, v := gateway.Translate(in, usual)
	if err := modeltest.Check(model); err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{} // by backend
	for _, b := range model.Backends {
		shown[b.Name] = ""
		if b.Upstream != nil && b.Upstream.TLS != nil {
			shown[b.Name] = b.Upstream.TLS.Certificate
		}
	}
	for _, h := range model.Hosts {
		want := map[string]string{"x": "certs/shop_x.pem", "w": "certs/shop_w.pem", "z": "certs/shop_x.pem"}[strings.TrimPrefix(strings.Split(h.Bind, ":")[0], "shop/")]
		for _, r := range h.Routes {
			for _, to := range leadsTo(model, r.Backend) {
				if is := shown[to]; strings.HasPrefix(to, "shop_web") && is != want || strings.HasPrefix(to, "shop_plain") && is != "" {
					t.Errorf("%s%s leads to %s, which shows %q, want %q", h.Bind, r.Match.Path, to, is, want)
				}
			}
		}
	}
	if len(model.Backends) != 4 || len(model.Splits) != 3 {
		t.Errorf("%d backends and %d splits: %v", len(model.Backends), len(model.Splits), slices.Sorted(maps.Keys(shown)))
	}
	conditions := map[string]string{}
	for _, g := range v.Gateways {
		conditions[g.Ref.Name] = conditionsOf(g.Status.Conditions)
	}
	if conditions["x"] != "Accepted=Accepted !ResolvedRefs=InvalidClientCertificateRef" || conditions["none"] != "Accepted=Accepted ResolvedRefs=ResolvedRefs" {
		t.Errorf("%v", conditions)
	}
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 0))
		again := in
		again.Gateway.Gateways, again.Gateway.Policies, again.ConfigMaps = slices.Clone(in.Gateway.Gateways), slices.Clone(in.Gateway.Policies), slices.Clone(in.ConfigMaps)
		r.Shuffle(len(again.Gateway.Gateways), func(a, b int) {
			again.Gateway.Gateways[a], again.Gateway.Gateways[b] = again.Gateway.Gateways[b], again.Gateway.Gateways[a]
		})
		if other, _, judged := gateway.Translate(again, usual); !reflect.DeepEqual(other, model) || !reflect.DeepEqual(judged, v) {
			t.Fatal("another order means something else")
		}
	}
}

// leadsTo returns the backends of a split, or the one backend.
func leadsTo(m routing.Model, name string) []string {
	var out []string
	for _, s := range m.Splits {
		for _, share := range s.Shares {
			if s.Name == name {
				out = append(out, share.Backend)
			}
		}
	}
	if len(out) == 0 {
		return []string{name}
	}
	return out
}

// Client certificates that a Gateway requires concern only its listeners that end TLS. Only ConfigMaps in use
// are read, and no more of them than a namespace may have.
func TestAskedClients(t *testing.T) {
	t.Parallel()
	const served, refused = "Accepted=Accepted !Conflicted=NoConflicts ResolvedRefs=ResolvedRefs", "!Accepted=NoValidCACertificate !Conflicted=NoConflicts !ResolvedRefs="
	asks := func(mode, refs string) string {
		return "{validation: {mode: " + mode + ", caCertificateRefs: [" + refs + "]}}"
	}
	one := "{group: '', kind: ConfigMap, name: %s}"
	ca, gone := fmt.Sprintf(one, "ca"), fmt.Sprintf(one, "gone")
	for name, c := range map[string]struct {
		frontend string
		most     int
		https    string // the conditions of a listener for HTTPS
		clients  *routing.ClientCheck
		asked    string // ConfigMaps
		gateway  string // further conditions of the Gateway
	}{
		"all":           {"{default: " + asks("AllowValidOnly", ca) + "}", 0, served, &routing.ClientCheck{Required: true}, "shop/ca", ""},
		"the default":   {"{default: {validation: {caCertificateRefs: [" + ca + "]}}}", 0, served, &routing.ClientCheck{Required: true}, "shop/ca", ""},
		"insecure":      {"{default: " + asks("AllowInsecureFallback", ca) + "}", 0, served, &routing.ClientCheck{Any: true}, "shop/ca", " InsecureFrontendValidationMode=ConfigurationChanged"},
		"another port":  {"{default: " + asks("AllowValidOnly", ca) + ", perPort: [{port: 8443, tls: {}}]}", 0, served, nil, "", ""},
		"gone":          {"{default: " + asks("AllowValidOnly", gone) + "}", 0, refused + "InvalidCACertificateRef !Programmed=Invalid", nil, "shop/gone", ""},
		"a kind":        {"{default: " + asks("AllowValidOnly", "{group: '', kind: Service, name: ca}") + "}", 0, refused + "InvalidCACertificateKind !Programmed=Invalid", nil, "", ""},
		"no grant":      {"{default: " + asks("AllowValidOnly", "{group: '', kind: ConfigMap, name: ca, namespace: other}") + "}", 0, refused + "RefNotPermitted !Programmed=Invalid", nil, "", ""},
		"no reference":  {"{default: " + asks("AllowValidOnly", "") + "}", 0, "!Accepted=NoValidCACertificate !Conflicted=NoConflicts ResolvedRefs=ResolvedRefs !Programmed=Invalid", nil, "", ""},
		"a mode":        {"{default: " + asks("Other", ca) + "}", 0, "!Accepted=UnsupportedValue !Conflicted=NoConflicts ResolvedRefs=ResolvedRefs !Programmed=Invalid", nil, "", ""},
		"one is gone":   {"{default: " + asks("AllowValidOnly", gone+", "+ca) + "}", 0, "Accepted=Accepted !Conflicted=NoConflicts !ResolvedRefs=InvalidCACertificateRef", &routing.ClientCheck{Required: true}, "shop/ca shop/gone", ""},
		"over a limit":  {"{default: " + asks("AllowValidOnly", ca) + "}", 100, refused + "InvalidCACertificateRef !Programmed=Invalid", nil, "shop/ca", ""},
		"within it":     {"{default: " + asks("AllowValidOnly", ca) + "}", 10_000, served, &routing.ClientCheck{Required: true}, "shop/ca", ""},
		"a broken port": {"{default: " + asks("AllowValidOnly", ca) + ", perPort: [{port: 9999, tls: " + asks("AllowValidOnly", gone) + "}]}", 0, served, &routing.ClientCheck{Required: true}, "shop/ca", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := usual
			cfg.MostAuthorityBytes, cfg.SecretsUnseen = c.most, true
			model, _, v := gateway.Translate(gathered(t, class+authorityMap(t, "ca")+authorityMap(t, "unused")+policy("unused", first, "", "hostname: a, caCertificateRefs: [{group: '', kind: ConfigMap, name: unused}]")+
				object("Gateway", "one", "{gatewayClassName: hapsnap, tls: {frontend: "+c.frontend+"}, listeners: [{name: plain, port: 80, protocol: HTTP}, {name: https, port: 8443, protocol: HTTPS, tls: {certificateRefs: [{name: x}]}}]}")), cfg)
			if err := modeltest.Check(model); err != nil {
				t.Error(err)
			}
			if got := conditionsOf(v.Gateways[0].Status.Listeners[0].Conditions); got != served {
				t.Errorf("the listener for HTTP: %s", got)
			}
			if got := conditionsOf(v.Gateways[0].Status.Listeners[1].Conditions); got != c.https {
				t.Errorf("%s, want %s", got, c.https)
			}
			if got := conditionsOf(v.Gateways[0].Status.Conditions); !strings.HasSuffix(got, c.gateway) || c.gateway == "" && strings.Contains(got, "Insecure") {
				t.Errorf("the Gateway: %s", got)
			}
			var clients *routing.ClientCheck
			for _, b := range model.Binds {
				if b.Port == 8443 && b.Clients != nil {
					found := *b.Clients
					clients = &found
					if len(model.Authorities) != 1 || model.Authorities[0].File != found.Authority {
						t.Errorf("the authorities are %v, not those of %s", model.Authorities, found.Authority)
					}
					found.Authority = ""
				}
			}
			if !reflect.DeepEqual(clients, c.clients) {
				t.Errorf("clients are asked for %v, want %v", clients, c.clients)
			}
			var asked []string
			for _, name := range model.Asked.ConfigMaps {
				asked = append(asked, name.String())
			}
			if got := strings.Join(asked, " "); got != c.asked {
				t.Errorf("it asks for the ConfigMaps %q, want %q", got, c.asked)
			}
		})
	}
}

// If a ConfigMap may not be read, it is not reported as missing, and nobody is let in.
func TestUnreadAuthorities(t *testing.T) {
	t.Parallel()
	in := gathered(t, class+service("web")+policy("web", first, "", "")+object("HTTPRoute", "r", "{parentRefs: [{name: one}], rules: [{backendRefs: [{name: web, port: 80}]}]}")+object("Gateway", "one", oneGateway))
	for _, unread := range []bool{false, true} {
		want := "ConfigMap shop/ca does not exist; nothing is sent"
		if unread {
			in.Unread = []diag.Object{{Kind: "ConfigMap", Namespace: "shop", Name: "ca"}}
			want = "ConfigMap shop/ca may not be read by the compiler, so that nobody knows whether it exists; nothing is sent"
		}
		model, found, _ := gateway.Translate(in.Without(diag.Object{Kind: "Ingress"}), usual)
		if len(found) != 1 || !strings.Contains(found[0].Message, want) || len(model.Backends) != 1 || len(model.Backends[0].Targets) > 0 {
			t.Errorf("%v, want %q", found, want)
		}
	}
}

// A port with too many authorities is not served. Others are not affected.
func TestTooManyAuthorities(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for many.Len() < 300<<10 {
		many.WriteString(pemtest.NewAuthority(t).PEM)
	}
	large := "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: large, namespace: shop}\ndata:\n  ca.crt: |\n    " + strings.ReplaceAll(strings.TrimSpace(many.String()), "\n", "\n    ") + "\n"
	model, found, v := gateway.Translate(gathered(t, class+large+authorityMap(t, "ca")+service("web")+service("other")+
		policy("large", first, "", "hostname: a.internal, caCertificateRefs: [{group: '', kind: ConfigMap, name: large}]")+policy("other", first, "name: other", "")+
		object("Gateway", "one", oneGateway)+object("HTTPRoute", "r", "{parentRefs: [{name: one}], rules: [{backendRefs: [{name: web, port: 80}, {name: other, port: 80}]}]}")), usual)
	if len(found) != 1 || !strings.Contains(found[0].Message, "more than 262144 bytes") || len(model.Authorities) != 1 || len(v.Policies) != 2 {
		t.Errorf("%v, %d authorities", found, len(model.Authorities))
	}
	for _, b := range model.Backends {
		if closed := len(b.Targets) == 0; closed != strings.HasPrefix(b.Name, "shop_web") {
			t.Errorf("%s: closed %v", b.Name, closed)
		}
	}
}

// If the authorities or the certificate of a listener are missing, its port stays taken and closed. A younger
// Gateway, or a ListenerSet of another one, does not get the port.
func TestPortsWithoutAuthoritiesAreKept(t *testing.T) {
	t.Parallel()
	gatewayAt := func(name, created, spec string) string {
		return strings.Replace(object("Gateway", name, spec), "namespace: shop}", "namespace: shop, creationTimestamp: "+created+"}", 1)
	}
	const listener = "{name: https, port: 8443, protocol: HTTPS, tls: {certificateRefs: [%s]}}"
	asks := func(ref string) string {
		return "tls: {frontend: {default: {validation: {caCertificateRefs: [" + ref + "]}}}}, "
	}
	for name, c := range map[string]struct{ tls, certificate, holder string }{
		"authorities":              {asks("{group: '', kind: ConfigMap, name: ca}"), "{name: x}", "shop/edge:8443"},
		"no authorities":           {asks("{group: '', kind: ConfigMap, name: gone}"), "{name: x}", ""},
		"authorities not granted":  {asks("{group: '', kind: ConfigMap, name: ca, namespace: other}"), "{name: x}", ""},
		"certificate not granted":  {"", "{name: x, namespace: other}", ""},
		"a mode that is not known": {strings.Replace(asks("{group: '', kind: ConfigMap, name: ca}"), "validation: {", "validation: {mode: Other, ", 1), "{name: x}", "shop/evil:8443"},
	} {
		for _, rival := range []string{
			gatewayAt("evil", second, "{gatewayClassName: hapsnap, listeners: ["+fmt.Sprintf(listener, "{name: evil}")+"]}"),
			gatewayAt("evil", second, "{gatewayClassName: hapsnap, allowedListeners: {namespaces: {from: Same}}, listeners: [{name: http, port: 8080, protocol: HTTP}]}") +
				object("ListenerSet", "evil", "{parentRef: {name: evil}, listeners: ["+fmt.Sprintf(listener, "{name: evil}")+"]}"),
		} {
			cfg := usual
			cfg.SecretsUnseen = true
			model, _, _ := gateway.Translate(gathered(t, class+authorityMap(t, "ca")+rival+
				gatewayAt("edge", first, "{gatewayClassName: hapsnap, "+c.tls+"listeners: ["+fmt.Sprintf(listener, c.certificate)+"]}")), cfg)
			holder := ""
			for _, b := range model.Binds {
				if b.Port == 8443 {
					holder += b.Name
				}
			}
			if holder != c.holder {
				t.Errorf("%s: the port is that of %q, want %q", name, holder, c.holder)
			}
		}
	}
}

// A policy of another version may have another meaning, so it is not applied. It is not ignored either, as the
// requests that it should protect would go unencrypted.
func TestPoliciesOfOtherVersionsFailClosed(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1alpha2", "v1alpha3", "v1beta1", "v2"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			other := strings.Replace(policy("p", first, "", ""), "gateway.networking.k8s.io/v1\n", "gateway.networking.k8s.io/"+version+"\n", 1)
			in, found := gather(t, class+object("Gateway", "one", oneGateway)+twoPorts+authorityMap(t, "ca")+toWeb("a", 80)+other)
			if len(found) != 1 || found[0].Object.Name != "p" || found[0].Severity != diag.Error || !strings.Contains(found[0].Message, version+" is not read") {
				t.Errorf("found %v", found)
			}
			cfg := usual
			cfg.Ports = nil
			model, _, _ := gateway.Translate(in, cfg)
			closed := 0
			for _, b := range model.Backends {
				if strings.HasPrefix(b.Name, "shop_web_") {
					closed++
					if len(b.Targets) > 0 {
						t.Errorf("%s is sent to", b.Name)
					}
				}
			}
			if closed != 1 {
				t.Errorf("%d backends of the Service, want 1", closed)
			}
		})
	}
}
