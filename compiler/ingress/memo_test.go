package ingress_test

import (
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/modeltest"
	"github.com/hapsnap/hapsnap/internal/testing/race"
	"github.com/hapsnap/hapsnap/snapshots"
)

// same reports the differences of two translations.
func same(t *testing.T, about string, a, b routing.Model, afound, bfound []diag.Diagnostic) {
	t.Helper()
	if !reflect.DeepEqual(a, b) || !reflect.DeepEqual(afound, bfound) {
		all := gocmp.Exporter(func(reflect.Type) bool { return true })
		t.Fatalf("%s (-want +got)\n%s\n%s", about, gocmp.Diff(afound, bfound), gocmp.Diff(a, b, all))
	}
}

// change changes something on which an Ingress may depend. It replaces values, as reading objects does.
func (m maker) change(in *inputs.Inputs, cfg *ingress.Config) string {
	files := len(in.Services) > 0 && in.Services[0].At != nil
	switch n := m.IntN(12); n {
	case 0, 1: // another Ingress, or the same one with other content
		i := m.IntN(len(in.Ingresses))
		old := in.Ingresses[i]
		in.Ingresses = slices.Clone(in.Ingresses)
		in.Ingresses[i] = m.ingress(old.Ref.Namespace, old.Ref.Name, files)
		in.Ingresses[i].Value.UID, in.Ingresses[i].Value.ResourceVersion = old.Value.UID, old.Value.ResourceVersion
		return "Ingress " + old.Ref.String()
	case 2:
		return "Service " + replace(m, &in.Services, func(ns, name string) inputs.Object[corev1.Service] { return m.service(ns, name, files) })
	case 3:
		return "Service's options " + replaceOne(m, &in.Services, func(s *corev1.Service) {
			s.Annotations = maps.Clone(s.Annotations)
			m.annotate(s.Annotations, "hapsnap.dev/", serviceOptions, 2)
		})
	case 4:
		return "Secret " + replace(m, &in.Secrets, func(ns, name string) inputs.Object[corev1.Secret] { return m.secret(ns, name, files) })
	case 5:
		return "ConfigMap " + replace(m, &in.ConfigMaps, func(ns, name string) inputs.Object[corev1.ConfigMap] { return m.configMap(ns, name, files) })
	case 6:
		return "class " + replaceOne(m, &in.Classes, func(c *networkingv1.IngressClass) {
			other := m.class(c.Name, m.pick(ingress.DefaultControllerClass, "other.example"), m.one(2), files).Value
			c.Spec, c.Annotations = other.Spec, other.Annotations
		})
	case 7: // as after a change of a namespace's labels, so that it is no longer selected
		namespace := m.pick(namespaces...)
		in.Services = slices.DeleteFunc(slices.Clone(in.Services), func(o inputs.Object[corev1.Service]) bool { return o.Ref.Namespace == namespace })
		if kept := slices.DeleteFunc(slices.Clone(in.Ingresses), func(o inputs.Object[networkingv1.Ingress]) bool { return o.Ref.Namespace == namespace }); len(kept) > 0 {
			in.Ingresses = kept
		}
		return "namespace " + namespace
	case 8:
		namespace, name := m.pick(namespaces...), m.pick("web", "api", "tls")
		in.Services = slices.DeleteFunc(slices.Clone(in.Services), func(o inputs.Object[corev1.Service]) bool { return o.Ref.Namespace == namespace && o.Ref.Name == name })
		in.Services = append(in.Services, m.service(namespace, name, files))
		return "new Service " + namespace + "/" + name
	case 9: // one field of the configuration
		made := m.config(*in)
		from, to := reflect.ValueOf(made), reflect.ValueOf(cfg).Elem()
		i := m.IntN(to.NumField())
		to.Field(i).Set(from.Field(i))
		return "configuration: " + to.Type().Field(i).Name
	case 10:
		switch m.IntN(6) {
		case 0:
			cfg.Paths.Normalize = !cfg.Paths.Normalize
		case 1:
			cfg.Snippets = config.Namespaces{m.pick(namespaces...)}
		case 2:
			cfg.IgnoreForeign = !cfg.IgnoreForeign
		case 3:
			cfg.TrustsForwarded = !cfg.TrustsForwarded
		case 4:
			cfg.SharedAuthServices = []string{m.pick("n1/api", "n2/api", "n1/none")}
		case 5:
			cfg.ExternalNames.Refuse = !cfg.ExternalNames.Refuse
		}
		return "configuration"
	}
	return "nothing"
}

// replace replaces an object, or removes it.
func replace[T any](m maker, objects *[]inputs.Object[T], made func(namespace, name string) inputs.Object[T]) string {
	if len(*objects) == 0 {
		return "none"
	}
	out := slices.Clone(*objects)
	i := m.IntN(len(out))
	ref := out[i].Ref
	if m.one(3) {
		out = slices.Delete(out, i, i+1)
	} else {
		out[i] = made(ref.Namespace, ref.Name)
	}
	*objects = out
	return ref.String()
}

// replaceOne replaces an object by a changed copy.
func replaceOne[T any](m maker, objects *[]inputs.Object[T], change func(*T)) string {
	if len(*objects) == 0 {
		return "none"
	}
	out := slices.Clone(*objects)
	i := m.IntN(len(out))
	value := *out[i].Value
	change(&value)
	out[i].Value = &value
	*objects = out
	return out[i].Ref.String()
}

// A translation with remembered claims equals one without, whatever has changed about the objects on which an
// Ingress depends.
func TestMemoIsNeverStale(t *testing.T) {
	t.Parallel()
	var made, reused int64
	for seed := range uint64(30) {
		m := newMaker(seed)
		in, cfg := m.world()
		memo := ingress.NewMemo()
		about := "at first"
		for step := range 10 {
			want, wanted := ingress.Translate(in, cfg)
			got, found := memo.Translate(in, cfg)
			same(t, fmt.Sprintf("seed %d, step %d, after %s", seed, step, about), want, got, wanted, found)
			about = m.change(&in, &cfg)
			if m.one(3) { // a review of an object that is never stored
				draft, with := in, cfg
				_ = m.change(&draft, &with)
				want, wanted := ingress.Translate(draft, with)
				got, found := memo.Reader().Translate(draft, with)
				same(t, fmt.Sprintf("seed %d, step %d, in a review", seed, step), want, got, wanted, found)
			}
		}
		m1, m2 := memo.Counts()
		made, reused = made+m1, reused+m2
	}
	if reused < made {
		t.Errorf("%d claims were made, and only %d used again: the test tests little", made, reused)
	}
}

// Of many Ingresses, only the changed one is read, and those affected by a change of a Service.
func TestOneChangeIsOneClaim(t *testing.T) {
	t.Parallel()
	const n = 1500
	var in inputs.Inputs
	for i := range n {
		in.Ingresses = append(in.Ingresses, ingressOf(fmt.Sprint("web", i), i))
		in.Services = append(in.Services, newMaker(1).service("shop", fmt.Sprint("web", i), false))
	}
	memo, cfg := ingress.NewMemo(), ingress.Config{WatchWithoutClass: true, Paths: config.Default().Paths}
	expect := func(about string, made, reused int64) {
		t.Helper()
		before, beforeReused := memo.Counts()
		memo.Translate(in, cfg)
		after, afterReused := memo.Counts()
		if after-before != made || afterReused-beforeReused != reused {
			t.Errorf("%s: %d claims were made and %d used again, want %d and %d", about, after-before, afterReused-beforeReused, made, reused)
		}
	}
	expect("at first", n, 0)
	expect("nothing changed", 0, n)
	changed := *in.Ingresses[700].Value
	changed.Annotations = map[string]string{"hapsnap.dev/balance": "leastconn"}
	in.Ingresses[700].Value = &changed
	expect("one Ingress changed", 1, n-1)
	service := *in.Services[3].Value
	service.Annotations = map[string]string{"hapsnap.dev/balance": "leastconn"}
	in.Services[3].Value = &service
	expect("one Service changed", 1, n-1)
	in.Secrets = append(in.Secrets, newMaker(1).secret("shop", "tls", false))
	cfg.Refused = map[diag.Object]bool{in.Ingresses[5].Ref: true}
	expect("one Ingress is refused", 0, n-1)
	cfg.Refused = nil
	expect("it is not any more", 1, n-1)
	cfg.TrustsForwarded = true
	expect("the configuration changed", n, 0)
	in.Ingresses = in.Ingresses[:10]
	expect("most are gone", 0, 10)
}

// Certificates of unchanged Secrets are not read again: reading a key takes a hundred times as long as the
// claims of an Ingress.
func TestCertificatesAreReadOnce(t *testing.T) {
	const n = 60
	var in inputs.Inputs
	for i := range n {
		ing := ingressOf(fmt.Sprint("web", i), i)
		ing.Value.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{fmt.Sprintf("h%d.example", i)}, SecretName: fmt.Sprint("tls", i)}}
		in.Ingresses = append(in.Ingresses, ing)
		in.Secrets = append(in.Secrets, newMaker(1).secret("shop", fmt.Sprint("tls", i), false))
	}
	memo, cfg := ingress.NewMemo(), ingress.Config{WatchWithoutClass: true, Paths: config.Default().Paths}
	first, _ := memo.Translate(in, cfg)
	if len(first.Certificates) != n || first.Certificates[0].Observed == nil {
		t.Fatalf("%d certificates", len(first.Certificates))
	}
	again := testing.AllocsPerRun(3, func() { memo.Translate(in, cfg) })
	afresh := testing.AllocsPerRun(3, func() { ingress.Translate(in, cfg) })
	if perCertificate := (afresh - again) / n; perCertificate < 100 {
		t.Errorf("%.0f allocations without what is remembered, %.0f with it: %.0f a certificate", afresh, again, perCertificate)
	}
	in.Secrets[7] = newMaker(1).secret("shop", "bad-tls", false)
	in.Secrets[7].Ref.Name, in.Secrets[7].Value.Name = "tls7", "tls7"
	if _, found := memo.Translate(in, cfg); !slices.ContainsFunc(found, func(d diag.Diagnostic) bool { return d.Object.Name == "tls7" }) {
		t.Errorf("the Secret that was replaced is not read: %v", found)
	}
}

// What is remembered of an Ingress, and what another translation takes beside that, stays small: a compiler holds the former for all
// Ingresses, and at its peak twice the latter.
func TestLittleIsRemembered(t *testing.T) {
	const n = 2000
	in := inputs.Inputs{Services: []inputs.Object[corev1.Service]{plainService("shop", "web")}}
	for i := range n {
		ing := ingressOf("web", i)
		ing.Value.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{fmt.Sprintf("h%d.example.com", i)}, SecretName: "tls"}}
		in.Ingresses = append(in.Ingresses, ing)
	}
	memo, cfg := ingress.NewMemo(), ingress.Config{WatchWithoutClass: true, Paths: config.Default().Paths}
	before := memory()
	if model, _ := memo.Translate(in, cfg); len(model.Hosts) != n {
		t.Fatalf("%d hosts", len(model.Hosts))
	}
	held := memory()
	model, _ := memo.Translate(in, cfg)
	after := memory()
	if _, reused := memo.Counts(); reused != n || len(model.Hosts) != n {
		t.Fatalf("%d claims were used again, for %d hosts", reused, len(model.Hosts))
	}
	if each := (held.HeapAlloc - before.HeapAlloc) / n; each > 2500 {
		t.Errorf("%d bytes are remembered of an Ingress", each)
	}
	most := uint64(4500)
	if race.Enabled {
		most = 6000
	}
	if each := (after.TotalAlloc - held.TotalAlloc) / n; each > most {
		t.Errorf("%d bytes are allocated for an Ingress that is the same", each)
	}
}

// memory returns the figures after a garbage collection.
func memory() (m runtime.MemStats) {
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}

// Reviews and compiles may use one Memo at the same time.
func TestMemoIsShared(t *testing.T) {
	t.Parallel()
	m := newMaker(5)
	in, cfg := m.world()
	cfg.Refused, cfg.Dropped = nil, nil
	standard := m.secret("n1", "standard", false)
	in.Secrets, cfg.DefaultCertificate = append(in.Secrets, standard), snapshots.SecretName{Namespace: "n1", Name: "standard"}
	want, wanted := ingress.Translate(in, cfg)
	memo := ingress.NewMemo()
	var done sync.WaitGroup
	for i := range 6 {
		done.Add(1)
		go func() {
			defer done.Done()
			use := memo
			if i%2 == 0 {
				use = memo.Reader()
			}
			for range 10 {
				if got, found := use.Translate(in, cfg); !reflect.DeepEqual(got, want) || !reflect.DeepEqual(found, wanted) {
					t.Error("another result")
				}
			}
		}()
	}
	done.Wait()
}

// The order of objects does not matter.
func TestWorldsIgnoreOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		m := newMaker(seed)
		in, cfg := m.world()
		want, wanted := ingress.Translate(in, cfg)
		if err := modeltest.Check(want); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		shuffle(m.Rand, &in)
		got, found := ingress.Translate(in, cfg)
		same(t, fmt.Sprint("seed ", seed), want, got, wanted, found)
	}
}

// An Ingress with a mistake changes nothing for others.
func TestMistakeHarmsNobodyElse(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		m := newMaker(seed)
		in, cfg := m.world()
		in.Services = slices.DeleteFunc(in.Services, func(o inputs.Object[corev1.Service]) bool { return o.Ref.Name == "none" })
		want, wanted := ingress.Translate(in, cfg)
		bad := m.ingress("n3", "zz", false)
		bad.Value.CreationTimestamp = metav1.Time{} // younger than all others
		class := "hapsnap"
		bad.Value.Spec.IngressClassName, bad.Value.Spec.TLS, bad.Value.Spec.DefaultBackend = &class, nil, nil
		bad.Value.Annotations = nil
		for i := range bad.Value.Spec.Rules {
			bad.Value.Spec.Rules[i].Host = "bad.test"
		}
		bad.Value.Spec.Rules = append(bad.Value.Spec.Rules, networkingv1.IngressRule{Host: "not a host"})
		in.Ingresses = append(in.Ingresses, bad)
		got, found := ingress.Translate(in, cfg)
		found = slices.DeleteFunc(found, func(d diag.Diagnostic) bool { return d.Object == bad.Ref })
		got.Hosts = slices.DeleteFunc(got.Hosts, func(h routing.Host) bool { return h.Name == "bad.test" })
		got.Closed = slices.DeleteFunc(got.Closed, func(o diag.Object) bool { return o == bad.Ref })
		for i, b := range got.Backends { // the backend of everything closed
			got.Backends[i].Origins = slices.DeleteFunc(b.Origins, func(o routing.Origin) bool { return o.Object == bad.Ref })
		}
		got.Backends = slices.DeleteFunc(got.Backends, func(b routing.Backend) bool { return len(b.Origins) == 0 })
		if len(got.Hosts) == 0 {
			got.Hosts = nil
		}
		if len(got.Backends) == 0 {
			got.Backends = nil
		}
		if len(got.Closed) == 0 {
			got.Closed = nil
		}
		same(t, fmt.Sprint("seed ", seed), want, got, wanted, found)
	}
}

// Everything on which claims depend changes their result, with and without a memory.
func TestMemoKnowsWhatClaimsDependOn(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		annotations map[string]string
		change      func(in *inputs.Inputs, cfg *ingress.Config)
	}{
		"paths":            {nil, func(_ *inputs.Inputs, c *ingress.Config) { c.Paths.Normalize = false }},
		"snippets":         {map[string]string{options.SnippetOption: "http-request deny"}, func(_ *inputs.Inputs, c *ingress.Config) { c.Snippets = config.Namespaces{"n1"} }},
		"external names":   {nil, func(_ *inputs.Inputs, c *ingress.Config) { c.ExternalNames.Refuse = true }},
		"shared auth":      {map[string]string{"auth-url": "http://web.n2:80/"}, func(_ *inputs.Inputs, c *ingress.Config) { c.SharedAuthServices = []string{"n2/web"} }},
		"foreign":          {map[string]string{"nginx.ingress.kubernetes.io/auth-url": "http://x"}, func(_ *inputs.Inputs, c *ingress.Config) { c.IgnoreForeign = true }},
		"trusted networks": {map[string]string{"forwarded-for": "append"}, func(_ *inputs.Inputs, c *ingress.Config) { c.TrustsForwarded = true }},
		"ports": {nil, func(in *inputs.Inputs, _ *ingress.Config) {
			replaceAt(in.Services, 0, func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{{Port: 81}} })
		}},
		"options of a Service": {nil, func(in *inputs.Inputs, _ *ingress.Config) {
			replaceAt(in.Services, 0, func(s *corev1.Service) { s.Annotations = map[string]string{"hapsnap.dev/balance": "leastconn"} })
		}},
		"a Service that is gone": {nil, func(in *inputs.Inputs, _ *ingress.Config) { in.Services = in.Services[1:] }},
		"a Service that is asked": {map[string]string{"auth-url": "http://auth:80/"}, func(in *inputs.Inputs, _ *ingress.Config) {
			in.Services = append(slices.Clone(in.Services), plainService("n1", "auth"))
		}},
		"a Secret": {map[string]string{"auth-basic": "users"}, func(in *inputs.Inputs, _ *ingress.Config) {
			in.Secrets = append(slices.Clone(in.Secrets), newMaker(1).secret("n1", "users", false))
		}},
		"a list": {map[string]string{"allow-list": "@nets/a"}, func(in *inputs.Inputs, _ *ingress.Config) {
			in.ConfigMaps = append(slices.Clone(in.ConfigMaps), newMaker(1).configMap("n1", "nets", false))
		}},
		"parameters": {nil, func(in *inputs.Inputs, _ *ingress.Config) {
			replaceAt(in.ConfigMaps, 0, func(c *corev1.ConfigMap) { c.Data = map[string]string{"balance": "leastconn"} })
		}},
		"parameters that are gone": {nil, func(in *inputs.Inputs, _ *ingress.Config) { in.ConfigMaps = nil }},
		"a class": {nil, func(in *inputs.Inputs, _ *ingress.Config) {
			replaceAt(in.Classes, 0, func(c *networkingv1.IngressClass) { c.Spec.Parameters = nil })
		}},
		"limits": {nil, func(_ *inputs.Inputs, c *ingress.Config) { c.Limits.IngressRoutes = 1 }},
		"a refusal": {map[string]string{"allow-list": "10.0.0.0/8"}, func(in *inputs.Inputs, c *ingress.Config) {
			c.Refused = map[diag.Object]bool{in.Ingresses[0].Ref: true}
		}},
		// A review of an update has the object's version with other content.
		"content of one version": {nil, func(in *inputs.Inputs, _ *ingress.Config) {
			replaceAt(in.Ingresses, 0, func(i *networkingv1.Ingress) { i.Annotations = map[string]string{"hapsnap.dev/balance": "leastconn"} })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in, cfg := smallWorld(row.annotations)
			memo := ingress.NewMemo()
			before, beforeFound := memo.Translate(in, cfg)
			row.change(&in, &cfg)
			want, wanted := ingress.Translate(in, cfg)
			if reflect.DeepEqual(before, want) && reflect.DeepEqual(beforeFound, wanted) {
				t.Error("nothing depends on it")
			}
			got, found := memo.Reader().Translate(in, cfg)
			same(t, "a review", want, got, wanted, found)
			got, found = memo.Translate(in, cfg)
			same(t, "a compile", want, got, wanted, found)
		})
	}
}

func replaceAt[T any](objects []inputs.Object[T], i int, change func(*T)) {
	value := *objects[i].Value
	change(&value)
	objects[i].Value = &value
}

func plainService(namespace, name string) inputs.Object[corev1.Service] {
	return named("Service", namespace, name, &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
}

// smallWorld is an Ingress with options, and what it refers to: two Services, one of them outside of the
// cluster, and a class with parameters.
func smallWorld(annotations map[string]string) (inputs.Inputs, ingress.Config) {
	class, prefix, namespace, scope := "hapsnap", networkingv1.PathTypePrefix, "n1", networkingv1.IngressClassParametersReferenceScopeNamespace
	ing := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "7", Annotations: map[string]string{}}, Spec: networkingv1.IngressSpec{IngressClassName: &class}}
	for name, value := range annotations {
		if !strings.Contains(name, "/") {
			name = options.Prefix + name
		}
		ing.Annotations[name] = value
	}
	var paths []networkingv1.HTTPIngressPath
	for _, name := range []string{"web", "outside"} {
		paths = append(paths, networkingv1.HTTPIngressPath{Path: "/a;b/" + name, PathType: &prefix, Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: name, Port: networkingv1.ServiceBackendPort{Number: 80}}}})
	}
	ing.Spec.Rules = []networkingv1.IngressRule{{Host: "a.example", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: paths}}}}
	outside := plainService("n1", "outside")
	outside.Value.Spec.Type, outside.Value.Spec.ExternalName = corev1.ServiceTypeExternalName, "partner.example"
	in := inputs.Inputs{
		Ingresses:  []inputs.Object[networkingv1.Ingress]{named("Ingress", "n1", "web", ing)},
		Services:   []inputs.Object[corev1.Service]{plainService("n1", "web"), outside, plainService("n2", "web")},
		ConfigMaps: []inputs.Object[corev1.ConfigMap]{named("ConfigMap", "n1", "parameters", &corev1.ConfigMap{Data: map[string]string{"balance": "first"}})},
		Classes: []inputs.Object[networkingv1.IngressClass]{named("IngressClass", "", "hapsnap", &networkingv1.IngressClass{Spec: networkingv1.IngressClassSpec{
			Controller: ingress.DefaultControllerClass,
			Parameters: &networkingv1.IngressClassParametersReference{Kind: "ConfigMap", Name: "parameters", Namespace: &namespace, Scope: &scope},
		}})},
	}
	return in, ingress.Config{Paths: config.Default().Paths}
}
