package routingtest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// answers fails unless each "HOST/PATH" is answered as wanted.
func answers(t *testing.T, e edge, want map[string]string) {
	t.Helper()
	for request, want := range want {
		host, path, _ := strings.Cut(request, "/")
		if got := e.http11(t, "GET", host, "/"+path); got != want {
			t.Errorf("%s: %s, want %s", request, got, want)
		}
	}
}

// The Ingress stays, and its route goes with its class.
func TestRow48ClassChanged(t *testing.T) {
	t.Parallel()
	services := common(t)
	moved := ingress{name: "moved", rules: []string{"h.example P /x a", "moved.example P / a"}}
	stays := ingress{name: "stays", rules: []string{"h.example P /y a"}}
	answers(t, start(t, services+moved.yaml()+stays.yaml()), map[string]string{"h.example/x": "a", "moved.example/": "a", "h.example/y": "a"})
	moved.class = "nginx"
	answers(t, start(t, services+moved.yaml()+stays.yaml()), map[string]string{"h.example/x": "404", "moved.example/": "404", "h.example/y": "a"})
}

func TestRow67Deleted(t *testing.T) {
	t.Parallel()
	services := common(t)
	gone := ingress{name: "gone", rules: []string{"h.example P /x a", "gone.example P / a"}}
	stays := ingress{name: "stays", age: 1, rules: []string{"h.example P /y a", "stays.example P / a"}}
	both := map[string]string{"h.example/x": "a", "gone.example/": "a", "h.example/y": "a", "stays.example/": "a"}
	answers(t, start(t, services+gone.yaml()+stays.yaml()), both)
	left := map[string]string{"h.example/x": "404", "gone.example/": "404", "h.example/y": "a", "stays.example/": "a"}
	answers(t, start(t, services+stays.yaml()), left)
}

// No byte of a path that is refused reaches the output. The Ingress is refused
// as a whole, and no other.
func TestRow58BadPaths(t *testing.T) {
	t.Parallel()
	var yaml strings.Builder
	yaml.WriteString(common(t) + ingress{name: "good", rules: []string{"h.example P /good b"}}.yaml())
	paths := map[string]string{
		"space": `/evil a`, "hash": `/evil#`, "double-quote": `/evil\"`, "single-quote": `/evil'`, "newline": `/evil\n  evil`, "tab": `/evil\tb`,
		"return": `/evil\rx`, "end": `/evil\n`, "backslash": `/evil\\`, "control": `/evil\x01`, "delete": `/evil\x7f`, "letter": `/evilé`,
	}
	for name, path := range paths {
		for kind, pathType := range map[string]string{"e": "Exact", "p": "Prefix", "i": "ImplementationSpecific"} {
			fmt.Fprintf(&yaml, `---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {namespace: shop, name: %[1]s-%[2]s}
spec:
  ingressClassName: hapsnap
  rules:
  - {host: h.example, http: {paths: [{path: "%[3]s", pathType: %[4]s, backend: {service: {name: a, port: {number: 80}}}}]}}
  - {host: %[1]s-%[2]s.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}]}}
`, name, kind, path, pathType)
		}
	}
	e := start(t, yaml.String())
	for _, f := range e.result.Draft.Files {
		if bytes.Contains(f.Content, []byte("evil")) {
			t.Errorf("%s holds a refused path:\n%s", f.Path, f.Content)
		}
	}
	want := map[string]string{"h.example/good": "b", "h.example/evil": "404", "h.example/": "404"}
	for name := range paths {
		for _, kind := range []string{"e", "p", "i"} {
			want[name+"-"+kind+".example/"] = "404"
			reportedOn(t, e, diag.Object{Kind: "Ingress", Namespace: "shop", Name: name + "-" + kind})
		}
	}
	answers(t, e, want)
}
