package routing_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// The order in which objects come takes no part in what they mean.
func TestTranslateIgnoresOrder(t *testing.T) {
	for path, golden := range goldens(t) {
		t.Run(name(path), func(t *testing.T) {
			in := gather(t, golden.Files)
			wantModel, wantFound := routing.Translate(in, configOf(golden))
			for seed := range uint64(20) {
				shuffle(rand.New(rand.NewPCG(seed, 0)), &in)
				model, found := routing.Translate(in, configOf(golden))
				if diff := cmp.Diff(wantModel, model, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
					t.Fatalf("model, seed %d (-want +got)\n%s", seed, diff)
				}
				if diff := cmp.Diff(wantFound, found); diff != "" {
					t.Fatalf("diagnostics, seed %d (-want +got)\n%s", seed, diff)
				}
			}
		})
	}
}

func shuffle(r *rand.Rand, in *inputs.Inputs) {
	r.Shuffle(len(in.Ingresses), func(i, j int) { in.Ingresses[i], in.Ingresses[j] = in.Ingresses[j], in.Ingresses[i] })
	r.Shuffle(len(in.Classes), func(i, j int) { in.Classes[i], in.Classes[j] = in.Classes[j], in.Classes[i] })
	r.Shuffle(len(in.Services), func(i, j int) { in.Services[i], in.Services[j] = in.Services[j], in.Services[i] })
	r.Shuffle(len(in.Secrets), func(i, j int) { in.Secrets[i], in.Secrets[j] = in.Secrets[j], in.Secrets[i] })
}

// Objects of a cluster stand in no file, and mean the same: what is said of them
// names the field.
func TestTranslateWithoutPositions(t *testing.T) {
	ing := ingressOf("web", 0)
	model, found := routing.Translate(inputs.Inputs{Ingresses: []inputs.Object[networkingv1.Ingress]{ing}}, routing.Config{})
	if len(model.Hosts) != 1 || model.Hosts[0].Routes[0].Backend != "shop_web_80" {
		t.Errorf("got %+v", model)
	}
	if len(found) != 1 || found[0].String() != "warning: Ingress shop/web: spec.rules[0].http.paths[0].backend.service.name: Service shop/web does not exist; requests for it are answered 503\n\thint: create it, or correct the name" {
		t.Errorf("got %v", found)
	}
}

// ingressOf returns an Ingress of a host of its own.
func ingressOf(service string, i int) inputs.Object[networkingv1.Ingress] {
	class, prefix := routing.DefaultIngressClass, networkingv1.PathTypePrefix
	ing := &networkingv1.Ingress{}
	ing.Spec.IngressClassName = &class
	backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: service, Port: networkingv1.ServiceBackendPort{Number: 80}}}
	ing.Spec.Rules = []networkingv1.IngressRule{{
		Host: fmt.Sprintf("h%d.example.com", i),
		IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
			Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix, Backend: backend}},
		}},
	}}
	name := "web"
	if i > 0 {
		name = fmt.Sprintf("web-%d", i)
	}
	return inputs.Object[networkingv1.Ingress]{Ref: diag.Object{Kind: "Ingress", Namespace: "shop", Name: name}, Value: ing}
}

// Ten thousand Ingresses, each with its Service, or all with one.
func BenchmarkTranslate(b *testing.B) {
	for _, services := range []int{10_000, 1} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			var in inputs.Inputs
			for i := range 10_000 {
				in.Ingresses = append(in.Ingresses, ingressOf(fmt.Sprintf("s%d", i%services), i))
			}
			for i := range services {
				service := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
				ref := diag.Object{Kind: "Service", Namespace: "shop", Name: fmt.Sprintf("s%d", i)}
				in.Services = append(in.Services, inputs.Object[corev1.Service]{Ref: ref, Value: service})
			}
			for b.Loop() {
				if _, found := routing.Translate(in, routing.Config{}); len(found) > 0 {
					b.Fatal(found[0])
				}
			}
		})
	}
}
