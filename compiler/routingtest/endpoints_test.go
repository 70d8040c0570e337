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

// sliced is a Service with EndpointSlices, and an Ingress that sends it all of
// NAME.example. A slice is "PORT ENDPOINT…" in YAML.
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

// The pods differ by port, so that slices that share one list the same pod.
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

// What is not ready gets no new request, whether or not another pod is there to
// take it; what serves while it terminates gets them where no pod is ready.
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

// A headless Service has the same endpoints, at the ports of its pods, which
// need not be its own.
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
