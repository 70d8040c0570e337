package main

import (
	"bufio"
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
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
	"github.com/hapsnap/hapsnap/internal/testing/worlds"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// clusterRows are the rows about a whole cluster.
var clusterRows = []row{
	{name: "start", what: "a compiler starts with the objects in an API server, to the published snapshot", limit: "lists of Ingresses, Services and Secrets", goal: 1.5, unit: seconds, most: 50_000, cluster: true, measure: start},
	{name: "host-served", what: "a host more on a served Service, from its write to the API server to the first answer, the slowest of 20 (directory)", limit: servedLimit, goal: 1, unit: seconds, most: 50_000, cluster: true, measure: newHost(inDirectory)},
	{name: "host-served-configmap", what: "the same with the store in ConfigMaps", limit: servedLimit, goal: 1, unit: seconds, most: 50_000, cluster: true, measure: newHost(inConfigMaps)},
	{name: "route-served", what: "the same by an HTTPRoute among as many, in place of Ingresses (directory)", limit: servedLimit, goal: 1, unit: seconds, most: 50_000, cluster: true, measure: newRoute},
	{name: "service-served", what: "a new Service with its host, from the write to the first answer", limit: "`haproxy -c` and a reload", goal: 1.3, unit: seconds, most: 10_000, cluster: true, measure: newService},
	{name: "changes-under-load", what: "requests that fail while hosts come and theirs moves to another Service and back, 100 changes on three instances", limit: "the requests", unit: requests, most: 1000, cluster: true, measure: changesUnderLoad},
	{name: "routes-under-load", what: "the same of HTTPRoutes", limit: "the requests", unit: requests, most: 1000, cluster: true, measure: routesUnderLoad},
}

const (
	writers    = 16 // of objects, at the same time
	newHosts   = 20 // of the row about one
	underLoad  = 100
	clients    = 8
	podAddress = "10.244.3.7" // which is this machine's in the namespace
	firstHost  = "first.example"
	shop       = "bench-shop"

	manyInCluster = 50_000 // from which on a new host may take longer
	fewInCluster  = 10_000 // from which on several Ingresses share a Service, see perService
	servedLimit   = "300 ms up to 3,000; 2 s at 50,000, and in proportion between"
)

// inCluster is a world in an API server.
type inCluster struct {
	*world
	server  *kubetest.Server
	client  *kubernetes.Clientset
	gateway dynamic.Interface // of the objects of the Gateway API, nil where there are none
	hosts   int
}

// newCluster starts an API server that has the world.
func newCluster(ctx context.Context, w *world) (*inCluster, error) {
	server, err := kubetest.New()
	if err != nil {
		return nil, err
	}
	c := &inCluster{world: w.atEdges(), server: server}
	if c.client, err = kubernetes.NewForConfig(server.Config()); err == nil && len(w.objects.Gateway.Classes) > 0 {
		err = c.installGateways()
	}
	if err == nil {
		err = c.fill(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return c, nil
}

// fill writes the objects of the world.
func (c *inCluster) fill(ctx context.Context) error {
	for n := 0; n < c.n; n += worlds.PerNamespace {
		if err := c.namespace(ctx, worlds.Namespace(n)); err != nil {
			return err
		}
	}
	jobs, ctx := errgroup.WithContext(ctx)
	jobs.SetLimit(writers)
	for _, o := range c.objects.Services {
		s := o.Value.DeepCopy()
		s.Spec.ClusterIP = corev1.ClusterIPNone // nobody asks for an address, and the API server gives thousands of them out slowly
		jobs.Go(func() error { return created(ctx, c.client.CoreV1().Services(s.Namespace), s) })
	}
	for _, o := range c.objects.EndpointSlices {
		jobs.Go(func() error {
			return created(ctx, c.client.DiscoveryV1().EndpointSlices(o.Value.Namespace), o.Value.DeepCopy())
		})
	}
	for _, o := range c.objects.Secrets {
		jobs.Go(func() error { return created(ctx, c.client.CoreV1().Secrets(o.Value.Namespace), o.Value.DeepCopy()) })
	}
	for _, o := range c.objects.Ingresses {
		jobs.Go(func() error {
			return created(ctx, c.client.NetworkingV1().Ingresses(o.Value.Namespace), o.Value.DeepCopy())
		})
	}
	for kind, o := range c.objects.Gateway.Each() {
		jobs.Go(func() error { return c.ofGateways(ctx, kind.Name, kind.Resource, o.Value) })
	}
	return jobs.Wait()
}

// installGateways has the API server know the kinds of the Gateway API.
func (c *inCluster) installGateways() error {
	crds, err := kubetest.GatewayAPIFolder()
	if err != nil {
		return err
	}
	if _, err := envtest.InstallCRDs(c.server.Config(), envtest.CRDInstallOptions{Paths: []string{crds}}); err != nil {
		return err
	}
	c.gateway, err = dynamic.NewForConfig(c.server.Config())
	return err
}

// ofGateways creates an object of the Gateway API.
func (c *inCluster) ofGateways(ctx context.Context, kind, resource string, o metav1.Object) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return err
	}
	delete(fields, "status")
	u := &unstructured.Unstructured{Object: fields}
	u.SetAPIVersion(gatewayv1.GroupVersion.String())
	u.SetKind(kind)
	u.SetResourceVersion("")
	u.SetUID("")
	of := ofGateways(resource)
	var to dynamic.ResourceInterface = c.gateway.Resource(of)
	if u.GetNamespace() != "" {
		to = c.gateway.Resource(of).Namespace(u.GetNamespace())
	}
	_, err = to.Create(ctx, u, metav1.CreateOptions{})
	return err
}

// ofGateways names a resource of the Gateway API.
func ofGateways(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: gatewayv1.GroupVersion.Version, Resource: resource}
}

// exampleRoute is the first HTTPRoute of the world, nil if there is none.
func (c *inCluster) exampleRoute() *gatewayv1.HTTPRoute {
	for _, o := range c.objects.Gateway.Each() {
		if r, ok := o.Value.(*gatewayv1.HTTPRoute); ok {
			return r
		}
	}
	return nil
}

func (c *inCluster) namespace(ctx context.Context, name string) error {
	_, err := c.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// created creates an object, which is its own: the API server gives it its version.
func created[T metav1.Object](ctx context.Context, to interface {
	Create(ctx context.Context, o T, how metav1.CreateOptions) (T, error)
}, o T) error {
	o.SetResourceVersion("")
	o.SetUID("")
	_, err := to.Create(ctx, o, metav1.CreateOptions{})
	return err
}

// compiler starts a compiler of the cluster.
func (c *inCluster) compiler(ctx context.Context, store string) (*running, error) {
	return c.run(ctx, "compiler", "run", "--kubeconfig", c.server.Kubeconfig(), "--store", store, "--haproxy", c.check.Path,
		fmt.Sprintf("--gateway-api=%t", c.gateway != nil), "--bind-address", "${BIND_ADDRESS}", "--http-port", fmt.Sprint(httpPort), "--https-port", fmt.Sprint(httpsPort), "--status-port", "0")
}

// start compares a compiler that starts with the lists of what it watches.
func start(ctx context.Context, w *world) (_ Cell, err error) {
	c, err := newCluster(ctx, w)
	if err != nil {
		return Cell{}, err
	}
	defer func() { err = errors.Join(err, c.server.Close()) }()
	n := 0
	cell, err := c.inTurns(ctx, plain(func() error { return c.lists(ctx) }), func(ctx context.Context) (func() error, error) {
		n++
		store := dirstore.Open(filepath.Join(w.dir, fmt.Sprintf("started-%d-%d", w.n, n)), dirstore.Options{})
		return func() error {
			p, err := c.compiler(ctx, store.String())
			if err != nil {
				return err
			}
			defer p.end()
			return p.until(ctx, func() bool {
				ids, err := store.IDs(ctx)
				return err == nil && len(ids) > 0
			})
		}, nil
	})
	return cell, err
}

// lists lists what a compiler watches, side by side, as informers do.
func (c *inCluster) lists(ctx context.Context) error {
	jobs, ctx := errgroup.WithContext(ctx)
	all := metav1.ListOptions{ResourceVersion: "0"}
	jobs.Go(func() error {
		_, err := c.client.NetworkingV1().Ingresses("").List(ctx, all)
		return err
	})
	jobs.Go(func() error {
		_, err := c.client.CoreV1().Services("").List(ctx, all)
		return err
	})
	jobs.Go(func() error {
		_, err := c.client.CoreV1().Secrets("").List(ctx, all)
		return err
	})
	return jobs.Wait()
}

// historyInConfigMaps publishes a history to the ConfigMaps of a cluster.
func historyInConfigMaps(ctx context.Context, w *world) (_ Cell, err error) {
	server, err := kubetest.New()
	if err != nil {
		return Cell{}, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	s, err := configmapstore.Open(configmapstore.Options{Config: server.Config(), Namespace: "default", Name: "edge"})
	if err != nil {
		return Cell{}, err
	}
	return grown(ctx, s)
}

// whole is a cluster with a compiler, a pusher, and instances that serve it.
type whole struct {
	*inCluster
	edges    []edge
	programs []*running
	ends     []func()
	asks     http.Client
	port     int // on which instances answer
}

func newWhole(ctx context.Context, w *world, instances int, store string) (_ *whole, err error) {
	c, err := newCluster(ctx, w)
	if err != nil {
		return nil, err
	}
	a := &whole{inCluster: c, asks: http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}, port: httpPort}
	if c.gateway != nil {
		a.port = worlds.GatewayPort
	}
	a.ends = append(a.ends, func() { _ = c.server.Close() })
	defer func() {
		if err != nil {
			a.end()
		}
	}()
	if err := a.serveShop(ctx, web); err != nil {
		return nil, err
	}
	if a.edges, err = w.startEdges(instances); err != nil {
		return nil, err
	}
	a.ends = append(a.ends, func() { closeEdges(a.edges) })
	var entries []string
	for _, e := range a.edges {
		entries = append(entries, e.entry())
	}
	fleet, err := w.fleetFile(entries, unlimited)
	if err != nil {
		return nil, err
	}
	compiler, err := a.compiler(ctx, store)
	if err != nil {
		return nil, err
	}
	a.programs, a.ends = append(a.programs, compiler), append(a.ends, compiler.end)
	pusher, err := w.run(ctx, "pusher", "run", "--kubeconfig", c.server.Kubeconfig(), "--store", store, "--instances", fleet,
		"--state", filepath.Join(filepath.Dir(fleet), "state.json"), "--refuse-endpoints", "none")
	if err != nil {
		return nil, err
	}
	a.programs, a.ends = append(a.programs, pusher), append(a.ends, pusher.end)
	return a, a.host(ctx, firstHost)
}

func (a *whole) end() {
	for _, end := range slices.Backward(a.ends) {
		end()
	}
}

// The Services of the shop, the ports of their endpoints, and what these answer.
var (
	web   = shopService{"web", 8080, "here"}
	other = shopService{"other", 8081, "there"}
)

type shopService struct {
	name   string
	port   int32
	answer string
}

// serveShop has a Service whose endpoint answers.
func (a *whole) serveShop(ctx context.Context, s shopService) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprint(podAddress, ":", s.port))
	if err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s.answer) })}
	go func() { _ = server.Serve(listener) }()
	a.ends = append(a.ends, func() { _ = server.Close() })
	if err := a.namespace(ctx, shop); err != nil {
		return err
	}
	return a.service(ctx, s.name, s.port)
}

// service makes a Service with an endpoint that answers.
func (a *whole) service(ctx context.Context, name string, port int32) error {
	service, slice := a.objects.Services[0].Value.DeepCopy(), a.objects.EndpointSlices[0].Value.DeepCopy()
	service.ObjectMeta = metav1.ObjectMeta{Namespace: shop, Name: name}
	slice.ObjectMeta = metav1.ObjectMeta{Namespace: shop, Name: name + "-x", Labels: map[string]string{"kubernetes.io/service-name": name}}
	slice.Endpoints = slice.Endpoints[:1]
	slice.Endpoints[0].Addresses, slice.Ports[0].Port = []string{podAddress}, &port
	return errors.Join(created(ctx, a.client.CoreV1().Services(shop), service), created(ctx, a.client.DiscoveryV1().EndpointSlices(shop), slice))
}

// ingress makes an Ingress for a host.
func (a *whole) ingress(ctx context.Context, host, service string) error {
	a.hosts++
	ing := a.objects.Ingresses[0].Value.DeepCopy()
	ing.ObjectMeta = metav1.ObjectMeta{Namespace: shop, Name: fmt.Sprintf("host-%d", a.hosts)}
	ing.Spec.TLS, ing.Spec.Rules = nil, []networkingv1.IngressRule{*ing.Spec.Rules[0].DeepCopy()}
	ing.Spec.Rules[0].Host, ing.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name = host, service
	return created(ctx, a.client.NetworkingV1().Ingresses(shop), ing)
}

// route makes an HTTPRoute for a host.
func (a *whole) route(ctx context.Context, host, service string) error {
	a.hosts++
	r := a.exampleRoute().DeepCopy()
	r.ObjectMeta = metav1.ObjectMeta{Namespace: shop, Name: fmt.Sprintf("host-%d", a.hosts)}
	r.Spec.Hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(host)}
	r.Spec.Rules[0].BackendRefs[0].Name = gatewayv1.ObjectName(service)
	return a.ofGateways(ctx, "HTTPRoute", "httproutes", r)
}

// host makes an Ingress, or an HTTPRoute where the others are such, and waits until all instances answer.
func (a *whole) host(ctx context.Context, host string) error {
	if err := a.lead(ctx, host, web.name); err != nil {
		return err
	}
	return a.answers(ctx, host, web)
}

// lead makes an Ingress or an HTTPRoute that leads a host to a Service.
func (a *whole) lead(ctx context.Context, host, service string) error {
	if a.gateway != nil {
		return a.route(ctx, host, service)
	}
	return a.ingress(ctx, host, service)
}

// move leads the first host to another Service.
func (a *whole) move(ctx context.Context, service string) error {
	if a.gateway != nil {
		of := a.gateway.Resource(ofGateways("httproutes")).Namespace(shop)
		return replaced(ctx, of, "host-1", "/spec/rules/0/backendRefs/0/name", service)
	}
	return replaced(ctx, a.client.NetworkingV1().Ingresses(shop), "host-1", "/spec/rules/0/http/paths/0/backend/service/name", service)
}

// answers waits until all instances answer for a host with 200, and with what a Service answers.
func (a *whole) answers(ctx context.Context, host string, from shopService) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, e := range a.edges {
		for !a.ok(ctx, e, host, from.answer) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s does not answer for %s: %w: %s", e.name, host, ctx.Err(), a.programs[len(a.programs)-1].log())
			case <-time.After(2 * time.Millisecond):
			}
		}
	}
	return nil
}

func (a *whole) ok(ctx context.Context, e edge, host, want string) bool {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:%d/", e.address, a.port), http.NoBody)
	if err != nil {
		return false
	}
	q.Host = host
	answer, err := a.asks.Do(q)
	if err != nil {
		return false
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	return err == nil && answer.StatusCode == http.StatusOK && string(body) == want
}

// rest waits until so many rollouts are done, and nobody works at the last one any more.
func (a *whole) rest(ctx context.Context, rollouts int) error {
	pusher := a.programs[len(a.programs)-1]
	err := pusher.until(ctx, func() bool {
		text, _ := os.ReadFile(pusher.said.Name())
		return strings.Count(string(text), `msg="rollout done"`) >= rollouts
	})
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
	return errors.Join(err, ctx.Err())
}

// told waits until the status of each HTTPRoute says what became of it. A compiler that starts writes all of them, at the
// rate that it keeps to, which a host in between waits for.
func (c *inCluster) told(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for c.gateway != nil {
		routes, err := c.gateway.Resource(ofGateways("httproutes")).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		untold := slices.IndexFunc(routes.Items, func(r unstructured.Unstructured) bool { return !isTold(r) })
		if untold < 0 {
			return nil
		}
		// All of them again only if this one is: lists of many take the machine's time.
		for one := routes.Items[untold]; !isTold(one); {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(100 * time.Millisecond):
			}
			now, err := c.gateway.Resource(ofGateways("httproutes")).Namespace(one.GetNamespace()).Get(ctx, one.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			one = *now
		}
	}
	return nil
}

// isTold reports whether the status of a route says something.
func isTold(r unstructured.Unstructured) bool {
	parents, _, _ := unstructured.NestedSlice(r.Object, "status", "parents")
	return len(parents) > 0
}

// newHost measures a host more on a Service that is served, from the write to the first answer. It is
// the slowest of several, and fails if an instance reloads.
func newHost(store func(w *world) string) func(context.Context, *world) (Cell, error) {
	return func(ctx context.Context, w *world) (Cell, error) {
		shares := perService
		if w.n >= manyInCluster {
			shares = perServiceOfMany
		}
		if w.n >= fewInCluster {
			again := worlds.Ingresses // the world is others' as well
			if len(w.objects.Ingresses) == 0 {
				again = worlds.Routes
			}
			w = w.of(w.n, again(w.n)).sharingServices(shares)
		}
		a, err := newWhole(ctx, w, 1, store(w))
		if err != nil {
			return Cell{}, err
		}
		defer a.end()
		var worker int // once the first rollout is over
		var took []time.Duration
		for n := range newHosts {
			if err := a.rest(ctx, n+1); err != nil {
				return Cell{}, err
			}
			if n == 0 {
				worker, err = a.edges[0].WorkerPID()
				if err = errors.Join(err, a.told(ctx)); err != nil {
					return Cell{}, err
				}
			}
			began := time.Now()
			if err := a.host(ctx, fmt.Sprintf("new-%d.example", n)); err != nil {
				return Cell{}, err
			}
			took = append(took, time.Since(began))
		}
		if now, err := a.edges[0].WorkerPID(); err != nil || now != worker {
			return Cell{}, errors.Join(err, errors.New("the instance was reloaded"))
		}
		return Cell{Limit: servedWithin(w.n).Seconds(), Work: slices.Max(took).Seconds(), Turns: newHosts}, nil
	}
}

// servedWithin is the limit for a new host among n Ingresses, see servedLimit.
func servedWithin(n int) time.Duration {
	const few, many = 3000, 50_000
	least, most := 300*time.Millisecond, 2*time.Second
	return least + (most-least)*time.Duration(min(max(n, few), many)-few)/(many-few)
}

// newRoute is newHost in a cluster of HTTPRoutes.
func newRoute(ctx context.Context, w *world) (Cell, error) {
	r := w.of(w.n, worlds.Routes(w.n))
	return newHost(func(w *world) string { return "dir:" + filepath.Join(w.dir, fmt.Sprint("routes-", w.n)) })(ctx, r)
}

// newService compares a new Service with its host with a check and a reload.
func newService(ctx context.Context, w *world) (Cell, error) {
	a, err := newWhole(ctx, w, 1, "dir:"+filepath.Join(w.dir, fmt.Sprint("service-", w.n)))
	if err != nil {
		return Cell{}, err
	}
	defer a.end()
	n, config := 0, a.edges[0].ConfigFile()
	return w.inTurns(ctx, func(ctx context.Context) (func() error, error) {
		return func() error {
			check := exec.CommandContext(ctx, a.check.Path, "-c", "-f", config) //nolint:gosec // it was found on PATH
			check.Env = append(os.Environ(), "BIND_ADDRESS="+a.edges[0].address)
			if err := ran(check); err != nil {
				return err
			}
			_, err := a.edges[0].ReloadHAProxy()
			return err
		}, nil
	}, func(ctx context.Context) (func() error, error) {
		n++
		name := fmt.Sprintf("service-%d", n)
		select { // the pusher has looked at the instance, which was reloaded for the limit and could not be asked meanwhile
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(3 * time.Second):
		}
		return func() error {
			if err := errors.Join(a.service(ctx, name, web.port), a.ingress(ctx, name+".example", name)); err != nil {
				return err
			}
			return a.answers(ctx, name+".example", web)
		}, nil
	})
}

// changesUnderLoad has routes change under load, and counts the requests that fail.
func changesUnderLoad(ctx context.Context, w *world) (Cell, error) {
	a, err := newWhole(ctx, w, 3, "dir:"+filepath.Join(w.dir, fmt.Sprintf("loaded-%d-%d", w.n, len(w.objects.Gateway.HTTPRoutes))))
	if err != nil {
		return Cell{}, err
	}
	defer a.end()
	if err := a.serveShop(ctx, other); err != nil {
		return Cell{}, err
	}
	l := &load{stop: make(chan struct{})}
	for n := range clients {
		l.done.Go(func() { l.ask(ctx, fmt.Sprintf("%s:%d", a.edges[n%len(a.edges)].address, a.port)) })
	}
	for n := range underLoad {
		name := fmt.Sprintf("loaded-%d", n)
		switch n % 4 {
		case 0:
			err = a.host(ctx, name+".example")
		case 2: // which takes a reload
			if err = errors.Join(a.service(ctx, name, web.port), a.lead(ctx, name+".example", name)); err == nil {
				err = a.answers(ctx, name+".example", web)
			}
		default: // the host that is asked for
			at := other
			if n%4 == 3 {
				at = web
			}
			if err = a.move(ctx, at.name); err == nil {
				err = a.answers(ctx, firstHost, at)
			}
		}
		if err != nil {
			break
		}
	}
	close(l.stop)
	l.done.Wait()
	failed, _ := l.first.Load().(error)
	if failed != nil {
		fmt.Println("the first that failed:", failed)
	}
	return Cell{Limit: float64(l.asked.Load()), Work: float64(l.failed.Load()), Turns: underLoad}, err
}

// routesUnderLoad is changesUnderLoad in a cluster of HTTPRoutes.
func routesUnderLoad(ctx context.Context, w *world) (Cell, error) {
	return changesUnderLoad(ctx, w.of(w.n, worlds.Routes(w.n)))
}

// load asks for a host and counts what fails. It sends nothing twice.
type load struct {
	stop          chan struct{}
	done          sync.WaitGroup
	asked, failed atomic.Int64
	first         atomic.Value
}

// ask sends requests on a connection until the server says that it closes it.
func (l *load) ask(ctx context.Context, address string) {
	var conn net.Conn
	var reader *bufio.Reader
	for {
		select {
		case <-l.stop:
			return
		case <-time.After(5 * time.Millisecond):
		}
		l.asked.Add(1)
		var err error
		if conn == nil {
			if conn, err = new(net.Dialer).DialContext(ctx, "tcp", address); err == nil {
				reader = bufio.NewReader(conn)
			}
		}
		closes := false
		if err == nil {
			closes, err = request(conn, reader)
		}
		if err != nil {
			l.failed.Add(1)
			l.first.CompareAndSwap(nil, fmt.Errorf("%s: %w", address, err))
		}
		if conn != nil && (err != nil || closes) {
			_ = conn.Close()
			conn = nil
		}
	}
}

func request(conn net.Conn, reader *bufio.Reader) (closes bool, err error) {
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return false, err
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+firstHost+"\r\n\r\n"); err != nil {
		return false, err
	}
	answer, err := http.ReadResponse(reader, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = answer.Body.Close() }()
	_, err = io.Copy(io.Discard, answer.Body)
	if answer.StatusCode != http.StatusOK {
		err = errors.Join(err, errors.New(answer.Status))
	}
	return answer.Close, err
}
