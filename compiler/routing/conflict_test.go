package routing_test

import (
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// What an older Ingress has is no mistake of the younger one; what an Ingress
// gives twice is.
func TestConflictIsNoMistake(t *testing.T) {
	older, younger, twice := ingressOf("web", 0), ingressOf("other", 0), ingressOf("web", 1)
	older.Ref.Name, younger.Ref.Name, twice.Ref.Name = "older", "younger", "twice"
	older.Value.CreationTimestamp = metav1.NewTime(time.Unix(1, 0))
	again := *twice.Value.Spec.Rules[0].DeepCopy()
	again.HTTP.Paths[0].Backend.Service.Name = "other"
	twice.Value.Spec.Rules = append(twice.Value.Spec.Rules, again)
	_, found := routing.Translate(inputs.Inputs{Ingresses: []inputs.Object[networkingv1.Ingress]{older, younger, twice}}, routing.Config{})
	conflicts, taken := map[string]bool{}, 0
	for _, d := range found {
		if strings.Contains(d.Message, "was taken by") {
			taken++
			conflicts[d.Object.Name] = d.Conflict
		} else if d.Conflict {
			t.Errorf("a conflict: %s", d)
		}
	}
	if taken != 2 || !conflicts["younger"] || conflicts["twice"] {
		t.Errorf("found %v", found)
	}
}

func TestIsOurs(t *testing.T) {
	class := func(name, controller string) inputs.Object[networkingv1.IngressClass] {
		c := &networkingv1.IngressClass{}
		c.Name, c.Spec.Controller = name, controller
		o := inputs.Object[networkingv1.IngressClass]{Value: c}
		o.Ref.Kind, o.Ref.Name = "IngressClass", name
		return o
	}
	classes := []inputs.Object[networkingv1.IngressClass]{class("edge", routing.DefaultControllerClass), class("other", "example.com/other")}
	for name, want := range map[string]bool{"edge": true, "other": false, "unknown": false} {
		ing := &networkingv1.Ingress{Spec: networkingv1.IngressSpec{IngressClassName: &name}}
		if got := routing.IsOurs(ing, classes, routing.Config{}); got != want {
			t.Errorf("class %s: got %v", name, got)
		}
	}
	if routing.IsOurs(&networkingv1.Ingress{}, classes, routing.Config{}) {
		t.Error("an Ingress without a class is ours")
	}
	if !routing.IsOurs(&networkingv1.Ingress{}, classes, routing.Config{WatchWithoutClass: true}) {
		t.Error("an Ingress without a class is not ours though they are to be watched")
	}
}
