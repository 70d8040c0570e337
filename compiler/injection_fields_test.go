package compiler_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/controller"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// whole has one object of every kind that the compiler reads, except those of the Gateway API. %d is the number
// of the set.
const whole = `
- apiVersion: networking.k8s.io/v1
  kind: IngressClass
  metadata: {name: class%[1]d}
  spec:
    controller: hapsnap.dev/ingress-controller
    parameters: {apiGroup: "", kind: ConfigMap, name: parameters%[1]d, namespace: shop, scope: Namespace}
- apiVersion: v1
  kind: ConfigMap
  metadata: {namespace: shop, name: parameters%[1]d}
  data: {hsts: "60"}
- apiVersion: networking.k8s.io/v1
  kind: Ingress
  metadata:
    namespace: shop
    name: web%[1]d
    labels: {app: web}
    annotations:
      hapsnap.dev/allow-list: "@lists%[1]d/offices"
      hapsnap.dev/auth-basic: users%[1]d
      hapsnap.dev/balance: leastconn
  spec:
    ingressClassName: class%[1]d
    tls: [{hosts: [web%[1]d.example], secretName: cert%[1]d}]
    defaultBackend: {service: {name: web%[1]d, port: {name: http}}}
    rules:
    - host: web%[1]d.example
      http:
        paths:
        - {path: /a, pathType: Prefix, backend: {service: {name: web%[1]d, port: {name: http}}}}
        - {path: /b, pathType: Exact, backend: {service: {name: outside%[1]d, port: {number: 80}}}}
        - {path: /c, pathType: ImplementationSpecific, backend: {resource: {apiGroup: example.com, kind: Bucket, name: bucket}}}
- apiVersion: networking.k8s.io/v1
  kind: Ingress
  metadata: {namespace: shop, name: old%[1]d, annotations: {kubernetes.io/ingress.class: class%[1]d}}
  spec:
    rules:
    - host: old%[1]d.example
      http:
        paths:
        - {path: /a, pathType: Prefix, backend: {service: {name: web%[1]d, port: {name: http}}}}
- apiVersion: v1
  kind: Service
  metadata:
    namespace: shop
    name: web%[1]d
    annotations: {hapsnap.dev/tcp-port: "%[2]d"}
  spec:
    type: ClusterIP
    ports: [{name: http, port: 80, appProtocol: kubernetes.io/h2c, protocol: TCP}]
- apiVersion: v1
  kind: Service
  metadata: {namespace: shop, name: outside%[1]d}
  spec: {type: ExternalName, externalName: outside%[1]d.example}
- apiVersion: v1
  kind: ConfigMap
  metadata: {namespace: shop, name: lists%[1]d}
  data: {offices: 192.0.2.0/24}
- apiVersion: v1
  kind: Secret
  metadata: {namespace: shop, name: users%[1]d}
  type: Opaque
  stringData: {auth: "user:$5$saltsalt$lpIrPk7bQF8SV4aHZO7lCkrIEXwSvoH5M4OTyVKmFsC"}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {namespace: shop, name: web%[1]d, labels: {kubernetes.io/service-name: web%[1]d}}
  addressType: IPv4
  ports: [{name: http, port: 8080, protocol: TCP}]
  endpoints: [{addresses: [10.0.0.1]}]
`

// wholeGateway has one object of every kind of the Gateway API, and the Services that they name.
const wholeGateway = `
- {apiVersion: v1, kind: Service, metadata: {namespace: shop, name: web%[1]d}, spec: {ports: [{name: http, port: 80}]}}
- {apiVersion: v1, kind: Service, metadata: {namespace: shop, name: outside%[1]d}, spec: {type: ExternalName, externalName: outside%[1]d.example}}
- apiVersion: gateway.networking.k8s.io/v1
  kind: GatewayClass
  metadata: {name: gateways%[1]d}
  spec: {controllerName: hapsnap.dev/gateway-controller, description: none}
- apiVersion: gateway.networking.k8s.io/v1
  kind: Gateway
  metadata: {namespace: shop, name: web%[1]d, labels: {app: web}, annotations: {example.com/owner: team}}
  spec:
    gatewayClassName: gateways%[1]d
    allowedListeners: {namespaces: {from: Same}}
    listeners:
    - {name: http, port: %[2]d, protocol: HTTP, hostname: "*.example", allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {kubernetes.io/metadata.name: shop}}}, kinds: [{kind: HTTPRoute, group: gateway.networking.k8s.io}]}}
    - {name: https, port: %[3]d, protocol: HTTPS, tls: {mode: Terminate, certificateRefs: [{name: cert%[1]d, kind: Secret, group: ""}]}}
    - {name: passed, port: %[4]d, protocol: TLS, hostname: "*.passed%[1]d.example", tls: {mode: Passthrough}}
    - {name: tcp, port: %[5]d, protocol: TCP}
- apiVersion: gateway.networking.k8s.io/v1
  kind: ListenerSet
  metadata: {namespace: shop, name: set%[1]d}
  spec: {parentRef: {name: web%[1]d}, listeners: [{name: set, port: %[2]d, protocol: HTTP, hostname: set%[1]d.example}]}
- apiVersion: gateway.networking.k8s.io/v1
  kind: HTTPRoute
  metadata: {namespace: shop, name: web%[1]d}
  spec:
    parentRefs: [{name: web%[1]d, sectionName: http}, {kind: ListenerSet, name: set%[1]d, group: gateway.networking.k8s.io}]
    hostnames: [route%[1]d.example, "*.route%[1]d.example"]
    rules:
    - name: first
      matches:
      - {path: {type: PathPrefix, value: /a}, method: GET, headers: [{type: Exact, name: X-A, value: a}], queryParams: [{type: Exact, name: b, value: c}]}
      - {path: {type: PathPrefix, value: /b}, headers: [{type: RegularExpression, name: X-B, value: "a.*"}], queryParams: [{type: RegularExpression, name: d, value: "e+"}]}
      filters:
      - {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Set, value: a}], add: [{name: X-Add, value: b}], remove: [X-Remove]}}
      - {type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: X-Set, value: a}], add: [{name: X-Add, value: b}], remove: [X-Remove]}}
      - {type: URLRewrite, urlRewrite: {hostname: to.example, path: {type: ReplacePrefixMatch, replacePrefixMatch: /to}}}
      - {type: CORS, cors: {allowOrigins: ["https://*.a.example", "https://b.example"], allowMethods: [GET], allowHeaders: [X-A], exposeHeaders: [X-B]}}
      timeouts: {request: 10s, backendRequest: 5s}
      retry: {codes: [500, 503], attempts: 1, backoff: 0s}
      backendRefs: [{name: web%[1]d, kind: Service, group: "", port: 80, weight: 2}, {name: web%[1]d, namespace: shop, port: 80, filters: [{type: RequestHeaderModifier, requestHeaderModifier: {remove: [X-A]}}]}]
    - matches: [{path: {type: RegularExpression, value: "/x[0-9]+"}}]
      filters: [{type: RequestRedirect, requestRedirect: {scheme: https, hostname: to.example, path: {type: ReplaceFullPath, replaceFullPath: /to}}}]
    - matches: [{path: {type: Exact, value: /y}}]
      filters: [{type: ExtensionRef, extensionRef: {group: example.com, kind: Thing, name: thing}}]
- apiVersion: gateway.networking.k8s.io/v1
  kind: GRPCRoute
  metadata: {namespace: shop, name: calls%[1]d}
  spec:
    parentRefs: [{name: web%[1]d, sectionName: https}]
    hostnames: [calls%[1]d.example]
    rules:
    - matches: [{method: {type: Exact, service: a.Echo, method: Say}, headers: [{type: Exact, name: X-A, value: a}]}, {method: {type: RegularExpression, service: "a.Echo|b.Echo", method: "Say|Tell"}}, {method: {method: Hear}}]
      filters: [{type: RequestHeaderModifier, requestHeaderModifier: {remove: [X-A]}}]
      backendRefs: [{name: web%[1]d, port: 80}]
- apiVersion: gateway.networking.k8s.io/v1
  kind: TLSRoute
  metadata: {namespace: shop, name: passed%[1]d}
  spec:
    parentRefs: [{name: web%[1]d, sectionName: passed}]
    hostnames: ["*.a.passed%[1]d.example"]
    rules: [{name: first, backendRefs: [{name: web%[1]d, port: 80}, {name: outside%[1]d, port: 80}]}]
- apiVersion: gateway.networking.k8s.io/v1
  kind: TCPRoute
  metadata: {namespace: shop, name: tcp%[1]d}
  spec: {parentRefs: [{name: web%[1]d, sectionName: tcp}], rules: [{name: first, backendRefs: [{name: web%[1]d, port: 80}]}]}
- apiVersion: gateway.networking.k8s.io/v1beta1
  kind: ReferenceGrant
  metadata: {namespace: shop, name: grant%[1]d}
  spec: {from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: other}], to: [{group: "", kind: Service, name: web%[1]d}]}
`

// set returns the objects of a set in the form of JSON.
func set(tb testing.TB, n int) []any {
	tb.Helper()
	return listed(tb, whole, n, 10_000+n)
}

// gatewaySet returns the objects of a set of the Gateway API.
func gatewaySet(tb testing.TB, n int) []any {
	tb.Helper()
	return listed(tb, wholeGateway, n, 20_000+n, 30_000+n, 40_000+n, 50_000+n)
}

// listed returns the objects of a list after filling in numbers.
func listed(tb testing.TB, list string, numbers ...any) []any {
	tb.Helper()
	var objects []any
	if err := yaml.Unmarshal(fmt.Appendf(nil, list, numbers...), &objects); err != nil {
		tb.Fatal(err)
	}
	return objects
}

// place is the place of a string in a set: a value or a name of a field.
type place struct {
	path string
	put  func(root []any, text string)
}

// places returns every string of a set, and the keys of maps whose keys people choose.
func places(root []any) []place {
	var out []place
	var walk func(v any, path string, at func(root []any) any)
	walk = func(v any, path string, at func(root []any) any) {
		switch v := v.(type) {
		case []any:
			for i := range v {
				elementAt := func(root []any) any { return at(root).([]any)[i] }
				if _, isText := v[i].(string); isText {
					out = append(out, place{fmt.Sprintf("%s[%d]", path, i), func(root []any, text string) { at(root).([]any)[i] = text }})
				}
				walk(v[i], fmt.Sprintf("%s[%d]", path, i), elementAt)
			}
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				name := path + "." + key
				if _, isText := v[key].(string); isText {
					out = append(out, place{name, func(root []any, text string) { at(root).(map[string]any)[key] = text }})
				}
				if strings.HasSuffix(path, "annotations") || strings.HasSuffix(path, "labels") || strings.HasSuffix(path, ".data") || strings.HasSuffix(path, ".stringData") {
					out = append(out, place{"key " + name, func(root []any, text string) {
						m := at(root).(map[string]any)
						m[text] = m[key]
						delete(m, key)
					}})
				}
				walk(v[key], name, func(root []any) any { return at(root).(map[string]any)[key] })
			}
		}
	}
	for i, object := range root {
		o := object.(map[string]any)
		walk(o, fmt.Sprintf("%s %s", o["kind"], o["metadata"].(map[string]any)["name"]), func(root []any) any { return root[i] })
	}
	return out
}

var plainFile = regexp.MustCompile(`^certs/[A-Za-z0-9_-]+\.pem$`)

// No string of any object, including keys of maps, can write a line of its own, end a word, begin a comment or
// become an expression, in any place. A valid object beside it is served.
func TestInjectionIntoFields(t *testing.T) {
	t.Parallel()
	injected(t, set, places(set(t, 1)), map[string]string{"\nweb0.example web0.example\n": "maps/host.map"})
}

func TestInjectionIntoGatewayAPI(t *testing.T) {
	t.Parallel()
	injected(t, gatewaySet, places(gatewaySet(t, 1)), map[string]string{
		"\nshop/web0:20000|route0.example shop/web0:20000|route0.example\n": "maps/host.map",
	})
}

// The same holds for objects that say whose certificates are accepted.
func TestInjectionIntoAuthorities(t *testing.T) {
	t.Parallel()
	said := slices.DeleteFunc(places(authoritySet(t, 1)), func(p place) bool { // the tests above have the others
		return !strings.Contains(p.path, ".tls.frontend") && !strings.Contains(p.path, ".tls.backend") && !strings.Contains(p.path, "ConfigMap ") && !strings.Contains(p.path, "BackendTLSPolicy ")
	})
	injected(t, authoritySet, said, map[string]string{
		" sni str(servers0.internal) ": snapshots.ConfigFile,
		" verify required alpn ":       snapshots.ConfigFile,
	})
}

// injected puts hostile text into some places of sets of objects. sound is the expected content of files for
// set 0, which has none.
func injected(t *testing.T, set func(testing.TB, int) []any, all []place, sound map[string]string) {
	t.Helper()
	check := haproxy(t)
	cfg := config.Default()
	cfg.GatewayAPI.Enabled = true
	cfg.TCPAnnotations.Ports, cfg.TCPAnnotations.Namespaces = []string{"10000-20000"}, []string{"*"}
	for _, name := range attempted() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := set(t, 0)
			for i, p := range all {
				attacked := set(t, i+1)
				p.put(attacked, fmt.Sprintf("EVIL%d%sEVIL", i, hostile[name]))
				objects = append(objects, attacked...)
			}
			result := compiled(t, check, cfg, objects)
			for _, f := range result.Artifact.Files {
				checkWords(t, f.Path, f.Content)
				for line, file := range sound {
					if f.Path == file && !strings.Contains(string(f.Content), line) {
						t.Errorf("%s has no %q: a sound object is not served", file, line)
					}
				}
			}
			for _, c := range result.Draft.Certificates {
				if !plainFile.MatchString(c.File) {
					t.Errorf("certificate file %q", c.File)
				}
			}
		})
	}
}

// authorities are a Gateway and a policy that need authorities.
const authorities = `
- {apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: gateways}, spec: {controllerName: hapsnap.dev/gateway-controller}}
- apiVersion: gateway.networking.k8s.io/v1
  kind: Gateway
  metadata: {namespace: shop, name: web%[1]d}
  spec:
    gatewayClassName: gateways
    tls:
      backend: {clientCertificateRef: {name: cert, kind: Secret, group: ""}}
      frontend:
        default: {validation: {mode: AllowInsecureFallback, caCertificateRefs: [{kind: ConfigMap, group: "", name: authorities%[1]d, namespace: shop}]}}
        perPort: [{port: %[2]d, tls: {validation: {mode: AllowValidOnly, caCertificateRefs: [{kind: ConfigMap, group: "", name: authorities%[1]d}]}}}]
    listeners:
    - {name: strict, port: %[2]d, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}
    - {name: ends, port: %[3]d, protocol: TLS, tls: {certificateRefs: [{name: cert}]}}
- {apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {namespace: shop, name: web%[1]d}, spec: {parentRefs: [{name: web%[1]d}], rules: [{backendRefs: [{name: web%[1]d, port: 80}]}]}}
- {apiVersion: v1, kind: Service, metadata: {namespace: shop, name: web%[1]d}, spec: {ports: [{name: http, port: 80}]}}
- {apiVersion: v1, kind: ConfigMap, metadata: {namespace: shop, name: authorities%[1]d}, data: {ca.crt: "-----BEGIN CERTIFICATE-----\nMIIBiDCCAS2gAwIBAgIUL4QLUP/FSCJEK8Nj+3QjEiVHb50wCgYIKoZIzj0EAwIw\nGDEWMBQGA1UEAwwNcHJvYmUuaW52YWxpZDAgFw0yNjExMjMyMjEwMjNaGA8yMTI2\nMTAzMDIyMTAyM1owGDEWMBQGA1UEAwwNcHJvYmUuaW52YWxpZDBZMBMGByqGSM49\nAgEGCCqGSM49AwEHA0IABHgOAWH9kwrU6CDB0QF7qa7VvY9DaYtCdLCwlumM2jIa\nPCKslk2YxKkgmzTBOzCapp8hU2VgIt0/xLDRSF6v1e6jUzBRMB0GA1UdDgQWBBQz\nTf2MJeMaGH8ENkKEH4uJx2z17jAfBgNVHSMEGDAWgBQzTf2MJeMaGH8ENkKEH4uJ\nx2z17jAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0kAMEYCIQCk4sTdcvxg\nC7WYvxln7/ZHn/m1M4TjJUE7r+AIH4FnAwIhANU6o27EQdepvcrLcCT0mmkDecry\nnmHpu0aBSZGV4J4H\n-----END CERTIFICATE-----\n"}}
- apiVersion: gateway.networking.k8s.io/v1
  kind: BackendTLSPolicy
  metadata: {namespace: shop, name: servers%[1]d}
  spec:
    targetRefs: [{group: "", kind: Service, name: web%[1]d, sectionName: http}]
    validation: {hostname: servers%[1]d.internal, caCertificateRefs: [{group: "", kind: ConfigMap, name: authorities%[1]d}], subjectAltNames: [{type: Hostname, hostname: servers%[1]d.internal}]}
`

// authoritySet returns a set of these objects.
func authoritySet(tb testing.TB, n int) []any {
	tb.Helper()
	return listed(tb, authorities, n, 20_000+n, 30_000+n)
}

// compiled compiles objects from one file.
func compiled(t *testing.T, check *validate.Checker, cfg config.Config, objects []any) compiler.Result {
	t.Helper()
	dir := t.TempDir()
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "all.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	result, err := compiler.Source{Objects: compiler.Files(dir), Config: cfg}.Once(t.Context(), check, time.Unix(0, 0), "test")
	if err != nil {
		for _, d := range result.Diagnostics {
			if d.Object == (diag.Object{}) {
				t.Error(d)
			}
		}
		t.Fatal(err)
	}
	return result
}

// routed is an object of a custom kind; %d is its number. Templates make a section, conditions, a list, a map
// and a directive from it.
const (
	routed = `
- apiVersion: example.com/v1
  kind: Widget
  metadata: {namespace: shop, name: widget%[1]d, labels: {tier: web}, annotations: {example.com/owner: team}}
  spec: {host: web%[1]d.example, methods: [GET, HEAD], service: web%[1]d, port: http, header: plain, timeouts: {server: 5s}}
`
	routedSection = `{{range .Objects "example.com/v1/Widget"}}
backend widget.{{.Object.Namespace}}_{{.Object.Name}} from main
    timeout server {{.Content.spec.timeouts.server}}
    http-request set-header X-Header {{literal .Content.spec.header}} if { method {{words .Content.spec.methods}} } { req.hdr(host) -m str {{.Content.spec.host}} }
    http-request set-header X-Owner {{literal (index .Annotations "example.com/owner")}}
    #hapsnap servers {{.Object.Namespace}}/{{.Content.spec.service}}:{{.Content.spec.port}}
{{end}}
`
	routedMap = `{{range .Indexed "example.com/v1/Widget" "byTier" "web"}}{{.Content.spec.host}} widget.{{.Object.Namespace}}_{{.Object.Name}}
{{end}}`
)

// No string of an object of a custom kind can write a line of its own, end a word or a condition, or begin a
// comment, whatever the template does with it. The valid object beside it is served.
func TestInjectionIntoOtherKinds(t *testing.T) {
	t.Parallel()
	check := haproxy(t)
	for _, name := range attempted() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := widgets(t, 0)
			for _, p := range places(widgets(t, 1)) {
				for _, text := range []string{fmt.Sprintf("EVIL%d%sEVIL", len(objects), hostile[name]), hostile[name]} {
					attacked := widgets(t, len(objects))
					p.put(attacked, text)
					objects = append(objects, attacked...)
				}
			}
			result := compiledWidgets(t, check, objects)
			if len(result.Draft.Quarantined) == 0 {
				t.Error("nothing is refused")
			}
			for _, f := range result.Artifact.Files {
				checkWords(t, f.Path, f.Content)
				if f.Path == "maps/widgets.map" && !strings.Contains(string(f.Content), "web0.example widget.shop_widget0\n") {
					t.Error("the sound object is not served")
				}
			}
		})
	}
}

// compiledWidgets compiles objects with the templates above.
func compiledWidgets(t *testing.T, check *validate.Checker, objects []any) compiler.Result {
	t.Helper()
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	if err != nil {
		t.Fatal(err)
	}
	s := source(t, &txtar.Archive{Files: []txtar.File{
		{Name: "manifests/all.json", Data: text},
		{Name: "templates/haproxy/55-widgets.cfg", Data: []byte(routedSection)}, {Name: "templates/maps/widgets.map", Data: []byte(routedMap)},
	}})
	s.Config.Kinds = []kinds.Kind{{APIVersion: "example.com/v1", Kind: "Widget", Indexes: map[string]string{"byTier": ".metadata.labels.tier"}}}
	result, err := s.Once(t.Context(), check, now, "test")
	if err != nil {
		t.Fatal(err, len(result.Diagnostics))
	}
	return result
}

// widgets returns a list of one object, in the form of JSON.
func widgets(t *testing.T, n int) []any {
	t.Helper()
	return listed(t, routed, n)
}

// odd are characters that YAML, terminals or Go's quoting treat specially, and that an API server accepts in
// annotations.
var odd = []string{"\x00", "\x1b[2J", "\x7f", "\u0080", "\u0085", "\u009b31m", "\u009f", "\u2028", "\u202e", "\ufeff", "\ufffe", "\uffff", "\U0001fffe", "\xff"}

// Whatever a field of any object holds, the others are published. No content prevents writing or reading a
// manifest.
func TestPublishedWhateverIsInFields(t *testing.T) {
	t.Parallel()
	check := haproxy(t)
	cfg := config.Default()
	cfg.GatewayAPI.Enabled = true
	cfg.TCPAnnotations.Ports, cfg.TCPAnnotations.Namespaces = []string{"10000-20000"}, []string{"*"}
	var objects []any
	for _, set := range []func(testing.TB, int) []any{set, gatewaySet} {
		first := len(objects)
		objects = append(objects, set(t, first)...)
		for i, p := range places(set(t, 1)) {
			attacked := set(t, first+i+1)
			p.put(attacked, fmt.Sprintf("EVIL%d%sEVIL", i, odd[i%len(odd)]))
			objects = append(objects, attacked...)
		}
	}
	for i, o := range options.All() {
		for j, c := range odd {
			// The parser of expressions quotes a text that begins like an expression.
			for k, text := range []string{o.Example + c, "^/(" + c + " /x", "^/[" + c} {
				objects = append(objects, annotated(o, fmt.Sprintf("%d-%d-%d", i, j, k), text)...)
			}
		}
	}
	publish(t, check, cfg, objects)
}

func FuzzPublishedWhateverIsInFields(f *testing.F) {
	for i, c := range odd {
		f.Add(i*7, "^/("+c+" /x")
	}
	check := haproxy(f)
	whole := func(tb testing.TB, n int) []any {
		tb.Helper()
		return slices.Concat(set(tb, 2*n), gatewaySet(tb, 2*n+1))
	}
	all := places(whole(f, 1))
	f.Fuzz(func(t *testing.T, n int, text string) {
		attacked := whole(t, 1)
		all[(n%len(all)+len(all))%len(all)].put(attacked, text)
		o := options.All()[(n%len(options.All())+len(options.All()))%len(options.All())]
		cfg := config.Default()
		cfg.GatewayAPI.Enabled = true
		publish(t, check, cfg, slices.Concat(whole(t, 0), attacked, annotated(o, "fuzzed", text)))
	})
}

// annotated is an Ingress, or a Service, with an option.
func annotated(o options.Option, name, value string) []any {
	metadata := map[string]any{"namespace": "shop", "name": "odd-" + name, "annotations": map[string]any{options.Prefix + o.Name: value}}
	if o.On == options.OnService {
		return []any{map[string]any{
			"apiVersion": "v1", "kind": "Service", "metadata": metadata,
			"spec": map[string]any{"ports": []any{map[string]any{"name": "http", "port": 80}}},
		}}
	}
	backend := map[string]any{"service": map[string]any{"name": "web0", "port": map[string]any{"name": "http"}}}
	return []any{map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata,
		"spec": map[string]any{"ingressClassName": "class0", "rules": []any{map[string]any{
			"host": "odd-" + name + ".example",
			"http": map[string]any{"paths": []any{map[string]any{"path": "/", "pathType": "Prefix", "backend": backend}}},
		}}},
	}}
}

// publish compiles and publishes. It checks that web0.example is served from what can be read again, and that
// nothing of it contains control characters.
func publish(t *testing.T, check *validate.Checker, cfg config.Config, objects []any) {
	t.Helper()
	result := compiled(t, check, cfg, objects)
	for _, d := range result.Diagnostics {
		if plain := strings.Replace(d.String(), "\n\thint: ", "", 1); strings.ContainsFunc(plain+d.Message+d.Hint, isControl) {
			t.Errorf("a terminal would obey %q", d.String())
		}
	}
	store := dirstore.Open(t.TempDir(), dirstore.Options{})
	id, _, err := controller.Publish(t.Context(), store, result, cfg.ShrinkGuard)
	if err != nil {
		t.Fatalf("nothing is published for anybody: %v", err)
	}
	s, err := store.Get(t.Context(), id)
	if err != nil {
		t.Fatalf("what was published cannot be read: %v", err)
	}
	if hosts, _ := s.File("maps/host.map"); !strings.Contains(string(hosts), "\nweb0.example web0.example\n") {
		t.Error("the sound Ingress is not served")
	}
	checkShown(t, s.Manifest)
}

func checkShown(t *testing.T, m snapshots.Manifest) {
	t.Helper()
	for _, q := range m.Spec.Quarantined {
		if strings.ContainsFunc(q.Kind+q.Namespace+q.Name+q.Reason, isControl) {
			t.Errorf("a terminal would obey %q", q)
		}
	}
	if strings.ContainsFunc(m.Spec.Subject, isControl) {
		t.Errorf("a terminal would obey the subject %q", m.Spec.Subject)
	}
}

// isControl reports whether a terminal may take a character for a command, or change the order of the text
// after it.
func isControl(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e }
