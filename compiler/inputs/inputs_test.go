package inputs_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
)

// someObjects are n Ingresses and Services, of two namespaces.
func someObjects(n int) (in inputs.Inputs) {
	for i := range n {
		namespace, name := fmt.Sprint("team", i%2), fmt.Sprintf("app-%06d", i)
		in.Ingresses = append(in.Ingresses, inputs.Object[networkingv1.Ingress]{Ref: diag.Object{Kind: "Ingress", Namespace: namespace, Name: name}, Value: &networkingv1.Ingress{}})
		in.Services = append(in.Services, inputs.Object[corev1.Service]{Ref: diag.Object{Kind: "Service", Namespace: namespace, Name: name}, Value: &corev1.Service{}})
	}
	return in
}

// A configuration that reads all namespaces, as most do, selects the lists themselves, and what is appended to them is not
// appended to the caller's.
func TestListsAreNotCopiedWithoutNeed(t *testing.T) {
	t.Parallel()
	in := someObjects(10)
	in.Services = in.Services[:9:10]
	cfg := config.Default()
	all := inputs.NewSelector(cfg, nil).Objects(in)
	if len(all.Ingresses) != 10 || &all.Ingresses[0] != &in.Ingresses[0] || len(all.Services) != 9 || cap(all.Services) != 9 {
		t.Errorf("%d Ingresses of 10, %d Services with room for %d", len(all.Ingresses), len(all.Services), cap(all.Services))
	}
	cfg.Namespaces = []string{"team1"}
	some := inputs.NewSelector(cfg, nil).Objects(in)
	if len(some.Ingresses) != 5 || some.Ingresses[0].Ref.Namespace != "team1" || in.Ingresses[0].Ref.Namespace != "team0" || len(in.Ingresses) != 10 {
		t.Errorf("%d Ingresses of one namespace, and %v is the first of all", len(some.Ingresses), in.Ingresses[0].Ref)
	}
}

// The list of objects in a manifest is made at once, as long as it becomes.
func TestProvenanceIsMadeAtOnce(t *testing.T) {
	in := someObjects(1000)
	if got := in.Provenance(); len(got) != 2000 || cap(got) != 2000 {
		t.Errorf("%d objects, and room for %d", len(got), cap(got))
	}
	if n := testing.AllocsPerRun(3, func() { in.Provenance() }); n > 10 {
		t.Errorf("%.0f allocations for 2,000 objects", n)
	}
}
