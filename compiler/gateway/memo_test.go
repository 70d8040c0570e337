package gateway_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// pool has objects, each in several forms. Each form is one value in memory, as when inputs are read once and
// changed one by one.
type pool struct {
	forms [][]inputs.Inputs // forms of each object; one form is none
	at    []int             // the present form of each object
}

func newPool(t *testing.T, objects ...[]string) *pool {
	t.Helper()
	p := &pool{at: make([]int, len(objects))}
	for _, forms := range objects {
		all := []inputs.Inputs{{}}
		for _, yaml := range forms {
			in, _ := gather(t, yaml)
			all = append(all, in)
		}
		p.forms = append(p.forms, all)
	}
	return p
}

// inputs returns the present objects.
func (p *pool) inputs() inputs.Inputs {
	var out inputs.Inputs
	join := func(into, from reflect.Value) {
		if into.Kind() == reflect.Slice {
			into.Set(reflect.AppendSlice(into, from))
		}
	}
	for i, forms := range p.forms {
		from, into := reflect.ValueOf(forms[p.at[i]]), reflect.ValueOf(&out).Elem()
		for f := range into.NumField() {
			join(into.Field(f), from.Field(f))
		}
		from, into = reflect.ValueOf(forms[p.at[i]].Gateway), reflect.ValueOf(&out.Gateway).Elem()
		for f := range into.NumField() {
			join(into.Field(f), from.Field(f))
		}
	}
	return out
}

// within moves an object from the namespace shop to another one.
func within(namespace, yaml string) string {
	return strings.Replace(yaml, "namespace: shop", "namespace: "+namespace, 1)
}

func noted(yaml, annotations string) string {
	return strings.Replace(yaml, "namespace: shop", "namespace: shop, annotations: {"+annotations+"}", 1)
}

// changing is a world in which all objects come, go and change: Gateways, routes of all kinds, and what they
// refer to.
func changing(t *testing.T) *pool {
	t.Helper()
	gateways := func(listeners string) string {
		return object("Gateway", "one", "{gatewayClassName: hapsnap, allowedListeners: {namespaces: {from: Same}}, listeners: ["+listeners+", {name: t, port: 5432, protocol: TCP}]"+
			", tls: {backend: {clientCertificateRef: {name: shown}}}}")
	}
	objects := [][]string{
		{class}, {class}, {class},
		{gateways("{name: a, port: 80, protocol: HTTP}"), gateways("{name: a, port: 80, protocol: HTTP, hostname: '*.example'}"), strings.Replace(gateways("{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}"), "shown", "other", 1)},
		{object("Gateway", "two", "{gatewayClassName: hapsnap, listeners: [{name: a, port: 81, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]}")},
		{object("ListenerSet", "set", "{parentRef: {name: one}, listeners: [{name: s, port: 82, protocol: HTTP}]}")},
		{within("other", object("ReferenceGrant", "g", "{from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: shop}], to: [{group: '', kind: Service}]}")), within("other", object("ReferenceGrant", "g", "{from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: shop}], to: [{group: '', kind: Service, name: far}]}"))},
		{within("other", service("far")), within("other", strings.Replace(service("far"), "port: 80", "port: 81", 1))},
		{authorityMap(t, "ca")},
		{policy("tls", "2024-01-01T00:00:00Z", "name: web", ""), policy("tls", "2024-01-01T00:00:00Z", "name: next", "")},
		{policy("later", "2024-01-02T00:00:00Z", "name: web", "")},
		{object("TCPRoute", "db", "{parentRefs: [{name: one, sectionName: t}], rules: [{backendRefs: [{name: web, port: 80}]}]}"), object("TCPRoute", "db", "{parentRefs: [{name: one, sectionName: t}], rules: [{backendRefs: [{name: none, port: 80}]}]}")},
		{object("GRPCRoute", "calls", "{parentRefs: [{name: two}], rules: [{backendRefs: [{name: web, port: 80}]}]}"), object("GRPCRoute", "calls", "{parentRefs: [{name: two}], hostnames: [grpc.example], rules: [{matches: [{method: {service: a}}], backendRefs: [{name: next, port: 80}]}]}")},
	}
	for _, name := range []string{"web", "next"} {
		objects = append(objects, []string{
			service(name), noted(service(name), "hapsnap.dev/balance: leastconn"), noted(service(name), "hapsnap.dev/backend-protocol: h2-tls"),
			noted(service(name), "hapsnap.dev/deny-list: 10.0.0.0/8"), strings.Replace(service(name), "port: 80", "port: 80, name: http, appProtocol: https", 1),
		})
	}
	for n := range 12 {
		route := func(rules string) string {
			return object("HTTPRoute", fmt.Sprint("r", n), fmt.Sprintf("{parentRefs: [{name: one}, {name: two}], hostnames: [h%d.example], rules: [%s]}", n%3, rules))
		}
		objects = append(objects, []string{
			route(fmt.Sprintf("{matches: [{path: {value: /%d}}], backendRefs: [{name: web, port: 80}]}", n)),
			route(fmt.Sprintf("{matches: [{path: {value: /%d}, headers: [{name: x-%d, value: a}]}], backendRefs: [{name: web, port: 80}, {name: next, port: 80, weight: 2}], timeouts: {request: 5s}}", n, n)),
			route("{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: next, port: 80}}}], backendRefs: [{name: web, port: 80, filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: b}]}}]}]}"),
			route("{backendRefs: [{name: far, namespace: other, port: 80}]}, {matches: [{path: {value: bad}}]}"),
			route("{filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}]}"),
			noted(route("{backendRefs: [{name: web, port: 80}]}"), "hapsnap.dev/allow-list: 10.0.0.0/8, hapsnap.dev/auth-basic: users, hapsnap.dev/timeout-server: 9s"),
			noted(route("{backendRefs: [{name: next, port: 80}]}, {filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}]}"), "hapsnap.dev/auth-url: 'http://web.shop.svc:80/'"),
			within("third", route("{backendRefs: [{name: web, namespace: shop, port: 80}]}")),
		})
	}
	return newPool(t, objects...)
}

// A translation with remembered claims equals one without, whatever has changed about the objects that routes
// refer to: the model, the findings and the statuses.
func TestMemoIsNeverStale(t *testing.T) {
	t.Parallel()
	p := changing(t)
	var made, reused int64
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 3))
		memo, cfg := gateway.NewMemo(), usual
		for i := range p.at {
			p.at[i] = r.IntN(len(p.forms[i]))
		}
		check := func(about string, m *gateway.Memo, in inputs.Inputs, cfg gateway.Config) {
			t.Helper()
			want, wanted, verdicts := gateway.Translate(in, cfg)
			got, found, judged := m.Translate(in, cfg)
			if !reflect.DeepEqual(want, got) || !reflect.DeepEqual(wanted, found) || !reflect.DeepEqual(verdicts, judged) {
				all := gocmp.Exporter(func(reflect.Type) bool { return true })
				t.Fatalf("seed %d, %s (-want +got)\n%s\n%s\n%s", seed, about, gocmp.Diff(wanted, found), gocmp.Diff(want, got, all), gocmp.Diff(verdicts, judged))
			}
		}
		for step := range 50 {
			about := fmt.Sprintf("step %d", step)
			check(about, memo, p.inputs(), cfg)
			i := r.IntN(len(p.at))
			was := p.at[i]
			p.at[i] = r.IntN(len(p.forms[i]))
			switch r.IntN(12) {
			case 0:
				cfg.Form = []routing.PathForm{routing.NormalForm, routing.AsSent, routing.WithoutParameters}[r.IntN(3)]
			case 1:
				cfg.MostRoutes = r.IntN(30)
			case 2:
				cfg.MostAuthorityBytes = r.IntN(4000)
			case 3: // a review of an object that is never stored
				check(about+", in a review", memo.Reader(), p.inputs(), cfg)
				p.at[i] = was
			}
		}
		m1, m2 := memo.Counts()
		made, reused = made+m1, reused+m2
	}
	if reused < made {
		t.Errorf("%d claims were made, and only %d used again: the test tests little", made, reused)
	}
}

// Of many routes, only the changed one is read, and those affected by a change of a Service, a grant or a
// policy.
func TestOneChangeIsOneClaim(t *testing.T) {
	t.Parallel()
	const n = 1000
	in := gathered(t, class+object("Gateway", "one", several)+object("HTTPRoute", "r", "{parentRefs: [{name: one}], rules: [{backendRefs: [{name: web, port: 80}]}]}")+service("web")+authorityMap(t, "ca"))
	route, web := in.Gateway.HTTPRoutes[0], in.Services[0]
	in.Gateway.HTTPRoutes, in.Services = nil, nil
	for i := range n {
		r, s := *route.Value.DeepCopy(), *web.Value.DeepCopy()
		r.Name, s.Name = fmt.Sprint("r", i), fmt.Sprint("web", i)
		r.Spec.Rules[0].BackendRefs[0].Name = gatewayv1.ObjectName(s.Name)
		in.Gateway.HTTPRoutes = append(in.Gateway.HTTPRoutes, inputs.Object[gatewayv1.HTTPRoute]{Ref: route.Ref, Value: &r})
		in.Gateway.HTTPRoutes[i].Ref.Name = r.Name
		in.Services = append(in.Services, web)
		in.Services[i].Ref.Name, in.Services[i].Value = s.Name, &s
	}
	memo, cfg := gateway.NewMemo(), usual
	expect := func(about string, made int64) {
		t.Helper()
		before, beforeReused := memo.Counts()
		memo.Translate(in, cfg)
		after, afterReused := memo.Counts()
		if after-before != made || afterReused-beforeReused != n-made {
			t.Errorf("%s: %d claims were made and %d used again, want %d and %d", about, after-before, afterReused-beforeReused, made, n-made)
		}
	}
	expect("at first", n)
	expect("nothing changed", 0)
	changed := in.Gateway.HTTPRoutes[700].Value.DeepCopy()
	changed.Spec.Hostnames = []gatewayv1.Hostname{"new.example"}
	in.Gateway.HTTPRoutes[700].Value = changed
	expect("one route changed", 1)
	annotated := in.Services[3].Value.DeepCopy()
	annotated.Annotations = map[string]string{"hapsnap.dev/balance": "leastconn"}
	in.Services[3].Value = annotated
	expect("one Service changed", 1)
	in.Gateway.Policies = gathered(t, policy("tls", "2024-01-01T00:00:00Z", "name: web9", "")).Gateway.Policies
	expect("one Service has a policy", 1)
	in.Gateway.Gateways = slices.Clone(in.Gateway.Gateways)
	in.Gateway.Gateways[0].Value = in.Gateway.Gateways[0].Value.DeepCopy()
	in.Gateway.Gateways[0].Value.Spec.Listeners = in.Gateway.Gateways[0].Value.Spec.Listeners[:1]
	expect("the Gateway has fewer listeners", 0)
	cfg.MostRoutes = 5
	expect("a limit changed", 0)
	cfg.Form = routing.AsSent
	expect("paths are compared in another form", n)
}

// Reviews and compiles may use one Memo at the same time.
func TestMemoIsShared(t *testing.T) {
	t.Parallel()
	in := gathered(t, world())
	want, wanted, judged := gateway.Translate(in, usual)
	memo := gateway.NewMemo()
	var done sync.WaitGroup
	for i := range 6 {
		done.Go(func() {
			use := memo
			if i%2 == 0 {
				use = memo.Reader()
			}
			for range 10 {
				if got, found, verdicts := use.Translate(in, usual); !reflect.DeepEqual(got, want) || !reflect.DeepEqual(found, wanted) || !reflect.DeepEqual(verdicts, judged) {
					t.Error("another result")
				}
			}
		})
	}
	done.Wait()
}
