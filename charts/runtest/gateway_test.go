package runtest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/charts/charttest"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

// gatewayFleet is the namespace of a Gateway that has a fleet of its own.
const gatewayFleet = "payments"

// ofGateway installs the fleet of a Gateway into its namespace, with rights there and nowhere else. It serves the
// Gateway, and nothing of the other release; the status of the Gateway says so, and where.
func (r *release) ofGateway(t *testing.T, port string) {
	t.Helper()
	for _, kind := range []string{"gatewayclasses", "gateways", "httproutes"} {
		text, err := os.ReadFile(filepath.Join(kubetest.GatewayAPI(t), "gateway.networking.k8s.io_"+kind+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		r.server.Apply(t, string(text))
	}
	s := &release{server: r.server, kubelet: r.kubelet, namespace: gatewayFleet}
	s.values = []string{"--values", charttest.Chart(t) + "/ci/gateway-fleet-values.yaml", "--set", "nameOverride=,compiler.replicas=1,pusher.replicas=1,rbac.scope=namespaces,rbac.namespaces={" + gatewayFleet + "}"}
	r.server.Apply(t, tenant(gatewayFleet, port)+fmt.Sprintf(`---
{apiVersion: v1, kind: Namespace, metadata: {name: %[1]s, labels: {pod-security.kubernetes.io/enforce: restricted}}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: hapsnap}, spec: {controllerName: hapsnap.dev/gateway-controller}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: own, namespace: %[1]s}
spec:
  gatewayClassName: hapsnap
  infrastructure: {parametersRef: {group: hapsnap.dev, kind: Fleet, name: payments}}
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: %[1]s}
spec: {parentRefs: [{name: own}], hostnames: [gateway.example], rules: [{backendRefs: [{name: web, port: 80}]}]}
`, gatewayFleet))
	s.apply(t)
	eventually(t, "both pods of the fleet serve the Gateway", func() bool {
		addresses := s.addresses(t, traffic, "gateway-80")
		for _, a := range addresses {
			if status(t, a, "gateway.example", "/") != http.StatusOK || status(t, a, gatewayFleet+".example", "/") != http.StatusNotFound {
				return false
			}
		}
		return len(addresses) == 2
	})
	for _, a := range r.addresses(t, traffic, "http") {
		if got := status(t, a, "gateway.example", "/"); got != http.StatusNotFound {
			t.Errorf("the other fleet answers %d for the Gateway's host", got)
		}
	}
	eventually(t, "the status of the Gateway says that every instance runs it", func() bool {
		var u unstructured.Unstructured
		u.SetAPIVersion(gatewayv1.GroupVersion.String())
		u.SetKind("Gateway")
		var g gatewayv1.Gateway
		if err := r.server.Client().Get(t.Context(), client.ObjectKey{Namespace: gatewayFleet, Name: "own"}, &u); err != nil {
			t.Fatal(err)
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &g); err != nil {
			t.Fatal(err)
		}
		return meta.IsStatusConditionTrue(g.Status.Conditions, "Programmed") && len(g.Status.Addresses) == 1 && strings.Contains(g.Status.Addresses[0].Value, ".")
	})
}
