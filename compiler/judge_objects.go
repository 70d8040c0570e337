package compiler

import (
	"context"
	"slices"
	"sync"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/snapshots"
)

// sharedObjects are the objects of a loop that a [Judge] looks at too. What a
// review asks for by name is asked for beside what the loop does, as long as the
// review goes on.
type sharedObjects struct {
	Objects

	mu             sync.Mutex
	loop, reviewed routing.Asked
}

// Complete is for the loop.
func (s *sharedObjects) Complete(named routing.Asked) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loop = named
	return s.Objects.Complete(both(s.loop, s.reviewed))
}

// ask is Complete for a review. Nothing is asked for at its end.
func (s *sharedObjects) ask(named routing.Asked) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reviewed = named
	return s.Objects.Complete(both(s.loop, s.reviewed))
}

// both returns what is asked for in either.
func both(a, b routing.Asked) routing.Asked {
	return routing.Asked{Secrets: union(a.Secrets, b.Secrets), ConfigMaps: union(a.ConfigMaps, b.ConfigMaps)}
}

func union(a, b []snapshots.SecretName) []snapshots.SecretName {
	all := slices.Concat(a, b)
	slices.SortFunc(all, snapshots.SecretName.Compare)
	return slices.Compact(all)
}

// reviewedObjects are objects as they would be.
type reviewedObjects struct {
	Objects
	config config.Config // that says which objects there are, whatever is reviewed
	change func(inputs.Inputs) inputs.Inputs
	ask    func(routing.Asked) bool
}

// Read returns the objects with the change.
func (o reviewedObjects) Read(ctx context.Context, _ config.Config) (inputs.Gathered, error) {
	g, err := o.Objects.Read(ctx, o.config)
	if err == nil {
		g.Objects = o.change(g.Objects)
	}
	return g, err
}

// Complete asks beside the loop.
func (o reviewedObjects) Complete(named routing.Asked) bool {
	if o.ask == nil {
		return o.Objects.Complete(named)
	}
	return o.ask(named)
}
