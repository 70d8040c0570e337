package compiler_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/admission"
	"github.com/hapsnap/hapsnap/compiler/config"
)

// absurd is an Ingress of 10,000 paths with a megabyte of annotations.
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

// An absurd Ingress is judged beside the others, which do not wait for it. One that is not
// judged in time is to be sent again, and is not let in unseen.
func TestAbsurdIngressHoldsNobody(t *testing.T) {
	t.Parallel()
	_, judge := judging(t, map[string]string{"web.yaml": manifest("web", "5s")})
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

// Mistakes of the object itself are found before anything was compiled, and without any
// judge that has time; what is not found that way is left to the failure policy then.
func TestMistakesAreFoundWithoutACompile(t *testing.T) {
	t.Parallel()
	var judge *compiler.Judge
	run(t, map[string]string{"web.yaml": manifest("web", "5s")}, func(o *compiler.Options) {
		o.Source.Objects = &objects{Files: o.Source.Objects.(compiler.Files)} // they never become known
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

// A compiler that does not lead judges as the one that does.
func TestJudgeOfAFollower(t *testing.T) {
	t.Parallel()
	var judge *compiler.Judge
	run(t, map[string]string{"web.yaml": manifest("web", "5s")}, func(o *compiler.Options) {
		o.Source.Config.Snippets.Namespaces = config.Namespaces{"shop"}
		judge = compiler.NewJudge(o.Source, o.Checker, nil)
		o.Judge, o.Leader = judge, follower{}
	})
	await(t, "the follower judges", func() error {
		v, err := judge.Ingress(t.Context(), ingressFrom(t, reviewed("new", "new.example", `hapsnap.dev/snippet: http-request frobnicate`)))
		if err == nil && len(v.Faults) == 0 {
			t.Error("a bad one is sound")
		}
		return err
	})
}
