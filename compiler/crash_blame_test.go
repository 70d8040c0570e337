package compiler_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/internal/testing/worlds"
)

// refusing is a check that refuses a certain text, without a place.
type refusing string

func (text refusing) Check(_ context.Context, in validate.Input) (validate.Verdict, error) {
	for _, file := range in.Artifact.Files {
		if bytes.Contains(file.Content, []byte(text)) {
			return validate.Verdict{Faults: []render.Fault{{Message: "there is " + string(text)}}}, nil
		}
	}
	return validate.Verdict{}, nil
}

// ofGateway has a GRPCRoute at fault, whose Gateway has the routes of everybody.
func ofGateway(t *testing.T, text string) compiler.Input {
	t.Helper()
	in := worlds.Routes(250)
	of := in.Gateway.HTTPRoutes[205].Value
	method := "Get"
	route := &gatewayv1.GRPCRoute{ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: "fragile"}, Spec: gatewayv1.GRPCRouteSpec{
		CommonRouteSpec: of.Spec.CommonRouteSpec, Hostnames: []gatewayv1.Hostname{"fragile.example"},
		Rules: []gatewayv1.GRPCRouteRule{{
			Matches:     []gatewayv1.GRPCRouteMatch{{Method: &gatewayv1.GRPCMethodMatch{Service: &text, Method: &method}}},
			BackendRefs: []gatewayv1.GRPCBackendRef{{BackendRef: of.Spec.Rules[0].BackendRefs[0].BackendRef}},
		}},
	}}
	in.Gateway.Add(route)
	input := inputOf(t, in)
	input.Config.GatewayAPI.Enabled, input.Config.GatewayAPI.Ports = true, []string{fmt.Sprint(worlds.GatewayPort)}
	return input
}

// ofAuthService has an Ingress at fault that names the same authentication service as those of everybody.
func ofAuthService(t *testing.T, text string) compiler.Input {
	t.Helper()
	in := worlds.Ingresses(250)
	in.Services = append(in.Services, inputs.Object[corev1.Service]{
		Ref:   diag.Object{Kind: "Service", Namespace: "login", Name: "oauth"},
		Value: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "login", Name: "oauth"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
	})
	for i := range in.Ingresses {
		in = worlds.Annotate(in, i, "hapsnap.dev/auth-url", "http://oauth.login.svc:80/check")
	}
	in = worlds.Annotate(in, 205, "hapsnap.dev/auth-request-headers", text)
	input := inputOf(t, in)
	input.Config.Shared.AuthServices = []string{"login/oauth"}
	return input
}

// A route has no effect without its Gateway, or without a Service that it names. If it is at fault, it is left out, and not
// what the routes of others need too.
func TestWhatOthersUseIsNotBlamed(t *testing.T) {
	t.Parallel()
	const text = "X-Fragile"
	for name, test := range map[string]struct {
		in   func(t *testing.T, text string) compiler.Input
		want string
		only bool // nothing else of its namespace is left out: it protects nothing
	}{
		"a Gateway": {in: ofGateway, want: "GRPCRoute team-0002/fragile", only: true},
		"a Service": {in: ofAuthService, want: "Ingress team-0002/" + worlds.Name(205)},
	} {
		for kind, check := range map[string]interface {
			Check(context.Context, validate.Input) (validate.Verdict, error)
		}{"crashes": &fragile{text: text}, "refuses": refusing(text)} {
			t.Run(name+", which "+kind, func(t *testing.T) {
				t.Parallel()
				r, err := compiler.Compile(t.Context(), test.in(t, text), check)
				if err != nil {
					t.Fatal(err)
				}
				var out []string
				for _, d := range r.Diagnostics {
					if d.Severity == diag.Error {
						out = append(out, d.Object.String())
						if d.Object.Namespace != "team-0002" {
							t.Fatalf("%s is left out: %s", d.Object, d.Message)
						}
					}
				}
				if !strings.Contains(strings.Join(out, ", ")+", ", test.want+", ") || test.only && len(out) != 1 {
					t.Errorf("left out are %q, want %s", out, test.want)
				}
			})
		}
	}
}

// A tenant whose objects all make HAProxy crash stops nobody: after a few of them, none of its routes is served.
func TestManyObjectsThatCrash(t *testing.T) {
	t.Parallel()
	in := worlds.Ingresses(300)
	for i := 120; i < 180; i++ {
		in = worlds.Annotate(in, i, "hapsnap.dev/response-headers", "set X-Fragile yes")
	}
	input := inputOf(t, in)
	input.Crashes = compiler.NewCrashes()
	expect := func(about string, left int, checks int64) {
		t.Helper()
		check := &fragile{text: "X-Fragile"}
		r, err := compiler.Compile(t.Context(), input, check)
		if err != nil {
			t.Fatalf("%s: %v", about, err)
		}
		for _, q := range r.Draft.Quarantined {
			if q.Namespace != worlds.Namespace(100) {
				t.Errorf("%s: %+v is left out", about, q)
			}
		}
		if len(r.Draft.Quarantined) != left || check.calls.Load() > checks {
			t.Errorf("%s: %d are left out after %d checks, want %d after %d", about, len(r.Draft.Quarantined), check.calls.Load(), left, checks)
		}
	}
	expect("at first", 100, 50)
	expect("again", 100, 1)
	sound := worlds.Ingresses(300)
	for i := 120; i < 180; i++ {
		if i != 121 && i != 140 {
			in.Ingresses[i] = sound.Ingresses[i]
		}
	}
	input.Objects = in
	expect("when most of them are sound", 2, 50)
}

// A tenant who changes an object that makes HAProxy crash all the time holds up the others a little: what is new since the last
// compile that came to an end is sought first. What is left out is the same as after a start.
func TestCrashesAreSoughtAmongNewObjects(t *testing.T) {
	t.Parallel()
	remembered := inputOf(t, inputs.Inputs{})
	remembered.Crashes = compiler.NewCrashes()
	compile := func(input compiler.Input, in inputs.Inputs, check *fragile) string {
		t.Helper()
		input.Objects = in
		r, err := compiler.Compile(t.Context(), input, check)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(r.Draft.Quarantined)
	}
	world := worlds.Ingresses(300)
	compile(remembered, world, &fragile{text: "X-Fragile"})
	for n := range 4 {
		in := worlds.Annotate(worlds.Annotate(world, 150, "hapsnap.dev/response-headers", fmt.Sprintf("set X-Fragile %d", n)), 20, "hapsnap.dev/response-headers", fmt.Sprintf("set X-Sound %d", n))
		check := &fragile{text: "X-Fragile"}
		got, want := compile(remembered, in, check), compile(inputOf(t, inputs.Inputs{}), in, &fragile{text: "X-Fragile"})
		if calls := check.calls.Load(); got != want || calls > 7 {
			t.Errorf("%s are left out after %d checks, and %s after a start", got, calls, want)
		}
	}
}

// A new object for which HAProxy hangs, or takes so much memory that the system kills it, is left out if it does so without all
// other routes. If it takes several, the machine may be at fault, and the compile is tried again.
func TestObjectsForWhichHAProxyNeverEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, does, want string }{
		"hangs":     {"X-Fragile", "sleep 100", "HAProxy does not end for it"},
		"is killed": {"X-Fragile", "kill -KILL $$", "HAProxy is killed for it"},
		"is slow":   {"X-Fragile.*X-Other", "sleep 100", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check, _ := crashingHAProxy(t, "X-Fragile", fmt.Sprintf("if tr '\\n' ' ' <haproxy.cfg | grep -q -e '%s'; then %s; fi", test.text, test.does))
			check.Patience = 4 * time.Second
			world := worlds.Annotate(worlds.Ingresses(40), 35, "hapsnap.dev/response-headers", "set X-Other yes")
			input := inputOf(t, world)
			input.Crashes = compiler.NewCrashes()
			if _, err := compiler.Compile(t.Context(), input, check); err != nil {
				t.Fatal(err)
			}
			input.Objects = worlds.Annotate(world, 7, "hapsnap.dev/response-headers", "set X-Fragile yes")
			r, err := compiler.Compile(t.Context(), input, check)
			if test.want == "" {
				if !errors.Is(err, validate.ErrSilent) || len(r.Draft.Quarantined) != 0 {
					t.Errorf("%v, left out are %v", err, r.Draft.Quarantined)
				}
				return
			}
			if err != nil || len(r.Draft.Quarantined) != 1 || r.Draft.Quarantined[0].Name != worlds.Name(7) || !strings.Contains(r.Draft.Quarantined[0].Reason, test.want) {
				t.Errorf("%v, left out are %v", err, r.Draft.Quarantined)
			}
		})
	}
}

// together is a check that panics for two texts, if it sees both.
type together [2]string

func (texts together) Check(_ context.Context, in validate.Input) (validate.Verdict, error) {
	for _, file := range in.Artifact.Files {
		if bytes.Contains(file.Content, []byte(texts[0])) && bytes.Contains(file.Content, []byte(texts[1])) {
			panic("both are there")
		}
	}
	return validate.Verdict{}, nil
}

// If objects crash HAProxy only together with one of another namespace, nobody knows whose fault it is: their namespace keeps its
// other routes, however many they are.
func TestObjectsThatCrashTogether(t *testing.T) {
	t.Parallel()
	in := worlds.Annotate(worlds.Ingresses(200), 50, "hapsnap.dev/response-headers", "set X-One yes")
	for i := 120; i < 125; i++ {
		in = worlds.Annotate(in, i, "hapsnap.dev/response-headers", "set X-Other yes")
	}
	for name, before := range map[string]bool{"at the start": false, "later, when the one of the other namespace is new": true} {
		input := inputOf(t, in)
		input.Crashes = compiler.NewCrashes()
		if before {
			input.Objects.Ingresses = slices.Delete(slices.Clone(in.Ingresses), 50, 51)
			if r, err := compiler.Compile(t.Context(), input, together{"X-One", "X-Other"}); err != nil || len(r.Draft.Quarantined) != 0 {
				t.Fatalf("%s: before, %v, left out are %v", name, err, r.Draft.Quarantined)
			}
			input.Objects = in
		}
		r, err := compiler.Compile(t.Context(), input, together{"X-One", "X-Other"})
		if err != nil || len(r.Draft.Quarantined) != 5 {
			t.Errorf("%s: %v, left out are %v", name, err, r.Draft.Quarantined)
		}
	}
}

// watched has objects, and what the last compile looked for.
type watched struct {
	compiler.Given
	named *routing.Asked
}

func (w watched) Complete(named routing.Asked) bool {
	*w.named = named
	return true
}

// After a crash of HAProxy for which nobody is to blame, what the compile looked for is watched as before.
func TestCrashForgetsNoNames(t *testing.T) {
	t.Parallel()
	ing := simpleIngress("shop/web", "web.example", "/", "")
	ing = strings.Replace(ing, "spec:\n", "spec:\n  tls: [{hosts: [web.example], secretName: web-tls}]\n", 1)
	set := manifests.ReadTexts(manifests.Text{File: "web.yaml", Data: []byte(ing)})
	var named routing.Asked
	s := compiler.Source{Objects: watched{compiler.Given{Name: "memory", Set: set}, &named}, Config: inputOf(t, inputs.Inputs{}).Config}
	check, _ := crashingHAProxy(t, "global", "kill -SEGV $$")
	if _, _, err := s.Attempt(t.Context(), check, now, "test"); err == nil || len(named.Secrets) != 1 {
		t.Errorf("%v, and the names are %v", err, named)
	}
}

// After a panic for which nobody is to blame, nobody knows what the compile looked for: what was watched stays so.
func TestPanicForgetsNoNames(t *testing.T) {
	t.Parallel()
	named := routing.Asked{Secrets: []types.NamespacedName{{Namespace: "shop", Name: "web-tls"}}}
	set := manifests.ReadTexts(manifests.Text{File: "web.yaml", Data: []byte(simpleIngress("shop/web", "web.example", "/", ""))})
	s := compiler.Source{Objects: watched{compiler.Given{Name: "memory", Set: set}, &named}, Config: inputOf(t, inputs.Inputs{}).Config}
	s.Stages = func(ctx context.Context, name string) (context.Context, func(error)) {
		if name == compiler.StageRender {
			panic("it panics whatever the objects are")
		}
		return ctx, func(error) {}
	}
	r, _, err := s.Attempt(t.Context(), &validate.Checker{}, now, "test")
	if !r.Panicked || err == nil || len(named.Secrets) != 1 {
		t.Errorf("%v, and the names are %v", err, named)
	}
}
