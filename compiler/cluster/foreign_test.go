package cluster_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

// What a load balancer answers in place of the API server, at the start or later, makes no object disappear, and no kind. A
// compiler that starts meanwhile waits.
func TestForeignAnswers(t *testing.T) {
	t.Parallel()
	server := kubetest.Start(t) // definitions belong to the whole cluster
	namespace := server.Namespace(t)
	for _, plural := range []string{"gatewayclasses", "gateways", "httproutes"} {
		server.Apply(t, definition(t, plural, "v1.6.3"))
	}
	server.Apply(t, service(namespace, "web")+secret(namespace, "s", "1")+
		"---\n{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: ours}, spec: {controllerName: hapsnap.dev/gateway-controller}}\n"+
		"---\n{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {namespace: "+namespace+", name: web}, spec: {hostnames: [a.example]}}\n")
	c := in(namespace)
	c.GatewayAPI.Enabled = true
	whole := func(in inputs.Inputs, err error) bool {
		return err == nil && len(in.Services) == 1 && len(in.Secrets) == 1 && len(in.Gateway.HTTPRoutes) == 1
	}
	answers := kubetest.ForeignAnswers()
	for _, name := range []string{"404 text", "404 no cluster", "200 JSON"} {
		answer := answers[name]
		for part, of := range map[string]func(r *http.Request) bool{
			"everything": func(*http.Request) bool { return true },
			"one group":  func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/apis/gateway.networking.k8s.io/") },
		} {
			t.Run(name+" for "+part, func(t *testing.T) {
				t.Parallel()
				proxy := server.Before(t)
				proxy.Answers(func(w http.ResponseWriter, r *http.Request) bool { return of(r) && answer(w, r) })
				f := follow(t, proxy.Kubeconfig(), c)
				_, _ = f.Read(t.Context(), c) // so that it is planned
				f.Complete(named(namespace, "s"))
				f.poll(t, "all kinds are asked for, and the others known", func() bool {
					_, err := f.Read(t.Context(), c)
					return proxy.Answered() > 30 && (part == "everything" || err == nil || !strings.Contains(err.Error(), "Services"))
				})
				if g, err := f.Read(t.Context(), c); err == nil {
					t.Errorf("at the start: %v", refs(g.Objects))
				}
				proxy.Answers(nil)
				f.await(t, "all", whole)
				proxy.Answers(func(w http.ResponseWriter, r *http.Request) bool { return of(r) && answer(w, r) })
				before := proxy.Answered()
				proxy.Interrupt()
				f.poll(t, "the objects are asked for", func() bool { return proxy.Answered() > before+30 })
				if g, err := f.Read(t.Context(), c); !whole(g.Objects, err) {
					t.Errorf("later: %v, %v", refs(g.Objects), err)
				}
			})
		}
	}
}
