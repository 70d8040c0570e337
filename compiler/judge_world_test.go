package compiler

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// randomIngress competes with others for some of its claims.
func randomIngress(r *rand.Rand, namespace, name string) inputs.Object[networkingv1.Ingress] {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	class, prefix, exact := "hapsnap", networkingv1.PathTypePrefix, networkingv1.PathTypeExact
	ing := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{}, CreationTimestamp: metav1.NewTime(time.Unix(int64(r.IntN(9)+1), 0))},
		Spec:       networkingv1.IngressSpec{IngressClassName: &class},
	}
	hosts := []string{"a.example", "b.example", "c.example", "*.example", "x.a.example", "*.a.example", "", "bad host"}
	if r.IntN(12) > 0 {
		own := namespace + ".example"
		hosts = append([]string{own, own, own, "x." + own, "x." + own, "y." + own}, hosts[:6]...)
	}
	backend := func() networkingv1.IngressBackend {
		return networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: pick("web", "web", "api", "none"), Port: networkingv1.ServiceBackendPort{Number: 80}}}
	}
	for range 1 + r.IntN(2) {
		host := pick(hosts...)
		var paths []networkingv1.HTTPIngressPath
		for range 1 + r.IntN(2) {
			p := networkingv1.HTTPIngressPath{Path: pick("/", "/x", "/x/y", "//x", "/no thing"), PathType: &prefix, Backend: backend()}
			if r.IntN(4) == 0 {
				p.PathType = &exact
			}
			paths = append(paths, p)
		}
		ing.Spec.Rules = append(ing.Spec.Rules, networkingv1.IngressRule{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: paths}}})
		if r.IntN(4) == 0 {
			ing.Spec.TLS = append(ing.Spec.TLS, networkingv1.IngressTLS{Hosts: []string{host}, SecretName: pick("tls", "other-tls")})
		}
	}
	if r.IntN(30) == 0 {
		b := backend()
		ing.Spec.DefaultBackend = &b
	}
	for option, values := range map[string][]string{
		"server-alias": {"b.example", "d.example"}, "share-host": {"*", "n1, n2"}, "canary": {"true"}, "allow-list": {"10.0.0.0/8", "list", "nonsense"}, "ssl-passthrough": {"true"},
		"client-ca-secret": {"ca"}, "affinity": {"cookie"}, "auth-basic": {"users"}, "ssl-redirect": {"true"}, "normalize-paths": {"false"}, "timeout-server": {"5s", "x"},
		"canary-weight": {"10"},
	} {
		if r.IntN(16) == 0 {
			ing.Annotations["hapsnap.dev/"+option] = pick(values...)
		}
	}
	if r.IntN(60) == 0 { // with this, everything is translated
		ing.Annotations["hapsnap.dev/"+pick("path-type-default", "auth-url")] = pick("Regex", "http://web.n2/x")
	}
	return inputs.Object[networkingv1.Ingress]{Ref: diag.Object{Kind: "Ingress", Namespace: namespace, Name: name}, Value: ing}
}

// The verdict on an Ingress among the relevant objects equals that among all objects, and its part of the model
// is the same.
func TestScopedReviews(t *testing.T) {
	t.Parallel()
	scoped := 0
	for seed := range uint64(250) {
		r := rand.New(rand.NewPCG(seed, 1))
		var in inputs.Inputs
		for n := range 8 {
			namespace := fmt.Sprintf("n%d", n)
			for i := range 1 + r.IntN(3) {
				in.Ingresses = append(in.Ingresses, randomIngress(r, namespace, fmt.Sprint("i", i)))
			}
			for _, name := range []string{"web", "api"} {
				in.Services = append(in.Services, inputs.Object[corev1.Service]{
					Ref:   diag.Object{Kind: "Service", Namespace: namespace, Name: name},
					Value: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
				})
			}
		}
		for i := range 60 { // so that some reviews need less than half of the objects
			ing := randomIngress(rand.New(rand.NewPCG(7, 7)), "filler", fmt.Sprint("f", i))
			ing.Value.Annotations, ing.Value.Spec.TLS, ing.Value.Spec.DefaultBackend = nil, nil, nil
			ing.Value.Spec.Rules = ing.Value.Spec.Rules[:1]
			ing.Value.Spec.Rules[0].Host = fmt.Sprintf("f%d.filler", i)
			in.Ingresses = append(in.Ingresses, ing)
		}
		c := config.Default()
		if seed%2 == 0 {
			c.Hosts = config.OwnHosts
		}
		if seed%3 == 0 {
			c.Limits.NamespaceRoutes = 5
		}
		w := &world{source: Source{Config: c}, objects: in}
		w.found = errorsOf(w.translate(in).found)
		review := in.Ingresses[r.IntN(8)]
		if r.IntN(3) == 0 {
			review = randomIngress(r, review.Ref.Namespace, "new")
		} else {
			review = randomIngress(r, review.Ref.Namespace, review.Ref.Name)
		}
		with, _ := w.with(review)
		whole := w.among(with, review)
		w.scope = newScope(in)
		if _, less := w.scoped(review); less {
			scoped++
		}
		some := w.among(with, review)
		if diff := gocmp.Diff(ofObject(review.Ref, whole.found, whole.before), ofObject(review.Ref, some.found, some.before)); diff != "" {
			t.Errorf("seed %d: of %s it is said (-among all +among some)\n%s", seed, review.Ref, diff)
		}
		if diff := gocmp.Diff(comparablePart(whole.part), comparablePart(some.part), gocmp.Exporter(func(reflect.Type) bool { return true })); diff != "" && !t.Failed() {
			t.Errorf("seed %d: %s brings (-among all +among some)\n%s", seed, review.Ref, diff)
		}
	}
	if scoped < 30 {
		t.Errorf("%d of the reviews had less than all to do with: the test tests little", scoped)
	}
}

// comparablePart returns a part without certificates for no host, which nothing names, and without the
// positions of closed parts.
func comparablePart(m routing.Model) routing.Model {
	m.Backends = slices.Clone(m.Backends)
	for i, b := range m.Backends {
		if b.Name == routing.Unavailable {
			m.Backends[i].Origins = nil // of the backend of everything closed
		}
	}
	all := m.Certificates
	m.Certificates = nil
	for _, c := range all {
		if len(c.Hosts) > 0 {
			m.Certificates = append(m.Certificates, c)
		}
	}
	return m
}
