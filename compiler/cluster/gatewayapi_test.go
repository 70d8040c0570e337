package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

// definition is the CustomResourceDefinition of a kind of the Gateway API, from an imaginary later release: its
// objects have an additional field.
func definition(t *testing.T, plural, bundle string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(kubetest.GatewayAPI(t), "gateway.networking.k8s.io_"+plural+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	crd := map[string]any{}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	at := func(of any, path ...string) map[string]any {
		for _, name := range path {
			of = of.(map[string]any)[name]
		}
		return of.(map[string]any)
	}
	at(crd, "metadata", "annotations")["gateway.networking.k8s.io/bundle-version"] = bundle
	for _, version := range at(crd, "spec")["versions"].([]any) {
		at(version, "schema", "openAPIV3Schema", "properties", "spec", "properties")["later"] = map[string]any{"type": "string"}
	}
	out, err := yaml.Marshal(crd)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// The version and channel of the cluster's Gateway API are known, and so are its unknown fields. Without
// permission to read the definitions, that is reported, and the rest is read.
func TestGatewayAPIOfTheCluster(t *testing.T) {
	t.Parallel()
	server := kubetest.Start(t) // definitions belong to the whole cluster
	namespace := server.Namespace(t)
	for _, plural := range []string{"gatewayclasses", "gateways", "httproutes"} {
		server.Apply(t, definition(t, plural, "v1.6.3"))
	}
	const route = "{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {namespace: %s, name: %s}, spec: {%s}}\n---\n"
	server.Apply(t, "{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: ours}, spec: {controllerName: hapsnap.dev/gateway-controller}}\n---\n"+
		fmt.Sprintf(route, namespace, "web", "hostnames: [a.example]")+fmt.Sprintf(route, namespace, "new", "later: x"))
	enabled := in(namespace)
	enabled.GatewayAPI.Enabled, enabled.GatewayAPI.ControllerName = true, config.Default().GatewayAPI.ControllerName

	f := follow(t, server.Kubeconfig(), enabled)
	bundles := func(in inputs.Inputs) string {
		var out []string
		for _, d := range in.Gateway.Definitions {
			out = append(out, fmt.Sprint(d.Value.Spec.Names.Kind, " ", d.Value.Bundle(), " ", slices.Contains(d.Value.Serves(), "v1"), " ", d.Value.IsExperimental()))
		}
		slices.Sort(out)
		return strings.Join(out, ", ")
	}
	sees := func(want string) func(inputs.Inputs, error) bool {
		return func(in inputs.Inputs, err error) bool {
			return err == nil && len(in.Gateway.HTTPRoutes) == 2 && bundles(in) == want && len(in.Unread) == 0
		}
	}
	got := f.await(t, "the definitions", sees("Gateway v1.6.3 true false, GatewayClass v1.6.3 true false, HTTPRoute v1.6.3 true false"))
	for _, r := range got.Gateway.HTTPRoutes {
		want := map[string]string{"web": "", "new": "spec.later"}[r.Ref.Name]
		if field := inputs.UnknownField(r.Value); field != want {
			t.Errorf("%s has the unknown field %q, want %q", r.Ref, field, want)
		}
	}
	server.Apply(t, definition(t, "httproutes", "v1.7.0"))
	f.await(t, "that one is another", sees("Gateway v1.6.3 true false, GatewayClass v1.6.3 true false, HTTPRoute v1.7.0 true false"))

	few := strings.Replace(fmt.Sprintf(access, namespace), "rules:\n", "rules:\n- {apiGroups: [\"\"], resources: [namespaces], verbs: [get, list, watch]}\n- {apiGroups: [gateway.networking.k8s.io], resources: [\"*\"], verbs: [get, list, watch]}\n", 1)
	server.Apply(t, few)
	f = follow(t, server.ServiceAccount(t, namespace, "compiler"), enabled)
	f.await(t, "that they may not be read", func(in inputs.Inputs, err error) bool {
		return err == nil && len(in.Gateway.HTTPRoutes) == 2 && len(in.Gateway.Definitions) == 0 && len(in.Unread) == len(inputs.GatewayDefinitions()) && in.Unread[0].Kind == inputs.DefinitionKind
	})
}
