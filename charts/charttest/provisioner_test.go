package charttest

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/provisioner"
)

// The provisioner has the permissions to make all objects of a fleet, in its namespaces and in those of stores.
// It has each permission that it grants, as the API server requires. With its permissions it cannot make
// anybody an administrator.
func TestProvisionerMayMakeFleets(t *testing.T) {
	t.Parallel()
	v := named(t, "gateway-provisioner")
	deployment, ok := v.component(t, "Deployment", "provisioner")
	if !ok {
		t.Fatal("no provisioner")
	}
	may := granted(t, v.objects(t), accountOf(t, deployment))
	for _, never := range []string{"escalate", "bind", "impersonate", "*", "deletecollection"} {
		for atom := range may {
			if strings.HasSuffix(atom, ":"+never) || strings.Contains(atom, "*") {
				t.Errorf("it may %s", atom)
			}
		}
	}
	if may["//namespaces::delete"] || may["//secrets::get"] || may["/apps/deployments::create"] {
		t.Error("it may do everywhere what it needs where fleets are")
	}
	for _, o := range madeFleet(t, v) {
		plural := strings.ToLower(o.GetKind()) + "s"
		if base, found := strings.CutSuffix(plural, "ys"); found {
			plural = base + "ies"
		}
		for _, verb := range []string{"get", "create", "patch", "delete"} {
			group := o.GroupVersionKind().Group
			if !has(may, o.GetNamespace(), group+"/"+plural+":", "", verb) && (plural != "namespaces" || verb != "delete") {
				t.Errorf("it may not %s %s in %q", verb, plural, o.GetNamespace())
			}
		}
		if o.GetKind() != "Role" && o.GetKind() != "ClusterRole" {
			continue
		}
		var role rbacv1.ClusterRole
		convert(t, *o, &role)
		for _, atom := range slices.Sorted(maps.Keys(atoms(o.GetNamespace(), role.Rules))) {
			head, verb, _ := cutLast(strings.TrimPrefix(atom, o.GetNamespace()+"/"), ":")
			resource, name, _ := strings.Cut(head, ":")
			if !has(may, o.GetNamespace(), resource+":", name, verb) {
				t.Errorf("%s %s gives %s, which it does not have", o.GetKind(), o.GetName(), atom)
			}
		}
	}
}

// has reports whether a permission exists: for the object or for all of its kind, in the namespace or in all.
func has(may map[string]bool, namespace, resource, name, verb string) bool {
	for _, n := range []string{"", namespace} {
		if may[n+"/"+resource+":"+verb] || may[n+"/"+resource+name+":"+verb] {
			return true
		}
	}
	return false
}

// madeFleet renders a fleet with the values that a release gives to its provisioner.
func madeFleet(t *testing.T, v *variant) []*unstructured.Unstructured {
	t.Helper()
	config, ok := v.component(t, "ConfigMap", "provisioner")
	text, _, _ := unstructured.NestedString(config.Object, "data", "values.yaml")
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil || !ok {
		t.Fatal("no values:", err)
	}
	values, err := provisioner.ReadValues([]string{path})
	if err != nil {
		t.Fatal(err)
	}
	chart, err := provisioner.LoadChart("")
	if err != nil {
		t.Fatal(err)
	}
	fleet := provisioner.Fleet{Name: types.NamespacedName{Namespace: "shop", Name: "pay"}, Class: "hapsnap", Ports: []int{80}}
	record := provisioner.Record{Fleet: fleet.Name, Name: "pay-hapsnap", Store: "shop-pay-store"}
	objects, err := chart.Objects(fleet, record, "edge.provisioner", provisioner.Values(values, fleet, record, "hapsnap.dev/gateway-controller"))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}
