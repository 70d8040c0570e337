package routingtest

import (
	"fmt"
	"strings"
	"testing"
)

// ingress is an Ingress in few words. A rule is "HOST TYPE PATH SERVICE[:PORT]":
// "-" is no host and no path, the types are E, P and I, and the port is 80 unless
// named or numbered. A rule of a host alone has no paths. Age orders Ingresses by
// creation, 0 being the oldest.
type ingress struct {
	namespace, name, class string // defaults: shop, main, hapsnap
	age                    int
	rules                  []string
	fallback               string   // the default backend
	tls                    []string // "SECRET HOST…"; "-" is none
	annotations            string   // lines of YAML
}

// yaml writes the object.
func (i ingress) yaml() string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  namespace: %s\n  name: %q\n", or(i.namespace, "shop"), or(i.name, "main"))
	fmt.Fprintf(&b, "  creationTimestamp: \"2026-01-01T00:00:%02dZ\"\n", i.age)
	if i.annotations != "" {
		fmt.Fprintf(&b, "  annotations:\n    %s\n", i.annotations)
	}
	b.WriteString("spec:\n")
	if i.class != "none" {
		fmt.Fprintf(&b, "  ingressClassName: %s\n", or(i.class, "hapsnap"))
	}
	if i.fallback != "" {
		fmt.Fprintf(&b, "  defaultBackend: %s\n", service(i.fallback))
	}
	for n, t := range i.tls {
		words := strings.Fields(t)
		if n == 0 {
			b.WriteString("  tls:\n")
		}
		secret := ""
		if words[0] != "-" {
			secret = "secretName: " + words[0] + ", "
		}
		fmt.Fprintf(&b, "  - {%shosts: ['%s']}\n", secret, strings.Join(words[1:], "', '"))
	}
	for n, rule := range i.rules {
		if n == 0 {
			b.WriteString("  rules:\n")
		}
		b.WriteString(ruleYAML(strings.Fields(rule)))
	}
	return b.String()
}

func ruleYAML(words []string) string {
	host := ""
	if words[0] != "-" {
		host = fmt.Sprintf("host: '%s', ", words[0])
	}
	if len(words) == 1 {
		return fmt.Sprintf("  - {%s}\n", host)
	}
	kind := map[string]string{"E": "Exact", "P": "Prefix", "I": "ImplementationSpecific"}[words[1]]
	path := words[2]
	if path == "-" {
		path = ""
	}
	return fmt.Sprintf("  - {%shttp: {paths: [{path: '%s', pathType: %s, backend: %s}]}}\n", host, path, kind, service(words[3]))
}

// service writes a backend.
func service(s string) string {
	name, port, _ := strings.Cut(s, ":")
	field := "number"
	if strings.Trim(port, "0123456789") != "" {
		field = "name"
	}
	return fmt.Sprintf("{service: {name: %s, port: {%s: %s}}}", name, field, or(port, "80"))
}

func or(s, unset string) string {
	if s == "" {
		return unset
	}
	return s
}

// serviceYAML writes a Service with one port without a name, and its
// EndpointSlice with one endpoint.
func serviceYAML(namespace, name string, port int) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {namespace: %[1]s, name: %[2]s}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: %[1]s, name: %[2]s-1, labels: {kubernetes.io/service-name: %[2]s}}
addressType: IPv4
ports: [{name: "", port: %[3]d, protocol: TCP}]
endpoints: [{addresses: [127.0.0.1]}]
`, namespace, name, port)
}

// common are Services a to d in the namespace shop and e in the namespace
// other, each with an echo server of its name; and "empty", which has no
// endpoint.
func common(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, name := range []string{"a", "b", "c", "d"} {
		b.WriteString(serviceYAML("shop", name, echo(t, name)))
	}
	b.WriteString(serviceYAML("other", "e", echo(t, "e")))
	b.WriteString("---\napiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: empty}\nspec: {ports: [{port: 80}]}\n")
	return b.String()
}
