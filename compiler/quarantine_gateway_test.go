package compiler_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
)

// Lists of networks of Ingresses and routes of a namespace count together. A list that both name counts once.
func TestListsOfIngressesAndRoutesAreCountedTogether(t *testing.T) {
	t.Parallel()
	list := func(name string, bytes int) inputs.Object[corev1.ConfigMap] {
		text := "192.0.2.0/24 #" + strings.Repeat("x", bytes-14)
		return inputs.Object[corev1.ConfigMap]{Ref: diag.Object{Kind: "ConfigMap", Namespace: "shop", Name: name}, Value: &corev1.ConfigMap{Data: map[string]string{"bad": text}}}
	}
	for _, c := range []struct {
		ofIngress, ofRoute string
		want               bool // whether the route is served
	}{{"", "two", true}, {"one", "one", true}, {"one", "two", false}} {
		in := ofRoutes(t, 1)
		in.Config.Limits.NamespaceListBytes = 100
		in.Objects.ConfigMaps = []inputs.Object[corev1.ConfigMap]{list("one", 60), list("two", 60)}
		route := in.Objects.Gateway.HTTPRoutes[0].Value.DeepCopy()
		route.Annotations = map[string]string{"hapsnap.dev/deny-list": "@" + c.ofRoute + "/bad"}
		in.Objects.Gateway.HTTPRoutes[0].Value = route
		if c.ofIngress != "" {
			ing := parsed(reviewed("web", "web.example", `hapsnap.dev/deny-list: "@`+c.ofIngress+`/bad"`))
			in.Objects.Ingresses = []inputs.Object[networkingv1.Ingress]{{Ref: diag.Object{Kind: "Ingress", Namespace: "shop", Name: "web"}, Value: ing}}
		}
		r, err := compiler.Compile(t.Context(), in, picky{})
		if err != nil {
			t.Fatal(err)
		}
		large := slices.ContainsFunc(r.Diagnostics, func(d diag.Diagnostic) bool {
			return d.Object.Kind == "HTTPRoute" && strings.Contains(d.Message, "is too large: with it, the lists that are named of namespace shop would have 120 bytes, and may have 100")
		})
		if large == c.want {
			t.Errorf("%+v: said %v", c, r.Diagnostics)
		}
	}
}
