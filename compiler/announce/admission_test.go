package announce_test

import (
	"fmt"
	"reflect"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/snapshots"
)

// readsAll is a policy that reads labels and the spec of what is written to routes of a namespace, and to their statuses.
const readsAll = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
    resourceRules: [{apiGroups: [gateway.networking.k8s.io], apiVersions: ["*"], resources: ["*", "*/status"], operations: [UPDATE]}]
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        [JSONPatch{op: "test", path: "/metadata/labels/team", value: string(object.metadata.labels.team)},
        JSONPatch{op: "test", path: "/spec/hostnames/0", value: string(object.spec.hostnames[0])}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s}
`

// Admission that changes objects sees the whole object, and all but the status stays as it is, with its owners in managedFields.
func TestStatusIsWrittenToTheWholeObject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gatewayAPI("httproutes")
	w.server.Apply(t, fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {namespace: %s, name: web, labels: {team: shop}, annotations: {example.com/a: b}, finalizers: [example.com/x]},
    spec: {parentRefs: [{name: web}], hostnames: [web.example]}}`, w.namespace))
	w.server.Apply(t, fmt.Sprintf(readsAll, w.namespace))
	before := w.objectIn(w.namespace, "HTTPRoute", "web")
	w.await("the policy reads what is sent", func() bool {
		part := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"parents": []any{}}}}
		part.SetGroupVersionKind(before.GroupVersionKind())
		part.SetNamespace(w.namespace)
		part.SetName("web")
		part.SetResourceVersion(before.GetResourceVersion())
		err := w.server.Client().Status().Update(t.Context(), part, client.DryRunAll)
		return apierrors.IsInvalid(err) || apierrors.IsForbidden(err)
	})
	seen := &gatewayv1.HTTPRoute{}
	w.read("HTTPRoute", "web", seen)
	ref := diag.Object{Kind: "HTTPRoute", Namespace: w.namespace, Name: "web"}
	in := inputs.Inputs{Gateway: inputs.GatewayAPI{HTTPRoutes: []inputs.Object[gatewayv1.HTTPRoute]{{Ref: ref, Value: seen}}}}
	a := start(t, w.config, true)
	for _, reason := range []string{"First", "Second"} {
		_, v := routed("web", seen.Generation)
		v.Ref, v.Parents[0].Conditions[0].Reason = ref, reason
		a.Gateways(in, config.Default(), gateway.Verdicts{Routes: []gateway.RouteVerdict{v}}, snapshots.ID{Revision: 1})
		w.await("the route says "+reason, func() bool {
			got := &gatewayv1.HTTPRoute{}
			w.read("HTTPRoute", "web", got)
			return len(got.Status.Parents) == 1 && got.Status.Parents[0].Conditions[0].Reason == reason
		})
	}
	after := w.objectIn(w.namespace, "HTTPRoute", "web")
	if owners := after.GetManagedFields(); len(owners) != 2 || !reflect.DeepEqual(owners[:1], before.GetManagedFields()) {
		t.Errorf("the owners of fields are %v, and were %v", owners, before.GetManagedFields())
	}
	for _, o := range []*unstructured.Unstructured{before, after} {
		o.SetManagedFields(nil)
		o.SetResourceVersion("")
		delete(o.Object, "status")
	}
	if !reflect.DeepEqual(before, after) {
		t.Errorf("it is %v, and was %v", after, before)
	}
}
