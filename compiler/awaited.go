package compiler

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
)

// errNamed says that a compile looked for objects that nobody had looked for before.
var errNamed = fmt.Errorf("%w: Secrets and ConfigMaps that were named for the first time", inputs.ErrIncomplete)

// awaited is what a source keeps while it waits for objects that a compile named for the first time. If each compile
// read all objects anew, somebody who names another Secret every moment would keep all compiles from ever ending. So
// from the second incomplete compile in a row on, the objects stay as they were read, and only objects that were not
// known join them.
type awaited struct {
	incomplete int // compiles in a row
	config     config.Config
	objects    inputs.Gathered
	stale      bool // the objects that are compiled were read before
}

// incompletes is how many compiles in a row may be incomplete before the objects stay as they are. The first one of a
// process names everything.
const incompletes = 2

// begin takes what was read for a compile, and returns what it compiles. A nil awaited keeps nothing.
func (a *awaited) begin(c config.Config, read inputs.Gathered) inputs.Gathered {
	if a == nil {
		return read
	}
	if a.stale = a.incomplete >= incompletes && reflect.DeepEqual(a.config, c); a.stale {
		read.Objects = withLater(a.objects.Objects, read.Objects)
	} else {
		a.config, a.objects = c, read
	}
	return read
}

// missed records that a compile was incomplete.
func (a *awaited) missed() {
	if a != nil {
		a.incomplete++
	}
}

// end records that a compile was complete, and reports whether its objects were read before.
func (a *awaited) end() (stale bool) {
	if a == nil {
		return false
	}
	stale = a.stale
	*a = awaited{}
	return stale
}

// withLater returns objects that were read before, with those single objects that were read later and are not among them.
func withLater(before, later inputs.Inputs) inputs.Inputs {
	before.Secrets = withNew(before.Secrets, later.Secrets)
	before.ConfigMaps = withNew(before.ConfigMaps, later.ConfigMaps)
	before.Unread = slices.Compact(slices.SortedFunc(slices.Values(slices.Concat(before.Unread, later.Unread)), diag.Object.Compare))
	return before
}

// withNew returns the objects before, and those later ones that are not among them.
func withNew[T any](before, later []inputs.Object[T]) []inputs.Object[T] {
	known := make(map[diag.Object]bool, len(before))
	for _, o := range before {
		known[o.Ref] = true
	}
	out := slices.Clone(before)
	for _, o := range later {
		if !known[o.Ref] {
			out = append(out, o)
		}
	}
	return out
}
