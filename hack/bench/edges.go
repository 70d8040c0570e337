package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// patience bounds every wait. Machines are slow at times.
const patience = 10 * time.Minute

// The instances' user, and where they listen.
const (
	apiUser, apiPassword = "admin", "secret"
	httpPort, httpsPort  = 18080, 18443
)

// edge is a HAProxy behind the double of a Dataplane API.
type edge struct {
	*dataplanetest.Instance
	name, address string
}

// startEdges starts instances.
func (b *bench) startEdges(count int) (list []edge, err error) {
	for n := range count {
		e := edge{name: fmt.Sprintf("edge-%d", n+1), address: fmt.Sprintf("127.0.77.%d", n+1)}
		e.Instance, err = dataplanetest.New(dataplanetest.Options{
			HAProxy: b.check.Path, API: dataplanetest.V34, Env: []string{"BIND_ADDRESS=" + e.address},
			Username: apiUser, Password: apiPassword,
		})
		if err != nil {
			closeEdges(list)
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

func closeEdges(list []edge) {
	for _, e := range list {
		e.Close()
	}
}

func (e edge) layout() bind.Layout {
	return bind.Layout{Maps: e.Dirs.Maps, Certificates: e.Dirs.Certificates, General: e.Dirs.General}
}

func (e edge) client() (*dataplane.Client, error) { return connect(e.URL()) }

func connect(url string) (*dataplane.Client, error) {
	return dataplane.New(dataplane.Options{URL: url, Username: apiUser, Password: apiPassword})
}

// entry is an instance in the file of a fleet.
func (e edge) entry() string { return entry(e.name, e.URL(), e.layout()) }

func entry(name, url string, l bind.Layout) string {
	return fmt.Sprintf("  - {name: %s, url: '%s', username: %s, password: %s, directories: {maps: %s, certificates: %s, general: %s}}\n",
		name, url, apiUser, apiPassword, l.Maps, l.Certificates, l.General)
}

// fleetFile writes the file of a fleet whose rollouts wait for nothing.
func (b *bench) fleetFile(entries []string, rollout string) (string, error) {
	dir, err := os.MkdirTemp(b.dir, "fleet-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "fleet.yaml")
	text := "apiVersion: hapsnap.dev/v1alpha1\nkind: Fleet\nmetadata: {name: bench}\nspec:\n  rollout: {" + rollout + "}\n  instances:\n" + strings.Join(entries, "")
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// unlimited is a rollout that waits for nothing.
const unlimited = "waves: ['100%'], soak: 0s, budget: {perInstance: 0}"

// led are instances that a pusher in this process leads.
type led struct {
	feed    *feed
	store   *dirstore.Store
	metrics *prometheus.Registry

	stop context.CancelFunc
	done chan error

	mu     sync.Mutex
	status report.Status
	seen   chan struct{} // is closed with the next status
	dips   int           // statuses in which not all instances had what they were to
	sent   int           // bytes of the status as it was last written for others
}

// lead publishes a draft, and has a pusher bring it to the instances of a fleet.
func (b *bench) lead(ctx context.Context, fleet string, d snapshots.Draft, f *feed) (*led, error) {
	dir, err := os.MkdirTemp(b.dir, "led-")
	if err != nil {
		return nil, err
	}
	l := &led{
		feed: f, store: dirstore.Open(filepath.Join(dir, "store"), dirstore.Options{}), metrics: prometheus.NewRegistry(),
		done: make(chan error, 1), seen: make(chan struct{}),
	}
	if _, _, err := l.store.Publish(ctx, d); err != nil {
		return nil, err
	}
	ctx, l.stop = context.WithCancel(ctx)
	go func() {
		l.done <- pusher.Run(ctx, pusher.Options{
			Store: l.store, Fleet: fleet, Cluster: f, State: filepath.Join(dir, "state.json"), Metrics: l.metrics,
			ReloadTimeout: 5 * time.Minute, Status: l.see, Report: l.write,
		})
	}()
	return l, nil
}

func (l *led) see(s report.Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status = s
	if s.InSync() < len(s.Instances) {
		l.dips++
	}
	close(l.seen)
	l.seen = make(chan struct{})
}

// write takes what is written for others.
func (l *led) write(_ context.Context, p report.Published) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = len(p.Status)
	for key, value := range p.Fields {
		l.sent += len(key) + len(value)
	}
	return nil
}

// until waits for a status. It asks with the status held.
func (l *led) until(ctx context.Context, ok func(report.Status) bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		l.mu.Lock()
		s, next, is := l.status, l.seen, ok(l.status)
		l.mu.Unlock()
		if is {
			return nil
		}
		select {
		case <-next:
		case err := <-l.done:
			l.done <- err
			return errors.Join(err, errors.New("the pusher ended"))
		case <-ctx.Done():
			others := slices.DeleteFunc(slices.Clone(s.Instances), func(i report.Instance) bool { return i.InSync })
			return fmt.Errorf("waited in vain: %d of %d instances are in sync, waits: %v, troubles: %v, the others: %.2000s: %w", s.InSync(), len(s.Instances), s.Waits, s.Troubles, fmt.Sprintf("%+v", others), ctx.Err())
		}
	}
}

// change has the pusher hear of a change, and waits until all instances have it.
func (l *led) change(ctx context.Context, c cluster.Change, instances int) error {
	l.mu.Lock()
	before := l.dips
	l.mu.Unlock()
	l.feed.send(c)
	return l.until(ctx, func(s report.Status) bool { return l.dips > before && settled(instances)(s) })
}

// settled reports whether all instances run what they are to.
func settled(instances int) func(report.Status) bool {
	return func(s report.Status) bool {
		return len(s.Instances) == instances && s.InSync() == instances && s.Rollout == nil && s.Good.Revision > 0
	}
}

func (l *led) end() error {
	l.stop()
	return <-l.done
}

// feed is a cluster for a pusher in this process: it has what it is given. What it sends is the event of a
// watch, without the API server.
type feed struct {
	mu      sync.Mutex
	change  cluster.Change
	changes chan struct{}
	// endpoints are those of each Service port.
	endpoints map[snapshots.ServicePort][]snapshots.Endpoint
}

// newFeed has the EndpointSlices and Secrets of objects.
func newFeed(in inputs.Inputs) (*feed, error) {
	f := &feed{changes: make(chan struct{}, 1)}
	var list []discoveryv1.EndpointSlice
	namespaces := map[string]bool{}
	for _, o := range in.EndpointSlices {
		list = append(list, *o.Value)
		namespaces[o.Value.Namespace] = true
	}
	secrets, names := map[snapshots.SecretName]*corev1.Secret{}, []snapshots.SecretName{}
	for _, o := range in.Secrets {
		name := snapshots.SecretName{Namespace: o.Value.Namespace, Name: o.Value.Name}
		secrets[name], names = o.Value, append(names, name)
	}
	f.endpoints = live.Endpoints(list)
	text, err := json.Marshal(map[string]any{"namespaces": namespaces, "secrets": names, "slices": len(list)})
	if err != nil {
		return nil, err
	}
	status := &cluster.Status{}
	if err := status.UnmarshalJSON(text); err != nil {
		return nil, err
	}
	f.send(cluster.Change{Endpoints: maps.Clone(f.endpoints), Secrets: secrets, Status: status})
	return f, nil
}

// send has the pusher hear of a change, together with what it has not taken yet.
func (f *feed) send(c cluster.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.change.Endpoints == nil {
		f.change.Endpoints = map[snapshots.ServicePort][]snapshots.Endpoint{}
	}
	maps.Copy(f.change.Endpoints, c.Endpoints)
	if c.Secrets != nil {
		f.change.Secrets = c.Secrets
	}
	if c.Status != nil {
		f.change.Status = c.Status
	}
	f.change.Since = append(f.change.Since, c.Since...)
	select {
	case f.changes <- struct{}{}:
	default:
	}
}

// Run implements [pusher.Cluster]: there is nothing to follow.
func (f *feed) Run(ctx context.Context) { <-ctx.Done() }

// Want implements [pusher.Cluster]: all that there is was sent.
func (f *feed) Want(cluster.Wanted) {}

// Changes implements [pusher.Cluster].
func (f *feed) Changes() <-chan struct{} { return f.changes }

// Take implements [pusher.Cluster].
func (f *feed) Take() cluster.Change {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.change
	f.change = cluster.Change{}
	return c
}
