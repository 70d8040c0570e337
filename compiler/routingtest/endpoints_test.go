package routingtest

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// sliced returns a Service with EndpointSlices, and an Ingress for NAME.example. A slice is "PORT ENDPOINT…",
// the endpoints in YAML.
func sliced(name, addressType string, slices ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: %s}\nspec: {ports: [{port: 80}]}\n", name)
	for n, slice := range slices {
		port, endpoints, _ := strings.Cut(slice, " ")
		fmt.Fprintf(&b, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: %[1]s-%[2]d, labels: {kubernetes.io/service-name: %[1]s}}
addressType: %[3]s
ports: [{name: "", port: %[4]s, protocol: TCP}]
endpoints: [%[5]s]
`, name, n, addressType, port, endpoints)
	}
	return b.String() + ingress{name: name, rules: []string{name + ".example P / " + name}}.yaml()
}

// The pods differ by port, so slices with the same port list the same pod.
func TestRow42EveryPodOnce(t *testing.T) {
	t.Parallel()
	const pod = "{addresses: [127.0.0.1]}"
	one, two, three := echo(t, "one"), echo(t, "two"), echo(t, "three")
	e := start(t, sliced("web", "IPv4",
		fmt.Sprint(one, " ", pod), fmt.Sprint(two, " ", pod, ", ", pod), fmt.Sprint(three, " ", pod),
		fmt.Sprint(one, " ", pod), fmt.Sprint(three, " {addresses: [127.0.0.1], conditions: {ready: true}}"), fmt.Sprint(one, " ", pod)))
	clean(t, e)
	c, got := client{address: e.http}, map[string]int{}
	for range 30 {
		got[c.ask(t, "web.example", "/")]++
	}
	if want := map[string]int{"one": 10, "two": 10, "three": 10}; !maps.Equal(got, want) {
		t.Errorf("requests by pod: %v, want %v", got, want)
	}
}

func TestRow43IPv6(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp6", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Echo", "six") }),
	}}
	s.Start()
	t.Cleanup(s.Close)
	e := start(t, sliced("web", "IPv6", fmt.Sprintf("%d {addresses: ['0:0::1']}", l.Addr().(*net.TCPAddr).Port)))
	clean(t, e)
	if got := e.http11(t, "GET", "web.example", "/"); got != "six" {
		t.Errorf("%s, want the server at [::1]", got)
	}
}

// An endpoint that is not ready gets no new requests, whether or not another one is ready. If no endpoint is
// ready, those that serve while they terminate get the requests.
func TestRow41NotReady(t *testing.T) {
	t.Parallel()
	const (
		ready    = " {addresses: [127.0.0.1], conditions: {ready: true, serving: true, terminating: false}}"
		unready  = " {addresses: [127.0.0.1], conditions: {ready: false, serving: false, terminating: false}}"
		draining = " {addresses: [127.0.0.1], conditions: {ready: false, serving: true, terminating: true}}"
	)
	a, b, c := fmt.Sprint(echo(t, "ready")), fmt.Sprint(echo(t, "unready")), fmt.Sprint(echo(t, "draining"))
	e := start(t, sliced("mixed", "IPv4", a+ready, b+unready, c+draining)+
		sliced("unready", "IPv4", b+unready)+sliced("draining", "IPv4", c+draining)+
		sliced("leaving", "IPv4", b+unready, c+draining))
	clean(t, e)
	for host, want := range map[string]string{"mixed": "ready", "unready": "503", "draining": "draining", "leaving": "draining"} {
		for range 10 {
			if got := e.http11(t, "GET", host+".example", "/"); got != want {
				t.Fatalf("%s: %s, want %s", host, got, want)
			}
		}
	}
}

// A headless Service has the same endpoints, at the ports of its pods, which may differ from its own.
func TestHeadless(t *testing.T) {
	t.Parallel()
	yaml := fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: db}
spec: {clusterIP: None, ports: [{name: http, port: 80, targetPort: web}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: db-1, labels: {kubernetes.io/service-name: db, service.kubernetes.io/headless: ""}}
addressType: IPv4
ports: [{name: http, port: %d, protocol: TCP}]
endpoints: [{addresses: [127.0.0.1], hostname: db-0}]
`, echo(t, "db"))
	i := ingress{rules: []string{"name.example P / db:http", "number.example P / db:80"}}
	e := start(t, yaml+i.yaml())
	clean(t, e)
	answers(t, e, map[string]string{"name.example/": "db", "number.example/": "db"})
}

// ingress is an Ingress in short form. A rule is "HOST TYPE PATH SERVICE[:PORT]", where "-" is no host or no
// path, the types are E, P and I, and the port is 80 unless given by name or number. A rule with only a host
// has no paths. age orders Ingresses by creation: 0 is the oldest.
type ingress struct {
	namespace, name, class string // defaults: shop, main, hapsnap
	age                    int
	rules                  []string
	fallback               string   // the default backend
	tls                    []string // "SECRET HOST…"; "-" is none
	annotations            string   // lines in YAML
}

// yaml returns the manifest.
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

// service returns a backend in YAML.
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

// serviceYAML returns a Service with one unnamed port, and its EndpointSlice with one endpoint.
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

// common returns Services a to d in the namespace shop and e in the namespace other, each with an echo server
// of its name. The Service "empty" has no endpoint.
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
