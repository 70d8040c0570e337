package main

import (
	"context"
	"errors"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/internal/testing/worlds"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// pushRows are the rows about pushes.
var pushRows = []row{
	{name: "push", what: "a push with a reload", limit: "the same post with its reload, made bare", goal: 1.1, unit: seconds, most: 10_000, measure: pushReloading},
}

const (
	ownStart     = "a restart of HAProxy with the same files"
	restartedOne = "HAProxy after that restart"
)

// manyRows are the rows about instances with much, which take minutes.
var manyRows = []row{
	{name: "routes-many", what: "40,000 Ingresses of 4,000 Services with 2,800 certificates brought to an instance that has nothing", limit: ownStart, unit: seconds, long: true, measure: shown("routes-many", manyRoutes)},
	{name: "routes-many-memory", what: "the HAProxy that runs them", limit: restartedOne, unit: bytes, long: true, measure: shown("routes-many-memory", manyRoutes)},
	{name: "certificates-many", what: "15,000 certificates of 30,000 Ingresses brought to an instance that has nothing", limit: ownStart, unit: seconds, long: true, measure: shown("certificates-many", manyCertificates)},
	{name: "certificates-many-memory", what: "the HAProxy that runs them", limit: restartedOne, unit: bytes, long: true, measure: shown("certificates-many-memory", manyCertificates)},
}

func manyRoutes(ctx context.Context, w *world) (showing, error) {
	return broughtMany(ctx, w.sharing(40_000, 16).sharingServices(perService), "routes-many")
}

func manyCertificates(ctx context.Context, w *world) (showing, error) {
	return broughtMany(ctx, w.sharing(30_000, 2).sharingServices(perService), "certificates-many")
}

// perService is how many Ingresses or HTTPRoutes lead to one Service where there are many. HAProxy keeps open files for each server that
// may be checked, more than most machines allow if each of 40,000 Ingresses has a Service. From [manyInCluster] on they
// are perServiceOfMany, of which one has an option: Ingresses with an option of their own have a backend of their own.
const (
	perService       = 10
	perServiceOfMany = 50
)

// sharingServices leads so many Ingresses, or HTTPRoutes, to one Service.
func (w *world) sharingServices(per int) *world {
	for i, o := range w.objects.Ingresses {
		o.Value.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name = worlds.Name(i - i%per)
		if i%per >= worlds.PerOption {
			o.Value.Annotations = nil
		}
	}
	for i, o := range w.objects.Gateway.HTTPRoutes {
		rule := &o.Value.Spec.Rules[0]
		rule.BackendRefs[0].Name = gatewayv1.ObjectName(worlds.Name(i - i%per))
		if i%per >= worlds.PerOption {
			rule.Filters = nil
		}
	}
	w.objects.Services, w.objects.EndpointSlices = named(w.objects.Services, per), named(w.objects.EndpointSlices, per)
	return w
}

// named returns those of the objects of Services that Ingresses name.
func named[T any](objects []T, per int) (out []T) {
	for i := 0; i < len(objects); i += per {
		out = append(out, objects[i])
	}
	return out
}

// broughtMany uploads everything of a world to an instance and has it reload, and compares that with a restart.
func broughtMany(ctx context.Context, w *world, name string) (showing, error) {
	edges, err := w.startEdges(1)
	if err != nil {
		return nil, err
	}
	defer closeEdges(edges)
	client, err := edges[0].client()
	if err != nil {
		return nil, err
	}
	e := w.atEdges()
	want, err := boundAt(ctx, e, e.input(), 1, edges[0].layout())
	if err != nil {
		return nil, err
	}
	memory := func() (float64, error) {
		pid, err := edges[0].WorkerPID()
		if err != nil {
			return 0, err
		}
		return residentOf(pid, "VmRSS:")
	}
	target := push.Instance{API: client, ReloadTimeout: patience, Poll: 10 * time.Millisecond}
	began := time.Now()
	if _, err := target.Push(ctx, want, nil, push.CertificateHashes{}); err != nil {
		return nil, err
	}
	took := time.Since(began)
	pushed, err := memory()
	if err != nil {
		return nil, err
	}
	began = time.Now()
	if err := edges[0].RestartHAProxy(); err != nil {
		return nil, err
	}
	restart := time.Since(began)
	restarted, err := memory()
	return showing{
		name:             {Limit: restart.Seconds(), Work: took.Seconds(), Turns: 1},
		name + "-memory": {Limit: restarted, Work: pushed, Turns: 1},
	}, err
}

// boundVersions returns what an instance gets of two versions of the world, between which it has to reload.
func boundVersions(ctx context.Context, w *world, layout bind.Layout) (out [2]bind.Bound, err error) {
	for n := range out {
		in := w.input()
		in.Objects = w.annotated(in.Objects, n)
		if out[n], err = boundAt(ctx, w, in, uint64(n)+1, layout); err != nil {
			return out, err
		}
	}
	return out, nil
}

// boundAt compiles, and joins the result with placeholders.
func boundAt(ctx context.Context, w *world, in compiler.Input, revision uint64, layout bind.Layout) (bind.Bound, error) {
	r, err := w.compiled(ctx, in)
	if err != nil {
		return bind.Bound{}, err
	}
	s := r.Draft.Number(revision, snapshots.ID{})
	needs, err := bind.Needs(s.Config(), r.Draft.Certificates)
	if err != nil {
		return bind.Bound{}, err
	}
	live, err := w.check.StandIns(nil, needs)
	if err != nil {
		return bind.Bound{}, err
	}
	slots, err := bind.Placeholder(s)
	if err != nil {
		return bind.Bound{}, err
	}
	return bind.Bind(s, bind.Inputs{Live: live, Slots: slots, Layout: layout})
}

// pushReloading compares a push that reloads with the post alone. Each of them brings the instance from one
// version of the world to the other.
func pushReloading(ctx context.Context, w *world) (Cell, error) {
	if w.n >= fewInCluster {
		w = w.of(w.n, worlds.Ingresses(w.n)).sharingServices(perService)
	}
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
	target, known := push.Instance{API: client, ReloadTimeout: patience, Poll: 10 * time.Millisecond}, push.CertificateHashes{}
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
