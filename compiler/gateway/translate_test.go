package gateway_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/gateway-api/pkg/features"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/modeltest"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

const class = `---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: hapsnap}
spec: {controllerName: hapsnap.dev/gateway-controller}
`

// object is a manifest of the Gateway API in the namespace shop.
func object(kind, name, spec string) string {
	return fmt.Sprintf("---\napiVersion: gateway.networking.k8s.io/v1\nkind: %s\nmetadata: {name: %s, namespace: shop}\nspec: %s\n", kind, name, spec)
}

func service(name string) string {
	return "---\napiVersion: v1\nkind: Service\nmetadata: {name: " + name + ", namespace: shop}\nspec: {ports: [{port: 80}]}\n"
}

func gathered(t *testing.T, yaml string) inputs.Inputs {
	t.Helper()
	in, found := gather(t, yaml)
	if len(found) > 0 {
		t.Fatal(found)
	}
	return in
}

// gather reads manifests, which may have faults.
func gather(t *testing.T, yaml string) (inputs.Inputs, []diag.Diagnostic) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := manifests.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	in, found, _ := inputs.Gather(set)
	return in, found
}

var usual = gateway.Config{Controller: "hapsnap.dev/gateway-controller", Ports: map[int]string{443: "the listener for https"}, Form: routing.NormalForm}

const several = `{gatewayClassName: hapsnap, listeners: [{name: a, port: 80, protocol: HTTP}, {name: b, port: 80, protocol: HTTP, hostname: "*.b.example"}, {name: c, port: 443, protocol: HTTP}]}`

// world has Gateways that compete for a port, and routes with supported and unsupported parts.
func world() string {
	return class + object("Gateway", "one", several) + object("Gateway", "two", several) + object("Gateway", "strange", strings.Replace(several, "hapsnap", "other", 1)) +
		service("web") + service("next") +
		object("HTTPRoute", "good", `{parentRefs: [{name: one}, {name: two}, {name: strange}], hostnames: [x.b.example, a.example], rules: [{backendRefs: [{name: web, port: 80, weight: 2}, {name: next, port: 80}]}]}`) +
		object("HTTPRoute", "half", `{parentRefs: [{name: one, sectionName: a}], rules: [{matches: [{headers: [{name: "X#", value: a}]}]}, {matches: [{path: {value: /half}}], backendRefs: [{name: gone, port: 80}]}]}`) +
		object("HTTPRoute", "bad", `{parentRefs: [{name: one}], rules: [{filters: [{type: RequestMirror}]}]}`) +
		object("HTTPRoute", "foreign", `{parentRefs: [{name: strange}]}`) +
		object("HTTPRoute", "lost", `{parentRefs: [{name: one, sectionName: z}]}`)
}

// A translation gives a meaningful model, in whatever order the objects come.
func TestTranslateIgnoresOrder(t *testing.T) {
	t.Parallel()
	in := gathered(t, world())
	model, found, verdicts := gateway.Translate(in, usual)
	if err := modeltest.Check(model); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		g := in
		g.Gateway.Gateways, g.Gateway.HTTPRoutes, g.Services = slices.Clone(in.Gateway.Gateways), slices.Clone(in.Gateway.HTTPRoutes), slices.Clone(in.Services)
		r.Shuffle(len(g.Gateway.Gateways), func(a, b int) {
			g.Gateway.Gateways[a], g.Gateway.Gateways[b] = g.Gateway.Gateways[b], g.Gateway.Gateways[a]
		})
		r.Shuffle(len(g.Gateway.HTTPRoutes), func(a, b int) {
			g.Gateway.HTTPRoutes[a], g.Gateway.HTTPRoutes[b] = g.Gateway.HTTPRoutes[b], g.Gateway.HTTPRoutes[a]
		})
		slices.Reverse(g.Services)
		again, said, judged := gateway.Translate(g, usual)
		if !reflect.DeepEqual(again, model) || !reflect.DeepEqual(said, found) || !reflect.DeepEqual(judged, verdicts) {
			t.Fatal("another order means something else")
		}
	}
}

// conditionsOf returns the relevant conditions of a status, each as type=reason, with a "!" if it is false.
func conditionsOf(all []metav1.Condition) string {
	var words []string
	for _, c := range all {
		mark := ""
		if c.Status == metav1.ConditionFalse {
			mark = "!"
		}
		words = append(words, mark+c.Type+"="+c.Reason)
	}
	return strings.Join(words, " ")
}

// The status says what is served, and why other parts are not.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	_, _, v := gateway.Translate(gathered(t, world()), usual)
	got := map[string]string{}
	for _, c := range v.Classes {
		got[c.Ref.Name] = conditionsOf(c.Status.Conditions)
	}
	for _, g := range v.Gateways {
		got[g.Ref.Name] = conditionsOf(g.Status.Conditions)
		for _, l := range g.Status.Listeners {
			got[g.Ref.Name+" "+string(l.Name)] = fmt.Sprint(l.AttachedRoutes, " ", conditionsOf(l.Conditions))
		}
	}
	for _, r := range v.Routes {
		for i, p := range r.Parents {
			got[fmt.Sprint(r.Ref.Name, " ", i)] = conditionsOf(p.Conditions)
		}
	}
	const served, taken = "Accepted=Accepted !Conflicted=NoConflicts ResolvedRefs=ResolvedRefs", "!Accepted=PortUnavailable !Conflicted=NoConflicts ResolvedRefs=ResolvedRefs !Programmed=Invalid"
	for name, want := range map[string]string{
		"hapsnap": "Accepted=Accepted SupportedVersion=NotFound",
		"one":     "Accepted=ListenersNotValid ResolvedRefs=ResolvedRefs", "one a": "2 " + served, "one b": "1 " + served, "one c": "1 " + taken,
		"two": "!Accepted=ListenersNotValid !Programmed=Invalid ResolvedRefs=ResolvedRefs", "two a": "1 " + taken, "two b": "1 " + taken, "two c": "1 " + taken,
		"good 0": "Accepted=Accepted ResolvedRefs=ResolvedRefs", "good 1": "Accepted=Accepted ResolvedRefs=ResolvedRefs",
		"half 0": "Accepted=Accepted !ResolvedRefs=BackendNotFound PartiallyInvalid=UnsupportedValue",
		"bad 0":  "!Accepted=UnsupportedValue ResolvedRefs=ResolvedRefs",
		"lost 0": "!Accepted=NoMatchingParent ResolvedRefs=ResolvedRefs",
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("and %v", got)
	}
	statuses := v.Statuses()
	if text, err := json.Marshal(statuses); err != nil || len(statuses) != 7 || !strings.Contains(string(text), `{"object":"HTTPRoute shop/lost","status":{"parents":[{"parentRef":{"name":"one","sectionName":"z"}`) {
		t.Errorf("%v %s", err, text)
	}
}

// Gateways and sets have only the ports that the administrator allows, also at addresses of their own.
func TestAllowedPorts(t *testing.T) {
	t.Parallel()
	const listeners = "listeners: [{name: a, port: 8000, protocol: HTTP}, {name: b, port: 5555, protocol: HTTP}]}"
	objects := gathered(t, class+
		object("Gateway", "one", "{gatewayClassName: hapsnap, allowedListeners: {namespaces: {from: Same}}, "+listeners)+
		object("ListenerSet", "more", "{parentRef: {name: one}, listeners: [{name: c, port: 8001, protocol: HTTP}, {name: d, port: 5556, protocol: TCP}]}"))
	for _, addresses := range [][]netip.Prefix{nil, {netip.MustParsePrefix("192.0.2.1/32")}} {
		for _, allowed := range [][]string{nil, {"80", "8000-8999"}} {
			of := usual
			of.Addresses, of.AllowedPorts = addresses, allowed
			_, found, v := gateway.Translate(objects, of)
			refused := map[string]bool{}
			for _, g := range v.Gateways {
				for _, l := range g.Status.Listeners {
					refused[string(l.Name)] = strings.Contains(conditionsOf(l.Conditions), "!Accepted=PortUnavailable")
				}
			}
			if refused["a"] || refused["b"] != (allowed != nil) {
				t.Errorf("%v, %v: refused are %v", addresses, allowed, refused)
			}
			said := fmt.Sprint(found)
			for _, message := range []string{"the port 5555 is not one of gatewayAPI.ports", "the port 5556 is not one of gatewayAPI.ports"} {
				if strings.Contains(said, message) != (allowed != nil) {
					t.Errorf("%v, %v: it is said that %s", addresses, allowed, said)
				}
			}
		}
	}
}

// A namespace may open so many ports, and the youngest beyond that are not served. Those of others are not counted, and
// neither are more listeners of a port.
func TestPortsOfANamespace(t *testing.T) {
	t.Parallel()
	own := object("Gateway", "one", "{gatewayClassName: hapsnap, allowedListeners: {namespaces: {from: All}}, listeners: [{name: a, port: 8000, protocol: HTTP}, {name: b, port: 8000, protocol: HTTP, hostname: b.example}]}")
	set := object("ListenerSet", "more", "{parentRef: {name: one, namespace: shop}, listeners: [{name: c, port: 8001, protocol: HTTP}, {name: d, port: 8002, protocol: HTTP}]}")
	objects := gathered(t, class+own+set+strings.NewReplacer("name: more, namespace: shop", "name: more, namespace: other", "800", "900").Replace(set))
	for _, addresses := range [][]netip.Prefix{nil, {netip.MustParsePrefix("192.0.2.1/32")}} {
		for most, want := range map[int]string{0: "", 1: "c d", 2: "d", 3: ""} {
			of := usual
			of.Addresses, of.MostPorts = addresses, most
			_, _, v := gateway.Translate(objects, of)
			var refused []string
			for _, s := range v.Sets {
				for _, l := range s.Status.Listeners {
					if s.Ref.Namespace == "shop" && strings.Contains(conditionsOf(l.Conditions), "!Accepted=PortUnavailable") {
						refused = append(refused, string(l.Name))
					}
				}
			}
			if got := strings.Join(refused, " "); got != want {
				t.Errorf("%v, %d ports: refused are %q, and not %q", addresses, most, got, want)
			}
			if c := v.Gateways[0].Status.Listeners; !strings.Contains(conditionsOf(c[0].Conditions)+conditionsOf(c[1].Conditions), "Accepted=Accepted") {
				t.Errorf("%d ports: %v", most, c)
			}
		}
	}
}

// A set without a listener of its own is neither accepted nor attached. All parts of the status say why.
func TestSetsInConflict(t *testing.T) {
	t.Parallel()
	set := func(name string, hosts ...string) string {
		listeners := []string{"{name: tcp, port: 80, protocol: TCP}"}
		for _, host := range hosts {
			listeners = append(listeners, fmt.Sprintf("{name: %s, port: 80, protocol: HTTP, hostname: %s.example}", host, host))
		}
		return object("ListenerSet", name, "{parentRef: {name: one}, listeners: ["+strings.Join(listeners, ", ")+"]}")
	}
	_, _, v := gateway.Translate(gathered(t, class+
		object("Gateway", "one", "{gatewayClassName: hapsnap, allowedListeners: {namespaces: {from: Same}}, listeners: [{name: a, port: 80, protocol: HTTP, hostname: a.example}]}")+
		set("first", "b", "a")+set("later", "a", "b")), usual)
	if n := v.Gateways[0].Status.AttachedListenerSets; n == nil || *n != 1 {
		t.Errorf("%v sets are attached, want 1", n)
	}
	const conflict = "!Accepted=HostnameConflict Conflicted=HostnameConflict ResolvedRefs=ResolvedRefs !Programmed=HostnameConflict"
	protocol := strings.ReplaceAll(conflict, "Hostname", "Protocol")
	want := map[string]string{
		"first tcp": protocol, "later tcp": protocol,
		"first": "Accepted=ListenersNotValid", "first b": "Accepted=Accepted !Conflicted=NoConflicts ResolvedRefs=ResolvedRefs", "first a": conflict,
		"later": "!Accepted=ListenersNotValid !Programmed=ListenersNotValid", "later a": conflict, "later b": conflict,
	}
	got := map[string]string{}
	for _, s := range v.Sets {
		got[s.Ref.Name] = conditionsOf(s.Status.Conditions)
		for _, l := range s.Status.Listeners {
			got[s.Ref.Name+" "+string(l.Name)] = conditionsOf(l.Conditions)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A set that the Gateway does not allow affects nothing.
func TestSetsThatAreNotAllowed(t *testing.T) {
	t.Parallel()
	set := func(namespace, name, created string) string {
		return strings.Replace(object("ListenerSet", name, "{parentRef: {name: one, namespace: shop}, listeners: [{name: x, port: 80, protocol: HTTP, hostname: x.example}, {name: b, port: 9000, protocol: HTTP}]}"),
			"namespace: shop}\nspec", "namespace: "+namespace+", creationTimestamp: "+created+"}\nspec", 1)
	}
	_, _, v := gateway.Translate(gathered(t, class+
		object("Gateway", "one", "{gatewayClassName: hapsnap, allowedListeners: {namespaces: {from: Same}}, listeners: [{name: a, port: 80, protocol: HTTP, hostname: a.example}]}")+
		set("evil", "squat", "2024-01-02T00:00:00Z")+set("shop", "meant", "2024-01-03T00:00:00Z")), usual)
	for _, s := range v.Sets {
		want := "Accepted=Accepted"
		if s.Ref.Name == "squat" {
			want = "!Accepted=NotAllowed !Programmed=NotAllowed"
		}
		if got := conditionsOf(s.Status.Conditions); got != want {
			t.Errorf("%s: %s, want %s", s.Ref, got, want)
		}
	}
	if len(v.Sets) != 2 {
		t.Errorf("%d sets", len(v.Sets))
	}
}

// A set does not get a port of a Gateway, however old the set's own Gateway is.
func TestSetsTakeNoPortOfAGateway(t *testing.T) {
	t.Parallel()
	at := func(created, text string) string {
		return strings.Replace(text, "namespace: shop}\nspec", "namespace: shop, creationTimestamp: "+created+"}\nspec", 1)
	}
	m, _, v := gateway.Translate(gathered(t, class+
		at("2024-01-01T00:00:00Z", object("Gateway", "one", "{gatewayClassName: hapsnap, allowedListeners: {namespaces: {from: Same}}, listeners: [{name: a, port: 80, protocol: HTTP}]}"))+
		at("2024-01-02T00:00:00Z", object("Gateway", "young", "{gatewayClassName: hapsnap, listeners: [{name: a, port: 5432, protocol: HTTP}]}"))+
		at("2025-01-03T00:00:00Z", object("ListenerSet", "grab", "{parentRef: {name: one}, listeners: [{name: x, port: 5432, protocol: HTTP}, {name: b, port: 80, protocol: HTTP, hostname: b.example}, {name: z, port: 7000, protocol: HTTP}]}"))), usual)
	var binds, listeners []string
	for _, b := range m.Binds {
		binds = append(binds, b.Name)
	}
	for _, l := range v.Sets[0].Status.Listeners {
		listeners = append(listeners, string(l.Name)+" "+gateway.Condition(l.Conditions, "Accepted").Reason)
	}
	if got, want := strings.Join(binds, " "), "shop/one:7000 shop/one:80 shop/young:5432"; got != want {
		t.Errorf("binds %s, want %s", got, want)
	}
	if got, want := strings.Join(listeners, ", "), "x PortUnavailable, b Accepted, z Accepted"; got != want {
		t.Errorf("listeners %s, want %s", got, want)
	}
}

// A Service whose annotations close it for routes is reported once.
func TestClosedServices(t *testing.T) {
	t.Parallel()
	closed := strings.Replace(service("web"), "namespace: shop}", "namespace: shop, annotations: {hapsnap.dev/backend-ca-secret: ca, hapsnap.dev/backend-protocol: h1-tls}}", 1)
	gatewayWithTCP := object("Gateway", "one", "{gatewayClassName: hapsnap, listeners: [{name: a, port: 80, protocol: HTTP}, {name: b, port: 5432, protocol: TCP}]}")
	route := func(kind, section string) string {
		return object(kind, "to-"+section, "{parentRefs: [{name: one, sectionName: "+section+"}], rules: [{backendRefs: [{name: web, port: 80}]}]}")
	}
	for name, routes := range map[string]string{"http": route("HTTPRoute", "a"), "tcp": route("TCPRoute", "b"), "both": route("HTTPRoute", "a") + route("TCPRoute", "b")} {
		m, found, _ := gateway.Translate(gathered(t, class+gatewayWithTCP+closed+routes), usual)
		if len(found) != 1 || found[0].Object.String() != "Service shop/web" || !strings.Contains(found[0].Message, "is refused") {
			t.Errorf("%s: %v", name, found)
		}
		for _, b := range m.Backends {
			if len(b.Targets) > 0 {
				t.Errorf("%s: backend %s has servers", name, b.Name)
			}
		}
	}
}

// A class claims existing features, in the order of their names.
func TestFeatures(t *testing.T) {
	t.Parallel()
	cfg := usual
	_, _, v := gateway.Translate(gathered(t, world()), cfg)
	without := len(v.Classes[0].Status.SupportedFeatures)
	cfg.Addresses = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/28")}
	_, _, v = gateway.Translate(gathered(t, world()), cfg)
	if with := len(v.Classes[0].Status.SupportedFeatures); with != without+2 {
		t.Errorf("%d features with addresses, %d without, want 2 less", with, without)
	}
	var names []string
	for _, f := range v.Classes[0].Status.SupportedFeatures {
		names = append(names, string(f.Name))
		if features.GetFeature(features.FeatureName(f.Name)).Name == "" {
			t.Errorf("%s is no feature", f.Name)
		}
	}
	if len(names) == 0 || !slices.IsSorted(names) {
		t.Errorf("%v", names)
	}
}

// A rule with an unsupported part is left out as a whole.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]string{
		`{matches: [{path: {value: a}}]}`:                                 "does not begin with a slash",
		`{matches: [{path: {value: /a//b}}]}`:                             `holds "//"`,
		`{matches: [{path: {value: /a/..}}]}`:                             "ends in dots",
		`{matches: [{path: {value: "/a b"}}]}`:                            "a space",
		`{matches: [{path: {type: Glob, value: /a}}]}`:                    `type "Glob"`,
		`{matches: [{path: {type: RegularExpression, value: "(a"}}]}`:     "expression",
		`{matches: [{path: {type: RegularExpression, value: "(a+)+$"}}]}`: "expression",
		`{matches: [{headers: [{name: "a'b", value: a}]}]}`:               "characters that are not supported",
		`{matches: [{headers: [{name: a, value: ""}]}]}`:                  "none that a request can have",
		`{matches: [{headers: [{name: a, type: Glob, value: a}]}]}`:       `type "Glob"`,
		`{matches: [{queryParams: [{name: "a,b", value: a}]}]}`:           "characters that are not supported",
		`{matches: [{method: "G T"}]}`:                                    "method",
		`{matches: [{}, {path: {value: a}}]}`:                             "does not begin with a slash",
		`{filters: [{type: RequestMirror}]}`:                              "RequestMirror is not supported",
		`{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: web, port: 80}, fraction: {numerator: 2, denominator: 1}}}]}`:             "2 in 1 requests",
		`{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: web, port: 80}, fraction: {numerator: 0, denominator: 0}}}]}`:             "0 in 0 requests",
		`{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: web, port: 80}, percent: -1}}]}`:                                          "-1 in 100 requests",
		`{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: web, port: 80}, percent: 1, fraction: {numerator: 1}}}]}`:                 "either a percentage or a fraction",
		`{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: web, port: 80}}}, {type: RequestRedirect, requestRedirect: {port: 81}}]}`: "not mirrored",
		`{filters: [{type: RequestHeaderModifier}]}`:                                                                                                                                                 "is not supported",
		`{filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: "a\nb"}]}}]}`:                                                                                       "cannot be sent",
		`{filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: "a b", value: a}]}}]}`:                                                                                        "characters that are not supported",
		`{filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: a}], remove: [A]}}]}`:                                                                               "changed twice",
		`{filters: [{type: RequestRedirect, requestRedirect: {scheme: ftp}}]}`:                                                                                                                       `scheme "ftp"`,
		`{filters: [{type: RequestRedirect, requestRedirect: {hostname: "*.a.example"}}]}`:                                                                                                           "not one host",
		`{filters: [{type: RequestRedirect, requestRedirect: {statusCode: 304}}]}`:                                                                                                                   "status 304",
		`{filters: [{type: RequestRedirect, requestRedirect: {}}], backendRefs: [{name: web, port: 80}]}`:                                                                                            "a redirect has no backend",
		`{filters: [{type: RequestRedirect, requestRedirect: {}}, {type: URLRewrite, urlRewrite: {hostname: a.example}}]}`:                                                                           "redirected or rewritten",
		`{filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replacePrefixMatch: /a}}}]}`:                                                                                       "not replaced by what",
		`{filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: '/\1'}}}]}`:                                                                                       "a backslash",
		`{matches: [{path: {type: Exact, value: /a}}], filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /a}}}], backendRefs: [{name: web, port: 80}]}`: "only a prefix",
		`{filters: [{type: CORS, cors: {allowOrigins: ["https://a.example/b"]}}]}`:                                                                                                                   "no origin",
		`{filters: [{type: CORS, cors: {allowOrigins: ["https://*a*a*a"]}}]}`:                                                                                                                        "no origin",
		`{backendRefs: [` + strings.Repeat("{name: web, port: 80}, ", 17) + `]}`:                                                                                                                     "16 backendRefs at most",
		`{filters: [{type: CORS, cors: {allowMethods: ["A B"]}}]}`:                                                                                                                                   "method",
		`{timeouts: {request: 1us}}`:                                              "no duration",
		`{retry: {backoff: 1s}}`:                                                  "backoff",
		`{sessionPersistence: {type: Header}}`:                                    "sessions are kept by cookies only",
		`{backendRefs: [{name: web, port: 80, filters: [{type: ExternalAuth}]}]}`: "ExternalAuth is not supported",
	} {
		model, found, v := gateway.Translate(gathered(t, class+object("Gateway", "one", several)+service("web")+object("HTTPRoute", "r", `{parentRefs: [{name: one}], rules: [`+rule+`]}`)), usual)
		if slices.ContainsFunc(model.Hosts, func(h routing.Host) bool { return len(h.Routes) > 0 }) {
			t.Errorf("%s: there are routes", rule)
		}
		message := ""
		for _, d := range found {
			if d.Object.Name == "r" {
				message += d.Message
			}
		}
		accepted := gateway.Condition(v.Routes[0].Parents[0].Conditions, "Accepted")
		if !strings.Contains(message, want) || accepted.Status != metav1.ConditionFalse || accepted.Message == "" {
			t.Errorf("%s: %q and %+v, want %q", rule, message, accepted, want)
		}
	}
}

// Default Gateways exist only in the experimental channel. They are not supported, and both objects say so.
func TestDefaultGateways(t *testing.T) {
	t.Parallel()
	gateways := object("Gateway", "one", several) + object("Gateway", "two", "{gatewayClassName: hapsnap, defaultScope: All, listeners: [{name: a, port: 81, protocol: HTTP}]}") +
		object("Gateway", "three", "{gatewayClassName: hapsnap, defaultScope: None, listeners: [{name: a, port: 82, protocol: HTTP}]}")
	_, found, v := gateway.Translate(gathered(t, class+gateways+object("HTTPRoute", "r", "{parentRefs: [{name: one}], useDefaultGateways: All}")+
		object("TCPRoute", "t", "{parentRefs: [{name: one}], useDefaultGateways: None, rules: [{}]}")), usual)
	var said []string
	for _, d := range found {
		if strings.Contains(strings.ToLower(d.Message), "default") {
			said = append(said, d.Object.String())
		}
	}
	if got := strings.Join(said, ", "); got != "Gateway shop/two, HTTPRoute shop/r" {
		t.Errorf("said of %s", got)
	}
	for _, g := range v.Gateways {
		if refused := gateway.Condition(g.Status.Conditions, "Accepted").Reason == "Invalid"; refused != (g.Ref.Name == "two") {
			t.Errorf("%s: refused %v", g.Ref, refused)
		}
	}
	if len(v.Routes) != 2 || gateway.Condition(v.Routes[0].Parents[0].Conditions, "Accepted").Status != metav1.ConditionTrue {
		t.Errorf("%+v", v.Routes)
	}
}

// Gateways of other controllers are ignored.
func TestForeignClass(t *testing.T) {
	t.Parallel()
	in := gathered(t, strings.Replace(world(), "hapsnap.dev/gateway-controller", "other.example/controller", 1))
	if model, found, v := gateway.Translate(in, usual); len(model.Binds) > 0 || len(model.Backends) > 0 || len(found) > 0 || !reflect.DeepEqual(v, gateway.Verdicts{}) {
		t.Errorf("%+v %v %+v", model, found, v)
	}
}

// The cost of a namespace's routes for all others is bounded. The older routes are served.
func TestLimits(t *testing.T) {
	t.Parallel()
	var rules []string
	for n := range 70 {
		rules = append(rules, fmt.Sprintf("{matches: [{path: {value: /%d}, headers: [{name: X-%d, value: a}]}], backendRefs: [{name: web, port: 80}]}", n, n))
	}
	yaml := class + object("Gateway", "one", several) + service("web") +
		object("HTTPRoute", "a", "{parentRefs: [{name: one, sectionName: a}], rules: ["+strings.Join(rules, ", ")+"]}") +
		object("HTTPRoute", "b", "{parentRefs: [{name: one, sectionName: a}], hostnames: [b.example], rules: [{backendRefs: [{name: web, port: 80}]}]}") +
		strings.ReplaceAll(object("HTTPRoute", "c", "{parentRefs: [{name: one, namespace: shop}]}"), "namespace: shop}\nspec", "namespace: other}\nspec")
	cfg := usual
	cfg.MostRoutes = 64
	model, found, v := gateway.Translate(gathered(t, yaml), cfg)
	if err := modeltest.Check(model); err != nil {
		t.Error(err)
	}
	routes := 0
	for _, h := range model.Hosts {
		routes += len(h.Routes)
	}
	messages := fmt.Sprint(found)
	if routes != 64 || strings.Count(messages, "more than 64 names of headers") != 6 || strings.Count(messages, "more than 64 matches") != 1 {
		t.Errorf("%d routes and %v", routes, messages)
	}
	for _, r := range v.Routes {
		accepted := gateway.Condition(r.Parents[0].Conditions, "Accepted")
		if want := map[string]metav1.ConditionStatus{"a": "True", "b": "False", "c": "False"}[r.Ref.Name]; accepted.Status != want {
			t.Errorf("%s: %+v", r.Ref.Name, accepted)
		}
	}
}
