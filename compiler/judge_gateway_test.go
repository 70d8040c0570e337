package compiler_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/controller"
	"github.com/hapsnap/hapsnap/compiler/controller/controllertest"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// gatewayObject reads an object of the Gateway API.
func gatewayObject(t *testing.T, kind, text string) metav1.Object {
	t.Helper()
	k, _ := inputs.GatewayKindOf(kind)
	object := k.New()
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Fatal(err, text)
	}
	return object
}

const gatewayWorld = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: hapsnap}
spec: {controllerName: hapsnap.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: infra, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  gatewayClassName: hapsnap
  listeners:
  - {name: http, port: 8000, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
  - {name: tcp, port: 9000, protocol: TCP, allowedRoutes: {namespaces: {from: All}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: vault, namespace: bank, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  parentRefs: [{name: web, namespace: infra}]
  hostnames: [vault.example]
  rules: [{backendRefs: [{name: safe, port: 80}]}]
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{port: 80}]}
`

// routeText is a route of the namespace shop with a rule.
func routeText(name, host, rule string) string {
	return fmt.Sprintf("metadata: {namespace: shop, name: %s}\nspec:\n  parentRefs: [{name: web, namespace: infra}]\n  hostnames: [%s]\n  rules: [{%s}]\n", name, host, rule)
}

// optioned is a route with an option.
func optioned(annotation string) string {
	return strings.Replace(routeText("new", "new.example", toWeb), "name: new}", "name: new, annotations: {hapsnap.dev/"+annotation+"}}", 1)
}

const toWeb = "backendRefs: [{name: web, port: 80}]"

// An object of the Gateway API is refused for what the compiler would leave out, with the field. Other findings
// are warnings. The answer has no names of other namespaces.
func TestJudgeOfGateways(t *testing.T) {
	t.Parallel()
	_, judge := judging(t, map[string]string{"world.yaml": gatewayWorld, "web.yaml": controllertest.Manifest("ingress", "5s"),
		"../templates/extend/backend.cfg": "{{with .Annotation \"example.com/timeout\"}}    timeout server {{.}}\n{{end}}"}, func(o *controller.Options) {
		o.Source.Config.GatewayAPI.Enabled = true
		o.Source.Config.Namespaces = []string{"shop", "infra", "bank"}
	})
	for _, c := range []struct {
		name, kind, object string
		faults, warnings   string // parts of the texts; "" for none
	}{
		{"sound", "HTTPRoute", routeText("new", "new.example", toWeb), "", ""},
		{"a value that a template writes and HAProxy takes", "HTTPRoute", strings.Replace(routeText("new", "new.example", toWeb), "name: new}", `name: new, annotations: {example.com/timeout: 7s}}`, 1), "", ""},
		{"a value that a template writes and HAProxy refuses", "HTTPRoute", strings.Replace(routeText("new", "new.example", toWeb), "name: new}", `name: new, annotations: {example.com/timeout: soon}}`, 1), "soon", ""},
		{"a filter that is not supported", "HTTPRoute", routeText("new", "new.example", toWeb+", filters: [{type: ExternalAuth}]"), "spec.rules[0].filters[0].type: the filter ExternalAuth is not supported", ""},
		{"an expression that is none", "HTTPRoute", routeText("new", "new.example", toWeb+", matches: [{path: {type: RegularExpression, value: \"/a(\"}}]"), "spec.rules[0].matches[0].path: expression", ""},
		{"one rule of two", "HTTPRoute", routeText("new", "new.example", toWeb+"}, {"+toWeb+", retry: {backoff: 1s}"), "spec.rules[1].retry.backoff: a backoff is not supported", ""},
		{"a Service that is not there yet", "HTTPRoute", routeText("new", "new.example", "backendRefs: [{name: later, port: 80}]"), "", "Service shop/later does not exist"},
		{"a reference that is not permitted", "HTTPRoute", routeText("new", "new.example", "backendRefs: [{name: safe, namespace: bank, port: 80}]"), "", "no ReferenceGrant of another namespace permits the reference to"},
		{"a listener that does not take it", "HTTPRoute", strings.Replace(routeText("new", "new.example", toWeb), "namespace: infra}", "namespace: infra, sectionName: tcp}", 1), "", "is not attached"},
		{"a Gateway of nobody here", "HTTPRoute", strings.Replace(routeText("new", "new.example", toWeb+", retry: {backoff: 1s}"), "name: web, namespace: infra", "name: other, namespace: infra", 1), "", ""},
		{"a namespace that nothing is read from", "HTTPRoute", strings.Replace(routeText("new", "new.example", toWeb+", retry: {backoff: 1s}"), "namespace: shop", "namespace: other", 1), "", ""},
		{"an option", "HTTPRoute", optioned("allow-list: 10.0.0.0/8"), "", ""},
		{"an option that protects something and is wrong", "HTTPRoute", optioned("allow-list: nonsense"), "metadata.annotations[\"hapsnap.dev/allow-list\"]: annotation hapsnap.dev/allow-list: \"nonsense\" is not a network; the routes that it protects answer 503", ""},
		{"an option that protects nothing and is wrong", "HTTPRoute", optioned("timeout-server: soon"), "metadata.annotations[\"hapsnap.dev/timeout-server\"]: annotation hapsnap.dev/timeout-server: \"soon\"", ""},
		{"an option of Ingresses", "HTTPRoute", optioned("client-ca-secret: ca"), "protects something, and is no option of HTTPRoute, GRPCRoute", ""},
		{"an option that nobody knows", "HTTPRoute", optioned("alow-list: 10.0.0.0/8"), "", "did you mean hapsnap.dev/allow-list?"},
		{"a list that is not there", "HTTPRoute", optioned("deny-list: '@lists/bad'"), "metadata.annotations[\"hapsnap.dev/deny-list\"]: annotation hapsnap.dev/deny-list: list shop/lists/bad cannot be read: ConfigMap shop/lists does not exist", ""},
		{"users that are not there yet", "HTTPRoute", optioned("auth-basic: users"), "", "metadata.annotations[\"hapsnap.dev/auth-basic\"]: annotation hapsnap.dev/auth-basic: whether Secret shop/users exists and can be used is not checked here"},
		{"a Service to ask that is not there", "HTTPRoute", optioned("auth-url: http://auth/"), "metadata.annotations[\"hapsnap.dev/auth-url\"]: annotation hapsnap.dev/auth-url: Service shop/auth does not exist", ""},
		{"calls with an option that is wrong", "GRPCRoute", optioned("rate-limit: lots"), "metadata.annotations[\"hapsnap.dev/rate-limit\"]: annotation hapsnap.dev/rate-limit: \"lots\"", ""},
		{"calls", "GRPCRoute", "metadata: {namespace: shop, name: new}\nspec: {parentRefs: [{name: web, namespace: infra}], rules: [{matches: [{method: {type: RegularExpression, service: \"a(\"}}], " + toWeb + "}]}\n", "spec.rules[0].matches[0].", ""},
		{"connections", "TCPRoute", "metadata: {namespace: shop, name: new}\nspec: {parentRefs: [{name: web, namespace: infra, sectionName: tcp}], rules: [{" + toWeb + "}]}\n", "", ""},
		{"a Gateway", "Gateway", "metadata: {namespace: shop, name: new}\nspec: {gatewayClassName: hapsnap, listeners: [{name: http, port: 8001, protocol: HTTP}]}\n", "", ""},
		{"a Gateway with an option", "Gateway", "metadata: {namespace: shop, name: new, annotations: {hapsnap.dev/allow-list: 10.0.0.0/8}}\nspec: {gatewayClassName: hapsnap, listeners: [{name: http, port: 8001, protocol: HTTP}]}\n", "", ""},
		{"a Gateway with an option that is wrong", "Gateway", "metadata: {namespace: shop, name: new, annotations: {hapsnap.dev/allow-list: nonsense}}\nspec: {gatewayClassName: hapsnap, listeners: [{name: http, port: 8001, protocol: HTTP}]}\n", "metadata.annotations[\"hapsnap.dev/allow-list\"]: annotation hapsnap.dev/allow-list: \"nonsense\" is not a network; nothing is served by it", ""},
		{"a Gateway at a port of the configuration", "Gateway", "metadata: {namespace: shop, name: new}\nspec: {gatewayClassName: hapsnap, listeners: [{name: http, port: 80, protocol: HTTP}]}\n", "listener http is not served", ""},
		{"a Gateway at a port of another one", "Gateway", "metadata: {namespace: shop, name: new}\nspec: {gatewayClassName: hapsnap, listeners: [{name: http, port: 8000, protocol: HTTP}]}\n", "listener http is not served", ""},
		{"a Gateway of another class", "Gateway", "metadata: {namespace: shop, name: new}\nspec: {gatewayClassName: other, listeners: [{name: http, port: 80, protocol: HTTP}]}\n", "", ""},
		{"a ListenerSet that nobody lets in", "ListenerSet", "metadata: {namespace: shop, name: new}\nspec: {parentRef: {name: web, namespace: infra}, listeners: [{name: more, port: 8002, protocol: HTTP}]}\n", "the listeners are not served", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := judge.Gateway(t.Context(), c.kind, gatewayObject(t, c.kind, c.object))
			if err != nil {
				t.Fatal(err)
			}
			for what, pair := range map[string][2]string{"faults": {c.faults, texts(v.Faults)}, "warnings": {c.warnings, texts(v.Warnings)}} {
				if !strings.Contains(pair[1], pair[0]) || (pair[0] == "") != (pair[1] == "") {
					t.Errorf("%s: %q, want %q", what, pair[1], pair[0])
				}
				if strings.Contains(pair[1], "bank") || strings.Contains(pair[1], "vault") || strings.Contains(pair[1], "infra/") {
					t.Errorf("%s name what is of others: %s", what, pair[1])
				}
			}
		})
	}
}

// A new object is younger than all that exist, also where the clock of the API server is ahead.
func TestNewObjectsAreTheYoungest(t *testing.T) {
	t.Parallel()
	_, judge := judging(t, map[string]string{"world.yaml": strings.ReplaceAll(gatewayWorld, "2026-01-01", time.Now().Add(48*time.Hour).Format(time.DateOnly))}, func(o *controller.Options) {
		o.Source.Config.GatewayAPI.Enabled, o.Source.Config.TrustFileAges = true, true
	})
	v, err := judge.Gateway(t.Context(), "Gateway", gatewayObject(t, "Gateway", "metadata: {namespace: shop, name: new}\nspec: {gatewayClassName: hapsnap, listeners: [{name: http, port: 9000, protocol: HTTP}]}\n"))
	if err != nil || !strings.Contains(texts(v.Faults), "listener http is not served") {
		t.Errorf("a Gateway with the port of an older one: %v, %v", texts(v.Faults), err)
	}
}

// Without the Gateway API, its objects are not judged.
func TestJudgeWithoutGateways(t *testing.T) {
	t.Parallel()
	_, judge := judging(t, map[string]string{"world.yaml": gatewayWorld})
	v, err := judge.Gateway(t.Context(), "HTTPRoute", gatewayObject(t, "HTTPRoute", routeText("new", "new.example", toWeb+", retry: {backoff: 1s}")))
	if err != nil || len(v.Faults) > 0 {
		t.Error(v, err)
	}
}

// Many reviews at the same time have the same verdicts as alone, with fewer runs of HAProxy.
func TestGatewaysAreJudgedTogether(t *testing.T) {
	t.Parallel()
	check, runs := counting(t)
	_, judge := judging(t, map[string]string{"world.yaml": gatewayWorld}, func(o *controller.Options) {
		o.Source.Config.GatewayAPI.Enabled = true
		o.Source.Config.Admission.FailurePolicy = config.FailClosed
		o.Checker = check
	})
	before := runs()
	const n = 60
	var wrong sync.Map
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			rule := toWeb
			if i%10 == 9 {
				rule += ", retry: {backoff: 1s}"
			}
			v, err := judge.Gateway(t.Context(), "HTTPRoute", gatewayObject(t, "HTTPRoute", routeText(fmt.Sprint("r", i), fmt.Sprintf("h%d.example", i), rule)))
			if err != nil || (len(v.Faults) > 0) != (i%10 == 9) {
				wrong.Store(i, fmt.Sprint(v, err))
			}
		})
	}
	all.Wait()
	wrong.Range(func(i, why any) bool { t.Errorf("route %v: %v", i, why); return true })
	if asked := runs() - before; asked > n/3 {
		t.Errorf("HAProxy was run %d times for %d reviews", asked, n)
	}
}

// Objects that only the reviewed route names are looked up before the verdict, and forgotten afterwards.
func TestJudgeAsksForWhatARouteNames(t *testing.T) {
	t.Parallel()
	o := &objects{known: true, wants: types.NamespacedName{Namespace: "shop", Name: "lists"}}
	_, judge := judging(t, map[string]string{"world.yaml": gatewayWorld}, func(options *controller.Options) {
		options.Source.Config.GatewayAPI.Enabled = true
		o.Directory = options.Source.Objects.(*compiler.Directory)
		options.Source.Objects = o
	})
	v, err := judge.Gateway(t.Context(), "HTTPRoute", gatewayObject(t, "HTTPRoute", optioned("deny-list: '@lists/bad'")))
	if err != nil || !strings.Contains(texts(v.Faults), "ConfigMap shop/lists does not exist") {
		t.Errorf("faults are %q, %v", texts(v.Faults), err)
	}
	o.mu.Lock()
	asked := slices.ContainsFunc(o.asked, func(a routing.Asked) bool { return slices.Contains(a.ConfigMaps, o.wants) })
	o.mu.Unlock()
	if !asked {
		t.Error("it was not asked for")
	}
	controllertest.Await(t, "it is asked for no more", func() error {
		if left := o.lastAsked().ConfigMaps; len(left) > 0 {
			return fmt.Errorf("%v are", left)
		}
		return nil
	})
}
