package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/child"
	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest/memory"
	"github.com/hapsnap/hapsnap/internal/testing/worlds"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// fleetRows are the rows about fleets.
var fleetRows = []row{
	{name: "fleet-rollout", what: "a snapshot rolled out to 1,000 instances without HAProxy in three waves, each of which held", limit: "three reloads of an instance", unit: seconds, once: true, measure: shown("fleet-rollout", fleetOfMany)},
	{name: "fleet-status", what: "an endpoint changed, until the status says that all 1,000 have it", limit: oneSecond, goal: 1, unit: seconds, once: true, measure: shown("fleet-status", fleetOfMany)},
	{name: "fleet-turn", what: "a turn of the pusher of 1,000 instances, on average", limit: "50 ms", goal: 1, unit: seconds, once: true, measure: shown("fleet-turn", fleetOfMany)},
	{name: "fleet-bytes", what: "the status of 1,000 instances, as a ConfigMap has it", limit: "1 MiB", goal: 1, unit: bytes, once: true, measure: shown("fleet-bytes", fleetOfMany)},
	{name: "fleet-memory", what: "memory of the pusher of 1,000 instances at its peak", limit: "500 MB", goal: 1, unit: bytes, once: true, measure: fleetMemory},
	{name: "pusher-memory", what: "memory of the pusher of 20 instances at its peak, with an EndpointSlice for each Ingress", limit: "200 MB", goal: 1, unit: bytes, most: 10_000, measure: pusherOfMany},
	{name: "pusher-memory-cluster", what: "the same with the EndpointSlices and Secrets in an API server, in place of files", limit: "200 MB", goal: 1, unit: bytes, most: 10_000, cluster: true, measure: pusherOfManyInCluster},
}

// The fleet of the rows about one: instances, and the Ingresses of what they run.
const (
	fleetSize     = 1000
	fleetWorld    = 20
	someInstances = 20 // of the row about many EndpointSlices
	idleTurns     = 10 * time.Second
)

// largestObject is what an object of a cluster may have.
const largestObject = 1 << 20

// doubles are instances in memory, each behind a port of its own.
type doubles struct {
	list    []*memory.Instance
	servers []*http.Server
	entries []string
}

// startDoubles starts instances without HAProxy.
func startDoubles(ctx context.Context, count int) (*doubles, error) {
	d := &doubles{}
	for n := range count {
		i := memory.New(fmt.Sprintf("edge-%04d", n), "v3.4.2")
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			d.close()
			return nil, err
		}
		server := &http.Server{Handler: served{i}, ReadHeaderTimeout: patience}
		go func() { _ = server.Serve(listener) }()
		d.list, d.servers = append(d.list, i), append(d.servers, server)
		d.entries = append(d.entries, entry(i.Name, "http://"+listener.Addr().String(), bind.Layout{
			Maps: "/etc/haproxy/maps", Certificates: "/etc/haproxy/ssl", General: "/etc/haproxy/general",
		}))
	}
	return d, nil
}

func (d *doubles) close() {
	for _, s := range d.servers {
		_ = s.Close()
	}
}

// runs counts the instances that run a revision.
func (d *doubles) runs(revision string) (n int) {
	for _, i := range d.list {
		if strings.HasPrefix(i.Now().Worker.Node, revision) {
			n++
		}
	}
	return n
}

// served answers requests by an instance in memory.
type served struct{ *memory.Instance }

// ServeHTTP implements [http.Handler].
func (s served) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	answered := make(chan *http.Response, 1)
	s.Serve(q, q.Context().Done(), answered)
	answer := <-answered
	if answer == nil {
		panic(http.ErrAbortHandler)
	}
	for name, values := range answer.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body)
}

// The waves of the fleet's rollouts, which may touch no more instances than they say.
const (
	firstWave, secondWave = 1, 100
	threeWaves            = "waves: ['1', '10%', '100%'], soak: 1s"
)

// fleetOfMany measures a pusher of many instances.
func fleetOfMany(ctx context.Context, w *world) (out showing, err error) {
	d, err := startDoubles(ctx, fleetSize)
	if err != nil {
		return nil, err
	}
	defer d.close()
	s := w.small()
	r, err := s.first(ctx)
	if err != nil {
		return nil, err
	}
	feed, err := newFeed(s.objects)
	if err != nil {
		return nil, err
	}
	path, err := w.fleetFile(d.entries, threeWaves)
	if err != nil {
		return nil, err
	}
	l, err := w.lead(ctx, path, r.Draft, feed)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.end()) }()
	if err := l.until(ctx, settled(fleetSize)); err != nil {
		return nil, err
	}
	out = showing{}
	if out["fleet-turn"], err = l.turns(ctx); err != nil {
		return nil, err
	}
	if out["fleet-status"], err = l.reaches(ctx, feed); err != nil {
		return nil, err
	}
	if out["fleet-rollout"], err = l.rollsOut(ctx, s, d); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	out["fleet-bytes"] = Cell{Limit: largestObject, Work: float64(l.sent), Turns: 1}
	return out, nil
}

// turns has the pusher look after the fleet for a while, and returns how long its turns took.
func (l *led) turns(ctx context.Context) (Cell, error) {
	before, seconds, err := l.turned()
	if err != nil {
		return Cell{}, err
	}
	select {
	case <-ctx.Done():
		return Cell{}, ctx.Err()
	case <-time.After(idleTurns):
	}
	after, secondsAfter, err := l.turned()
	if err == nil && after == before {
		err = errors.New("there was no turn")
	}
	return Cell{Limit: 0.05, Work: (secondsAfter - seconds) / float64(after-before), Turns: int(after - before)}, err //nolint:gosec // a few thousand
}

// turned returns how many turns the pusher took, and how long.
func (l *led) turned() (count uint64, seconds float64, err error) {
	families, err := l.metrics.Gather()
	for _, f := range families {
		if f.GetName() == "hapsnap_pusher_turn_duration_seconds" {
			h := f.GetMetric()[0].GetHistogram()
			return h.GetSampleCount(), h.GetSampleSum(), err
		}
	}
	return 0, 0, err
}

// reaches has an endpoint change, several times, until all instances are known to have it.
func (l *led) reaches(ctx context.Context, feed *feed) (Cell, error) {
	var took []time.Duration
	for port, list := range feed.endpoints {
		if len(took) == leastTurns {
			break
		}
		list = slices.Clone(list) // the pusher has the former
		list[0].Address = fmt.Sprintf("172.16.0.%d", len(took)+1)
		began := time.Now()
		change := cluster.Change{Endpoints: map[snapshots.ServicePort][]snapshots.Endpoint{port: list}, Since: []time.Time{began}}
		if err := l.change(ctx, change, fleetSize); err != nil {
			return Cell{}, err
		}
		took = append(took, time.Since(began))
	}
	return Cell{Limit: 1, Work: median(took).Seconds(), Turns: len(took)}, nil
}

// rollsOut publishes a change, and sees that no wave touches more instances than it may.
func (l *led) rollsOut(ctx context.Context, s *world, d *doubles) (Cell, error) {
	in := s.input()
	in.Objects = s.annotated(in.Objects, 1)
	r, err := s.compiled(ctx, in)
	if err != nil {
		return Cell{}, err
	}
	began := time.Now()
	id, _, err := l.store.Publish(ctx, r.Draft)
	if err != nil {
		return Cell{}, err
	}
	var wrong error
	err = l.until(ctx, func(s report.Status) bool {
		if s.Rollout != nil && s.Rollout.Target == id {
			// The status is held, so that the pusher is not yet at the next wave.
			if limit := map[int]int{1: firstWave, 2: secondWave}[s.Rollout.Wave]; limit > 0 {
				if n := d.runs(id.String()); n > limit {
					wrong = fmt.Errorf("wave %d has %d instances", s.Rollout.Wave, n)
				}
			}
		}
		return s.Good == id && settled(fleetSize)(s)
	})
	return Cell{Limit: 3 * memory.ReloadTime.Seconds(), Work: time.Since(began).Seconds(), Turns: 1}, errors.Join(err, wrong)
}

// fleetMemory is that of a pusher program.
func fleetMemory(ctx context.Context, w *world) (Cell, error) {
	s := w.small()
	peak, err := pusherMemory(ctx, s, fleetSize, s.liveFolder)
	return Cell{Limit: 500e6, Work: peak, Turns: 1}, err
}

// pusherOfMany is a pusher program of a few instances that run the world.
func pusherOfMany(ctx context.Context, w *world) (Cell, error) {
	peak, err := pusherMemory(ctx, w, someInstances, w.liveFolder)
	return Cell{Limit: 200e6, Work: peak, Turns: 1}, err
}

// pusherOfManyInCluster is one whose live data is in an API server.
func pusherOfManyInCluster(ctx context.Context, w *world) (_ Cell, err error) {
	c, err := newCluster(ctx, w.of(w.n, w.liveObjects()))
	if err != nil {
		return Cell{}, err
	}
	defer func() { err = errors.Join(err, c.server.Close()) }()
	peak, err := pusherMemory(ctx, w, someInstances, func(string) ([]string, error) {
		return []string{"--kubeconfig", c.server.Kubeconfig()}, nil
	})
	return Cell{Limit: 200e6, Work: peak, Turns: 1}, err
}

// liveObjects are what a pusher reads.
func (w *world) liveObjects() inputs.Inputs {
	return inputs.Inputs{EndpointSlices: w.objects.EndpointSlices, Secrets: w.objects.Secrets}
}

// liveFolder writes the live objects into a folder, and returns the flags of a pusher that reads them there.
func (w *world) liveFolder(dir string) ([]string, error) {
	live := filepath.Join(dir, "live")
	if err := os.Mkdir(live, 0o700); err != nil {
		return nil, err
	}
	return []string{"--live", live}, worlds.Write(live, w.liveObjects())
}

// pusherMemory returns the memory that a pusher takes at its peak that brings so many instances to run the world. The
// instances are in this process, and not in the measured one. Source returns the flags that say where the live data is.
func pusherMemory(ctx context.Context, w *world, instances int, source func(dir string) ([]string, error)) (float64, error) {
	d, err := startDoubles(ctx, instances)
	if err != nil {
		return 0, err
	}
	defer d.close()
	r, err := w.first(ctx)
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp(w.dir, "pusher-")
	if err != nil {
		return 0, err
	}
	id, _, err := dirstore.Open(filepath.Join(dir, "store"), dirstore.Options{}).Publish(ctx, r.Draft)
	if err != nil {
		return 0, err
	}
	fleet, err := w.fleetFile(d.entries, unlimited)
	if err != nil {
		return 0, err
	}
	live, err := source(dir)
	if err != nil {
		return 0, err
	}
	p, err := w.run(ctx, "pusher", append([]string{"run", "--store", "dir:" + filepath.Join(dir, "store"), "--instances", fleet,
		"--state", filepath.Join(dir, "state.json")}, live...)...)
	if err != nil {
		return 0, err
	}
	defer p.end()
	if err := p.until(ctx, func() bool { return d.runs(id.String()) == instances }); err != nil {
		return 0, err
	}
	select { // which is when it has looked after all of them
	case <-ctx.Done():
	case <-time.After(idleTurns):
	}
	return residentOf(p.cmd.Process.Pid, "VmHWM:")
}

// running is a program of ours.
type running struct {
	cmd   *exec.Cmd
	said  *os.File
	ended <-chan struct{}
}

// run starts a program, which is built when it is needed.
func (b *bench) run(ctx context.Context, name string, args ...string) (*running, error) {
	path := filepath.Join(b.dir, name)
	if _, err := os.Stat(path); err != nil {
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/"+name).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("go build: %w: %s", err, out)
		}
	}
	said, err := os.CreateTemp(b.dir, name+"-*.log")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...) //nolint:gosec,noctx // one of ours, which ends as it is told
	cmd.Stdout, cmd.Stderr = said, said
	ended, err := child.Start(cmd)
	return &running{cmd, said, ended}, err
}

// end ends the program.
func (r *running) end() {
	_ = r.cmd.Process.Signal(os.Interrupt)
	select {
	case <-r.ended:
	case <-time.After(time.Minute):
		_ = r.cmd.Process.Kill()
		<-r.ended
	}
	_ = r.said.Close()
}

// until waits for something that the program does.
func (r *running) until(ctx context.Context, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-r.ended:
			return fmt.Errorf("%s ended: %s", r.cmd.Path, r.log())
		case <-ctx.Done():
			return fmt.Errorf("%w: %s says: %s", ctx.Err(), r.cmd.Path, r.log())
		}
	}
	return nil
}

// log is the end of what the program said.
func (r *running) log() string {
	text, _ := os.ReadFile(r.said.Name())
	return string(text[max(0, len(text)-2000):])
}
