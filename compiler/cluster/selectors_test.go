package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config/kinds"
)

// The API server selects objects of other kinds: by label, by a selectable field, by namespace, and by the
// labels of namespaces.
func TestSelectorsOfOtherKinds(t *testing.T) {
	t.Parallel()
	server := shared.Server(t)
	a, b := server.Namespace(t), server.Namespace(t)
	definition := fmt.Sprintf(widgets, "pickeds", "Picked")
	definition = strings.Replace(definition, "    schema:", "    selectableFields: [{jsonPath: .spec.host}]\n    schema:", 1)
	server.Apply(t, strings.Replace(definition, "x-kubernetes-preserve-unknown-fields: true",
		"properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {host: {type: string}}}}", 1))
	labelled := strings.Replace(widget("Picked", a, "labelled", "x.example"), "metadata: {", "metadata: {labels: {edge: \"yes\"}, ", 1)
	server.Apply(t, labelled+widget("Picked", a, "plain", "y.example")+widget("Picked", b, "other", "x.example")+
		fmt.Sprintf("---\napiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {tier: %s}}\n", b, b))
	for name, c := range map[string]struct {
		kind kinds.Kind
		want []string
	}{
		"all":                  {kinds.Kind{}, []string{"Picked labelled", "Picked other", "Picked plain"}},
		"label":                {kinds.Kind{LabelSelector: "edge=yes"}, []string{"Picked labelled"}},
		"field":                {kinds.Kind{FieldSelector: "spec.host=x.example"}, []string{"Picked labelled", "Picked other"}},
		"namespace":            {kinds.Kind{Namespaces: []string{a}}, []string{"Picked labelled", "Picked plain"}},
		"label of a namespace": {kinds.Kind{NamespaceSelector: "tier=" + b}, []string{"Picked other"}},
		"label and field":      {kinds.Kind{LabelSelector: "edge=yes", FieldSelector: "spec.host=y.example"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := in("none-of-the-others")
			c.kind.APIVersion, c.kind.Kind = "test.example/v1", "Picked"
			cfg.Kinds = []kinds.Kind{c.kind}
			follow(t, server.Kubeconfig(), cfg).await(t, name, holds(c.want...))
		})
	}
}
