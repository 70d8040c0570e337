package provisioner

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/internal/election"
	"github.com/hapsnap/hapsnap/internal/kubewatch"
	"github.com/hapsnap/hapsnap/internal/process"
)

// Options are those of [Run]. Config, Lease, Log and Rules are needed.
type Options struct {
	Config *rest.Config
	// Lease elects one of several provisioners, and gives it a name: records are beside the Lease, and objects
	// have a label with the name.
	Lease types.NamespacedName
	Times election.Times
	Rules Rules
	// Values are files with the values of all fleets. They are read before each turn, and twice a minute.
	Values []string
	// AppVersion is the tag of images without one in Values; "" is that of the chart.
	AppVersion string
	// Grace is how long a fleet stays that no Gateway names, and MaxRemovals how many may be deleted at once.
	Grace       time.Duration
	MaxRemovals int
	// Resync is how often every object is checked, changed or not.
	Resync time.Duration
	// Address is where health and metrics are served; "" means nowhere.
	Address string
	Log     *slog.Logger
}

const (
	// settle is how long a turn waits for further changes.
	settle = 200 * time.Millisecond
	// reread is how often the operator's values are read without a change.
	reread = 30 * time.Second
	// retryFirst and retryLast are how long a fleet that failed waits for its next try.
	retryFirst, retryLast = time.Second, 2 * time.Minute
	// timeout is how long the API server may take for a request.
	timeout = 30 * time.Second
	// atOnce is how many fleets are processed at the same time.
	atOnce = 4
)

// Mark returns the value of the label by which a provisioner knows its own objects.
func Mark(lease types.NamespacedName) string { return cut(lease.Namespace+"."+lease.Name, 63) }

// Run makes fleets until ctx is done, while it leads. Fleets stay when it ends.
func Run(ctx context.Context, o Options) error {
	registry := process.NewRegistry()
	p, err := newProvisioner(o, registry)
	if err != nil {
		return err
	}
	if _, err := ReadValues(o.Values); err != nil {
		return process.Invalid(err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	_, wait, err := process.Server{Address: o.Address, Metrics: registry, Log: o.Log, Ready: p.ready}.Start(ctx)
	if err != nil {
		return err
	}
	defer wait()
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { p.watch.Run(ctx, o.Log); return nil })
	group.Go(func() error { return p.leader.Run(ctx) })
	group.Go(func() error { p.reporter.run(ctx); return nil })
	group.Go(func() error { p.loop(ctx); return nil })
	return group.Wait()
}

// provisioner holds what is known, and acts on it. Only its loop uses the fields below the lock.
type provisioner struct {
	Options
	chart    *Chart
	cluster  *cluster
	records  records
	leader   *election.Elector
	watch    *kubewatch.Set
	reporter *reporter
	metrics  *metrics

	mu     sync.Mutex
	health error // why it cannot do anything at present

	warned string // the trouble that was logged last

	made   map[types.NamespacedName]Record // nil: not read in this term
	states map[types.NamespacedName]*state
	read   time.Time                       // when the records were
	held   bool                            // it was logged that no fleet is removed
	alone  bool                            // it was logged that no GatewayClass is ours
	stuck  map[types.NamespacedName]string // what was logged of fleets that cannot be removed
}

// state says what was done for a fleet in this term.
type state struct {
	digest  [sha256.Size]byte // of everything that decides about the objects
	at      time.Time         // when they were last applied, also without success
	err     error
	retries time.Duration
}

func newProvisioner(o Options, registry prometheus.Registerer) (*provisioner, error) {
	o.Config = rest.CopyConfig(o.Config)
	chart, err := LoadChart(o.AppVersion)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", o.Config.Host, err)
	}
	identity, err := election.OwnIdentity()
	if err != nil {
		return nil, err
	}
	leader, err := election.New(election.Options{
		Program: "provisioner", Leases: client.CoordinationV1(), Namespace: o.Lease.Namespace, Name: o.Lease.Name, Identity: identity, Times: o.Times, Log: o.Log, Metrics: registry,
	})
	if err != nil {
		return nil, err
	}
	following, err := newCluster(o.Config, Mark(o.Lease))
	if err != nil {
		return nil, err
	}
	bounded := rest.CopyConfig(o.Config)
	bounded.Timeout = timeout
	acting, err := newCluster(bounded, Mark(o.Lease))
	if err != nil {
		return nil, err
	}
	return &provisioner{
		Options: o, chart: chart, cluster: acting, leader: leader, watch: newWatch(following.client, o.Rules.Namespaces),
		records:  records{client.CoreV1().ConfigMaps(o.Lease.Namespace), o.Lease.Name, Mark(o.Lease)},
		reporter: newReporter(client, acting.client, leader, identity, o.Log, registry), metrics: newMetrics(registry),
		states: map[types.NamespacedName]*state{}, stuck: map[types.NamespacedName]string{}, health: errors.New("starting"),
	}, nil
}

func (p *provisioner) ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.health
}

// loop takes a turn whenever something has changed, and when something is due.
func (p *provisioner) loop(ctx context.Context) {
	began := time.Now()
	wait := time.Duration(0)
	for {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-p.watch.Changes():
			settled(ctx)
		case <-p.leader.Changed():
		}
		timer.Stop()
		next, err := p.turn(ctx)
		p.mu.Lock()
		switch _, starting := errors.AsType[startingError](err); {
		case err == nil:
			p.warned = ""
		case ctx.Err() == nil && p.warned != err.Error() && (!starting || time.Since(began) > startTime):
			p.warned = err.Error()
			p.Log.Warn("cannot make fleets, trying again", "err", err)
		}
		p.health = err
		p.mu.Unlock()
		if wait = min(next, reread); err != nil {
			wait = min(cmp.Or(next, retryFirst*5), retryFirst*5)
		}
	}
}

// startingError says what is not listed yet, though nothing prevents that. It is logged only if it takes long.
type startingError struct{ error }

// startTime is how long that may take after the start. It takes milliseconds.
const startTime = 15 * time.Second

func settled(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(settle):
	}
}

// turn makes all fleets what Gateways ask for, and returns when the next turn is due without a change.
func (p *provisioner) turn(ctx context.Context) (next time.Duration, err error) {
	seen := seen(p.watch)
	switch {
	case seen.Missing != nil && seen.Starting:
		return retryFirst, startingError{seen.Missing}
	case seen.Missing != nil:
		return retryFirst, seen.Missing
	}
	ctx, end, leading := p.leader.Term(ctx)
	defer end()
	if !leading {
		p.made, p.states = nil, map[types.NamespacedName]*state{} // another process continues
		p.metrics.fleets.Reset()
		return p.Resync, p.leader.Trouble()
	}
	values, rules, err := p.operators()
	if err != nil {
		return p.Resync, err
	}
	alone := !slices.ContainsFunc(seen.Classes, func(c *gatewayv1.GatewayClass) bool { return string(c.Spec.ControllerName) == rules.Controller })
	if alone && !p.alone {
		p.Log.Warn("no GatewayClass has the controller: no Gateway gets a fleet", "controller", rules.Controller)
	}
	p.alone = alone
	now := time.Now()
	if p.made == nil || now.Sub(p.read) >= p.Resync {
		if p.made, err = p.records.list(ctx); err != nil {
			p.made = nil
			return retryFirst, err
		}
		p.read = now
	}
	fleets := Plan(seen.World, rules, p.made)
	next = p.bring(ctx, fleets, values, now)
	removal, again := p.removeAll(ctx, seen, fleets, now)
	p.say(fleets, removal)
	return min(next, again), seen.Stale
}

// operators reads the operator's values, and which ports the pods need with them.
func (p *provisioner) operators() (map[string]any, Rules, error) {
	rules := p.Rules
	values, err := ReadValues(p.Values)
	if err != nil {
		return nil, rules, err
	}
	merged, err := p.chart.Merged(values)
	if err != nil {
		return nil, rules, err
	}
	rules.Reserved = Reserved(merged)
	return values, rules, nil
}

// task is a fleet that is due.
type task struct {
	fleet  Fleet
	record Record
	moved  bool // the record names another controller so far
	values map[string]any
	digest [sha256.Size]byte
	state  *state
}

// due returns the fleets that are to be applied now, and when the next of the others is due.
func (p *provisioner) due(fleets []Fleet, values map[string]any, now time.Time) (tasks []task, next time.Duration) {
	next = p.Resync
	for _, f := range fleets {
		if f.Refused != "" {
			delete(p.states, f.Name)
			continue
		}
		r, there := p.made[f.Name]
		if !there {
			r = newRecord(f, p.Rules.Controller)
		}
		moved := r.Controller != p.Rules.Controller
		r.Controller = p.Rules.Controller
		own := Values(values, f, r, p.Rules.Controller)
		s, digest := p.states[f.Name], digestOf(own, f)
		if s == nil {
			s = &state{}
			p.states[f.Name] = s
		}
		if due := s.due(p.Resync); s.digest == digest && due.After(now) && there && !moved {
			next = min(next, due.Sub(now))
			continue
		}
		tasks = append(tasks, task{f, r, moved, own, digest, s})
	}
	return tasks, next
}

// bring applies the fleets that should exist, a few at the same time, and returns when the next one is due.
func (p *provisioner) bring(ctx context.Context, fleets []Fleet, values map[string]any, now time.Time) time.Duration {
	tasks, next := p.due(fleets, values, now)
	var group errgroup.Group
	group.SetLimit(atOnce)
	var mu sync.Mutex // of next and done
	done := map[types.NamespacedName]Record{}
	for _, t := range tasks {
		group.Go(func() error {
			r, err := p.one(ctx, t)
			if ctx.Err() != nil {
				return nil // the term is over; nothing is known
			}
			mu.Lock()
			defer mu.Unlock()
			t.state.ended(p, t.fleet, t.digest, err)
			next = min(next, max(0, time.Until(t.state.due(p.Resync))))
			if len(r.Objects) > 0 {
				done[t.fleet.Name] = r
			}
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
	maps.Copy(p.made, done)
	return next
}

// digestOf returns a digest of everything that decides about the objects of a fleet.
func digestOf(values map[string]any, f Fleet) [sha256.Size]byte {
	text, err := json.Marshal([]any{values, f.Labels, f.Annotations})
	if err != nil {
		return [sha256.Size]byte{} // never happens, for values that came from YAML
	}
	return sha256.Sum256(text)
}

// due returns when a fleet is processed again if nothing changes.
func (s *state) due(resync time.Duration) time.Time {
	if s.err != nil {
		return s.at.Add(s.retries)
	}
	return s.at.Add(resync)
}

// ended records the result of the work on a fleet.
func (s *state) ended(p *provisioner, f Fleet, digest [sha256.Size]byte, err error) {
	result := "applied"
	switch {
	case err == nil:
		s.retries = 0
		if s.digest != digest || s.err != nil {
			p.Log.Info("fleet applied", "fleet", f.Name.String(), "ports", f.Ports)
		}
	default:
		s.retries = min(max(2*s.retries, retryFirst), retryLast)
		if result = "error"; errors.Is(err, ErrForeign) {
			result = "foreign"
		}
		if s.err == nil || s.err.Error() != err.Error() {
			p.Log.Error("fleet cannot be made", "fleet", f.Name.String(), "err", err)
		}
	}
	p.metrics.synced.WithLabelValues(result).Inc()
	s.digest, s.err, s.at = digest, err, time.Now()
}

// one renders and applies a fleet. If a fleet triggers a panic, neither the other fleets nor the program end.
func (p *provisioner) one(ctx context.Context, t task) (out Record, err error) {
	out = t.record
	if t.moved {
		if err := p.records.save(ctx, out); err != nil {
			p.Log.Warn("cannot write down which controller a fleet is for", "fleet", t.fleet.Name.String(), "err", err)
		}
	}
	err = process.Caught(func() error {
		objects, err := p.chart.Objects(t.fleet, t.record, p.cluster.provisioner, t.values)
		if err != nil {
			return err
		}
		if err := inside(t.fleet, t.record, objects); err != nil {
			return err
		}
		out, err = p.cluster.sync(ctx, t.record, objects, func(r Record) error { return p.records.save(ctx, r) })
		return err
	})
	return out, err
}

// removeAll deletes the fleets that no Gateway names, if that is certain.
func (p *provisioner) removeAll(ctx context.Context, seen Seen, fleets []Fleet, now time.Time) (Removal, time.Duration) {
	next := p.Resync
	if seen.Stale != nil {
		return Removal{}, next
	}
	removal := Removals(p.made, fleets, p.MaxRemovals, p.Grace, now)
	for _, r := range removal.Mark {
		if err := p.records.save(ctx, r); err != nil {
			p.Log.Warn("cannot write down since when no Gateway names a fleet", "fleet", r.Fleet.String(), "err", err)
			return removal, retryFirst
		}
		p.made[r.Fleet] = r
	}
	if !removal.Next.IsZero() {
		next = min(next, max(0, removal.Next.Sub(now)))
	}
	for _, r := range removal.Remove {
		if err := p.remove(ctx, seen, r); err != nil {
			p.metrics.removed.WithLabelValues("error").Inc()
			if p.stuck[r.Fleet] != err.Error() {
				p.Log.Error("fleet cannot be removed", "fleet", r.Fleet.String(), "err", err)
			}
			p.stuck[r.Fleet] = err.Error()
			next = min(next, retryFirst*10)
		}
	}
	for _, r := range sorted(p.made) {
		if r.Gone && p.read.Equal(now) {
			p.forget(ctx, r)
		}
	}
	return removal, next
}

// remove deletes a fleet, unless a Gateway names it after all.
func (p *provisioner) remove(ctx context.Context, seen Seen, r Record) error {
	foreign := map[string]bool{}
	for _, c := range seen.Classes {
		foreign[c.Name] = string(c.Spec.ControllerName) != r.Controller
	}
	by, err := p.cluster.named(ctx, r.Fleet, foreign)
	switch {
	case err != nil:
		return err
	case by != "" && r.Controller != p.Rules.Controller:
		return fmt.Errorf("the Gateway %s names it, which is for the controller %s, and this provisioner is for %s", by, r.Controller, p.Rules.Controller)
	case by != "":
		return fmt.Errorf("the Gateway %s names it", by)
	}
	left, err := p.cluster.remove(ctx, r, r.Objects)
	if err != nil {
		return err
	}
	p.metrics.removed.WithLabelValues("removed").Inc()
	delete(p.states, r.Fleet)
	delete(p.stuck, r.Fleet)
	if len(left) == 0 {
		p.Log.Info("fleet removed", "fleet", r.Fleet.String())
		delete(p.made, r.Fleet)
		return p.records.forget(ctx, r)
	}
	p.Log.Info("fleet removed; its store stays", "fleet", r.Fleet.String(), "store", r.Store)
	r.Objects, r.Gone = left, true
	p.made[r.Fleet] = r
	return p.records.save(ctx, r)
}

// forget drops the record of a fleet that is gone, once somebody has deleted its store.
func (p *provisioner) forget(ctx context.Context, r Record) {
	for _, ref := range r.Objects {
		if o, err := p.cluster.get(ctx, ref); err != nil || o != nil && r.owns(o, p.cluster.provisioner) {
			return
		}
	}
	if err := p.records.forget(ctx, r); err != nil {
		p.Log.Warn("cannot forget a fleet that has gone", "fleet", r.Fleet.String(), "err", err)
		return
	}
	delete(p.made, r.Fleet)
	p.Log.Info("fleet forgotten, as its store is deleted", "fleet", r.Fleet.String())
}
