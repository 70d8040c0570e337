package compiler

import (
	"context"
	"crypto/x509"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/testing/worlds"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
	"github.com/hapsnap/hapsnap/templates"
)

func TestRateLimitsCountFewerClients(t *testing.T) {
	t.Parallel()
	limits := config.Default().Limits
	for _, x := range []struct {
		name   string
		has    map[string]int // limits of each namespace
		limits config.Limits
		want   map[string]int // how many clients each of them counts
		says   []string
	}{
		{"they fit", map[string]int{"a": 4, "b": 4}, limits, map[string]int{}, nil},
		{"too many of a namespace", map[string]int{"a": 5, "b": 1}, limits, map[string]int{"a": 50_000}, nil},
		{"one more changes nothing", map[string]int{"a": 6, "b": 1}, limits, map[string]int{"a": 50_000}, nil},
		{"many more", map[string]int{"a": 33, "b": 1}, limits, map[string]int{"a": 6250}, []string{
			"a/a-32: namespace a has rate limits for 33 backends, so each of them counts 6250 clients at a time instead of 100000: those of a namespace may count 400000 together",
		}},
		{"too many of all", map[string]int{"a": 4, "b": 4, "c": 30, "d": 1}, config.Limits{CountedClients: 250_000}, map[string]int{"a": 12_500, "b": 12_500, "c": 1562, "d": 50_000}, []string{
			"/: the rate limits of 30 backends count as few as 1562 clients at a time instead of 100000, since those of all namespaces may count 250000 together: they are in c",
		}},
		{"one warning for all", map[string]int{"a": 20, "b": 20, "c": 9}, config.Limits{CountedClients: 100_000}, map[string]int{"a": 1562, "b": 1562, "c": 3125}, []string{
			"/: the rate limits of 49 backends count as few as 1562 clients at a time instead of 100000, since those of all namespaces may count 100000 together: they are in a, b, c",
		}},
		{"no limits", map[string]int{"a": 50}, config.Limits{}, map[string]int{}, nil},
		{"as few as they may", map[string]int{"a": 10_000}, limits, map[string]int{"a": leastCounted}, []string{"a/a-9999: "}},
	} {
		var backends []routing.Backend
		ages := map[diag.Object]time.Time{}
		for _, namespace := range []string{"a", "b", "c", "d"} {
			for i := range x.has[namespace] {
				object := diag.Object{Kind: "HTTPRoute", Namespace: namespace, Name: fmt.Sprintf("%s-%d", namespace, i)}
				ages[object] = time.Unix(int64(i), 0)
				backends = append(backends, routing.Backend{
					Name: object.Name, Protection: &policy.Protection{MaxBody: 7, Rate: &policy.RateLimit{Requests: 3}},
					Origins: []routing.Origin{{Object: diag.Object{Kind: "Gateway", Namespace: "edge", Name: "all"}}, {Object: object}},
				}, routing.Backend{Name: "free-" + object.Name, Protection: &policy.Protection{}})
			}
		}
		before := fmt.Sprint(backends[0].Protection.Rate, x.has)
		got, found := countFewer(backends, x.limits, func() map[diag.Object]time.Time { return ages })
		if fmt.Sprint(backends[0].Protection.Rate, x.has) != before {
			t.Errorf("%s: the given backends, which claims share, were changed", x.name)
		}
		for _, b := range got {
			if b.Protection.Rate == nil {
				continue
			}
			want := policy.Protection{MaxBody: 7, Rate: &policy.RateLimit{Requests: 3, Counted: x.want[b.Name[:1]]}}
			if !reflect.DeepEqual(*b.Protection, want) {
				t.Fatalf("%s: %s has %+v, want %d", x.name, b.Name, *b.Protection.Rate, want.Rate.Counted)
			}
		}
		if len(found) != len(x.says) {
			t.Fatalf("%s: reported %v", x.name, found)
		}
		for i, d := range found {
			if says := d.Object.Namespace + "/" + d.Object.Name + ": " + d.Message; !strings.HasPrefix(says, x.says[i]) || d.Severity != diag.Warning {
				t.Errorf("%s: %q, want %q", x.name, says, x.says[i])
			}
		}
	}
}

// The tables of what is compiled fit, and the report says so.
func TestTablesOfANamespaceFit(t *testing.T) {
	t.Parallel()
	in := worlds.Ingresses(40)
	for _, ing := range in.Ingresses {
		ing.Value.Annotations = map[string]string{"hapsnap.dev/rate-limit": "5"}
	}
	r, _ := published(t, in)
	text := ""
	for _, f := range r.Artifact.Files {
		if f.Path == snapshots.ConfigFile {
			text = string(f.Content)
		}
	}
	full, fewer := strings.Count(text, " size 100000 "), strings.Count(text, " size 6250 ")
	if full != 0 || fewer == 0 {
		t.Errorf("%d full tables, %d smaller ones", full, fewer)
	}
	for _, d := range r.Diagnostics {
		if strings.Contains(d.Message, "counts 6250 clients") {
			return
		}
	}
	t.Errorf("reported %v", r.Diagnostics)
}

// content is a check that accepts everything.
type content struct{}

func (content) Check(context.Context, validate.Input) (validate.Verdict, error) {
	return validate.Verdict{}, nil
}

// withTLS adds an Ingress with tls entries, each of a host and a Secret.
func withTLS(in *inputs.Inputs, name string, age time.Duration, secrets ...string) {
	class := "hapsnap"
	ing := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{
		Namespace: "evil", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1_000_000, 0).Add(-age)),
	}}
	ing.Spec.IngressClassName = &class
	for _, secret := range secrets {
		ing.Spec.TLS = append(ing.Spec.TLS, networkingv1.IngressTLS{Hosts: []string{secret[len(secret)-11:] + ".example"}, SecretName: secret})
	}
	ing.Spec.DefaultBackend = &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}}
	in.Ingresses = append(in.Ingresses, inputs.Object[networkingv1.Ingress]{Ref: diag.Object{Kind: "Ingress", Namespace: "evil", Name: name}, Value: ing})
}

// published compiles, and returns the result with the manifest of the snapshot.
func published(t *testing.T, in inputs.Inputs, edits ...func(*config.Config)) (Result, []byte) {
	t.Helper()
	files, err := render.Shipped(templates.FS)
	if err != nil {
		t.Fatal(err)
	}
	set, _ := render.Parse(files)
	cfg := config.Default()
	cfg.TrustFileAges = true
	for _, edit := range edits {
		edit(&cfg)
	}
	r, err := Compile(t.Context(), Input{Objects: in, Config: cfg, Templates: set, Now: time.Unix(0, 0)}, content{})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := r.Draft.Number(1, snapshots.ID{}).Manifest.Marshal()
	if err != nil {
		t.Fatal("nothing can be published: ", err)
	}
	return r, manifest
}

// A namespace that names more certificates than a manifest has room for loses its youngest objects, and everything else
// is published.
func TestReferencesFitIntoTheManifest(t *testing.T) {
	t.Parallel()
	in := worlds.Ingresses(10)
	long := strings.Repeat("s", 200)
	for n, age := range []time.Duration{3 * time.Hour, time.Hour, 2 * time.Hour} {
		var secrets []string
		for i := range 9000 {
			secrets = append(secrets, fmt.Sprintf("%s-%d%010d", long, n, i))
		}
		withTLS(&in, fmt.Sprint("i", n), age, secrets...)
	}
	r, _ := published(t, in)
	var left []string
	for _, q := range r.Draft.Quarantined {
		left = append(left, q.Namespace+"/"+q.Name)
	}
	slices.Sort(left)
	if got, want := strings.Join(left, " "), "evil/i1 evil/i2"; got != want {
		t.Errorf("left out are %s, want %s", got, want)
	}
	if len(r.Draft.Certificates) < 9000 {
		t.Errorf("%d certificates are left, and those of the oldest Ingress fit", len(r.Draft.Certificates))
	}
}

// A namespace that names more certificates than it may loses its youngest objects, also if they protect something. A
// certificate counts once, however many objects name it.
func TestCertificatesOfANamespace(t *testing.T) {
	t.Parallel()
	for protected, want := range map[bool]string{
		false: "is left out: with it namespace evil would name 18 certificates, and may name 12",
		true:  "its routes are not even closed, since what they say is refused too; what else namespace evil serves for its hosts answers 503",
	} {
		in := worlds.Ingresses(10)
		var shared []string
		for n, age := range []time.Duration{3 * time.Hour, time.Hour, 2 * time.Hour} {
			var secrets []string
			for i := range 6 {
				secrets = append(secrets, fmt.Sprintf("secret-%d%010d", n, i))
			}
			if n == 0 {
				shared = secrets
			}
			withTLS(&in, fmt.Sprint("i", n), age, append(secrets, shared[:3]...)...)
			if protected {
				in.Ingresses[len(in.Ingresses)-1].Value.Annotations = map[string]string{"hapsnap.dev/allow-list": "10.0.0.0/8"}
			}
		}
		r, _ := published(t, in, func(c *config.Config) { c.Limits.NamespaceCertificates = 12 })
		var left []string
		for _, q := range r.Draft.Quarantined {
			left = append(left, q.Name+": "+q.Reason)
		}
		if got, want := strings.Join(left, "\n"), "i1: "+want; got != want {
			t.Errorf("protected %v: left out is\n%s\nwant\n%s", protected, got, want)
		}
	}
}

// An object that names more than all objects of its namespace may name is left out itself, and not the younger ones, nor
// one without which the namespace names as many.
func TestCertificatesOfOneObject(t *testing.T) {
	t.Parallel()
	named := func(n, many int) (secrets []string) {
		for i := range many {
			secrets = append(secrets, fmt.Sprintf("secret-%d%010d", n, i))
		}
		return secrets
	}
	for _, x := range []struct {
		name string
		of   [][]string // the Secrets of each Ingress, the oldest first
		want string
	}{
		{"the oldest alone has too many", [][]string{named(0, 9), named(1, 2), named(2, 3)}, "i0"},
		{"one in the middle", [][]string{named(0, 2), named(1, 9), named(2, 3)}, "i1"},
		{"the youngest", [][]string{named(0, 2), named(1, 3), named(2, 9)}, "i2"},
		{"the youngest names what others name", [][]string{named(0, 5), named(1, 5), named(0, 1)}, "i1"},
	} {
		in := worlds.Ingresses(1)
		for n, secrets := range x.of {
			withTLS(&in, fmt.Sprint("i", n), time.Duration(9-n)*time.Hour, secrets...)
			ing := in.Ingresses[len(in.Ingresses)-1].Value
			ing.Annotations = map[string]string{"hapsnap.dev/client-ca-secret": "ca"}
			ing.Spec.DefaultBackend = nil
			for _, tls := range ing.Spec.TLS {
				ing.Spec.Rules = append(ing.Spec.Rules, networkingv1.IngressRule{Host: fmt.Sprintf("%d.%s", n, tls.Hosts[0])})
			}
		}
		r, _ := published(t, in, func(c *config.Config) { c.Limits.NamespaceCertificates = 8 })
		var left []string
		for _, q := range r.Draft.Quarantined {
			left = append(left, q.Name)
			t.Log(x.name, q.Name, q.Reason)
		}
		if got := strings.Join(left, " "); got != x.want {
			t.Errorf("%s: left out are %q, want %q", x.name, got, x.want)
		}
	}
}

// Authorities count for the time that HAProxy takes to read them, once, and at each host that uses them.
func TestAuthoritiesOfANamespace(t *testing.T) {
	t.Parallel()
	in := worlds.Ingresses(1)
	authorities := strings.Repeat(string(pemtest.Certify(t, "ca", pemtest.ECKey(), nil)), 400)
	in.Secrets = append(in.Secrets, inputs.Object[corev1.Secret]{
		Ref:   diag.Object{Kind: "Secret", Namespace: "evil", Name: "ca"},
		Value: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "evil", Name: "ca"}, StringData: map[string]string{"ca.crt": authorities}},
	})
	hosts, read := 50, 1+len(authorities)/bytesToRead
	withTLS(&in, "i", 0, "secret-00000000000")
	evil := in.Ingresses[len(in.Ingresses)-1].Value
	evil.Annotations = map[string]string{"hapsnap.dev/client-ca-secret": "ca"}
	evil.Spec.DefaultBackend, evil.Spec.TLS[0].Hosts = nil, nil
	for i := range hosts {
		evil.Spec.Rules = append(evil.Spec.Rules, networkingv1.IngressRule{Host: fmt.Sprintf("h%d.example", i)})
	}
	number := 1 + read + hosts*(len(authorities)/bytesForHost)
	for most, want := range map[int]int{number: 0, number - 1: 1} {
		r, _ := published(t, in, func(c *config.Config) { c.Limits.NamespaceCertificates = most })
		if got := len(r.Draft.Quarantined); got != want {
			t.Errorf("of %d, where there are %d: %v", most, number, r.Draft.Quarantined)
		}
	}
}

// crowdedCertificate returns a Secret's content with a certificate for this many long names.
func crowdedCertificate(t *testing.T, names int) map[string][]byte {
	t.Helper()
	return pemtest.TLSSecret(t, func(c *x509.Certificate) {
		c.NotAfter = time.Unix(1_000_000, 0)
		for i := range names {
			c.DNSNames = append(c.DNSNames, fmt.Sprintf("%s%d.example", strings.Repeat(strings.Repeat("a", 60)+".", 3), i))
		}
	})
}

// Certificates with very many names do not fill the manifest, nor a message. Usual certificates keep their names.
func TestNamesFitIntoTheManifest(t *testing.T) {
	t.Parallel()
	in := worlds.Ingresses(1)
	crowded, usual := crowdedCertificate(t, 480), crowdedCertificate(t, 2)
	var secrets []string
	for i := range 16 {
		name, data := fmt.Sprintf("secret-%011d", i), crowded
		if i == 7 {
			data = usual
		}
		secrets = append(secrets, name)
		in.Secrets = append(in.Secrets, inputs.Object[corev1.Secret]{
			Ref:   diag.Object{Kind: "Secret", Namespace: "evil", Name: name},
			Value: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "evil", Name: name}, Type: corev1.SecretTypeTLS, Data: data},
		})
	}
	withTLS(&in, "i", 0, secrets...)
	r, manifest := published(t, in)
	if len(manifest) > 600<<10 {
		t.Errorf("the manifest has %d bytes", len(manifest))
	}
	seen := 0
	for _, c := range r.Draft.Certificates {
		if c.Observed == nil {
			continue
		}
		seen++
		if n := len(c.Observed.Names); n == 0 || (c.Secret.Name == "secret-00000000007") != (n == 2) {
			t.Errorf("%s has %d names", c.Secret, n)
		}
	}
	if seen != len(secrets)+1 { // worlds has one, too
		t.Errorf("%d certificates were seen, and there are %d", seen, len(secrets)+1)
	}
	for _, d := range r.Diagnostics {
		if len(d.Message) > 2000 {
			t.Errorf("a message of %d bytes: %.100s", len(d.Message), d.Message)
		}
	}
}

// A namespace with very many faulty objects does not displace those of others from the manifest, which says how many it
// does not list.
func TestLeftOutFitIntoTheManifest(t *testing.T) {
	t.Parallel()
	var left []snapshots.Quarantined
	for i := range 50_000 {
		left = append(left, snapshots.Quarantined{Kind: "Ingress", Namespace: "evil", Name: fmt.Sprint("i", i), Reason: strings.Repeat("x", i%3000)})
	}
	left = append(left, snapshots.Quarantined{Kind: "Ingress", Namespace: "shop", Name: "web", Reason: "faulty"})
	out, size := withoutSome(left), 0
	for _, q := range out {
		size += 80 + len(q.Name) + len(q.Namespace) + len(q.Kind) + len(q.Reason)
	}
	n := len(out)
	if size > roomForLeftOut+1000 || n < 100 || out[n-2].Namespace != "shop" {
		t.Errorf("%d objects with %d bytes, at the end %v", n, size, out[n-2])
	}
	want := fmt.Sprintf("%d more objects with errors are not listed here; compiler status lists them", 50_000-(n-2))
	if last := out[n-1]; last.Kind != "Namespace" || last.Name != "evil" || last.Reason != want {
		t.Errorf("the last entry is %v, want %q", last, want)
	}
	if few := left[:100]; len(withoutSome(few)) != 100 {
		t.Error("objects that fit are not listed")
	}
}

// A fault in a line of a megabyte does not fill the log and the report. What is private is found before the text is cut.
func TestMessagesAreShort(t *testing.T) {
	t.Parallel()
	c := compilation{private: privateOf(Input{})}
	long := strings.Repeat("a", 1<<20)
	for _, d := range c.redacted([]diag.Diagnostic{{Message: long, Hint: "short"}, {Message: "short", Hint: long}}) {
		if len(d.Message)+len(d.Hint) > mostWords+20 || !strings.Contains(d.Message+d.Hint, "short") {
			t.Errorf("a message has %d bytes, and its hint %d", len(d.Message), len(d.Hint))
		}
	}
}

// Neither does it cost everybody's compile minutes to find the field of an object with very many values.
func TestFieldAmongVeryMany(t *testing.T) {
	t.Parallel()
	var values []any
	var line strings.Builder
	for i := range 100_000 {
		values = append(values, fmt.Sprint("value", i))
		fmt.Fprint(&line, "other", i, " ")
	}
	line.WriteString("value77777")
	object := diag.Object{Kind: "Widget", Namespace: "evil", Name: "w"}
	var c compilation
	c.in.Objects.Others = []inputs.Object[unstructured.Unstructured]{{
		Ref: object, Value: &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"list": values}}},
	}}
	began := time.Now()
	at := c.positionOfValue(culprit{object: object, fault: render.Fault{Text: line.String()}})
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	if !strings.Contains(at.Field, "77777") {
		t.Errorf("the field is %q", at.Field)
	}
}
