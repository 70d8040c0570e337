package validate

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/hapsnap/hapsnap/compiler/leak"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/internal/scratch"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// Input is what is to be validated.
type Input struct {
	Artifact render.Artifact
	// Keys says what kind of key the Secrets hold that the compiler saw. One
	// that is not here is taken to be ECDSA.
	Keys map[snapshots.SecretName]KeyType
	// Private knows the values of Secrets that must not be published. With nil only
	// private keys are refused.
	Private *leak.Index
}

// Verdict is what was found. Without faults the artifact may be published.
type Verdict struct {
	Faults   []render.Fault
	Warnings []render.Fault // of HAProxy's
}

// Check validates an artifact. The faults of one step are found all at once;
// later steps are then left out, since they would find the same again.
func (c *Checker) Check(ctx context.Context, in Input) (Verdict, error) {
	config, _ := fileOf(in.Artifact, snapshots.ConfigFile)
	places := newPlaces(in.Artifact)
	faults := places.located(snapshots.ConfigFile, checkLines(config))
	leaks, warnings := checkPrivate(in.Artifact, in.Private)
	if faults = append(faults, leaks...); len(faults) > 0 {
		return Verdict{Faults: faults}, nil
	}
	staging, err := scratch.Make("", stagingPrefix)
	if err != nil {
		return Verdict{}, fmt.Errorf("make staging directory: %w", err)
	}
	defer staging.Remove()
	dir := staging.Path
	bound, faults, err := c.bind(in, LayoutIn(dir))
	if err != nil || len(faults) > 0 {
		return Verdict{Faults: faults}, err
	}
	lines := lineMap{places: places, bound: bound}
	if faults := lines.located(checkLines(bound.Config)); len(faults) > 0 {
		return Verdict{Faults: faults}, nil
	}
	verdict, err := c.checkBound(ctx, dir, lines)
	verdict.Warnings = append(warnings, verdict.Warnings...)
	return verdict, err
}

// checkBound asks HAProxy and the Dataplane API's parser at the same time.
func (c *Checker) checkBound(ctx context.Context, dir string, lines lineMap) (Verdict, error) {
	var v Verdict
	var torn []fault
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		torn, err = c.trips.check(lines.bound.Config)
		return err
	})
	g.Go(func() (err error) {
		v, err = c.ask(ctx, dir, lines)
		return err
	})
	if err := g.Wait(); err != nil {
		return Verdict{}, err
	}
	if len(v.Faults) == 0 {
		v.Faults = lines.located(torn)
	}
	return v, nil
}

// bind joins the artifact with placeholders. What keeps it from being bound is
// a fault of the templates, for they write directives and file names.
func (c *Checker) bind(in Input, layout bind.Layout) (bind.Bound, []render.Fault, error) {
	draft := snapshots.Draft{Files: in.Artifact.Files, Certificates: in.Artifact.Certificates}
	config, _ := fileOf(in.Artifact, snapshots.ConfigFile)
	needs, wrong := bind.Needs(config, draft.Certificates)
	if wrong != nil {
		return bind.Bound{}, bindFaults(in.Artifact, wrong), nil
	}
	live, err := c.StandIns(in.Keys, needs)
	if err != nil {
		return bind.Bound{}, nil, err
	}
	bound, wrong := c.bindDraft(draft, live, layout)
	if wrong != nil {
		return bind.Bound{}, bindFaults(in.Artifact, wrong), nil
	}
	return bound, nil, nil
}

func (c *Checker) bindDraft(draft snapshots.Draft, live bind.Live, layout bind.Layout) (bind.Bound, error) {
	if err := draft.Check(); err != nil {
		return bind.Bound{}, err
	}
	s := draft.Seal(1, snapshots.ID{})
	slots, err := bind.Placeholder(s)
	if err != nil {
		return bind.Bound{}, err
	}
	return c.binder.Bind(s, bind.Inputs{Live: live, Slots: slots, Layout: layout})
}

// bindPlace matches the place in an error of Bind and of Needs.
var bindPlace = regexp.MustCompile(`^(?:bind \S+: )?haproxy\.cfg:(\d+): `)

// bindFaults are the faults for an error of Bind or of Needs, with their lines if
// they have any.
func bindFaults(a render.Artifact, err error) []render.Fault {
	if _, ok := errors.AsType[*bind.DirectiveError](err); ok {
		return directiveFaults(a)
	}
	text := err.Error()
	if m := bindPlace.FindStringSubmatch(text); m != nil {
		line, _ := strconv.Atoi(m[1])
		return []render.Fault{newPlaces(a).fault(snapshots.ConfigFile, line, strings.TrimPrefix(text, m[0]), "")}
	}
	return []render.Fault{{Message: text}}
}
