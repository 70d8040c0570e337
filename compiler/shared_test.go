package compiler_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// planned are objects of which those are watched that were asked for last.
type planned struct{ asked routing.Asked }

func (*planned) String() string { return "planned" }

func (*planned) Read(context.Context, config.Config) (inputs.Gathered, error) {
	return inputs.Gathered{}, nil
}

func (o *planned) Complete(named routing.Asked) bool {
	known := named.Within(o.asked)
	o.asked = named
	return known
}

func (o *planned) Await(named routing.Asked) bool {
	known := named.Within(o.asked)
	o.asked = o.asked.And(named)
	return known
}

func (*planned) Changes(context.Context, *slog.Logger) <-chan struct{} { return nil }

// A ConfigMap that a review asked for after the loop had read is not known to the loop: a compile would take it for missing.
func TestWhatReviewsAskForWasNotRead(t *testing.T) {
	t.Parallel()
	list, other := types.NamespacedName{Namespace: "shop", Name: "list"}, types.NamespacedName{Namespace: "shop", Name: "other"}
	named := routing.Asked{ConfigMaps: []types.NamespacedName{list}}
	for name, ends := range map[string]func(compiler.Objects, routing.Asked) bool{"Await": compiler.Objects.Await, "Complete": compiler.Objects.Complete} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			under := &planned{}
			o := compiler.Shared(under)
			read := func() {
				if _, err := o.Read(t.Context(), config.Config{}); err != nil {
					t.Fatal(err)
				}
			}
			read()
			compiler.AskFor(o, list, other)
			if ends(o, named) {
				t.Error("it is known before it was read")
			}
			if !named.Within(under.asked) {
				t.Error("it is not watched")
			}
			read()
			if !ends(o, named) {
				t.Error("it is not known after it was read")
			}
			compiler.AskFor(o, list, other)
			if !ends(o, named) {
				t.Error("it is not known any more, since a review asks for it")
			}
			compiler.AskFor(o)
			if !ends(o, named) {
				t.Error("it is not known any more, since no review asks for it")
			}
		})
	}
}

// preparing are objects of which another configuration asks for some that are not known.
type preparing struct{ planned }

func (*preparing) Prepare(next *config.Config) error {
	if next != nil {
		return inputs.ErrIncomplete
	}
	return nil
}

// A configuration waits for its objects, too, where reviews share them.
func TestSharedObjectsArePrepared(t *testing.T) {
	t.Parallel()
	s := compiler.Source{Objects: compiler.Shared(&preparing{})}
	if err := s.Prepare(&config.Config{}); !errors.Is(err, inputs.ErrIncomplete) {
		t.Errorf("preparing: %v", err)
	}
	if err := s.Prepare(nil); err != nil {
		t.Errorf("preparing nothing: %v", err)
	}
	s.Objects = compiler.Shared(&planned{})
	if err := s.Prepare(&config.Config{}); err != nil {
		t.Errorf("preparing objects that are all known: %v", err)
	}
}
