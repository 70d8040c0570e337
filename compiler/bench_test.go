package compiler_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
	"github.com/hapsnap/hapsnap/templates"
)

// many returns n Services and an Ingress for each.
func many(n int) inputs.Inputs {
	var in inputs.Inputs
	prefix, class := networkingv1.PathTypePrefix, "hapsnap"
	for i := range n {
		name := fmt.Sprintf("app-%05d", i)
		meta := metav1.ObjectMeta{Namespace: "shop", Name: name}
		in.Services = append(in.Services, inputs.Object[corev1.Service]{
			Ref:   diag.Object{Kind: "Service", Namespace: "shop", Name: name},
			Value: &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}},
		})
		backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: name, Port: networkingv1.ServiceBackendPort{Number: 80}}}
		in.Ingresses = append(in.Ingresses, inputs.Object[networkingv1.Ingress]{
			Ref: diag.Object{Kind: "Ingress", Namespace: "shop", Name: name},
			Value: &networkingv1.Ingress{ObjectMeta: meta, Spec: networkingv1.IngressSpec{
				IngressClassName: &class,
				Rules: []networkingv1.IngressRule{{Host: name + ".example", IngressRuleValue: networkingv1.IngressRuleValue{
					HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix, Backend: backend}}},
				}}},
			}},
		})
	}
	return in
}

// manyRoutes returns the same with a route for each in place of an Ingress, and the Gateway that they are for.
func manyRoutes(n int) inputs.Inputs {
	in := many(n)
	var gw inputs.GatewayAPI
	created := metav1.NewTime(now.Add(-time.Hour))
	gw.Add(&gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "hapsnap"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "hapsnap.dev/gateway-controller"}})
	gw.Add(&gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", CreationTimestamp: created},
		Spec:       gatewayv1.GatewaySpec{GatewayClassName: "hapsnap", Listeners: []gatewayv1.Listener{{Name: "http", Port: 8080, Protocol: gatewayv1.HTTPProtocolType}}},
	})
	for _, ing := range in.Ingresses {
		name := gatewayv1.ObjectName(ing.Ref.Name)
		port := gatewayv1.PortNumber(80)
		route := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: ing.Ref.Name, CreationTimestamp: created}}
		route.Spec.ParentRefs = []gatewayv1.ParentReference{{Name: "web"}}
		route.Spec.Hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(name + ".example")}
		route.Spec.Rules = []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{Name: name, Port: &port}}}}}}
		gw.Add(route)
	}
	in.Ingresses, in.Gateway = nil, gw
	return in
}

// The whole compile of 10,000 Ingresses without reading and storing, beside that of as many HTTPRoutes, and
// haproxy -c on the same bound configuration.
func BenchmarkCompile10k(b *testing.B) {
	check, err := validate.Find(b.Context(), cmp.Or(os.Getenv("HAPROXY"), "haproxy"))
	if err != nil {
		b.Fatal(err)
	}
	files, err := render.Shipped(templates.FS)
	if err != nil {
		b.Fatal(err)
	}
	set, _ := render.Parse(files)
	cfg := config.Default()
	cfg.HTTPS.Port = 0 // binding needs a certificate otherwise
	in := compiler.Input{Objects: many(10000), Config: cfg, Templates: set, Now: now}
	var r compiler.Result
	b.Run("compile-routes", func(b *testing.B) {
		in := in
		in.Objects, in.Config.GatewayAPI.Enabled = manyRoutes(10000), true
		for b.Loop() {
			if r, err = compiler.Compile(b.Context(), in, check); err != nil || len(r.Diagnostics) > 0 {
				b.Fatal(err, r.Diagnostics)
			}
		}
	})
	b.Run("compile", func(b *testing.B) {
		for b.Loop() {
			if r, err = compiler.Compile(b.Context(), in, check); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("haproxy-c", func(b *testing.B) {
		path := stage(b, r.Draft)
		for b.Loop() {
			if out, err := exec.Command(check.Path, "-c", "-f", path).CombinedOutput(); err != nil {
				b.Fatalf("%v\n%s", err, out)
			}
		}
	})
}

// One Ingress changed among 10,000, from the objects in memory to the published
// snapshot, beside haproxy -c on the same bound configuration.
func BenchmarkChange10k(b *testing.B) {
	check, err := validate.Find(b.Context(), cmp.Or(os.Getenv("HAPROXY"), "haproxy"))
	if err != nil {
		b.Fatal(err)
	}
	files, err := render.Shipped(templates.FS)
	if err != nil {
		b.Fatal(err)
	}
	set, _ := render.Parse(files)
	cfg := config.Default()
	cfg.HTTPS.Port = 0 // binding needs a certificate otherwise
	in := compiler.Input{Objects: many(10000), Config: cfg, Templates: set, Now: now, Memo: render.NewMemo()}
	store, n := dirstore.Open(b.TempDir(), dirstore.Options{}), 0
	var r compiler.Result
	var previous snapshots.Snapshot // as the loop knows it
	publish := func() {
		n++
		annotate(in, 5000, "hapsnap.dev/timeout-server", fmt.Sprint(n, "s"))
		if r, err = compiler.Compile(b.Context(), in, check); err != nil {
			b.Fatal(err)
		}
		r.Draft.Subject = compiler.Subject(previous, r)
		id, published, err := store.Publish(b.Context(), r.Draft)
		if err != nil || !published {
			b.Fatal(published, err)
		}
		previous = r.Draft.Seal(id.Revision, previous.ID())
	}
	publish()
	b.Run("change", func(b *testing.B) {
		for b.Loop() {
			publish()
		}
	})
	b.Run("haproxy-c", func(b *testing.B) {
		path := stage(b, r.Draft)
		for b.Loop() {
			if out, err := exec.Command(check.Path, "-c", "-f", path).CombinedOutput(); err != nil {
				b.Fatalf("%v\n%s", err, out)
			}
		}
	})
}

// stage binds a draft without certificates to no endpoints.
func stage(b *testing.B, d snapshots.Draft) string {
	b.Helper()
	dir := b.TempDir()
	s := d.Seal(1, snapshots.ID{})
	slots, err := bind.Placeholder(s)
	if err != nil {
		b.Fatal(err)
	}
	bound, err := bind.Bind(s, bind.Inputs{Slots: slots, Layout: bind.Layout{Maps: dir, Certificates: dir, General: dir}})
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range append(bound.Files, bind.File{Path: filepath.Join(dir, "haproxy.cfg"), Content: bound.Config}) {
		if err := os.WriteFile(f.Path, f.Content, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	return filepath.Join(dir, "haproxy.cfg")
}
