package runtest

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hapsnap/hapsnap/charts/charttest"
	"github.com/hapsnap/hapsnap/internal/testing/imagetest"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
	"github.com/hapsnap/hapsnap/internal/testing/podtest"
)

// patience is how long a change may take to become visible on a busy machine.
const patience = 3 * time.Minute

// release is an installed chart with its pods.
type release struct {
	server    *kubetest.Server
	kubelet   *podtest.Kubelet
	namespace string
	values    []string

	misconfigured string // the pod of a compiler with a wrong configuration
}

// values are for all releases of these tests, which have little time. Leases are as in the chart: on a busy
// machine, a leader with shorter ones would lose its Lease. A leader that ends releases it. HAProxy waits as
// long for a request as the clients wait for a response: with the default, a client on a machine that stands
// still for ten seconds would get 408.
const values = `
haproxyLine: "2.6" # that of the oldest HAProxy that runs these tests
haproxy:
  drain: {seconds: 20, propagationSeconds: 6} # clients hear of endpoints late, on a busy machine too
  service: {type: ClusterIP}
compiler:
  webhook: {enabled: true, timeoutSeconds: 1}
  config: {timeouts: {httpRequest: 60s}}
pusher: {drainTime: 1s}
fleet: {rollout: {soak: 1s}}
`

// install renders the chart, creates its objects, and runs its pods.
func install(t *testing.T, namespace string, args ...string) *release {
	t.Helper()
	server := cluster.Server(t)
	built := map[string]imagetest.Image{}
	for _, target := range []string{"compiler", "pusher", "haproxy", "waf", "hapsnap"} {
		built["hapsnap/"+target] = image(t, target)
	}
	built["haproxytech/haproxy-debian"] = withShell(t, built["hapsnap/haproxy"])
	built["haproxytech/haproxy-alpine"] = built["hapsnap/haproxy"] // the same programs
	r := &release{server: server, namespace: namespace, values: args}
	server.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {pod-security.kubernetes.io/enforce: restricted}}}", namespace))
	r.kubelet = podtest.Start(t, server, podtest.Options{Namespaces: []string{namespace, "haproxy", secondRelease, gatewayFleet, provisioners, provisioned}, Image: func(name string) (imagetest.Image, bool) {
		name, _, _ = strings.Cut(name, ":")
		image, ok := built[path.Base(path.Dir(name))+"/"+path.Base(name)]
		return image, ok
	}})
	r.apply(t)
	return r
}

// apply renders the chart with additional arguments, and applies it.
func (r *release) apply(t *testing.T, args ...string) {
	t.Helper()
	text, err := charttest.Template(t, "helm", r.namespace, slices.Concat([]string{"--values", written(t, values)}, r.values, args)...)
	if err != nil {
		t.Fatal(err)
	}
	r.server.Apply(t, text)
}

// credentials is a Secret with a password of the Dataplane API, as a person writes it.
func (r *release) credentials(password string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: %s-hapsnap-dataplane, namespace: %s}, stringData: {username: hapsnap, password: %q}}\n", charttest.Release, r.namespace, password)
}

// addresses returns the ready endpoints of a Service.
func (r *release) addresses(service, port string) []string {
	return r.kubelet.Addresses(client.ObjectKey{Namespace: r.namespace, Name: service}, port)
}

// pods returns the pods of a component that are not terminating.
func (r *release) pods(t *testing.T, component string) map[string]corev1.Pod {
	t.Helper()
	var list corev1.PodList
	if err := r.server.Client().List(t.Context(), &list, client.InNamespace(r.namespace), client.MatchingLabels{"app.kubernetes.io/component": component}); err != nil {
		t.Fatal(err)
	}
	out := map[string]corev1.Pod{}
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			out[p.Name] = p
		}
	}
	return out
}

// names returns the names of a component's pods, also of terminating ones.
func (r *release) names(t *testing.T, component string) []string {
	t.Helper()
	var list corev1.PodList
	if err := r.server.Client().List(t.Context(), &list, client.InNamespace(r.namespace), client.MatchingLabels{"app.kubernetes.io/component": component}); err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, p := range list.Items {
		out[p.Name] = true
	}
	return slices.Sorted(maps.Keys(out))
}

func (r *release) delete(t *testing.T, pod corev1.Pod) {
	t.Helper()
	if err := r.server.Client().Delete(t.Context(), &pod); err != nil {
		t.Fatal(err)
	}
}

// leader returns the pod that has the Lease of a component.
func (r *release) leader(t *testing.T, component string) corev1.Pod {
	t.Helper()
	var lease coordinationv1.Lease
	if err := r.server.Client().Get(t.Context(), client.ObjectKey{Namespace: r.namespace, Name: charttest.Release + "-hapsnap-" + component}, &lease); err != nil {
		t.Fatal(err)
	}
	for name, p := range r.pods(t, component) {
		if lease.Spec.HolderIdentity != nil && strings.Contains(*lease.Spec.HolderIdentity, name) {
			return p
		}
	}
	t.Fatalf("no pod has the Lease of the %s: %s", component, *lease.Spec.HolderIdentity)
	return corev1.Pod{}
}

// held is the present request for /held.
var held atomic.Pointer[holding]

type holding struct {
	arrived func()
	release chan struct{}
}

// backend answers requests after 100 ms, and /held when a test says so.
func backend(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", podtest.Gateway+":0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := held.Load(); r.URL.Path == "/held" && h != nil {
			h.arrived()
			<-h.release
		}
		<-time.After(100 * time.Millisecond)
		fmt.Fprintln(w, "served", r.Host)
	})}
	go func() { _ = server.Serve(listener) }() // ends with the test
	t.Cleanup(func() { _ = server.Close() })
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port
}

// status returns the status of a response at an address for a host, 0 without one.
func status(t *testing.T, address, host, path string) int {
	t.Helper()
	code, _ := read(t, address, host, path)
	return code
}

// read returns a response at an address for a host with its body; 0 without one.
func read(t *testing.T, address, host, path string) (code int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = host
	c := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := c.Do(request)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body) // the caller notices what is missing
	return response.StatusCode, string(text)
}
