package compiler_test

import (
	"cmp"
	"crypto"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/testing/race"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

// tenants are namespaces whose objects come, change and go. The objects of a name are made anew each time, and name each
// other, whether or not they are there.
type tenants struct {
	r          *rand.Rand
	ingresses  map[string]*networkingv1.Ingress
	services   map[string]*corev1.Service
	secrets    map[string]*corev1.Secret
	configMaps map[string]*corev1.ConfigMap
	keys       [][]byte // certificates with their keys
	public     bool
	standard   bool
}

func newTenants(t *testing.T, seed uint64) *tenants {
	t.Helper()
	w := &tenants{
		r: rand.New(rand.NewPCG(seed, 7)), ingresses: map[string]*networkingv1.Ingress{}, services: map[string]*corev1.Service{},
		secrets: map[string]*corev1.Secret{}, configMaps: map[string]*corev1.ConfigMap{},
	}
	for _, key := range []crypto.Signer{pemtest.ECKey(), pemtest.RSAKey(), pemtest.EdKey} {
		w.keys = append(w.keys, pemtest.Certify(t, "a.example", key, nil), pemtest.KeyPEM(t, key))
	}
	for range 40 {
		w.change()
	}
	return w
}

func pick[T any](w *tenants, of ...T) T { return of[w.r.IntN(len(of))] }

// name is that of an object, of which a namespace has four of each kind.
func (w *tenants) name() string { return fmt.Sprintf("%s/o%d", pick(w, "lab", "shop"), w.r.IntN(4)) }

func metaOf(name string) metav1.ObjectMeta {
	var m metav1.ObjectMeta
	m.Namespace, m.Name, _ = splitName(name)
	m.UID = "1"
	return m
}

// splitName splits NAMESPACE/NAME.
func splitName(name string) (namespace, object string, ok bool) {
	for i := range name {
		if name[i] == '/' {
			return name[:i], name[i+1:], true
		}
	}
	return "", name, false
}

// change makes one object, changes it, or deletes it.
func (w *tenants) change() {
	name, gone := w.name(), w.r.IntN(5) == 0
	switch w.r.IntN(10) {
	case 0, 1, 2, 3:
		putOr(w.ingresses, name, w.ingress(name), gone)
	case 4, 5, 6:
		putOr(w.services, name, w.service(name), gone)
	case 7, 8:
		putOr(w.secrets, name, w.secret(name), gone)
	default:
		putOr(w.configMaps, name, &corev1.ConfigMap{ObjectMeta: metaOf(name), Data: map[string]string{"networks": pick(w, "192.0.2.0/24", "nonsense", "2001:db8::/32\n10.0.0.0/8")}}, gone)
		w.public, w.standard = w.r.IntN(4) == 0, w.r.IntN(2) == 0
	}
}

func putOr[T any](in map[string]*T, name string, value *T, gone bool) {
	if in[name] = value; gone {
		delete(in, name)
	}
}

func (w *tenants) ingress(name string) *networkingv1.Ingress {
	prefix, class := networkingv1.PathTypePrefix, "hapsnap"
	out := &networkingv1.Ingress{ObjectMeta: metaOf(name), Spec: networkingv1.IngressSpec{IngressClassName: &class}}
	out.Annotations = map[string]string{}
	for range w.r.IntN(3) {
		o := pick(w,
			[2]string{"response-headers", "set X-A Pa55w0rD-1x"}, [2]string{"response-headers", "set X-A An0therw0rD"}, [2]string{"auth-basic", fmt.Sprint("o", w.r.IntN(4))},
			[2]string{"allow-list", fmt.Sprintf("@o%d/networks", w.r.IntN(4))}, [2]string{"auth-url", fmt.Sprintf("http://o%d:80/", w.r.IntN(4))},
			[2]string{"rate-limit", "10"}, [2]string{"timeout-server", "soon"}, [2]string{"use-regex", "true"}, [2]string{"aliases", "b.example"},
		)
		out.Annotations["hapsnap.dev/"+o[0]] = o[1]
	}
	for range 1 + w.r.IntN(3) {
		to := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
			Name: fmt.Sprint("o", w.r.IntN(4)), Port: pick(w, networkingv1.ServiceBackendPort{Number: 80}, networkingv1.ServiceBackendPort{Number: 80}, networkingv1.ServiceBackendPort{Name: "http"}, networkingv1.ServiceBackendPort{Name: "web"}),
		}}
		out.Spec.Rules = append(out.Spec.Rules, networkingv1.IngressRule{
			Host: pick(w, "a.example", "b.example", "c.example", "d.example", "*.example", ""),
			IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{Path: pick(w, "/", "/a", "/b", "/a/b", "/[0-9]+"), PathType: &prefix, Backend: to}},
			}},
		})
	}
	if w.r.IntN(2) == 0 {
		out.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{pick(w, "a.example", "b.example")}, SecretName: fmt.Sprint("o", w.r.IntN(4))}}
	}
	return out
}

func (w *tenants) service(name string) *corev1.Service {
	out := &corev1.Service{ObjectMeta: metaOf(name)}
	out.Spec.Ports = []corev1.ServicePort{{Name: pick(w, "http", "http", "web"), Port: pick[int32](w, 80, 80, 80, 81)}}
	switch w.r.IntN(6) {
	case 0:
		out.Spec.Type, out.Spec.ExternalName = corev1.ServiceTypeExternalName, pick(w, "api.partner.example", "127.0.0.1")
	case 1:
		out.Annotations = map[string]string{"hapsnap.dev/" + pick(w, "balance", "backend-protocol"): pick(w, "leastconn", "h2")}
	}
	return out
}

func (w *tenants) secret(name string) *corev1.Secret {
	out := &corev1.Secret{ObjectMeta: metaOf(name)}
	switch i := 2 * w.r.IntN(3); w.r.IntN(5) {
	case 0:
		out.Data = map[string][]byte{"auth": []byte(pick(w, "a:$5$rounds=1000$hapsnap$...........................................\n", "nonsense"))}
	case 1, 2:
		out.Data = map[string][]byte{"password": []byte(pick(w, "Pa55w0rD-1x", "An0therw0rD"))}
	default:
		out.Type, out.Data = corev1.SecretTypeTLS, map[string][]byte{"tls.crt": w.keys[i], "tls.key": w.keys[i+1]}
	}
	return out
}

// ordered returns objects in some order.
func ordered[T any](w *tenants, kind string, of map[string]*T) (out []inputs.Object[T]) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		namespace, object, _ := splitName(name)
		out = append(out, inputs.Object[T]{Ref: diag.Object{Kind: kind, Namespace: namespace, Name: object}, Value: of[name]})
	}
	if w.r.IntN(4) == 0 {
		w.r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	}
	return out
}

// Whatever comes, changes and goes, a compile with all memories and a HAProxy that has checked before equals one without: every
// byte, every diagnostic, and every name that it looked for.
func TestMemoriesOfTenants(t *testing.T) {
	t.Parallel()
	haproxy := cmp.Or(os.Getenv("HAPROXY"), "haproxy")
	keeping, err := validate.Find(t.Context(), haproxy)
	if err != nil {
		t.Fatal(err)
	}
	defer keeping.Reuse()()
	w, memories := newTenants(t, 9), compiler.NewMemories()
	leaks, steps := 0, 30
	if race.Enabled {
		steps = 6
	}
	for step := range steps {
		for range 1 + w.r.IntN(3) {
			w.change()
		}
		input := inputOf(t, inputs.Inputs{
			Ingresses: ordered(w, "Ingress", w.ingresses), Services: ordered(w, "Service", w.services),
			Secrets: ordered(w, "Secret", w.secrets), ConfigMaps: ordered(w, "ConfigMap", w.configMaps),
		})
		input.Now = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
		if w.public {
			input.Config.PublicSecrets = []string{"shop/o1", "lab/o2"}
		}
		if w.standard {
			input.Config.HTTPS.DefaultCertificate = "shop/o0"
		}
		afresh, err := validate.Find(t.Context(), haproxy)
		if err != nil {
			t.Fatal(err)
		}
		fresh, freshErr := compiler.Compile(t.Context(), input, afresh)
		input.Memories = memories
		got, err := compiler.Compile(t.Context(), input, keeping)
		if (err == nil) != (freshErr == nil) || !reflect.DeepEqual(got, fresh) {
			t.Fatalf("step %d: %v, %v, (-afresh +remembered):\n%s", step, freshErr, err, gocmp.Diff(fresh, got))
		}
		if strings.Contains(fmt.Sprint(got.Diagnostics), "would hold the value of Secret") {
			leaks++
		}
	}
	made, reused := memories.Claims.Counts()
	t.Logf("%d of %d compiles found values of Secrets; %d claims were made, and %d used again", leaks, steps, made, reused)
	if !race.Enabled && (leaks == 0 || leaks == steps || reused < made) {
		t.Error("the test is worth little")
	}
}
