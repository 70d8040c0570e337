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

// ingressOf writes an Ingress of the namespace shop. Its paths have the form "PATH TYPE SERVICE".
func ingressOf(name, host, annotations string, paths ...string) string {
	out := fmt.Sprintf("---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {namespace: shop, name: %s, annotations: {%s}}\nspec:\n  rules:\n  - host: %s\n    http:\n      paths:\n", name, annotations, host)
	for _, p := range paths {
		f := strings.Fields(p)
		out += fmt.Sprintf("      - {path: '%s', pathType: %s, backend: {service: {name: %s, port: {number: 80}}}}\n", f[0], f[1], f[2])
	}
	return out
}

// serviceOf writes a Service of the namespace shop that selects these labels.
func serviceOf(name, labels string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: %s}\nspec: {selector: {%s}, ports: [{port: 80}]}\n", name, labels)
}

// outcome is the result for some manifests: the rules of each host as "TYPE PATH [HEADER: VALUE] -> SERVICE",
// and errors.
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

// A rule whose new path no route may have is closed. If it were not served, a shorter path would get its
// requests.
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

const password = "hapsnap.dev/auth-basic: users"

// A protected expression closes its host if an open route would get the requests that no expression of a route
// matches.
func TestProtectedExpressions(t *testing.T) {
	const regex = password + ", hapsnap.dev/path-type-default: Regex"
	adm := ingressOf("adm", "a.example", regex, "/admin/.* ImplementationSpecific adm")
	t.Run("below what is open", func(t *testing.T) {
		moved(t, ingressOf("open", "a.example", "", "/ Prefix web")+adm).
			expect(t, "a.example", `longer ones would get to path "/"; all routes of host a.example are closed`, "PathPrefix / -> 500")
	})
	t.Run("that was closed for a fault", func(t *testing.T) {
		broken := ingressOf("adm", "a.example", `hapsnap.dev/allow-list: nonsense, hapsnap.dev/path-type-default: Regex`, "/admin/.* ImplementationSpecific adm")
		moved(t, ingressOf("open", "a.example", "", "/ Prefix web")+broken).
			expect(t, "a.example", "all routes of host a.example are closed", "PathPrefix / -> 500")
	})
	t.Run("and the default backend", func(t *testing.T) {
		rest := "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {namespace: shop, name: rest}\nspec: {defaultBackend: {service: {name: web, port: {number: 80}}}}\n"
		moved(t, rest+adm).expect(t, "a.example", "would get to the default backend", "PathPrefix / -> 500")
	})
	t.Run("beside what is open", func(t *testing.T) {
		labels := serviceOf("web", "app: web") + serviceOf("adm", "app: adm")
		moved(t, labels+ingressOf("open", "a.example", "", "/public Prefix web")+adm).
			expect(t, "a.example", "auth-basic cannot be moved", "RegularExpression (?i)(?:/admin/.*).* -> 500", "PathPrefix /public -> web")
	})
	t.Run("that is none", func(t *testing.T) {
		moved(t, ingressOf("open", "a.example", "", "/ Prefix web")+ingressOf("adm", "a.example", password, "/a%2Fb ImplementationSpecific adm")).
			expect(t, "a.example", "all routes of host a.example are closed", "PathPrefix / -> 500")
	})
}

// An exact path that no route may have becomes an expression, which then comes after paths that it preceded
// before.
func TestProtectedExactPath(t *testing.T) {
	const regex, exact = "hapsnap.dev/path-type-default: Regex", "hapsnap.dev/path-type-default: Exact"
	adm := ingressOf("adm", "a.example", password+", "+exact, "/a%2Fb ImplementationSpecific adm")
	moved(t, ingressOf("open", "a.example", regex, "/a.* ImplementationSpecific web")+adm).
		expect(t, "a.example", `in a route path "/a.*" would come before it; all routes of host a.example are closed`, "PathPrefix / -> 500")
}

// The compiler accepts a limited number of expressions and header names in a namespace. Beyond the limit, the
// host of an expression is closed, and a canary is left out.
func TestManyParts(t *testing.T) {
	t.Run("expressions", func(t *testing.T) {
		manifests := ""
		for n := range 66 {
			host := fmt.Sprintf("h%02d.example", n)
			manifests += ingressOf(fmt.Sprintf("p%02d", n), host, "hapsnap.dev/path-type-default: Regex", fmt.Sprintf("/x%d/[a-z]+ ImplementationSpecific web", n)) +
				ingressOf(fmt.Sprintf("o%02d", n), host, "", "/ Prefix web")
		}
		out := moved(t, manifests)
		out.expect(t, "h63.example", "more than 64", "PathPrefix / -> web", "RegularExpression (?i)(?:/x63/[a-z]+).* -> web")
		for _, host := range []string{"h64.example", "h65.example"} {
			out.expect(t, host, "more than 64 names of headers and expressions; all routes of host "+host+" are closed", "PathPrefix / -> 500")
		}
	})
	t.Run("headers", func(t *testing.T) {
		// Ingresses may have as many expressions, and canaries as well.
		manifests := ingressOf("p", "a.example", "hapsnap.dev/path-type-default: Regex", "/x/[a-z]+ ImplementationSpecific web")
		for n := range 64 {
			host := fmt.Sprintf("h%02d.example", n)
			manifests += ingressOf(fmt.Sprintf("m%02d", n), host, "", "/ Prefix web") +
				ingressOf(fmt.Sprintf("c%02d", n), host, fmt.Sprintf(`hapsnap.dev/canary: "true", hapsnap.dev/canary-by-header: X-C%d`, n), "/ Prefix next")
		}
		out := moved(t, manifests)
		out.expect(t, "h62.example", "Ingress shop/c63: the canary cannot be moved", "PathPrefix / -> web", "PathPrefix / X-C62: always -> next", "PathPrefix / X-C62: never -> web")
		out.expect(t, "h63.example", "Ingress shop/c63: the canary cannot be moved", "PathPrefix / -> web")
	})
}

// A canary by header is left out if it would come before an expression that precedes its own.
func TestCanaryOfExpression(t *testing.T) {
	const regex = "hapsnap.dev/path-type-default: Regex"
	canary := regex + `, hapsnap.dev/canary: "true", hapsnap.dev/canary-by-header: X-Can`
	main := ingressOf("main", "a.example", regex, "/foo/(.*) ImplementationSpecific a", "/f[a-z]+ ImplementationSpecific b")
	const first, second = "RegularExpression (?i)(?:/foo/(.*)).*", "RegularExpression (?i)(?:/f[a-z]+).*"
	t.Run("second", func(t *testing.T) {
		moved(t, main+ingressOf("can", "a.example", canary, "/f[a-z]+ ImplementationSpecific c")).
			expect(t, "a.example", `the canary of path "/f[a-z]+" cannot be moved`, first+" -> a", second+" -> b")
	})
	t.Run("first", func(t *testing.T) {
		moved(t, main+ingressOf("can", "a.example", canary, "/foo/(.*) ImplementationSpecific c")).
			expect(t, "a.example", "", first+" -> a", first+" X-Can: always -> c", first+" X-Can: never -> a", second+" -> b")
	})
}

// If something is protected on a host, routes of its namespace on that host are closed if their Service may
// have the same Pods.
func TestGuardedServices(t *testing.T) {
	routes := ingressOf("web", "a.example", "", "/public Prefix web")
	adm := ingressOf("adm", "a.example", password, "/admin Prefix adm")
	for name, services := range map[string]string{
		"the same Pods":      serviceOf("web", "app: web") + serviceOf("adm", "app: web"),
		"other labels":       serviceOf("web", "app: web") + serviceOf("adm", "tier: front"),
		"not known":          "",
		"without a selector": serviceOf("web", "") + serviceOf("adm", "app: adm"),
	} {
		t.Run(name, func(t *testing.T) {
			moved(t, services+routes+adm).expect(t, "a.example", "Service shop/web may have Pods of one that is protected", "PathPrefix /admin -> 500", "PathPrefix /public -> 500")
		})
	}
	t.Run("other Pods", func(t *testing.T) {
		moved(t, serviceOf("web", "app: web")+serviceOf("adm", "app: adm")+routes+adm).
			expect(t, "a.example", "auth-basic cannot be moved", "PathPrefix /admin -> 500", "PathPrefix /public -> web")
	})
	t.Run("who may", func(t *testing.T) {
		moved(t, routes+ingressOf("adm", "a.example", password+", hapsnap.dev/unsafe-paths: pass", "/admin Prefix adm")).
			expect(t, "a.example", "auth-basic cannot be moved", "PathPrefix /admin -> 500", "PathPrefix /public -> web")
	})
}
