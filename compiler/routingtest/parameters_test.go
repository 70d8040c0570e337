package routingtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// classYAML is an IngressClass of ours. Parameters is "" or the name of a
// ConfigMap in the namespace edge.
func classYAML(name, parameters string, isDefault bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\napiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata:\n  name: %s\n", name)
	if isDefault {
		b.WriteString("  annotations: {ingressclass.kubernetes.io/is-default-class: \"true\"}\n")
	}
	b.WriteString("spec:\n  controller: hapsnap.dev/ingress-controller\n")
	if parameters != "" {
		fmt.Fprintf(&b, "  parameters: {kind: ConfigMap, scope: Namespace, namespace: edge, name: %s}\n", parameters)
	}
	return b.String()
}

// defaultsYAML is a ConfigMap in the namespace edge, its keys and values given
// in pairs.
func defaultsYAML(name string, data ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: edge, name: %s}\ndata:\n", name)
	for i := 0; i < len(data); i += 2 {
		fmt.Fprintf(&b, "  %s: %q\n", data[i], data[i+1])
	}
	return b.String()
}

// The Ingresses of a class have its parameters, unless they or their Service say
// otherwise; an Ingress without a class has those of the default one.
func TestClassParameters(t *testing.T) {
	t.Parallel()
	of := func(class string, i ingress) ingress { i.class = class; return i }
	port := mirror(t, "a", nil)
	own := strings.Replace(serviceYAML("shop", "a", port), "name: a}", "name: a, annotations: {hapsnap.dev/deny-list: 192.0.2.0/24}}", 1)
	e := start(t, strings.ReplaceAll(own, "name: a", "name: b")+serviceYAML("shop", "a", port)+
		classYAML("hapsnap", "defaults", false)+classYAML("plain", "", false)+classYAML("unnamed", "others", true)+
		defaultsYAML("defaults", "response-headers", "set X-From class", "deny-list", "127.0.0.0/8")+
		defaultsYAML("others", "response-headers", "set X-From default-class")+all([]ingress{
		optioned("inherits"),
		optioned("own", "response-headers", "set X-From Ingress", "deny-list", "192.0.2.0/24"),
		{name: "service", rules: []string{"service.example P / b"}},
		of("plain", optioned("plain")),
		of("none", optioned("none")),
		{name: "annotated", class: "none", annotations: "kubernetes.io/ingress.class: hapsnap", rules: []string{"annotated.example P / a"}},
	}))
	clean(t, e)
	for host, want := range map[string]struct {
		status int
		from   string
	}{
		"inherits": {403, "class"}, "own": {200, "Ingress"}, "service": {200, "class"},
		"plain": {200, "server"}, "none": {200, "default-class"}, "annotated": {403, "class"},
	} {
		if got := e.get(t, host+".example", "/"); got.StatusCode != want.status || got.Header.Get("X-From") != want.from {
			t.Errorf("%s: %d from %q, want %d from %q", host, got.StatusCode, got.Header.Get("X-From"), want.status, want.from)
		}
	}
}

// What a class protects is closed if the protection cannot be had, also where
// another route would take its requests, and also for an Ingress that is left
// out for another reason.
func TestClassParametersFailClosed(t *testing.T) {
	t.Parallel()
	admin := func(class string) ingress {
		return ingress{name: class, class: class, rules: []string{"open.example P /" + class + " a"}}
	}
	refused := admin("protecting")
	refused.rules = append(refused.rules, "UPPER_case!.example P / a")
	e := start(t, serviceYAML("shop", "a", mirror(t, "a", nil))+
		classYAML("plain", "", false)+classYAML("missing", "gone", false)+classYAML("malformed", "malformed", false)+
		classYAML("protecting", "protecting", false)+classYAML("harmless", "harmless", false)+
		defaultsYAML("malformed", "allow-list", "10.0.0.0/33")+defaultsYAML("protecting", "allow-list", "127.0.0.0/8")+
		defaultsYAML("harmless", "timeout-server", "soon")+all([]ingress{
		{name: "open", class: "plain", rules: []string{"open.example P / a"}},
		admin("missing"), admin("malformed"), admin("harmless"), refused,
	}))
	said := map[string]bool{}
	for _, d := range e.result.Diagnostics {
		if d.Severity == diag.Error {
			said[d.Object.String()] = true
		}
	}
	for _, object := range []string{"IngressClass missing", "ConfigMap edge/malformed", "ConfigMap edge/harmless", "Ingress shop/protecting"} {
		if !said[object] {
			t.Errorf("nothing is said of %s", object)
		}
	}
	for path, want := range map[string]int{"/": 200, "/missing": 503, "/malformed": 503, "/protecting": 503, "/harmless": 200} {
		if got := e.get(t, "open.example", path); got.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, got.StatusCode, want)
		}
	}
}
