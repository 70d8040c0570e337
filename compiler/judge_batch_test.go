package compiler_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/admission"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/controller"
	"github.com/hapsnap/hapsnap/compiler/controller/controllertest"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/testing/scripttest"
)

// inMemory are objects in memory.
type inMemory struct {
	compiler.Given
	objects inputs.Inputs
}

func (m inMemory) Read(context.Context, config.Config) (inputs.Gathered, error) {
	return inputs.Gathered{Objects: m.objects}, nil
}

// counting returns a checker that counts the runs of HAProxy.
func counting(tb testing.TB) (check *validate.Checker, runs func() int) {
	tb.Helper()
	plain := haproxy(tb)
	path, count := filepath.Join(tb.TempDir(), "haproxy"), filepath.Join(tb.TempDir(), "count")
	scripttest.Write(tb, path, "#!/bin/sh\necho >>"+count+"\nexec "+plain.Path+" \"$@\"\n")
	return &validate.Checker{Path: path, Version: plain.Version}, func() int {
		text, _ := os.ReadFile(count)
		return len(text)
	}
}

// many returns n Services, and an Ingress for each.
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

// judgingMany runs a compiler with n Ingresses and a judge.
func judgingMany(t *testing.T, n int) (judge *compiler.Judge, runs func() int) {
	t.Helper()
	check, runs := counting(t)
	_, judge = judging(t, nil, func(o *controller.Options) {
		o.Source.Objects, o.Checker = inMemory{compiler.Given{Name: "memory"}, many(n)}, check
		o.Source.Config.Snippets.Namespaces = config.Namespaces{"shop"}
	})
	return judge, runs
}

// atOnce has all Ingresses judged at the same time, and returns the verdicts.
func atOnce(t *testing.T, judge *compiler.Judge, ingresses []*networkingv1.Ingress) []string {
	t.Helper()
	out := make([]string, len(ingresses))
	var all sync.WaitGroup
	for i, ing := range ingresses {
		all.Go(func() { out[i] = said(t, judge, ing) })
	}
	all.Wait()
	return out
}

// said returns the verdict on an Ingress.
func said(t *testing.T, judge *compiler.Judge, ing *networkingv1.Ingress) string {
	t.Helper()
	v, err := judge.Ingress(t.Context(), ing)
	if err != nil {
		return "error: " + err.Error()
	}
	return fmt.Sprintf("denied %t\n%s\n-- warnings --\n%s", len(v.Faults) > 0, texts(v.Faults), texts(v.Warnings))
}

// With 1,500 Ingresses, many reviews at the same time cost little more than one.
func TestManyReviewsAtOnce(t *testing.T) {
	t.Parallel()
	judge, runs := judgingMany(t, 1500)
	var ingresses []*networkingv1.Ingress
	for i := range 50 {
		annotations := fmt.Sprintf(`hapsnap.dev/timeout-server: %ds`, i+1)
		if i%2 == 1 {
			annotations = `hapsnap.dev/rate-limit: lots`
		}
		ingresses = append(ingresses, ingressFrom(t, strings.Replace(
			reviewed(fmt.Sprint("new-", i), fmt.Sprint("new-", i, ".example"), annotations), "name: web,", "name: app-00001,", 1)))
	}
	alone := func() time.Duration {
		began := time.Now()
		said(t, judge, ingresses[0])
		return time.Since(began)
	}
	one := alone()
	before, began := runs(), time.Now()
	for i, said := range atOnce(t, judge, ingresses) {
		if want := i%2 == 1; strings.HasPrefix(said, "denied true") != want {
			t.Errorf("of the Ingress %d it is said: %s", i, said)
		}
	}
	took, n := time.Since(began), runs()-before
	t.Logf("%d runs of haproxy, %v", n, took)
	// Usually one run judges all reviews that came during the first. On a busy machine there are more runs.
	if n > 15 {
		t.Errorf("haproxy was run %d times", n)
	}
	// Judged one after the other, the reviews would take 50 times as long as one.
	if one = max(one, alone()); took > 25*one {
		t.Errorf("that took %v, and one review %v", took, one)
	}
}

// The verdict on an Ingress is the same alone and among other reviews. The others have faults, the same name or
// host, or compete with each other.
func TestReviewsTogetherAndAlone(t *testing.T) {
	t.Parallel()
	judge, _ := judgingMany(t, 20)
	to := func(service, ingress string) *networkingv1.Ingress {
		return ingressFrom(t, strings.Replace(ingress, "name: web,", "name: "+service+",", 1))
	}
	var ingresses []*networkingv1.Ingress
	for i := range 2 {
		name, host := fmt.Sprint("n", i), fmt.Sprint("n", i, ".example")
		ingresses = append(ingresses,
			to("app-00001", reviewed(name, host, "")),
			to("app-00001", reviewed("good-"+name, host, "hapsnap.dev/timeout-server: 5s")),
			to("app-00002", reviewed("same", "same.example", fmt.Sprintf("hapsnap.dev/timeout-server: %ds", i+1))),
			to("app-00002", reviewed("same", "same.example", "hapsnap.dev/timeout-server: "+strings.Repeat("x", i+1))),
			to("app-00003", reviewed("lines-"+name, "lines.example", fmt.Sprintf("hapsnap.dev/snippet: http-request frobnicate-%d", i))),
			to("app-00003", reviewed("table-"+name, host, fmt.Sprintf("hapsnap.dev/snippet: http-request track-sc0 src table gone_%d", i))),
			to("app-00003", reviewed("named-"+name, host, "hapsnap.dev/snippet: http-request set-var(txn.x) nbsrv(shop_app-00004_http)")),
			to("app-00003", reviewed("default-"+name, "app-00004.example", "")),
			to("app-00003", reviewed("canary-"+name, "app-00005.example", "hapsnap.dev/canary: 'true', hapsnap.dev/canary-weight: '10'")),
			to("app-00003", reviewed("wild-"+name, "'*.example'", "hapsnap.dev/ssl-passthrough: 'true'")),
			to("app-00003", reviewed("auth-"+name, host, "hapsnap.dev/auth-basic: users, hapsnap.dev/client-ca-secret: ca, hapsnap.dev/auth-url: 'http://app-00006/x'")),
		)
	}
	var alone []string
	for _, ing := range ingresses {
		alone = append(alone, said(t, judge, ing))
	}
	for i, together := range atOnce(t, judge, ingresses) {
		if together != alone[i] {
			t.Errorf("of %s it is said alone:\n%s\nand beside others:\n%s", ingresses[i].Name, alone[i], together)
		}
	}
	for i, ing := range ingresses {
		wrong := strings.HasPrefix(ing.Name, "lines") || strings.HasPrefix(ing.Name, "table") || ing.Name == "same" && strings.Contains(ing.Annotations["hapsnap.dev/timeout-server"], "x")
		if strings.HasPrefix(alone[i], "denied true") != wrong || strings.HasPrefix(alone[i], "error") {
			t.Errorf("of %s it is said: %s", ing.Name, alone[i])
		}
	}
}

// BenchmarkReviews judges 50 reviews at a time among 1,500 Ingresses, in one namespace and in 30.
func BenchmarkReviews(b *testing.B) {
	for _, namespaces := range []int{1, 30} {
		b.Run(fmt.Sprintf("%d namespaces", namespaces), func(b *testing.B) { benchmarkReviews(b, namespaces) })
	}
}

func benchmarkReviews(b *testing.B, namespaces int) {
	b.Helper()
	check := haproxy(b)
	all := many(1500)
	for i := range all.Ingresses {
		if n := i % namespaces; n > 0 {
			all.Ingresses[i].Ref.Namespace, all.Services[i].Ref.Namespace = fmt.Sprint("n", n), fmt.Sprint("n", n)
			all.Ingresses[i].Value.Namespace, all.Services[i].Value.Namespace = fmt.Sprint("n", n), fmt.Sprint("n", n)
		}
	}
	cfg := config.Default()
	judge := compiler.NewJudge(compiler.Source{}, check, nil)
	judge.Compiled(compiler.Source{Objects: inMemory{compiler.Given{Name: "memory"}, all}, Config: cfg}, nil, nil, nil)
	n := 0
	for b.Loop() {
		var running sync.WaitGroup
		for range 50 {
			n++
			text := reviewed(fmt.Sprint("new-", n), fmt.Sprint("new-", n, ".example"), "hapsnap.dev/timeout-server: 7s")
			running.Go(func() {
				if v, err := judge.Ingress(b.Context(), parsed(text)); err != nil || len(v.Faults) > 0 {
					b.Error(v, err)
				}
			})
		}
		running.Wait()
	}
}

// absurd is an Ingress with 10,000 paths and a megabyte of annotations.
func absurd(t *testing.T) *networkingv1.Ingress {
	t.Helper()
	ing := ingressFrom(t, reviewed("absurd", "absurd.example", "hapsnap.dev/timeout-server: 5s"))
	ing.Annotations["example.com/long"] = strings.Repeat("absurd_words ", 80_000)
	path := ing.Spec.Rules[0].HTTP.Paths[0]
	for i := range 10_000 {
		path.Path = fmt.Sprint("/p", i)
		ing.Spec.Rules[0].HTTP.Paths = append(ing.Spec.Rules[0].HTTP.Paths, path)
	}
	return ing
}

// An absurd Ingress is judged separately, and does not delay the others. If it is not judged in time, the
// client has to send it again. It is not let in unchecked.
func TestAbsurdIngressHoldsNobody(t *testing.T) {
	t.Parallel()
	_, judge := judging(t, map[string]string{"web.yaml": controllertest.Manifest("web", "5s")})
	release := compiler.HoldAside(judge)
	ctx, cancel := context.WithCancel(t.Context())
	late := make(chan error, 1)
	go func() {
		_, err := judge.Ingress(ctx, absurd(t))
		late <- err
	}()
	for range 3 {
		if said := said(t, judge, ingressFrom(t, reviewed("new", "new.example", ""))); !strings.HasPrefix(said, "denied false") {
			t.Errorf("beside an absurd one it is said: %s", said)
		}
	}
	cancel()
	err := <-late
	if unable, ok := errors.AsType[*admission.UnableError](err); !ok || !unable.Again {
		t.Errorf("of the absurd one it is said: %v", err)
	}
	release()
	began := time.Now()
	if said := said(t, judge, absurd(t)); strings.HasPrefix(said, "error") {
		t.Errorf("of the absurd one it is said: %s", said)
	}
	t.Logf("the absurd one took %v", time.Since(began))
}

// Mistakes of the object itself are found before anything was compiled, and even if no judge has time. Then the
// failure policy decides about everything else.
func TestMistakesAreFoundWithoutACompile(t *testing.T) {
	t.Parallel()
	var judge *compiler.Judge
	controllertest.Run(t, map[string]string{"web.yaml": controllertest.Manifest("web", "5s")}, func(o *controller.Options) {
		o.Source.Objects = &objects{Directory: o.Source.Objects.(*compiler.Directory)} // they never become known
		judge = compiler.NewJudge(o.Source, o.Checker, nil)
		o.Judge = judge
	})
	for annotations, denied := range map[string]bool{
		`hapsnap.dev/rate-limit: lots`:                              true,
		`hapsnap.dev/rewrite-path: "^/(a /x"`:                       true,
		`nginx.ingress.kubernetes.io/auth-url: "https://x.example"`: true,
		`hapsnap.dev/rate-limit: "100"`:                             false,
	} {
		v, err := judge.Ingress(t.Context(), ingressFrom(t, reviewed("new", "new.example", annotations)))
		if denied != (err == nil && len(v.Faults) > 0) {
			t.Errorf("with %s: %q, %v", annotations, texts(v.Faults), err)
		}
		if unable, ok := errors.AsType[*admission.UnableError](err); !denied && (!ok || unable.Again) {
			t.Errorf("with %s: %v", annotations, err)
		}
	}
}

// follower never leads.
type follower struct{}

func (follower) Term(ctx context.Context) (context.Context, context.CancelFunc, bool) {
	return ctx, func() {}, false
}
func (follower) Changed() <-chan struct{} { return nil }

// A compiler that does not lead judges like the leader.
func TestJudgeOfAFollower(t *testing.T) {
	t.Parallel()
	var judge *compiler.Judge
	controllertest.Run(t, map[string]string{"web.yaml": controllertest.Manifest("web", "5s")}, func(o *controller.Options) {
		o.Source.Config.Snippets.Namespaces = config.Namespaces{"shop"}
		judge = compiler.NewJudge(o.Source, o.Checker, nil)
		o.Judge, o.Leader = judge, follower{}
	})
	controllertest.Await(t, "the follower judges", func() error {
		v, err := judge.Ingress(t.Context(), ingressFrom(t, reviewed("new", "new.example", `hapsnap.dev/snippet: http-request frobnicate`)))
		if err == nil && len(v.Faults) == 0 {
			t.Error("a bad one is sound")
		}
		return err
	})
}

// guess is the value for which a user without the right to read Secrets looks.
const guess = "correct-horse-battery-staple-4711"

// secretOf is a manifest of a Secret.
func secretOf(namespace, name string, data ...string) string {
	out := fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata: {namespace: %s, name: %s}\ndata:\n", namespace, name)
	for i := 0; i < len(data); i += 2 {
		out += fmt.Sprintf("  %s: %s\n", data[i], base64.StdEncoding.EncodeToString([]byte(data[i+1])))
	}
	return out
}

// worldsOfSecrets differ only in their Secrets.
func worldsOfSecrets(t *testing.T) map[string]string {
	t.Helper()
	sound := newEdge(t, config.Certificates{}).secret
	return map[string]string{
		"none": "",
		"the guessed value": secretOf("shop", "dbpass", "auth", guess) + secretOf("other", "key", "token", guess) +
			secretOf("shop", "ca", "ca.crt", "no certificate") + "---\n" + sound,
		"other values": secretOf("shop", "dbpass", "auth", "admin:$2y$05$abcdefghijklmnopqrstuv") + secretOf("other", "key", "token", "something-else-entirely") +
			secretOf("shop", "web-tls", "tls.crt", "x", "tls.key", "y") + secretOf("shop", "unused", "password", "http-request-deny-4711"),
	}
}

// questions are Ingresses whose authors look for Secrets.
func questions() []string {
	var out []string
	for _, annotations := range []string{
		"",
		`hapsnap.dev/auth-basic: dbpass`,
		`hapsnap.dev/auth-basic: dbpass, hapsnap.dev/request-headers: "set X-Guess ` + guess + `"`,
		`hapsnap.dev/auth-basic: gone, hapsnap.dev/request-headers: "set X-Guess ` + base64.StdEncoding.EncodeToString([]byte(guess)) + `"`,
		`hapsnap.dev/auth-basic: dbpass, hapsnap.dev/auth-realm: ` + guess,
		`hapsnap.dev/client-ca-secret: ca`,
		`hapsnap.dev/client-ca-secret: web-tls`,
		`hapsnap.dev/client-ca-secret: gone`,
		`hapsnap.dev/backend-protocol: h1-tls, hapsnap.dev/backend-ca-secret: ca, hapsnap.dev/backend-client-secret: web-tls`,
		`hapsnap.dev/backend-protocol: h1-tls, hapsnap.dev/backend-ca-secret: gone`,
		`hapsnap.dev/snippet: "http-request set-header X-Guess ` + guess + `"`,
		`hapsnap.dev/snippet: "http-request frobnicate ` + guess + `"`,
		`hapsnap.dev/rate-limit: ` + guess,
		`hapsnap.dev/redirect: "https://` + guess + `.example"`,
	} {
		for _, tls := range []string{"", "web-tls", "gone", "dbpass"} {
			host := fmt.Sprintf("asks-%d.example", len(out))
			text := reviewed(fmt.Sprint("asks-", len(out)), host, annotations)
			if tls != "" {
				text += "  tls: [{hosts: [" + host + "], secretName: " + tls + "}]\n"
			}
			out = append(out, text)
			if annotations != "" && tls == "gone" {
				break
			}
		}
	}
	return out
}

// In worlds that differ only in Secrets (their content, whether they exist, and whether they can be used), all
// answers are the same: the user may have no right to know.
func TestReviewsTellNothingOfSecrets(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var all sync.WaitGroup
	answers := map[string][]string{}
	for name, secrets := range worldsOfSecrets(t) {
		_, judge := judging(t, map[string]string{"web.yaml": controllertest.Manifest("web", "5s") + secrets}, func(o *controller.Options) {
			o.Source.Config.Snippets.Namespaces = config.Namespaces{"shop"}
		})
		all.Go(func() {
			var asked []*networkingv1.Ingress
			for _, q := range questions() {
				asked = append(asked, ingressFrom(t, q))
			}
			said := atOnce(t, judge, asked)
			for _, spec := range []string{"spec: {https: {defaultCertificate: shop/web-tls}}\n", "spec: {https: {defaultCertificate: shop/gone}}\n", "spec: {tls: {ciphers: [" + guess + "]}}\n"} {
				v, err := judge.Configuration(t.Context(), []byte("apiVersion: hapsnap.dev/v1alpha1\nkind: CompilerConfig\n"+spec))
				said = append(said, fmt.Sprintf("%q %q %v", texts(v.Faults), texts(v.Warnings), err))
			}
			mu.Lock()
			defer mu.Unlock()
			answers[name] = said
		})
	}
	all.Wait()
	asked := questions()
	for name, said := range answers {
		for i, answer := range said {
			if i < len(asked) && answer != answers["none"][i] {
				t.Errorf("with Secrets %q it is said:\n%s\nand without any:\n%s\nof\n%s", name, answer, answers["none"][i], asked[i])
			}
			if i >= len(asked) && answer != answers["none"][i] {
				t.Errorf("of a configuration, with Secrets %q it is said:\n%s\nand without any:\n%s", name, answer, answers["none"][i])
			}
		}
	}
	for i, answer := range answers["none"] {
		if i < len(asked) && strings.Contains(asked[i], "auth-basic: dbpass") != strings.Contains(answer, "whether Secret shop/dbpass exists") {
			t.Errorf("of\n%s\nit is said: %s", asked[i], answer)
		}
	}
}

// An answer has no names of other namespaces, of their objects or of their files.
func TestReviewsNameNothingOfOtherNamespaces(t *testing.T) {
	t.Parallel()
	theirs := strings.ReplaceAll(controllertest.Manifest("hidden", "5s"), "namespace: shop", "namespace: bank")
	_, judge := judging(t, map[string]string{"web.yaml": controllertest.Manifest("web", "5s"), "vault.yaml": theirs})
	for _, c := range []struct{ name, ingress, want string }{
		{"who has a path", reviewed("zz", "hidden.example", ""), "of another namespace"},
		{"who would lose a path", strings.Replace(reviewed("aa", "hidden.example", ""), "namespace: shop", "namespace: alpha", 1), "of another namespace"},
		{"who has a host's certificate", reviewed("zz", "hidden.example", "") + "  tls: [{hosts: [hidden.example], secretName: x}]\n", "of another namespace"},
		{"whether a Service is there", reviewed("zz", "z.example", `hapsnap.dev/auth-url: "http://hidden.bank/"`), "of another namespace"},
		{"whether a list is there", reviewed("zz", "z.example", `hapsnap.dev/allow-list: "@bank/hidden/x"`), "of another namespace"},
		{"whose canary it would be", reviewed("zz", "hidden.example", `hapsnap.dev/canary: "true", hapsnap.dev/canary-weight: "1"`), "of another namespace"},
	} {
		answer := said(t, judge, ingressFrom(t, c.ingress))
		for _, secret := range []string{"bank/hidden", "Ingress bank", "vault", "namespace bank"} {
			if strings.Contains(answer, secret) && !strings.Contains(c.ingress, secret) {
				t.Errorf("%s: %q is in the answer: %s", c.name, secret, answer)
			}
		}
		if !strings.Contains(answer, c.want) {
			t.Errorf("%s: %q is not in the answer: %s", c.name, c.want, answer)
		}
	}
}
