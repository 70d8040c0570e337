package cluster_test

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/compiler/cluster"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/kubewatch"
	"github.com/hapsnap/hapsnap/internal/rbac"
	"github.com/hapsnap/hapsnap/snapshots"
)

// planCase is a configuration and what follows from it.
type planCase struct {
	change      func(*config.Config)
	plan, rules string
}

var planCases = map[string]planCase{
	"default": {
		func(*config.Config) {},
		"IngressClasses, Ingresses, ConfigMap shop/pages, Secret blog/tls, Secret shop/a, Secret shop/b, Services",
		`
- Namespace: ""
  Rules:
  - {apiGroups: [""], resources: [services], verbs: [get, list, watch]}
  - {apiGroups: [networking.k8s.io], resources: [ingressclasses, ingresses], verbs: [get, list, watch]}
- Namespace: blog
  Rules:
  - {apiGroups: [""], resources: [secrets], resourceNames: [tls], verbs: [get, list, watch]}
- Namespace: shop
  Rules:
  - {apiGroups: [""], resources: [configmaps], resourceNames: [pages], verbs: [get, list, watch]}
  - {apiGroups: [""], resources: [secrets], resourceNames: [a, b], verbs: [get, list, watch]}
`,
	},
	"namespaces": {
		func(c *config.Config) {
			c.Namespaces, c.Endpoints = []string{"shop"}, config.Recorded
			c.Secrets = kinds.Watched{Watch: kinds.WatchSelected, LabelSelector: "edge=yes"}
			c.ConfigMaps = kinds.Watched{Watch: kinds.WatchAll}
		},
		"IngressClasses, EndpointSlices in shop, Ingresses in shop, ConfigMaps in shop, Secrets in shop with edge=yes, Services in shop",
		`
- Namespace: ""
  Rules:
  - {apiGroups: [networking.k8s.io], resources: [ingressclasses], verbs: [get, list, watch]}
- Namespace: shop
  Rules:
  - {apiGroups: [""], resources: [configmaps, secrets, services], verbs: [get, list, watch]}
  - {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}
  - {apiGroups: [networking.k8s.io], resources: [ingresses], verbs: [get, list, watch]}
`,
	},
	"kinds": {
		func(c *config.Config) {
			c.Secrets, c.ConfigMaps = kinds.Watched{Watch: kinds.WatchAll}, kinds.Watched{Watch: kinds.WatchAll}
			c.Kinds = []kinds.Kind{
				{APIVersion: "example.com/v1", Kind: "Widget", Optional: true, LabelSelector: "a=b", FieldSelector: "spec.class=x", NamespaceSelector: "tier=edge"},
				{APIVersion: "example.com/v1", Kind: "Gadget", Namespaces: []string{"shop"}},
			}
		},
		"Gadgets in shop, Widgets with a=b with spec.class=x, IngressClasses, Ingresses, ConfigMaps, Namespaces, Secrets, Services",
		`
- Namespace: ""
  Rules:
  - {apiGroups: [""], resources: [configmaps, namespaces, secrets, services], verbs: [get, list, watch]}
  - {apiGroups: [example.com], resources: [widget-resource], verbs: [get, list, watch]}
  - {apiGroups: [networking.k8s.io], resources: [ingressclasses, ingresses], verbs: [get, list, watch]}
- Namespace: shop
  Rules:
  - {apiGroups: [example.com], resources: [gadget-resource], verbs: [get, list, watch]}
`,
	},
}

func TestPlanAndRules(t *testing.T) {
	t.Parallel()
	asked := routing.Asked{
		Secrets:    []snapshots.SecretName{{Namespace: "blog", Name: "tls"}, {Namespace: "shop", Name: "b"}, {Namespace: "shop", Name: "a"}},
		ConfigMaps: []snapshots.SecretName{{Namespace: "shop", Name: "pages"}},
	}
	for name, c := range planCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config.Default()
			c.change(&cfg)
			plan := cluster.Plan(cfg, asked)
			var names []string
			for _, q := range plan {
				names = append(names, q.String())
			}
			slices.Sort(names)
			want := strings.Split(c.plan, ", ")
			slices.Sort(want)
			if !slices.Equal(names, want) {
				t.Errorf("planned\n%s\nwant\n%s", strings.Join(names, "\n"), strings.Join(want, "\n"))
			}
			rules := kubewatch.Rules(plan, func(_, kind string) string { return strings.ToLower(kind) + "-resource" })
			if got, want := canonical(t, rules), canonicalText(t, c.rules); got != want {
				t.Errorf("rules\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func canonical(t *testing.T, v any) string {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func canonicalText(t *testing.T, text string) string {
	t.Helper()
	var grants []rbac.Grant
	if err := yaml.UnmarshalStrict([]byte(text), &grants); err != nil {
		t.Fatal(err)
	}
	return canonical(t, grants)
}
