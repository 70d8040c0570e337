package compiler_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// restless are objects as a cluster has them: Secrets are known once they were asked for. The Ingress has two Secrets.
// Before each Read, somebody adds one more, has the Ingress name that in place of the oldest, and removes the oldest.
type restless struct {
	reads int
	asked routing.Asked
}

func (*restless) String() string { return "restless" }

func (o *restless) Read(ctx context.Context, c config.Config) (inputs.Gathered, error) {
	o.reads++
	text := strings.Replace(simpleIngress("shop/web", "web.example", "/", ""), "spec:\n", fmt.Sprintf("spec:\n  tls: [{hosts: [web.example], secretName: s%d}, {secretName: s%d}]\n", o.reads, o.reads-1), 1)
	for _, name := range o.asked.Secrets {
		if name.Name == fmt.Sprintf("s%d", o.reads) || name.Name == fmt.Sprintf("s%d", o.reads-1) {
			text += fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata: {namespace: shop, name: %s}\n", name.Name)
		}
	}
	return compiler.Given{Set: manifests.ReadTexts(manifests.Text{File: "all.yaml", Data: []byte(text)})}.Read(ctx, c)
}

func (o *restless) Await(named routing.Asked) bool {
	known := named.Within(o.asked)
	o.asked = o.asked.And(named)
	return known
}

func (o *restless) Complete(named routing.Asked) bool {
	known := named.Within(o.asked)
	o.asked = named
	return known
}

func (*restless) Changes(context.Context, *slog.Logger) <-chan struct{} { return nil }

// Somebody who names another Secret every moment does not keep compiles from ending. The compile that ends has the
// objects as they were read together, and says that another one has to follow. Those that do not end check nothing.
func TestCompilesEndThoughNamesChange(t *testing.T) {
	t.Parallel()
	objects, validated := &restless{}, 0
	s := compiler.Source{Objects: objects, Config: config.Default()}.Remembering()
	s.Stages = func(ctx context.Context, name string) (context.Context, func(error)) {
		if name == compiler.StageValidate {
			validated++
		}
		return ctx, func(error) {}
	}
	for round := range 3 { // the memory of one does not reach into the next
		var r compiler.Result
		for n := 1; ; n++ {
			var in inputs.Inputs
			var err error
			r, in, err = s.Attempt(t.Context(), &validate.Checker{}, now, "test")
			if errors.Is(err, inputs.ErrIncomplete) {
				if n == 5 {
					t.Fatal("no compile ends")
				}
				if validated > round {
					t.Fatal("a compile was checked that cannot be used")
				}
				continue
			}
			for i, tls := range in.Ingresses[0].Value.Spec.TLS {
				if want := fmt.Sprintf("s%d", objects.reads-1-i); tls.SecretName != want {
					t.Errorf("its Ingress names %s, want %s, which was named before the last read", tls.SecretName, want)
				}
				if !slices.ContainsFunc(in.Secrets, func(o inputs.Object[corev1.Secret]) bool { return o.Ref.Name == tls.SecretName }) {
					t.Errorf("it has not the Secret %s, but %v", tls.SecretName, in.Secrets)
				}
			}
			break
		}
		if !r.Stale {
			t.Error("it does not say that it is stale")
		}
	}
}
