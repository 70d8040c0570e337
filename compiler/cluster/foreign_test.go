package cluster_test

import (
	"cmp"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/kubeconfig"
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

// Nothing that an API server answers is taken for that of something else, in any form and for any account.
func TestAnswersOfAnAPIServer(t *testing.T) {
	t.Parallel()
	server := kubetest.Start(t) // of a group whose server is away, every program hears
	namespace := server.Namespace(t)
	server.Apply(t, definition(t, "httproutes", "v1.6.3"))
	server.Apply(t, definition(t, "gatewayclasses", "v1.6.3"))
	server.Apply(t, secret(namespace, "s", "1")+service(namespace, "web")+
		"---\n{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {namespace: "+namespace+", name: web}, spec: {hostnames: [a.example]}}\n"+
		"---\n{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.away.example}, spec: {group: away.example, version: v1, groupPriorityMinimum: 100, versionPriority: 100, insecureSkipTLSVerify: true, service: {name: away, namespace: "+namespace+"}}}\n")
	core, routes := "/api/v1/namespaces/"+namespace, "/apis/gateway.networking.k8s.io/v1/namespaces/"+namespace+"/httproutes"
	review := `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`
	asks := []struct {
		method, path, body, kind string
		code                     int
	}{
		{path: "/api", code: 200}, {path: "/apis", code: 200}, {path: "/api/v1", code: 200}, {path: "/apis/gateway.networking.k8s.io/v1", code: 200},
		{path: "/version", code: 200}, {path: "/readyz", code: 200}, {path: "/livez", code: 200}, {path: "/openapi/v3", code: 200}, {path: "/openapi/v2", code: 200},
		{path: core + "/secrets", code: 200}, {path: core + "/secrets/s", code: 200}, {path: core + "/secrets/none", code: 404}, {path: core + "/secrets/none", method: "DELETE", code: 404},
		{path: core + "/secrets?fieldSelector=metadata.name%3Dnone", code: 200}, {path: core + "/secrets?watch=true&timeoutSeconds=1", code: 200},
		{path: core + "/secrets?watch=true&timeoutSeconds=1&resourceVersion=1", code: 200}, {path: core + "/secrets?continue=x", code: 400},
		{path: core + "/secrets?watch=true&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", code: 200},
		{path: "/api/v1/namespaces/none/secrets", code: 200}, {path: "/api/v1/namespaces/none/secrets", method: "POST", body: `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x"}}`, code: 404},
		{path: core + "/secrets", method: "POST", body: `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"}}`, code: 409},
		{path: core + "/secrets", method: "POST", body: `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"S"}}`, code: 422},
		{path: core + "/secrets/s", method: "PATCH", kind: "application/merge-patch+json", body: `{"stringData":{"a":"b"}}`, code: 200},
		{path: core + "/secrets/s", method: "PATCH", kind: "application/apply-patch+yaml", body: `{}`, code: 422},
		{path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", method: "POST", body: review, code: 201},
		{path: "/apis/gateway.networking.k8s.io/v1/gatewayclasses", code: 200}, {path: routes, code: 200}, {path: routes + "/web", code: 200}, {path: routes + "/none", code: 404}, {path: routes + "?watch=true&timeoutSeconds=1", code: 200},
		{path: strings.Replace(routes, "httproutes", "gatewayclasses", 1), code: 404}, {path: strings.Replace(routes, "httproutes", "nones", 1), code: 404}, {path: strings.Replace(routes, "/v1/", "/v9/", 1), code: 404},
		{path: strings.Replace(routes, "/v1/", "/v9/", 1) + "?watch=true", code: 404}, {path: routes + "/web/scale", code: 404}, {path: "/apis/none.example/v1/nones", code: 404}, {path: "/apis/none.example/v1", code: 404},
		{path: "/apis/away.example/v1/nones", code: 503}, {path: "/apis/away.example/v1", code: 503},
	}
	forms := map[string]string{
		"JSON": "application/json", "protobuf": runtime.ContentTypeProtobuf + ",application/json", "tables": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
		"lists of all kinds": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
	}
	server.Apply(t, "{apiVersion: v1, kind: ServiceAccount, metadata: {namespace: "+namespace+", name: nobody}}\n")
	for account, file := range map[string]string{"nobody": server.ServiceAccount(t, namespace, "nobody"), "administrator": server.Kubeconfig()} {
		config, err := kubeconfig.Options{File: file}.Load()
		if err != nil {
			t.Fatal(err)
		}
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		for name, form := range forms {
			t.Run(account+", "+name, func(t *testing.T) {
				t.Parallel()
				for _, ask := range asks {
					request, err := http.NewRequestWithContext(t.Context(), cmp.Or(ask.method, http.MethodGet), strings.TrimRight(config.Host, "/")+ask.path, strings.NewReader(ask.body))
					if err != nil {
						t.Fatal(err)
					}
					request.Header.Set("Accept", form)
					request.Header.Set("Content-Type", cmp.Or(ask.kind, "application/json"))
					response, err := client.Do(request)
					if err != nil {
						t.Error(err)
						continue
					}
					body, err := io.ReadAll(response.Body)
					_ = response.Body.Close()
					if err != nil || account != "nobody" && response.StatusCode != ask.code {
						t.Errorf("%s %s: %v, %s, want %d: %.100s", request.Method, ask.path, err, response.Status, ask.code, body)
					}
				}
			})
		}
	}
}
