package compiler_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/admission"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/controller"
	"github.com/hapsnap/hapsnap/compiler/controller/controllertest"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/validate"
)

// judging runs a compiler with a judge.
func judging(t *testing.T, files map[string]string, change ...func(*controller.Options)) (*controllertest.Compiler, *compiler.Judge) {
	t.Helper()
	var judge *compiler.Judge
	r := controllertest.Run(t, files, append(change, func(o *controller.Options) {
		judge = compiler.NewJudge(o.Source, o.Checker, nil)
		o.Judge = judge
	})...)
	controllertest.Await(t, "ready", r.Status.Ready)
	return r, judge
}

func ingressFrom(t *testing.T, text string) *networkingv1.Ingress {
	t.Helper()
	var ing networkingv1.Ingress
	if err := yaml.UnmarshalStrict([]byte(text), &ing); err != nil {
		t.Fatal(err)
	}
	return &ing
}

// parsed is ingressFrom for valid texts.
func parsed(text string) *networkingv1.Ingress {
	var ing networkingv1.Ingress
	if err := yaml.UnmarshalStrict([]byte(text), &ing); err != nil {
		panic(err)
	}
	return &ing
}

// reviewed is an Ingress for a host. annotations have the form of a flow mapping.
func reviewed(name, host, annotations string) string {
	return `metadata: {namespace: shop, name: ` + name + `, annotations: {` + annotations + `}}
spec:
  ingressClassName: hapsnap
  rules:
  - host: ` + host + `
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
`
}

// texts returns diagnostics as people read them.
func texts(found []diag.Diagnostic) string {
	var out []string
	for _, d := range found {
		out = append(out, d.String())
	}
	return strings.Join(out, "\n")
}

func TestJudgeOfIngresses(t *testing.T) {
	t.Parallel()
	const class = "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: hapsnap}\nspec: {controller: hapsnap.dev/ingress-controller}\n"
	r, judge := judging(t, map[string]string{
		"web.yaml": controllertest.Manifest("web", "5s"), "class.yaml": class,
		"../templates/extend/backend.cfg": "{{with .Annotation \"example.com/timeout\"}}    timeout server {{.}}\n{{end}}",
	}, func(o *controller.Options) {
		o.Source.Config.Snippets.Namespaces = config.Namespaces{"shop"}
		o.Source.Config.Namespaces = []string{"shop"}
	})
	for _, c := range []struct {
		name, ingress    string
		faults, warnings string // parts of the texts; "" for none
	}{
		{"sound", reviewed("new", "new.example", ""), "", ""},
		{
			"a wrong value", reviewed("new", "new.example", `hapsnap.dev/rate-limit: lots`),
			`metadata.annotations["hapsnap.dev/rate-limit"]: annotation hapsnap.dev/rate-limit`, "",
		},
		{
			"no Service", strings.Replace(reviewed("new", "new.example", ""), "{service: {name: web, port: {number: 80}}}", "{resource: {kind: Bucket, name: b}}", 1),
			"spec.rules[0].http.paths[0].backend.resource: backend is a resource", "",
		},
		{
			"a Service that is not there yet", strings.Replace(reviewed("new", "new.example", ""), "name: web,", "name: later,", 1),
			"", "spec.rules[0].http.paths[0].backend.service.name: Service shop/later does not exist",
		},
		{
			"lines that HAProxy refuses", reviewed("new", "new.example", `hapsnap.dev/snippet: http-request frobnicate`),
			`metadata.annotations["hapsnap.dev/snippet"]: `, "",
		},
		{
			"a value that a template writes and HAProxy refuses", reviewed("new", "new.example", `example.com/timeout: soon`),
			`metadata.annotations["example.com/timeout"]: `, "",
		},
		{
			"what another Ingress has", strings.Replace(reviewed("zeta", "web.example", ""), "name: web,", "name: other,", 1),
			"", "was taken by Ingress shop/web",
		},
		{
			"the same twice", strings.Replace(reviewed("new", "new.example", ""), "paths: [", "paths: [{path: /, pathType: Prefix, backend: {service: {name: other, port: {number: 80}}}}, ", 1),
			"spec.rules[0].http.paths[1].path: path \"/\" (Prefix) of host new.example is not used: it was taken by this same Ingress", "",
		},
		{
			"what takes from another", strings.Replace(reviewed("alpha", "web.example", ""), "name: web,", "name: other,", 1),
			"", "Ingress shop/web: path \"/\" (Prefix) of host web.example is not used: it was taken by Ingress shop/alpha",
		},
		{"another class", strings.Replace(reviewed("new", "new.example", `hapsnap.dev/rate-limit: lots`), "Name: hapsnap", "Name: other", 1), "", ""},
		{"a namespace that nothing is read from", strings.Replace(reviewed("new", "new.example", `hapsnap.dev/rate-limit: lots`), "namespace: shop", "namespace: other", 1), "", ""},
		{"a change of one that is there", reviewed("web", "web.example", `example.com/timeout: 7s`), "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := judge.Ingress(t.Context(), ingressFrom(t, c.ingress))
			if err != nil {
				t.Fatal(err)
			}
			for what, pair := range map[string][2]string{"faults": {texts(v.Faults), c.faults}, "warnings": {texts(v.Warnings), c.warnings}} {
				if got, want := pair[0], pair[1]; (got == "") != (want == "") || !strings.Contains(got, want) {
					t.Errorf("%s are %q, want %q", what, got, want)
				}
			}
		})
	}
	if _, n, _ := r.Store.Newest(); n != 1 {
		t.Errorf("%d snapshots were published", n)
	}
}

// An Ingress with a fault is denied until it is corrected, even if it is stored already.
func TestJudgeOfIngressThatIsAtFault(t *testing.T) {
	t.Parallel()
	bad := strings.ReplaceAll(controllertest.Manifest("bad", "5s"), `example.com/timeout: "5s"`, `hapsnap.dev/rate-limit: lots`)
	r, judge := judging(t, map[string]string{"web.yaml": controllertest.Manifest("web", "5s"), "bad.yaml": bad})
	r.AwaitQuarantined(t, 1)
	for annotations, denied := range map[string]bool{
		`hapsnap.dev/rate-limit: lots, example.com/other: x`: true,
		`hapsnap.dev/rate-limit: "100"`:                      false,
	} {
		v, err := judge.Ingress(t.Context(), ingressFrom(t, reviewed("bad", "bad.example", annotations)))
		if err != nil || (len(v.Faults) > 0) != denied {
			t.Errorf("with %s: %q, %v", annotations, texts(v.Faults), err)
		}
	}
}

func TestJudgeOfConfigurations(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: hapsnap.dev/v1alpha1\nkind: CompilerConfig\n"
	snippet := strings.ReplaceAll(controllertest.Manifest("web", "5s"), `example.com/timeout: "5s"`, `hapsnap.dev/snippet: http-request deny`)
	r, judge := judging(t, map[string]string{"web.yaml": snippet}, func(o *controller.Options) { o.Source.Config.Snippets.Namespaces = config.Namespaces{"shop"} })
	for _, c := range []struct {
		name, spec       string
		faults, warnings string
	}{
		{"sound", "spec: {snippets: {namespaces: [shop]}, maxconn: 100}\n", "", ""},
		{"no YAML", "spec: [\n", "config.yaml:3: not YAML", ""},
		{"an unknown field", "spec: {maxcon: 1}\n", "config.yaml:3:8: spec.maxcon: unknown field", ""},
		{"an impossible value", "spec: {nbthread: 1000}\n", "config.yaml:3:18: spec.nbthread: 1000 is not a number of threads", ""},
		{"what HAProxy does not know", "spec: {snippets: {namespaces: [shop]}, tls: {ciphers: [NO-SUCH-CIPHER]}}\n", `spec.tls.ciphers[0]: "NO-SUCH-CIPHER" is not known`, ""},
		{"what an Ingress is left out for", "spec: {maxconn: 100}\n", "", "Ingress shop/web: annotation hapsnap.dev/snippet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := judge.Configuration(t.Context(), []byte(head+c.spec))
			if err != nil {
				t.Fatal(err)
			}
			for what, pair := range map[string][2]string{"faults": {texts(v.Faults), c.faults}, "warnings": {texts(v.Warnings), c.warnings}} {
				if got, want := pair[0], pair[1]; (got == "") != (want == "") || !strings.Contains(got, want) {
					t.Errorf("%s are %q, want %q", what, got, want)
				}
			}
		})
	}
	if s, n, _ := r.Store.Newest(); n != 1 || strings.Contains(string(s.Config()), "maxconn 100") {
		t.Errorf("%d snapshots were published", n)
	}
}

// A review does not search for an object that crashes HAProxy if the last compile has found it: it would run out of time. The next
// compile does not search either.
func TestJudgeKnowsWhatCrashes(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for i := range 30 {
		name := fmt.Sprint("web", i)
		files[name+".yaml"] = controllertest.Manifest(name, "5s")
	}
	files["fragile.yaml"] = simpleIngress("shop/fragile", "fragile.example", "/", `hapsnap.dev/response-headers: "set X-Fragile yes"`)
	check, checks := crashingHAProxy(t, "X-Fragile", "kill -SEGV $$")
	r, judge := judging(t, files, func(o *controller.Options) { o.Checker = check })
	const document = "apiVersion: hapsnap.dev/v1alpha1\nkind: CompilerConfig\nspec: {maxconn: 100}\n"
	for range 2 {
		before := checks()
		if v, err := judge.Configuration(t.Context(), []byte(document)); err != nil || len(v.Faults) > 0 {
			t.Errorf("%v, %v", v, err)
		}
		if n := checks() - before; n > 4 {
			t.Errorf("a review took %d checks", n)
		}
		v, err := judge.Ingress(t.Context(), ingressFrom(t, reviewed("fragile", "fragile.example", "")))
		if err != nil || len(v.Faults) > 0 {
			t.Errorf("%v, %v", v, err)
		}
	}
	before := checks()
	r.Write(t, "new.yaml", simpleIngress("shop/new", "new.example", "/", ""))
	r.AwaitRoute(t, "new.example", true)
	if n := checks() - before; n > 4 {
		t.Errorf("the next compile took %d checks", n)
	}
}

// objects are the objects of a test, which decides when they are known.
type objects struct {
	*compiler.Directory
	mu    sync.Mutex
	known bool
	asked []routing.Asked
	wants types.NamespacedName // is known after the second request
}

func (o *objects) Read(ctx context.Context, c config.Config) (inputs.Gathered, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.known {
		return inputs.Gathered{}, inputs.ErrIncomplete
	}
	return o.Directory.Read(ctx, c)
}

func (o *objects) Complete(named routing.Asked) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, named)
	before := 0
	for _, a := range o.asked {
		for _, name := range a.ConfigMaps {
			if name == o.wants {
				before++
			}
		}
	}
	return before != 1
}

func (o *objects) Await(named routing.Asked) bool { return o.Complete(named) }

// lastAsked returns the names that were requested last.
func (o *objects) lastAsked() routing.Asked {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked[len(o.asked)-1]
}

// Without the objects there is no verdict. The configuration says whether that means a refusal.
func TestJudgeBeforeTheObjectsAreKnown(t *testing.T) {
	t.Parallel()
	var judge *compiler.Judge
	o := &objects{}
	controllertest.Run(t, map[string]string{"web.yaml": controllertest.Manifest("web", "5s")}, func(options *controller.Options) {
		o.Directory = options.Source.Objects.(*compiler.Directory)
		options.Source.Objects = o
		options.Source.Config.Admission.FailurePolicy = config.FailClosed
		judge = compiler.NewJudge(options.Source, options.Checker, nil)
		options.Judge = judge
	})
	if _, err := judge.Ingress(t.Context(), ingressFrom(t, reviewed("new", "new.example", ""))); err == nil {
		t.Error("there is a verdict")
	}
	if !judge.FailsClosed() {
		t.Error("the judge does not know that it fails closed")
	}
}

// Objects that only the reviewed object names are looked up before the verdict, and forgotten afterwards.
func TestJudgeAsksForWhatItNames(t *testing.T) {
	t.Parallel()
	list := types.NamespacedName{Namespace: "shop", Name: "list"}
	o := &objects{known: true, wants: list}
	_, judge := judging(t, map[string]string{"web.yaml": controllertest.Manifest("web", "5s")}, func(options *controller.Options) {
		o.Directory = options.Source.Objects.(*compiler.Directory)
		options.Source.Objects = o
	})
	v, err := judge.Ingress(t.Context(), ingressFrom(t, reviewed("new", "new.example", `hapsnap.dev/allow-list: "@list/networks"`)))
	if err != nil || !strings.Contains(texts(v.Faults), "ConfigMap shop/list does not exist") {
		t.Errorf("faults are %q, %v", texts(v.Faults), err)
	}
	if asked := o.lastAsked(); len(asked.ConfigMaps) != 0 {
		t.Errorf("it is still asked for %v", asked)
	}
}

// There is no verdict without HAProxy, and none after the deadline.
func TestJudgeThatCannot(t *testing.T) {
	t.Parallel()
	_, judge := judging(t, map[string]string{"web.yaml": controllertest.Manifest("web", "5s")})
	ended, end := context.WithCancel(t.Context())
	end()
	ing := ingressFrom(t, reviewed("new", "new.example", ""))
	if v, err := judge.Ingress(ended, ing); err == nil {
		t.Errorf("out of time the verdict is %+v", v)
	}

	var blind *compiler.Judge
	r := controllertest.Run(t, map[string]string{"web.yaml": controllertest.Manifest("web", "5s")}, func(o *controller.Options) {
		blind = compiler.NewJudge(o.Source, &validate.Checker{Path: "/does/not/exist", Version: "2.6"}, nil)
		o.Judge = blind
	})
	controllertest.Await(t, "ready", r.Status.Ready)
	if v, err := blind.Ingress(t.Context(), ing); err == nil {
		t.Errorf("without HAProxy the verdict is %+v", v)
	}
}

var _ admission.Judge = (*compiler.Judge)(nil)
