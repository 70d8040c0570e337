package compiler_test

import (
	"context"
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/testing/worlds"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
	"github.com/hapsnap/hapsnap/templates"
)

// The host of a left-out Ingress is held, so that no other rule answers for it. That never prevents publishing:
// if a user's template makes something of the host that HAProxy refuses, the host is released.
func TestHostsOfRefusedIngressesAreHeld(t *testing.T) {
	t.Parallel()
	const hostMap = `{{range .Hosts}}{{if .Name}}{{.Name}} {{.Name}}
{{end}}{{end}}{{range .Held}}{{.Name}} {{.Name}}
{{end}}`
	for name, test := range map[string]struct {
		files []txtar.File
		held  bool
	}{
		"held": {nil, true},
		"a template uses the host": {[]txtar.File{
			{Name: "templates/haproxy/56-held.cfg", Data: []byte("{{range .Held}}\nbackend held_{{.Name}}\n    nonsense {{.Name}}\n{{end}}")},
			{Name: "templates/maps/host.map", Data: []byte(hostMap)},
		}, false},
		"a template fails without naming it": {[]txtar.File{
			{Name: "templates/haproxy/56-held.cfg", Data: []byte("{{if .Held}}\nnonsense\n{{end}}")},
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := func(namespace, host, rewrite string) string {
				return fmt.Sprintf("---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {namespace: %s, name: web, annotations: {example.com/word: %q}}\nspec:\n  ingressClassName: hapsnap\n  rules:\n  - {host: %s, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}\n", namespace, rewrite, host)
			}
			files := append(test.files,
				txtar.File{Name: "manifests/all.yaml", Data: []byte(object("bad", "long-name.bad.example", "nothing") + object("good", "good.example", "src"))},
				txtar.File{Name: "templates/extend/backend.cfg", Data: []byte("    http-request set-header X-Word %[{{.Annotation \"example.com/word\"}}]\n")},
			)
			s := source(t, &txtar.Archive{Files: files})
			r, err := s.Once(t.Context(), haproxy(t), now, "test")
			if err != nil {
				t.Fatal(err, r.Diagnostics)
			}
			hosts := ""
			for _, f := range r.Draft.Files {
				if f.Path == "maps/host.map" {
					hosts = string(f.Content)
				}
			}
			if got := strings.Contains(hosts, "long-name.bad.example"); got != test.held {
				t.Errorf("held: %v, want %v; %s%v", got, test.held, hosts, r.Diagnostics)
			}
			if !strings.Contains(hosts, "good.example") {
				t.Errorf("the other Ingress is not served: %v", r.Diagnostics)
			}
		})
	}
}

// HAProxy continues after most errors, but not after one in a request rule. However many objects have one, in
// however many namespaces, the objects of others are served, and the number of checks is bounded.
func TestErrorsThatAreReportedOneByOne(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		bad    map[string]int // objects with a fault, by namespace; one in the middle is valid
		sound  []string       // namespaces whose valid object is served
		checks int            // at the most
	}{
		"a few":           {map[string]int{"a": 5}, []string{"a"}, 8},
		"thirty":          {map[string]int{"a": 30}, []string{"a"}, 60},
		"three hundred":   {map[string]int{"a": 300}, nil, 60},
		"two namespaces":  {map[string]int{"a": 300, "b": 3}, []string{"b"}, 60},
		"many namespaces": {manyNamespaces(120), nil, 140},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var objects strings.Builder
			add := func(namespace, name, fetch string) {
				fmt.Fprintf(&objects, "---\napiVersion: example.com/v1\nkind: Widget\nmetadata: {namespace: %s, name: %s}\nspec: {fetch: %s}\n", namespace, name, fetch)
			}
			add("other", "good", "src")
			for namespace, bad := range test.bad {
				for n := range bad {
					add(namespace, fmt.Sprintf("w%d", n), "nothing")
				}
				add(namespace, fmt.Sprintf("w%d-sound", bad/2), "src")
			}
			s := source(t, &txtar.Archive{Files: []txtar.File{
				{Name: "manifests/all.yaml", Data: []byte(objects.String())},
				{Name: "templates/haproxy/55-widgets.cfg", Data: []byte(`{{range .Objects "example.com/v1/Widget"}}
backend widget_{{.Object.Namespace}}_{{.Object.Name}} from main
    http-request set-header X-Fetched %[{{.Content.spec.fetch}}]
{{end}}`)},
			}})
			s.Config.Kinds = []kinds.Kind{{APIVersion: "example.com/v1", Kind: "Widget"}}
			checks := 0
			s.Stages = func(ctx context.Context, name string) (context.Context, func(error)) {
				if name == "validate" {
					checks++
				}
				return ctx, func(error) {}
			}
			result, err := s.Once(t.Context(), haproxy(t), time.Unix(0, 0), "test")
			if err != nil {
				t.Fatal(err)
			}
			if checks > test.checks {
				t.Errorf("%d checks, want at most %d", checks, test.checks)
			}
			i := slices.IndexFunc(result.Draft.Files, func(f snapshots.File) bool { return f.Path == "haproxy.cfg" })
			served := string(result.Draft.Files[i].Content)
			for _, namespace := range append(test.sound, "other") {
				if !strings.Contains(served, "backend widget_"+namespace+"_") {
					t.Errorf("the sound object of namespace %s is not served", namespace)
				}
			}
			for namespace, bad := range test.bad {
				left := 0
				for _, q := range result.Draft.Quarantined {
					if q.Namespace == namespace {
						left++
					}
				}
				if left < bad {
					t.Errorf("%d objects of namespace %s are left out, want %d or more", left, namespace, bad)
				}
			}
		})
	}
}

func manyNamespaces(n int) map[string]int {
	out := map[string]int{}
	for i := range n {
		out[fmt.Sprintf("n%d", i)] = 1
	}
	return out
}

// strangeAuthority is a certificate with an empty issuerUniqueID. Go cannot read it, and OpenSSL refuses it.
const strangeAuthority = `-----BEGIN CERTIFICATE-----
MIIBcDCCARegAwIBAgIUZamIBAIxUL+joLAMeeEXYYM0l7swCgYIKoZIzj0EAwIw
DTELMAkGA1UEAwwCY2EwHhcNMjYxMTIzMjIzODQzWhcNMzYxMTIwMjIzODQzWjAN
MQswCQYDVQQDDAJjYTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABJoNvKkUngsU
DOYtQv51A57YJ9/N0zJ/ggD+bgGXO5lgJm4Fs0f++F1lWUx1rsdXwIbAQVOZHNTA
O3uefS8xp9+BAKNTMFEwHQYDVR0OBBYEFMspQgb5cG2N4RNkfm9m6BfyVfVaMB8G
A1UdIwQYMBaAFMspQgb5cG2N4RNkfm9m6BfyVfVaMA8GA1UdEwEB/wQFMAMBAf8w
CgYIKoZIzj0EAwIDRwAwRAIgeFao4WVmUlMpUNmPVFy8BsaNdM2/zj5ffNnnqfQ1
YYECIAxxgf4Azm2pzhGNnC3N2hSJ3lPRazHzU8XK24zw9/2w
-----END CERTIFICATE-----
`

// If HAProxy would refuse a ConfigMap with authorities, only what needs them is affected: not the other ports of a
// Gateway that names it, and not other routes to a Service with a policy.
func TestAuthoritiesThatHAProxyWouldRefuse(t *testing.T) {
	t.Parallel()
	configMap := func(name, text string) string {
		return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: pay, name: " + name + "}\ndata:\n  ca.crt: |\n    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") + "\n"
	}
	api := func(kind, namespace, name, spec string) string {
		return fmt.Sprintf("---\napiVersion: gateway.networking.k8s.io/v1\nkind: %s\nmetadata: {namespace: %s, name: %s}\nspec: %s\n", kind, namespace, name, spec)
	}
	service := func(namespace, name string) string {
		return fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {namespace: %s, name: %s}\nspec: {ports: [{port: 80}]}\n", namespace, name)
	}
	world := "---\napiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: hapsnap}\nspec: {controllerName: hapsnap.dev/gateway-controller}\n" +
		service("shop", "web") + service("pay", "api") + configMap("bad", strangeAuthority) + configMap("good", pemtest.NewAuthority(t).PEM) + configMap("worse", strangeAuthority+strangeAuthority) +
		api("ReferenceGrant", "pay", "g", "{from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: shop}, {group: gateway.networking.k8s.io, kind: Gateway, namespace: infra}], to: [{group: '', kind: Service}, {group: '', kind: ConfigMap}]}") +
		api("HTTPRoute", "shop", "web", "{parentRefs: [{name: edge, namespace: infra}], hostnames: [shop.example], rules: [{matches: [{path: {type: PathPrefix, value: /api}}], backendRefs: [{name: api, namespace: pay, port: 80}]}, {backendRefs: [{name: web, port: 80}]}]}")
	edge := func(tls string) string {
		return api("Gateway", "infra", "edge", "{gatewayClassName: hapsnap, "+tls+"listeners: [{name: http, port: 8080, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}, {name: https, port: 8443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}, allowedRoutes: {namespaces: {from: All}}}]}")
	}
	asks := func(names ...string) string {
		var refs []string
		for _, name := range names {
			refs = append(refs, "{group: '', kind: ConfigMap, namespace: pay, name: "+name+"}")
		}
		return "tls: {frontend: {default: {validation: {caCertificateRefs: [" + strings.Join(refs, ", ") + "]}}}}, "
	}
	trust := func(name string) string {
		return api("BackendTLSPolicy", "pay", "api", "{targetRefs: [{group: '', kind: Service, name: api}], validation: {hostname: api.internal, caCertificateRefs: [{group: '', kind: ConfigMap, name: "+name+"}]}}")
	}
	named := regexp.MustCompile(`ConfigMap pay/(?:bad|worse)`)
	for name, test := range map[string]struct {
		manifests     string
		https, policy bool   // whether the TLS port, and the Service with the policy, are served
		blamed        string // in diagnostics; the status of a Gateway has what is wrong beside sound authorities
	}{
		"sound authorities":       {edge(asks("good")) + trust("good"), true, true, ""},
		"those of clients":        {edge(asks("bad")) + trust("good"), false, true, "ConfigMap pay/bad"},
		"one of two":              {edge(asks("good", "bad")) + trust("good"), true, true, ""},
		"those of a policy":       {edge(asks("good")) + trust("bad"), true, false, "ConfigMap pay/bad"},
		"both":                    {edge(asks("bad")) + trust("bad"), false, false, "ConfigMap pay/bad"},
		"each beside a sound one": {edge(asks("good", "bad")) + trust("worse}, {group: '', kind: ConfigMap, name: good"), true, true, "ConfigMap pay/worse"},
		"two that are not alone":  {edge(asks("good", "bad")) + trust("worse"), true, false, "ConfigMap pay/worse"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := source(t, &txtar.Archive{Files: []txtar.File{{Name: "manifests/all.yaml", Data: []byte(world + test.manifests)}}})
			s.Config.GatewayAPI.Enabled = true
			r, err := s.Once(t.Context(), haproxy(t), now, "test")
			if err != nil {
				t.Fatal(err, r.Diagnostics)
			}
			var blamed []string
			for _, d := range r.Diagnostics {
				blamed = append(blamed, named.FindAllString(d.Message, -1)...)
				if strings.Contains(d.Message, "does not exist") && d.Object.Kind != "Secret" && strings.Contains(d.Message, "ConfigMap") {
					t.Errorf("what is left out is said not to exist: %v", d)
				}
			}
			slices.Sort(blamed)
			if got := strings.Join(slices.Compact(blamed), " "); got != test.blamed {
				t.Errorf("blamed is %q, want %q: %v", got, test.blamed, r.Diagnostics)
			}
			text := string(r.Artifact.Files[slices.IndexFunc(r.Artifact.Files, func(f snapshots.File) bool { return f.Path == snapshots.ConfigFile })].Content)
			if !strings.Contains(text, "bind *:8080") || strings.Contains(text, "bind *:8443") != test.https {
				t.Errorf("the ports are wrong, want that for TLS: %v", test.https)
			}
			backend := func(name string) string {
				_, after, _ := strings.Cut(text, "\nbackend "+name)
				section, _, _ := strings.Cut(after, "\nbackend ")
				return section
			}
			if web := backend("shop_web"); !strings.Contains(web, "server") {
				t.Errorf("the other Service of the route is not served: %s", web)
			}
			if got := strings.Contains(backend("pay_api"), "ca-file"); got != test.policy {
				t.Errorf("the Service with the policy is served: %v, want %v\n%s", got, test.policy, text)
			}
			if section := backend("pay_api"); section == "" || !test.policy && strings.Contains(section, "server-template") {
				t.Errorf("the servers are spoken to in the clear:\n%s", section)
			}
		})
	}
}

// A namespace with very large authorities can use no more of the store than a snapshot can hold. Other
// namespaces are not affected.
func TestAuthoritiesOfANamespaceAreBounded(t *testing.T) {
	t.Parallel()
	const kind = "---\napiVersion: gateway.networking.k8s.io/v1\nkind: "
	all := kind + "GatewayClass\nmetadata: {name: hapsnap}\nspec: {controllerName: hapsnap.dev/gateway-controller}\n" +
		kind + "Gateway\nmetadata: {name: edge, namespace: shop}\nspec: {gatewayClassName: hapsnap, listeners: [{name: http, port: 8080, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]}\n"
	for _, name := range []string{"shop/a", "shop/b", "shop/c", "other/d"} { // each has two fifths of a namespace's limit
		namespace, name, _ := strings.Cut(name, "/")
		text := strings.Repeat("# "+strings.Repeat("x", 1021)+"\n", 205) + pemtest.NewAuthority(t).PEM
		in := "metadata: {name: " + name + ", namespace: " + namespace + "}\n"
		all += "---\napiVersion: v1\nkind: Service\n" + in + "spec: {ports: [{port: 80}]}\n" +
			"---\napiVersion: v1\nkind: ConfigMap\n" + in + "data:\n  ca.crt: |\n    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") + "\n" +
			kind + "BackendTLSPolicy\n" + in + "spec: {targetRefs: [{group: '', kind: Service, name: " + name + "}], validation: {hostname: a.internal, caCertificateRefs: [{group: '', kind: ConfigMap, name: " + name + "}]}}\n" +
			kind + "HTTPRoute\n" + in + "spec: {parentRefs: [{name: edge, namespace: shop}], hostnames: [" + name + ".example], rules: [{backendRefs: [{name: " + name + ", port: 80}]}]}\n"
	}
	s := source(t, &txtar.Archive{Files: []txtar.File{{Name: "manifests/all.yaml", Data: []byte(all)}}})
	s.Config.GatewayAPI.Enabled = true
	r, err := s.Once(t.Context(), haproxy(t), now, "test")
	if err != nil {
		t.Fatal(err, r.Diagnostics)
	}
	if len(r.Diagnostics) != 1 || r.Diagnostics[0].Object.String() != "BackendTLSPolicy shop/c" || !strings.Contains(r.Diagnostics[0].Message, "more than 524288 bytes together") {
		t.Errorf("found %v", r.Diagnostics)
	}
	accepted := ""
	for _, p := range r.Verdicts.Policies {
		accepted += " " + p.Ref.Name + "=" + gateway.Condition(p.Ancestors[0].Conditions, "Accepted").Reason
	}
	if accepted != " d=Accepted a=Accepted b=Accepted c=NoValidCACertificate" {
		t.Errorf("accepted are%s", accepted)
	}
}

// At a Gateway whose clients are asked for certificates, HAProxy reads the authorities again for each host. A namespace
// that adds many hosts there loses its youngest ListenerSet. The Gateway, and the namespace's older one, are served.
func TestAuthoritiesAtListeners(t *testing.T) {
	t.Parallel()
	const kind = "---\napiVersion: gateway.networking.k8s.io/v1\nkind: "
	var authorities strings.Builder
	for range 300 {
		authorities.WriteString(pemtest.NewAuthority(t).PEM)
	}
	all := kind + "GatewayClass\nmetadata: {name: hapsnap}\nspec: {controllerName: hapsnap.dev/gateway-controller}\n" +
		kind + "Gateway\nmetadata: {name: edge, namespace: infra}\nspec:\n  gatewayClassName: hapsnap\n  allowedListeners: {namespaces: {from: All}}\n" +
		"  tls: {frontend: {default: {validation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]}}}}\n" +
		"  listeners: [{name: own, port: 8443, protocol: HTTPS, hostname: own.example, tls: {certificateRefs: [{name: cert}]}}]\n" +
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: ca, namespace: infra}\ndata:\n  ca.crt: |\n    " + strings.ReplaceAll(strings.TrimSpace(authorities.String()), "\n", "\n    ") + "\n"
	for n, hosts := range []int{2, 20} {
		all += fmt.Sprintf("%sListenerSet\nmetadata: {name: set%d, namespace: evil, creationTimestamp: \"2026-01-0%dT00:00:00Z\"}\nspec:\n  parentRef: {name: edge, namespace: infra}\n  listeners:\n", kind, n, n+1)
		for i := range hosts {
			all += fmt.Sprintf("  - {name: l%d, port: 8443, protocol: HTTPS, hostname: h%d-%d.example, tls: {certificateRefs: [{name: cert}]}}\n", i, n, i)
		}
	}
	s := source(t, &txtar.Archive{Files: []txtar.File{{Name: "manifests/all.yaml", Data: []byte(all)}}})
	s.Config.GatewayAPI.Enabled, s.Config.TrustFileAges, s.Config.Limits.NamespaceCertificates = true, true, 40
	r, err := s.Once(t.Context(), haproxy(t), now, "test")
	if err != nil {
		t.Fatal(err, r.Diagnostics)
	}
	if left := r.Draft.Quarantined; len(left) != 1 || left[0].Name != "set1" || !strings.Contains(left[0].Reason, "and may name 40") {
		t.Errorf("left out are %v", left)
	}
	var served []string
	for _, f := range r.Artifact.Files {
		if strings.HasSuffix(f.Path, ".crtlist") {
			served = append(served, regexp.MustCompile(`[a-z0-9-]+\.example`).FindAllString(string(f.Content), -1)...)
		}
	}
	if got := strings.Join(served, " "); got != "h0-0.example h0-1.example own.example" {
		t.Errorf("hosts over TLS are %s", got)
	}
}

// The parser of the Dataplane API panics for some lines. Only the Ingress with such a line is left out, and the
// others are published.
func TestLinesThatNoParserTakes(t *testing.T) {
	t.Parallel()
	in := worlds.Ingresses(30)
	in = worlds.Annotate(in, 7, "hapsnap.dev/snippet", "http-request set-var(req) str(1)")
	s := compiler.Source{Objects: inMemory{compiler.Given{Name: "memory"}, in}, Config: config.Default()}
	s.Config.Snippets.Namespaces = config.Namespaces{"*"}
	r, err := s.Once(t.Context(), haproxy(t), time.Unix(0, 0), "test")
	if err != nil || len(r.Draft.Quarantined) != 1 || r.Draft.Quarantined[0].Name != worlds.Name(7) {
		t.Errorf("%v, left out are %v", err, r.Draft.Quarantined)
	}
}

// The same mistake in many Ingresses costs a few checks, although HAProxy stops at the first one. No other
// Ingress is left out.
func TestOneMistakeOfManyIngresses(t *testing.T) {
	t.Parallel()
	in := worlds.Ingresses(300)
	bad := map[string]bool{}
	for i := 7; i < 300; i += 10 {
		in = worlds.Annotate(in, i, "hapsnap.dev/snippet", "http-request frobnicate")
		bad[worlds.Name(i)] = true
	}
	s := compiler.Source{Objects: inMemory{compiler.Given{Name: "memory"}, in}, Config: config.Default()}
	s.Config.Snippets.Namespaces = config.Namespaces{"*"}
	checks := 0
	s.Stages = func(ctx context.Context, name string) (context.Context, func(error)) {
		if name == "validate" {
			checks++
		}
		return ctx, func(error) {}
	}
	result, err := s.Once(t.Context(), haproxy(t), time.Unix(0, 0), "test")
	if err != nil {
		t.Fatal(err)
	}
	// One check fails, one passes, and the others are without the objects.
	if checks > 5 {
		t.Errorf("%d checks", checks)
	}
	for _, q := range result.Draft.Quarantined {
		if !bad[q.Name] || q.Kind != "Ingress" {
			t.Errorf("%s %s is left out: %s", q.Kind, q.Name, q.Reason)
		}
		delete(bad, q.Name)
	}
	if len(bad) > 0 {
		t.Errorf("not left out: %v", bad)
	}
}

// checker is what decides about a configuration.
type checker interface {
	Check(ctx context.Context, in validate.Input) (validate.Verdict, error)
}

// counted counts the checks of a whole configuration.
type counted struct {
	checker
	runs int
}

func (c *counted) Check(ctx context.Context, in validate.Input) (validate.Verdict, error) {
	c.runs++
	return c.checker.Check(ctx, in)
}

// HAProxy names no line for missing peers. The culprit is found by bisection among 1,000 Ingresses and as many
// Services.
func TestErrorsWithoutALineAreFoundByBisection(t *testing.T) {
	t.Parallel()
	files, err := render.Shipped(templates.FS)
	if err != nil {
		t.Fatal(err)
	}
	set, wrong := render.Parse(files.Under(render.Templates{{
		Name: "extend/backend.cfg", Path: "extend/backend.cfg",
		Text: "{{with .Annotation \"example.com/peers\"}}    stick-table type ip size 1k peers {{.}}\n{{end}}",
	}}))
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	const thousand = 1000
	for _, culprits := range [][]int{{617}, {3, 998}} {
		t.Run(fmt.Sprint(len(culprits)), func(t *testing.T) {
			t.Parallel()
			in := compiler.Input{Objects: many(thousand), Config: config.Default(), Templates: set, Now: now}
			want := make([]string, len(culprits))
			for n, i := range culprits {
				annotate(in, i, "example.com/peers", "ghost")
				want[n] = fmt.Sprintf("app-%05d", i)
			}
			check := &counted{checker: haproxy(t)}
			r, err := compiler.Compile(t.Context(), in, check)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, q := range r.Draft.Quarantined {
				got = append(got, q.Name)
				if q.Kind != "Ingress" || !strings.Contains(q.Reason, "unable to find sync peers 'ghost'") {
					t.Errorf("left out: %+v", q)
				}
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("left out %v, want %v", got, want)
			}
			// Each culprit costs the failing check, one without any object, and the bisection. The last check
			// passes. Before the first one, two checks of a separate model show that the templates are not at
			// fault, and one shows that held hosts are not either.
			if limit := len(culprits)*(2+bits.Len(2*thousand)) + 4; check.runs > limit {
				t.Errorf("haproxy was asked %d times, want at most %d", check.runs, limit)
			}
		})
	}
}

// Lists of networks of Ingresses and routes of a namespace count together. A list that both name counts once.
func TestListsOfIngressesAndRoutesAreCountedTogether(t *testing.T) {
	t.Parallel()
	list := func(name string, bytes int) inputs.Object[corev1.ConfigMap] {
		text := "192.0.2.0/24 #" + strings.Repeat("x", bytes-14)
		return inputs.Object[corev1.ConfigMap]{Ref: diag.Object{Kind: "ConfigMap", Namespace: "shop", Name: name}, Value: &corev1.ConfigMap{Data: map[string]string{"bad": text}}}
	}
	for _, c := range []struct {
		ofIngress, ofRoute string
		want               bool // whether the route is served
	}{{"", "two", true}, {"one", "one", true}, {"one", "two", false}} {
		in := ofRoutes(t, 1)
		in.Config.Limits.NamespaceListBytes = 100
		in.Objects.ConfigMaps = []inputs.Object[corev1.ConfigMap]{list("one", 60), list("two", 60)}
		route := in.Objects.Gateway.HTTPRoutes[0].Value.DeepCopy()
		route.Annotations = map[string]string{"hapsnap.dev/deny-list": "@" + c.ofRoute + "/bad"}
		in.Objects.Gateway.HTTPRoutes[0].Value = route
		if c.ofIngress != "" {
			ing := parsed(reviewed("web", "web.example", `hapsnap.dev/deny-list: "@`+c.ofIngress+`/bad"`))
			in.Objects.Ingresses = []inputs.Object[networkingv1.Ingress]{{Ref: diag.Object{Kind: "Ingress", Namespace: "shop", Name: "web"}, Value: ing}}
		}
		r, err := compiler.Compile(t.Context(), in, picky{})
		if err != nil {
			t.Fatal(err)
		}
		large := slices.ContainsFunc(r.Diagnostics, func(d diag.Diagnostic) bool {
			return d.Object.Kind == "HTTPRoute" && strings.Contains(d.Message, "is too large: with it, the lists that are named of namespace shop would have 120 bytes, and may have 100")
		})
		if large == c.want {
			t.Errorf("%+v: said %v", c, r.Diagnostics)
		}
	}
}
