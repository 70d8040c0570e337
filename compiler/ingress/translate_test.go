package ingress_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// The order of objects does not matter.
func TestTranslateIgnoresOrder(t *testing.T) {
	for path, golden := range goldens(t) {
		t.Run(name(path), func(t *testing.T) {
			in := gather(t, golden.Files)
			wantModel, wantFound := ingress.Translate(in, configOf(golden))
			for seed := range uint64(20) {
				shuffle(rand.New(rand.NewPCG(seed, 0)), &in)
				model, found := ingress.Translate(in, configOf(golden))
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

// Objects of a cluster have no file, and mean the same. Their findings name the field.
func TestTranslateWithoutPositions(t *testing.T) {
	ing := ingressOf("web", 0)
	model, found := ingress.Translate(inputs.Inputs{Ingresses: []inputs.Object[networkingv1.Ingress]{ing}}, ingress.Config{})
	if len(model.Hosts) != 1 || model.Hosts[0].Routes[0].Backend != "shop_web_80" {
		t.Errorf("got %+v", model)
	}
	if len(found) != 1 || found[0].String() != "warning: Ingress shop/web: spec.rules[0].http.paths[0].backend.service.name: Service shop/web does not exist; requests for it are answered 503\n\thint: create it, or correct the name" {
		t.Errorf("got %v", found)
	}
}

// ingressOf returns an Ingress with a host of its own.
func ingressOf(service string, i int) inputs.Object[networkingv1.Ingress] {
	class, prefix := ingress.DefaultIngressClass, networkingv1.PathTypePrefix
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

// BenchmarkTranslate translates ten thousand Ingresses, each with its own Service, or all with the same one.
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
				if _, found := ingress.Translate(in, ingress.Config{}); len(found) > 0 {
					b.Fatal(found[0])
				}
			}
		})
	}
}

// It is no mistake of an Ingress that an older one has the same path. It is one to have a path twice.
func TestConflictIsNoMistake(t *testing.T) {
	older, younger, twice := ingressOf("web", 0), ingressOf("other", 0), ingressOf("web", 1)
	older.Ref.Name, younger.Ref.Name, twice.Ref.Name = "older", "younger", "twice"
	older.Value.CreationTimestamp = metav1.NewTime(time.Unix(1, 0))
	again := *twice.Value.Spec.Rules[0].DeepCopy()
	again.HTTP.Paths[0].Backend.Service.Name = "other"
	twice.Value.Spec.Rules = append(twice.Value.Spec.Rules, again)
	_, found := ingress.Translate(inputs.Inputs{Ingresses: []inputs.Object[networkingv1.Ingress]{older, younger, twice}}, ingress.Config{})
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
	classes := []inputs.Object[networkingv1.IngressClass]{class("edge", ingress.DefaultControllerClass), class("other", "example.com/other")}
	for name, want := range map[string]bool{"edge": true, "other": false, "unknown": false} {
		ing := &networkingv1.Ingress{Spec: networkingv1.IngressSpec{IngressClassName: &name}}
		if got := ingress.IsOurs(ing, classes, ingress.Config{}); got != want {
			t.Errorf("class %s: got %v", name, got)
		}
	}
	if ingress.IsOurs(&networkingv1.Ingress{}, classes, ingress.Config{}) {
		t.Error("an Ingress without a class is ours")
	}
	if !ingress.IsOurs(&networkingv1.Ingress{}, classes, ingress.Config{WatchWithoutClass: true}) {
		t.Error("an Ingress without a class is not ours though they are to be watched")
	}
}

// BenchmarkTranslate10k translates 10,000 Ingresses from objects with positions.
func BenchmarkTranslate10k(b *testing.B) {
	var text []byte
	for i := range 10000 {
		text = fmt.Appendf(text, `---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: app-%[1]d}
spec: {ports: [{port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  namespace: shop
  name: app-%[1]d
  annotations: {hapsnap.dev/balance: leastconn}
spec:
  ingressClassName: hapsnap
  rules:
  - host: app-%[1]d.example
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: app-%[1]d, port: {number: 80}}}}
`, i)
	}
	in := gather(b, []txtar.File{{Name: "many.yaml", Data: text}})
	b.ReportAllocs()
	for b.Loop() {
		if _, found := ingress.Translate(in, ingress.Config{}); len(found) > 0 {
			b.Fatal(found)
		}
	}
}

const twoObjects = `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  namespace: shop
  name: web
spec:
  ingressClassName: hapsnap
  defaultBackend: {service: {name: web, port: {number: 80}}}
  tls:
  - {secretName: web-tls, hosts: [shop.example]}
  rules:
  - host: shop.example
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}
      - {path: /cart, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}
---
apiVersion: v1
kind: Service
metadata:
  namespace: shop
  name: web
  annotations:
    hapsnap.dev/balance: leastconn
spec: {ports: [{port: 80}]}
`

// What is made from an object names the field, and the position if there is one.
func TestOriginsNameFields(t *testing.T) {
	t.Parallel()
	in := gather(t, []txtar.File{{Name: "m.yaml", Data: []byte(twoObjects)}})
	for _, position := range []string{"m.yaml", ""} {
		if position == "" { // as for an object of a cluster
			in.Ingresses[0].At, in.Services[0].At = nil, nil
		}
		model, _ := ingress.Translate(in, ingress.Config{})
		routes := map[string]routing.Origin{}
		for _, r := range model.Hosts[0].Routes {
			routes[r.Match.Path] = r.Origin
		}
		for _, c := range []struct {
			origin routing.Origin
			want   string
		}{
			{model.Hosts[0].Origin, "spec.rules[0].host"},
			{routes[""], "spec.rules[0].http.paths[0].path"},
			{routes["/cart"], "spec.rules[0].http.paths[1].path"},
			{model.DefaultOrigin, "spec.defaultBackend"},
			{model.Certificates[0].Origin, "spec.tls[0].secretName"},
			{model.Backends[0].Origins[1], `metadata.annotations["hapsnap.dev/balance"]`},
		} {
			if c.origin.Field != c.want || c.origin.Position.File != position {
				t.Errorf("%+v, want field %s of %s", c.origin, c.want, position)
			}
		}
	}
}

// Mistakes finds what is wrong with an Ingress alone, such as protection that only another controller would provide.
func TestMistakes(t *testing.T) {
	t.Parallel()
	ing := ingressOf("web", 1)
	if found := ingress.Mistakes(ing, ingress.Config{}); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	ing.Value.Annotations = map[string]string{"nginx.ingress.kubernetes.io/auth-url": "https://auth.example"}
	if found := ingress.Mistakes(ing, ingress.Config{}); len(found) != 1 || !strings.Contains(found[0].Message, "auth-url") {
		t.Errorf("found %v", found)
	}
}
