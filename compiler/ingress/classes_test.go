package ingress_test

import (
	"fmt"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/compiler/inputs"
)

// ofClasses returns this many Ingresses of each class. "" stands for none.
func ofClasses(counts map[string]int) inputs.Inputs {
	var in inputs.Inputs
	for class, n := range counts {
		for i := range n {
			v := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("%s-%d", class, i)}}
			if class != "" {
				v.Spec.IngressClassName = &class
			}
			in.Ingresses = append(in.Ingresses, inputs.Object[networkingv1.Ingress]{Value: v, Ref: diag.Object{Kind: "Ingress", Namespace: "shop", Name: v.Name}})
		}
	}
	return in
}

func TestCensus(t *testing.T) {
	t.Parallel()
	for want, counts := range map[string]map[string]int{
		"0 Ingresses compiled": {},
		"1 Ingress compiled":   {"hapsnap": 1},
		"3 Ingresses compiled; 41 of other classes not looked at: nginx 40, internal 1":                       {"hapsnap": 3, "nginx": 40, "internal": 1},
		"0 Ingresses compiled; 3 of other classes not looked at: nginx 2, without a class 1":                  {"nginx": 2, "": 1},
		"0 Ingresses compiled; 6 of other classes not looked at: a 1, b 1, c 1, d 1, e 1, and 1 more classes": {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1},
		`0 Ingresses compiled; 1 of other classes not looked at: a\nb 1`:                                      {"a\nb": 1},
	} {
		c := ingress.CensusOf(ofClasses(counts), ingress.Config{})
		if got := c.String(); got != want {
			t.Errorf("%v: %q, want %q", counts, got, want)
		}
		warned := c.Warning(ingress.Config{})
		if none := counts["hapsnap"] == 0 && len(counts) > 0; none != (len(warned) == 1) {
			t.Errorf("%v: %v", counts, warned)
		}
		if len(warned) > 0 && !strings.Contains(warned[0].Hint, "ingressClassName: hapsnap") {
			t.Errorf("%v: hint %q", counts, warned[0].Hint)
		}
	}
}

// If an IngressClass with our name belongs to another controller, its Ingresses are not compiled. That is
// reported, unless another IngressClass is ours.
func TestClassOfAnotherController(t *testing.T) {
	t.Parallel()
	class := func(name, controller string) inputs.Object[networkingv1.IngressClass] {
		return inputs.Object[networkingv1.IngressClass]{
			Ref:   diag.Object{Kind: "IngressClass", Name: name},
			Value: &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.IngressClassSpec{Controller: controller}},
		}
	}
	in := ofClasses(map[string]int{"hapsnap": 1})
	in.Classes = append(in.Classes, class("hapsnap", "k8s.io/ingress-nginx"))
	_, found := ingress.Translate(in, ingress.Config{})
	if len(found) != 1 || found[0].Object.Name != "hapsnap" || !strings.Contains(found[0].Message, `"k8s.io/ingress-nginx"`) || found[0].Severity != diag.Warning {
		t.Errorf("found %v", found)
	}
	if c := ingress.CensusOf(in, ingress.Config{}); c.Compiled != 0 || c.Other() != 1 {
		t.Errorf("census %v", c)
	}
	in.Classes = append(in.Classes, class("edge", ingress.DefaultControllerClass))
	if _, found := ingress.Translate(in, ingress.Config{}); len(found) != 0 {
		t.Errorf("with a class of ours: %v", found)
	}
}
