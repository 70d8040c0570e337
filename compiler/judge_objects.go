package compiler

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/snapshots"
)

// sharedObjects are the objects of a loop that a [Judge] looks at too. What a
// review asks for by name is asked for beside what the loop does, as long as the
// review goes on. The loop never waits for it.
type sharedObjects struct {
	Objects

	mu             sync.Mutex
	loop, reviewed routing.Asked
	read           routing.Asked // what was asked for when the loop read last
}

// Read is for the loop. What only reviews ask for is given up if it is not known yet.
func (s *sharedObjects) Read(ctx context.Context, c config.Config) (inputs.Gathered, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, err := s.Objects.Read(ctx, c)
	if errors.Is(err, inputs.ErrIncomplete) && len(s.reviewed.ConfigMaps) > 0 {
		s.reviewed = routing.Asked{}
		s.Objects.Complete(s.loop)
		g, err = s.Objects.Read(ctx, c)
	}
	s.read = both(s.loop, s.reviewed)
	return g, err
}

// Complete is for the loop.
func (s *sharedObjects) Complete(named routing.Asked) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loop = named
	complete := s.Objects.Complete(both(s.loop, s.reviewed))
	return complete || within(named.Secrets, s.read.Secrets) && within(named.ConfigMaps, s.read.ConfigMaps)
}

// within reports whether all names are among others.
func within(names, others []snapshots.SecretName) bool {
	return !slices.ContainsFunc(names, func(name snapshots.SecretName) bool { return !slices.Contains(others, name) })
}

// ask has what reviews ask for followed, and no more what they asked for before.
func (s *sharedObjects) ask(named routing.Asked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(named.ConfigMaps)+len(s.reviewed.ConfigMaps) > 0 {
		s.reviewed = named
		s.Objects.Complete(both(s.loop, s.reviewed))
	}
}

// known returns the ConfigMaps that are followed: of these a reading says whether they are
// there.
func (s *sharedObjects) known() map[snapshots.SecretName]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[snapshots.SecretName]bool{}
	for _, name := range slices.Concat(s.loop.ConfigMaps, s.reviewed.ConfigMaps) {
		out[name] = true
	}
	return out
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
