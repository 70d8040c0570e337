package compiler

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// Given are objects that were read already, and do not change.
type Given struct {
	Name string // of what they come from, for people
	Set  manifests.Set
}

// String returns the name.
func (g Given) String() string { return g.Name }

// Read gathers the objects. Without any it is [ErrNothing].
func (g Given) Read(_ context.Context, c config.Config) (inputs.Gathered, error) {
	var out inputs.Gathered
	var ignored map[manifests.GVK]int
	out.Objects, out.Found, ignored = inputs.Gather(g.Set, c.Kinds...)
	out.Ignored = counts(ignored)
	if len(g.Set.Objects) == 0 {
		return out, fmt.Errorf("%s: %w", g, ErrNothing)
	}
	return out, nil
}

// Complete returns true: there are no others.
func (Given) Complete(routing.Asked) bool { return true }

// Changes never sends.
func (Given) Changes(context.Context, *slog.Logger) <-chan struct{} { return nil }
