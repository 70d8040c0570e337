package gatewayapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/migrate/gatewayapi"
)

// ingressOf writes an Ingress of the namespace shop with paths of the form "PATH TYPE SERVICE".
func ingressOf(name, host, annotations string, paths ...string) string {
	out := fmt.Sprintf("---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {namespace: shop, name: %s, annotations: {%s}}\nspec:\n  rules:\n  - host: %s\n    http:\n      paths:\n", name, annotations, host)
	for _, p := range paths {
		f := strings.Fields(p)
		out += fmt.Sprintf("      - {path: '%s', pathType: %s, backend: {service: {name: %s, port: {number: 80}}}}\n", f[0], f[1], f[2])
	}
	return out
}

// outcome is what manifests become: the rules of each host as "TYPE PATH [HEADER: VALUE] -> SERVICE", and errors.
type outcome struct {
	rules  map[string][]string
	errors string
}

func moved(t *testing.T, manifests string) outcome {
	t.Helper()
	directory(t, []byte(manifests))
	o := standard()
	o.HTTPSPort = 0
	result, err := gatewayapi.Directory(".", o)
	if err != nil {
		t.Fatal(err)
	}
	out := outcome{rules: map[string][]string{}}
	for _, d := range result.Findings {
		if d.Severity == diag.Error {
			out.errors += d.String() + "\n"
		}
	}
	for text := range strings.SplitSeq(string(result.Manifests), "---\n") {
		var route gatewayv1.HTTPRoute
		if !strings.Contains(text, "kind: HTTPRoute\n") {
			continue
		}
		if err := yaml.Unmarshal([]byte(text), &route); err != nil {
			t.Fatal(err)
		}
		var rules []string
		for _, r := range route.Spec.Rules {
			to := "500"
			if len(r.BackendRefs) > 0 {
				to = string(r.BackendRefs[0].Name)
			} else if len(r.Filters) > 0 {
				to = string(r.Filters[0].Type)
			}
			for _, m := range r.Matches {
				what := string(*m.Path.Type) + " " + *m.Path.Value
				for _, h := range m.Headers {
					what += fmt.Sprintf(" %s: %s", h.Name, h.Value)
				}
				rules = append(rules, what+" -> "+to)
			}
		}
		for _, host := range route.Spec.Hostnames {
			out.rules[string(host)] = append(out.rules[string(host)], rules...)
		}
	}
	return out
}

// expect compares the rules of a host, and looks for a part of an error.
func (o outcome) expect(t *testing.T, host, message string, rules ...string) {
	t.Helper()
	got := slices.Clone(o.rules[host])
	slices.Sort(got)
	slices.Sort(rules)
	if !slices.Equal(got, rules) {
		t.Errorf("%s:\n%s\nwant:\n%s", host, strings.Join(got, "\n"), strings.Join(rules, "\n"))
	}
	if message == "" && o.errors != "" || !strings.Contains(o.errors, message) {
		t.Errorf("errors:\n%swant %q", o.errors, message)
	}
}

// A path that no route may write closes its rule, which would not be served: a shorter one would have its requests.
func TestPathsThatNoRouteWrites(t *testing.T) {
	t.Run("app-root", func(t *testing.T) {
		moved(t, ingressOf("a", "a.example", `hapsnap.dev/app-root: "/a?b=c"`, "/ Prefix web")).
			expect(t, "a.example", "annotation hapsnap.dev/app-root cannot be moved", "Exact / -> 500", "PathPrefix / -> web")
	})
	t.Run("app-root of the exact path", func(t *testing.T) {
		moved(t, ingressOf("a", "a.example", `hapsnap.dev/app-root: /a//b`, "/ Exact web")).
			expect(t, "a.example", "annotation hapsnap.dev/app-root cannot be moved", "Exact / -> 500")
	})
	t.Run("app-root that can be moved", func(t *testing.T) {
		moved(t, ingressOf("a", "a.example", `hapsnap.dev/app-root: /a`, "/ Prefix web")).
			expect(t, "a.example", "", "Exact / -> RequestRedirect", "PathPrefix / -> web")
	})
	t.Run("rewrite-path", func(t *testing.T) {
		moved(t, ingressOf("a", "a.example", `hapsnap.dev/rewrite-path: /x//y`, "/a Prefix web")).
			expect(t, "a.example", "annotation hapsnap.dev/rewrite-path cannot be moved", "PathPrefix /a -> 500")
	})
	t.Run("redirect", func(t *testing.T) {
		moved(t, ingressOf("a", "a.example", `hapsnap.dev/redirect: "https://new.example/a/../b"`, "/a Prefix web")).
			expect(t, "a.example", "annotation hapsnap.dev/redirect cannot be moved", "PathPrefix /a -> 500")
	})
}
