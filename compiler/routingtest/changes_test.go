package routingtest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// answers fails unless each "HOST/PATH" gets the expected answer.
func answers(t *testing.T, e edge, want map[string]string) {
	t.Helper()
	for request, want := range want {
		host, path, _ := strings.Cut(request, "/")
		if got := e.http11(t, "GET", host, "/"+path); got != want {
			t.Errorf("%s: %s, want %s", request, got, want)
		}
	}
}

// The Ingress stays, but loses its routes when its class changes.
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

// No byte of a refused path reaches the output. Only that path is left out, and the compiler reports it. A
// single quote is allowed.
func TestRow58BadPaths(t *testing.T) {
	t.Parallel()
	var yaml strings.Builder
	yaml.WriteString(common(t) + ingress{name: "good", rules: []string{"h.example P /good b"}}.yaml())
	paths := map[string]string{
		"space": `/evil a`, "hash": `/evil#`, "double-quote": `/evil\"`, "newline": `/evil\n  evil`, "tab": `/evil\tb`,
		"return": `/evil\rx`, "end": `/evil\n`, "backslash": `/evil\\`, "control": `/evil\x01`, "delete": `/evil\x7f`,
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
			want[name+"-"+kind+".example/"] = "a" // its other rule
			reportedOn(t, e, diag.Object{Kind: "Ingress", Namespace: "shop", Name: name + "-" + kind})
		}
	}
	answers(t, e, want)
}

// If an Ingress has a path that no request can have, its other paths and its protection stay. Requests for the
// encoded form of a protected path get 503, and not the shorter path of another Ingress. A host whose only path
// is left out does not fall to rules without a host.
func TestRow58PathsLeftOut(t *testing.T) {
	t.Parallel()
	e := start(t, common(t)+`---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  namespace: shop
  name: protected
  annotations: {hapsnap.dev/allow-list: 192.0.2.0/24, hapsnap.dev/rewrite-path: /it's}
spec:
  ingressClassName: hapsnap
  rules:
  - {host: h.example, http: {paths: [{path: "/admin panel", pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}]}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {namespace: shop, name: open, annotations: {hapsnap.dev/rewrite-path: /it's}}
spec:
  ingressClassName: hapsnap
  rules:
  - {host: h.example, http: {paths: [{path: "/", pathType: Prefix, backend: {service: {name: b, port: {number: 80}}}}]}}
  - {host: h.example, http: {paths: [{path: "/it's", pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}]}}
  - {host: alone.example, http: {paths: [{path: "/a#b", pathType: Prefix, backend: {service: {name: b, port: {number: 80}}}}]}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {namespace: shop, name: any}
spec:
  ingressClassName: hapsnap
  rules:
  - http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}]}
`)
	answers(t, e, map[string]string{
		"h.example/": "b", "h.example/x": "b", "h.example/it's": "a", "h.example/it's/x": "a",
		"h.example/admin%20panel": "503", "h.example/admin%20panel/x": "503",
		"alone.example/a": "404", "alone.example/": "404", "unknown.example/a": "a",
	})
}
