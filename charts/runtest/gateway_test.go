package runtest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/charts/charttest"
	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

// gatewayFleet is the namespace of a Gateway that has a fleet of its own.
const gatewayFleet = "payments"

// ofGateway installs the fleet of a Gateway into its namespace, with permissions only there. The fleet serves
// the Gateway, and nothing of the other release. The status of the Gateway has its addresses.
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
	made := r.provision(t, port)
	eventually.Holds(t, "both pods of the fleet serve the Gateway", func() bool {
		addresses := s.addresses(traffic, "gateway-80")
		for _, a := range addresses {
			if status(t, a, "gateway.example", "/") != http.StatusOK || status(t, a, gatewayFleet+".example", "/") != http.StatusNotFound {
				return false
			}
		}
		return len(addresses) == 2
	})
	for _, a := range r.addresses(traffic, "http") {
		if got := status(t, a, "gateway.example", "/"); got != http.StatusNotFound {
			t.Errorf("the other fleet answers %d for the Gateway's host", got)
		}
	}
	eventually.Holds(t, "the status of the Gateway says that every instance runs it", func() bool { return r.programmed(t, gatewayFleet) })
	made(t)
}

// programmed reports whether the status says that every instance runs the Gateway of a namespace, and at which
// address.
func (r *release) programmed(t *testing.T, namespace string) bool {
	t.Helper()
	var u unstructured.Unstructured
	u.SetAPIVersion(gatewayv1.GroupVersion.String())
	u.SetKind("Gateway")
	var g gatewayv1.Gateway
	if err := r.server.Client().Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "own"}, &u); err != nil {
		t.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &g); err != nil {
		t.Fatal(err)
	}
	return meta.IsStatusConditionTrue(g.Status.Conditions, "Programmed") && len(g.Status.Addresses) == 1 && strings.Contains(g.Status.Addresses[0].Value, ".")
}

// provisioners is the namespace of a release that makes fleets. provisioned is the namespace of a tenant who
// may have one.
const provisioners, provisioned = "provisioners", "provisioned"

// provision installs a release without a fleet, whose provisioner may make fleets in one namespace, and a
// Gateway that asks for one. The returned function waits until that fleet serves the Gateway, and until it is
// deleted with the Gateway.
func (r *release) provision(t *testing.T, port string) func(*testing.T) {
	t.Helper()
	s := &release{server: r.server, kubelet: r.kubelet, namespace: provisioners}
	s.values = []string{"--values", written(t, `
ingressClass: {name: made}
haproxy: {enabled: false}
pusher: {enabled: false}
compiler: {replicas: 1, webhook: {enabled: false}, config: {http: {port: 8080}, https: {port: 8443}}}
gatewayAPI:
  enabled: true
  provisioner:
    enabled: true
    replicas: 1
    namespaces: [`+provisioned+`]
    grace: 0s
    values:
      haproxyLine: "2.6"
      compiler: {replicas: 1}
      pusher: {replicas: 1, drainTime: 1s}
      fleet: {rollout: {soak: 1s}}
      haproxy: {drain: {seconds: 5, propagationSeconds: 1}, service: {type: ClusterIP}}
`)}
	gateway := fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: own, namespace: %s}, spec: {gatewayClassName: made, infrastructure: {parametersRef: {group: hapsnap.dev, kind: Fleet, name: own}}, listeners: [{name: http, port: 80, protocol: HTTP}]}}`, provisioned)
	r.server.Apply(t, tenant(provisioned, port)+fmt.Sprintf(`---
{apiVersion: v1, kind: Namespace, metadata: {name: %[1]s, labels: {pod-security.kubernetes.io/enforce: restricted}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: %[2]s, labels: {pod-security.kubernetes.io/enforce: restricted}}}
---
%[3]s
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: %[1]s}
spec: {parentRefs: [{name: own}], hostnames: [provisioned-gateway.example], rules: [{backendRefs: [{name: web, port: 80}]}]}
`, provisioned, provisioners, gateway))
	s.apply(t)
	f := &release{server: r.server, kubelet: r.kubelet, namespace: provisioned}
	return func(t *testing.T) {
		t.Helper()
		eventually.Holds(t, "both pods of the fleet that was made serve the Gateway", func() bool {
			addresses := f.addresses("own-made-haproxy", "gateway-80")
			for _, a := range addresses {
				if status(t, a, "provisioned-gateway.example", "/") != http.StatusOK {
					return false
				}
			}
			return len(addresses) == 2
		})
		eventually.Holds(t, "the status of the Gateway says so", func() bool { return r.programmed(t, provisioned) })
		r.server.Delete(t, gateway)
		eventually.Holds(t, "the fleet is gone with its Gateway", func() bool { return len(f.objects(t)) == 0 })
		// The garbage collector would do this.
		for _, component := range []string{"haproxy", "compiler", "pusher"} {
			for _, p := range f.pods(t, component) {
				f.delete(t, p)
			}
		}
	}
}

// objects returns the objects that a provisioner made in the namespace.
func (r *release) objects(t *testing.T) (out []string) {
	t.Helper()
	for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &batchv1.CronJobList{}, &corev1.ServiceList{}, &corev1.ServiceAccountList{}, &corev1.SecretList{}, &corev1.ConfigMapList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}} {
		if err := r.server.Client().List(t.Context(), list, client.InNamespace(r.namespace), client.HasLabels{"hapsnap.dev/fleet"}); err != nil {
			t.Fatal(err)
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			out = append(out, fmt.Sprintf("%T %s", o, o.(client.Object).GetName()))
		}
	}
	return out
}
