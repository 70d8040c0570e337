package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/hapsnap/hapsnap/internal/testing/worlds"
)

// routeRows measure what gateway-api-bench does to others: routes that are attached, and routes and endpoints that change all
// the time.
var routeRows = []row{
	{name: "attached", what: "HTTPRoutes created at once, from the last write until the Gateway's status counts them all", limit: oneSecond, goal: 2, unit: seconds, most: 10_000, cluster: true, measure: shown("attached", attachedRoutes)},
	{name: "attached-told", what: "the same, until each route has its status", limit: "10 ms for each", goal: 1, unit: seconds, most: 10_000, cluster: true, measure: shown("attached-told", attachedRoutes)},
	{name: "detached", what: "two of five deleted at once, from the last write until the Gateway's status counts the rest", limit: oneSecond, goal: 2, unit: seconds, most: 10_000, cluster: true, measure: shown("detached", attachedRoutes)},
	{name: "attached-writes", what: "writes of the Gateway's status for both", limit: "the routes", unit: requests, most: 10_000, cluster: true, measure: shown("attached-writes", attachedRoutes)},
	{name: "churn", what: "a host more while ten endpoints and an Ingress change each second, the slowest of 20 (directory)", limit: oneSecond, goal: 1, unit: seconds, most: 10_000, cluster: true, measure: shown("churn", churn)},
	{name: "churn-programs", what: "processor time of the compiler and the pusher meanwhile, each second", limit: oneSecond, unit: seconds, most: 10_000, cluster: true, measure: shown("churn-programs", churn)},
	{name: "churn-haproxy", what: "processor time of HAProxy meanwhile, each second", limit: oneSecond, unit: seconds, most: 10_000, cluster: true, measure: shown("churn-haproxy", churn)},
}

// attachedRoutes creates all routes of a world and deletes some, beside a compiler.
func attachedRoutes(ctx context.Context, w *world) (_ showing, err error) {
	objects := worlds.Routes(w.n)
	routes := objects.Gateway.HTTPRoutes
	objects.Gateway.HTTPRoutes = nil
	c, err := newCluster(ctx, w.of(w.n, objects))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.server.Close()) }()
	seen, err := c.watchGateway(ctx)
	if err != nil {
		return nil, err
	}
	defer seen.stop()
	compiler, err := c.compiler(ctx, "dir:"+filepath.Join(w.dir, fmt.Sprint("attached-", w.n)))
	if err != nil {
		return nil, err
	}
	defer compiler.end()
	if err := seen.until(ctx, compiler, 0); err != nil {
		return nil, err
	}
	before := seen.writes.Load()
	var names []types.NamespacedName
	jobs, within := errgroup.WithContext(ctx)
	jobs.SetLimit(writers)
	for _, o := range routes {
		names = append(names, types.NamespacedName{Namespace: o.Ref.Namespace, Name: o.Ref.Name})
		jobs.Go(func() error { return c.ofGateways(within, "HTTPRoute", "httproutes", o.Value) })
	}
	if err := jobs.Wait(); err != nil {
		return nil, err
	}
	created := time.Now()
	if err := seen.until(ctx, compiler, len(routes)); err != nil {
		return nil, err
	}
	attached := time.Since(created)
	if err := c.told(ctx); err != nil {
		return nil, err
	}
	told := time.Since(created)
	jobs, within = errgroup.WithContext(ctx)
	jobs.SetLimit(writers)
	names = names[:len(names)*2/5] // of half, the compiler would ask whether that is meant
	for _, name := range names {
		jobs.Go(func() error {
			return c.gateway.Resource(ofGateways("httproutes")).Namespace(name.Namespace).Delete(within, name.Name, metav1.DeleteOptions{})
		})
	}
	if err := jobs.Wait(); err != nil {
		return nil, err
	}
	deleted := time.Now()
	if err := seen.until(ctx, compiler, len(routes)-len(names)); err != nil {
		return nil, err
	}
	detached := time.Since(deleted)
	return showing{
		"attached":        {Limit: 1, Work: attached.Seconds(), Turns: 1},
		"attached-told":   {Limit: 0.01 * float64(len(routes)), Work: told.Seconds(), Turns: 1},
		"detached":        {Limit: 1, Work: detached.Seconds(), Turns: 1},
		"attached-writes": {Limit: float64(len(routes)), Work: float64(seen.writes.Load() - before), Turns: 1},
	}, nil
}

// counting is what the status of the Gateway says of its routes.
type counting struct {
	stop   func()
	routes atomic.Int64 // -1: nothing yet
	writes atomic.Int64
}

// watchGateway counts what is written of the Gateway.
func (c *inCluster) watchGateway(ctx context.Context) (*counting, error) {
	from, err := c.gateway.Resource(ofGateways("gateways")).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := &counting{stop: from.Stop}
	out.routes.Store(-1)
	go func() {
		for e := range from.ResultChan() {
			g, is := e.Object.(*unstructured.Unstructured)
			if !is {
				continue
			}
			if e.Type == watch.Modified {
				out.writes.Add(1)
			}
			listeners, _, _ := unstructured.NestedSlice(g.Object, "status", "listeners")
			for _, l := range listeners {
				if fields, is := l.(map[string]any); is {
					count, _ := fields["attachedRoutes"].(int64)
					out.routes.Store(count)
				}
			}
		}
	}()
	return out, nil
}

// until waits until the Gateway counts so many routes.
func (s *counting) until(ctx context.Context, compiler *running, routes int) error {
	return compiler.until(ctx, func() bool { return s.routes.Load() == int64(routes) })
}

// churn measures a host more, and what the programs use, while endpoints and routes change all the time.
func churn(ctx context.Context, w *world) (_ showing, err error) {
	if w.n >= fewInCluster {
		w = w.of(w.n, worlds.Ingresses(w.n)).sharingServices(perService)
	}
	a, err := newWhole(ctx, w, 1, "dir:"+filepath.Join(w.dir, fmt.Sprint("churn-", w.n)))
	if err != nil {
		return nil, err
	}
	defer a.end()
	if err := a.rest(ctx, 1); err != nil {
		return nil, err
	}
	worker, err := a.edges[0].WorkerPID()
	if err != nil {
		return nil, err
	}
	pids := [][]int{{a.programs[0].cmd.Process.Pid, a.programs[1].cmd.Process.Pid}, {worker}}
	before, err := processorTimes(pids)
	if err != nil {
		return nil, err
	}
	changing, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	var failed error
	done.Go(func() { failed = a.changeAll(changing) })
	began := time.Now()
	var took []time.Duration
	for n := range newHosts {
		from := time.Now()
		if err = a.host(ctx, fmt.Sprintf("new-%d.example", n)); err != nil {
			break
		}
		took = append(took, time.Since(from))
		select { // so that hosts come at any moment between two changes
		case <-ctx.Done():
		case <-time.After(time.Second + time.Duration(n)*50*time.Millisecond):
		}
	}
	stop()
	done.Wait()
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	lasted := time.Since(began).Seconds()
	after, err := processorTimes(pids)
	if err != nil {
		return nil, err
	}
	if now, err := a.edges[0].WorkerPID(); err != nil || now != worker {
		return nil, errors.Join(err, errors.New("the instance was reloaded"))
	}
	return showing{
		"churn":          {Limit: 1, Work: slices.Max(took).Seconds(), Turns: newHosts},
		"churn-programs": {Limit: 1, Work: (after[0] - before[0]) / lasted, Turns: 1},
		"churn-haproxy":  {Limit: 1, Work: (after[1] - before[1]) / lasted, Turns: 1},
	}, nil
}

// changeAll replaces ten endpoints each second, and gives an Ingress another path, until ctx ends.
func (a *whole) changeAll(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	slicesOfAll, ingresses := a.objects.EndpointSlices, a.objects.Ingresses
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		of := slicesOfAll[n*7%len(slicesOfAll)].Value
		err := replaced(ctx, a.client.DiscoveryV1().EndpointSlices(of.Namespace), of.Name, "/endpoints/0/addresses/0", fmt.Sprintf("10.250.%d.%d", n>>8&255, n&255))
		if n%10 == 0 && err == nil {
			of := ingresses[n/10*7%len(ingresses)].Value
			err = replaced(ctx, a.client.NetworkingV1().Ingresses(of.Namespace), of.Name, "/spec/rules/0/http/paths/0/path", fmt.Sprint("/churn-", n))
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// replaced replaces a field of an object.
func replaced[T any](ctx context.Context, of interface {
	Patch(ctx context.Context, name string, how types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) (T, error)
}, name, field string, value any) error {
	data, err := json.Marshal([]map[string]any{{"op": "replace", "path": field, "value": value}})
	if err != nil {
		return err
	}
	_, err = of.Patch(ctx, name, types.JSONPatchType, data, metav1.PatchOptions{})
	return err
}

// processorTimes returns how long some groups of processes have used processors, in seconds.
func processorTimes(groups [][]int) ([]float64, error) {
	out := make([]float64, len(groups))
	for i, pids := range groups {
		for _, pid := range pids {
			took, err := processorTime(pid)
			if err != nil {
				return nil, err
			}
			out[i] += took
		}
	}
	return out, nil
}
