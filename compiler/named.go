package compiler

import (
	"maps"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// noteAsked takes note of what one try asked for by name.
func (c *compilation) noteAsked(a routing.Asked) {
	for _, name := range a.Secrets {
		c.secrets[name] = true
	}
	for _, name := range a.ConfigMaps {
		c.configMaps[name] = true
	}
}

// asked returns what all tries asked for by name, and the Secrets that templates
// named in an artifact.
func (c *compilation) asked(a render.Artifact) routing.Asked {
	// What cannot be followed in the file is the business of validation.
	needs, _ := bind.Needs(snapshots.Snapshot{Files: a.Files}.Config(), a.Certificates)
	for _, n := range needs {
		c.secrets[n.Secret] = true
	}
	return routing.Asked{
		Secrets:    slices.SortedFunc(maps.Keys(c.secrets), snapshots.SecretName.Compare),
		ConfigMaps: slices.SortedFunc(maps.Keys(c.configMaps), snapshots.SecretName.Compare),
	}
}
