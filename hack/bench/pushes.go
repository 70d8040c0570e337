package main

import (
	"context"
	"errors"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// pushRows are the rows about pushes.
var pushRows = []row{
	{name: "push", what: "a push with a reload", limit: "the same post with its reload, made bare", goal: 1.1, unit: seconds, most: 10_000, measure: pushReloading},
}

// bound returns what an instance gets of two versions of the world, between which it has to reload.
func boundVersions(ctx context.Context, w *world, layout bind.Layout) (out [2]bind.Bound, err error) {
	for n := range out {
		in := w.input()
		in.Objects = w.annotated(in.Objects, n)
		r, err := w.compiled(ctx, in)
		if err != nil {
			return out, err
		}
		s := r.Draft.Seal(uint64(n)+1, snapshots.ID{})
		needs, err := bind.Needs(s.Config(), r.Draft.Certificates)
		if err != nil {
			return out, err
		}
		live, err := w.check.StandIns(nil, needs)
		if err != nil {
			return out, err
		}
		slots, err := bind.Placeholder(s)
		if err != nil {
			return out, err
		}
		if out[n], err = bind.Bind(s, bind.Inputs{Live: live, Slots: slots, Layout: layout}); err != nil {
			return out, err
		}
	}
	return out, nil
}

// push compares a push that reloads with the post alone. Each of them brings the instance from one
// version of the world to the other.
func pushReloading(ctx context.Context, w *world) (Cell, error) {
	edges, err := w.startEdges(1)
	if err != nil {
		return Cell{}, err
	}
	defer closeEdges(edges)
	client, err := edges[0].client()
	if err != nil {
		return Cell{}, err
	}
	versions, err := boundVersions(ctx, w.atEdges(), edges[0].layout())
	if err != nil {
		return Cell{}, err
	}
	target, known := push.Instance{API: client, ReloadTimeout: patience, Poll: 10 * time.Millisecond}, push.Known{}
	whole := func() error {
		done, err := target.Push(ctx, versions[1], nil, known)
		if err == nil && !done.Reloaded {
			err = errors.New("nothing was reloaded")
		}
		return err
	}
	if err := whole(); err != nil { // which uploads the files
		return Cell{}, err
	}
	bare := func(ctx context.Context) (func() error, error) {
		version, err := client.Version(ctx)
		return func() error {
			_, err := client.PostRaw(ctx, versions[0].Config, dataplane.PostOptions{Version: version, ForceReload: true})
			return err
		}, err
	}
	return w.inTurns(ctx, bare, plain(whole))
}
