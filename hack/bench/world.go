package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/testing/worlds"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/templates"
)

// now is the time of all drafts.
var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// world is a number of Ingresses that rows are measured with.
type world struct {
	*bench
	n       int
	objects inputs.Inputs
	set     *render.Set

	staged  string          // the folder of the bound configuration, once there is one
	result  compiler.Result // of the full compile
	folders [2]string       // manifests, once they are written
	config  config.Config
	showing // what a row showed of others, which were measured with it
}

func newWorld(b *bench, n int) *world {
	files, err := render.Shipped(templates.FS)
	if err != nil {
		panic(err) // the templates are part of this program
	}
	set, _ := render.Parse(files)
	w := &world{bench: b, n: n, objects: worlds.Ingresses(n), set: set, config: config.Default()}
	w.config.Limits.CountedClients *= 100 // so that no rate limit counts fewer clients than it would by itself
	return w
}

// of is a world of other objects, with the same templates and configuration.
func (w *world) of(n int, objects inputs.Inputs) *world {
	return &world{bench: w.bench, n: n, objects: objects, set: w.set, config: w.config}
}

// small is what the fleet runs.
func (w *world) small() *world {
	return w.of(fleetWorld, worlds.Ingresses(fleetWorld))
}

// sharing is a world of another size, in which so many Ingresses share a certificate.
func (w *world) sharing(n, perCertificate int) *world {
	return w.of(n, worlds.IngressesSharing(n, perCertificate))
}

// atEdges is the world as instances of this machine run it, each at an address of its own.
func (w *world) atEdges() *world {
	e := w.of(w.n, w.objects)
	e.config.Bind.Addresses = []string{"${BIND_ADDRESS}"}
	e.config.HTTP.Port, e.config.HTTPS.Port = httpPort, httpsPort
	e.config.Status.Port = 0
	return e
}

// annotated changes an option of an Ingress in the middle.
func (w *world) annotated(in inputs.Inputs, n int) inputs.Inputs {
	return worlds.Annotate(in, w.n/2, "hapsnap.dev/timeout-server", fmt.Sprint(100+n, "s"))
}

// hosted adds a host to it.
func (w *world) hosted(in inputs.Inputs, n int) inputs.Inputs {
	return worlds.AddHost(in, w.n/2, fmt.Sprintf("new-%d.example", n))
}

// unseenConfig is the configuration with a timeout that was never used before. A check of what HAProxy has accepted before
// would be shorter than that of something new.
func (w *world) unseenConfig() config.Config {
	w.unseen++
	c := w.config
	c.Timeouts.Client = config.Duration(fmt.Sprint(1000+w.unseen, "s"))
	return c
}

// input is what a compile is made from that remembers nothing.
func (w *world) input() compiler.Input {
	return compiler.Input{
		Objects: w.objects, Config: w.unseenConfig(), Templates: w.set, Now: now,
		CompilerVersion: "bench", HAProxyVersion: w.check.Version, Trigger: "bench",
	}
}

// remembering is an input with everything that the loop of a compiler remembers.
func (w *world) remembering() compiler.Input {
	in := w.input()
	in.Memories = compiler.NewMemories()
	return in
}

// compiled compiles, and does not put up with a finding: it would be another world.
func (w *world) compiled(ctx context.Context, in compiler.Input) (compiler.Result, error) {
	r, err := compiler.Compile(ctx, in, w.check)
	if err == nil && len(r.Diagnostics) > 0 {
		err = fmt.Errorf("%d findings, the first of them: %s", len(r.Diagnostics), r.Diagnostics[0])
	}
	return r, err
}

// first is the result of the full compile.
func (w *world) first(ctx context.Context) (compiler.Result, error) {
	var err error
	if len(w.result.Draft.Files) == 0 {
		w.result, err = w.compiled(ctx, w.input())
	}
	return w.result, err
}

// haproxyCheck is haproxy -c on the bound configuration of the world.
func (w *world) haproxyCheck(ctx context.Context) (step, error) {
	r, err := w.first(ctx)
	if err != nil {
		return nil, err
	}
	if w.staged == "" {
		if w.staged, err = w.stage(r.Draft); err != nil {
			return nil, err
		}
	}
	return w.haproxyAt(ctx, w.staged), nil
}

func (w *world) haproxyAt(ctx context.Context, dir string) step {
	return plain(func() error {
		cmd := exec.CommandContext(ctx, w.check.Path, "-c", "-f", snapshots.ConfigFile) //nolint:gosec // it was found on PATH
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// stage writes a draft as the check of a compile does, and returns the folder.
func (w *world) stage(d snapshots.Draft) (string, error) {
	dir, err := os.MkdirTemp(w.dir, "staged-")
	if err != nil {
		return "", err
	}
	s := d.Number(1, snapshots.ID{})
	needs, err := bind.Needs(s.Config(), d.Certificates)
	if err != nil {
		return "", err
	}
	live, err := w.check.StandIns(nil, needs)
	if err != nil {
		return "", err
	}
	slots, err := bind.Placeholder(s)
	if err != nil {
		return "", err
	}
	bound, err := bind.Bind(s, bind.Inputs{Live: live, Slots: slots, Layout: validate.LayoutIn(dir)})
	if err != nil {
		return "", err
	}
	return dir, validate.Stage(dir, bound)
}

// wholeCheck is the check that is made of everything that is published, of something new each time.
func (w *world) wholeCheck(ctx context.Context) (step, error) {
	if _, err := w.first(ctx); err != nil { // which says whether it is another world
		return nil, err
	}
	return func(ctx context.Context) (func() error, error) {
		r, err := compiler.Compile(ctx, w.input(), unchecked{})
		return func() error {
			v, err := w.check.Check(ctx, validate.Input{Artifact: r.Artifact})
			if err == nil && len(v.Faults) > 0 {
				err = fmt.Errorf("found %v", v.Faults[0])
			}
			return err
		}, err
	}, nil
}

// unchecked finds no fault.
type unchecked struct{}

func (unchecked) Check(context.Context, validate.Input) (validate.Verdict, error) {
	return validate.Verdict{}, nil
}

// folder returns one of two folders with the manifests, of which the second differs by one Ingress.
func (w *world) folder(i int) (string, error) {
	if w.folders[i] != "" {
		return w.folders[i], nil
	}
	dir := filepath.Join(w.dir, fmt.Sprintf("manifests-%d-%d", w.n, i))
	objects := w.objects
	if i > 0 {
		objects = worlds.Annotate(objects, w.n/2, "hapsnap.dev/timeout-server", "77s")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	w.folders[i] = dir
	return dir, worlds.Write(dir, objects)
}
