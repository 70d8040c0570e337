package runtest

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hapsnap/hapsnap/charts/charttest"
	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/internal/testing/loadtest"
)

// traffic is the Service of the fleet.
const traffic = charttest.Release + "-hapsnap-haproxy"

// This test goes from `helm install`, without manual steps, to served requests and beyond: pods come and go
// under load, and no request fails.
func TestFleet(t *testing.T) {
	t.Parallel()
	r := install(t, "edge", "--set", "pusher.replicas=0")
	// After a failure the remaining steps would fail too, each after a long wait.
	must := func(ok bool) {
		t.Helper()
		if !ok {
			t.FailNow()
		}
	}
	must(t.Run("the Dataplane API waits for its password", r.waitForPassword))
	r.values = nil
	r.apply(t)
	port := backend(t)
	r.server.Apply(t, tenant("shop", port))
	must(t.Run("an Ingress is served", func(t *testing.T) { r.served(t, "shop.example") }))
	must(t.Run("the page", r.page))
	must(t.Run("the webhook is trusted", func(t *testing.T) { r.webhookIsTrusted(t) }))
	must(t.Run("a pod ends", func(t *testing.T) { r.endPod(t, "shop.example") }))
	must(t.Run("the fleet gets agents that inspect requests", func(t *testing.T) {
		r.replaceFleet(t, "shop.example", func() { r.apply(t, "--set", "waf.enabled=true") })
		r.inspected(t, port)
	}))
	// There is no former version to upgrade from yet. These are the values that a version of the chart changes,
	// and a different configuration.
	must(t.Run("an upgrade", func(t *testing.T) {
		programs := r.names(t, "compiler")
		r.values = append(r.values, "--set", "haproxy.bootstrap.image.tag=next,compiler.image.tag=next,pusher.image.tag=next,compiler.config.maxconn=5000")
		r.replaceFleet(t, "shop.example", func() { r.apply(t) })
		eventually.Holds(t, "the compiler is replaced", func() bool {
			now := r.names(t, "compiler")
			return len(now) == 2 && now[0] != programs[0] && now[0] != programs[1] && now[1] != programs[1]
		})
	}))
	for i, component := range []string{"compiler", "pusher"} {
		must(t.Run("the leader of the "+component+" ends", func(t *testing.T) {
			r.delete(t, r.leader(t, component))
			name := fmt.Sprintf("shop%d", i)
			r.server.Apply(t, tenant(name, port))
			r.served(t, name+".example")
			r.pages(t)
		}))
	}
	must(t.Run("another compiler", func(t *testing.T) { r.rollOut(t, "shop.example") }))
	must(t.Run("a configuration of the compiler that is wrong", func(t *testing.T) { r.misconfigure(t, port) }))
	must(t.Run("a configuration that cannot be started", func(t *testing.T) { r.breakPod(t, "shop.example") }))
	must(t.Run("credentials are renewed", func(t *testing.T) { r.renewCredentials(t, port) }))
	must(t.Run("the password of the Dataplane API changes", func(t *testing.T) {
		r.server.Apply(t, r.credentials("another"))
		eventually.Holds(t, "the Dataplane APIs take the new password", func() bool { return r.accepts(t, "hapsnap", "another") })
		r.server.Apply(t, tenant("renewed", port))
		r.served(t, "renewed.example")
	}))
	must(t.Run("the status in the pusher's image", func(t *testing.T) {
		out, err := r.statusInImage(t)
		for name := range r.pods(t, "haproxy") {
			if err != nil || !strings.Contains(out, name) {
				t.Errorf("nothing about %s: %v\n%s", name, err, out)
			}
		}
	}))
	must(t.Run("a second release", func(t *testing.T) { r.second(t, port) }))
	must(t.Run("a fleet for a Gateway", func(t *testing.T) { r.ofGateway(t, port) }))
	must(t.Run("an existing fleet", func(t *testing.T) { r.existing(t, "shop.example") }))
	must(t.Run("pods that begin for ever", func(t *testing.T) { r.beginForEver(t) }))
	for _, n := range r.kubelet.Notes() {
		// Here the pods of a fleet whose Gateway is gone are collected late. What they mount is gone before.
		collected := strings.HasPrefix(n, "pod own-made-") && strings.HasSuffix(n, " not found")
		if !collected && !strings.HasPrefix(n, "container compiler of "+r.misconfigured+" ended with 3") {
			t.Error("noticed:", n)
		}
	}
}

// waitForPassword waits until the Dataplane APIs of the fleet wait for a password, which nothing makes without
// a pusher. HAProxy runs, and the API's port accepts connections, as its liveness probe requires. So the
// container is not restarted again and again.
func (r *release) waitForPassword(t *testing.T) {
	eventually.Holds(t, "both pods wait for credentials", func() bool {
		pods := r.pods(t, "haproxy")
		for _, pod := range pods {
			if !strings.Contains(r.kubelet.Log(pod, "dataplaneapi"), "waiting for credentials") || status(t, pod.Status.PodIP+":8404", "", "/healthz") != http.StatusOK {
				return false
			}
			conn, err := net.DialTimeout("tcp", net.JoinHostPort(pod.Status.PodIP, "5555"), patience)
			if err != nil {
				return false
			}
			_ = conn.Close()
		}
		return len(pods) == 2
	})
}

// served waits until every pod of the fleet answers for a host.
func (r *release) served(t *testing.T, host string) {
	t.Helper()
	eventually.Holds(t, "both pods of the fleet serve "+host, func() bool {
		addresses := r.addresses(traffic, "http")
		for _, a := range addresses {
			if status(t, a, host, "/") != http.StatusOK {
				return false
			}
		}
		return len(addresses) == 2
	})
}

// pagesService is the Service of the page.
const pagesService = charttest.Release + "-hapsnap-pusher"

// pages waits until every pusher shows what only the leader knows, such as how many reloads an instance may
// have.
func (r *release) pages(t *testing.T) {
	t.Helper()
	eventually.Holds(t, "both pushers show the fleet", func() bool {
		addresses := r.addresses(pagesService, "ui")
		for _, a := range addresses {
			for name := range r.pods(t, "haproxy") {
				if code, text := read(t, a, pagesService+"."+r.namespace+".svc", "/instances/"+name); code != http.StatusOK || !strings.Contains(text, "reloads that it may take now") {
					return false
				}
			}
		}
		return len(addresses) == 2
	})
}

// page requests the pushers' page through their Service. It also shows what the compiler wrote about left-out
// objects. Under another name, the page is refused.
func (r *release) page(t *testing.T) {
	r.pages(t)
	// The webhook does not check Services.
	wrong := tenant("wrong", backend(t))
	r.server.Apply(t, wrong)
	r.server.Apply(t, "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: wrong, annotations: {hapsnap.dev/timeout-server: soon}}, spec: {ports: [{name: http, port: 80}]}}")
	defer r.server.Delete(t, wrong)
	said := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("the page says\n" + said)
		}
	})
	for _, a := range r.addresses(pagesService, "ui") {
		eventually.Holds(t, "it is told that the server of shop.example is up", func() bool {
			_, text := read(t, a, "localhost", "/routes?scheme=http&host=shop.example&path=/")
			return strings.Contains(text, "1 of 1 server up")
		})
		eventually.Holds(t, "it is told which field is at fault, and what to do", func() bool {
			_, said = read(t, a, "localhost", "/left-out")
			return strings.Contains(said, "Service wrong/web") && strings.Contains(said, "<code>metadata.annotations[") && strings.Contains(said, "hint: use a number and a unit")
		})
		if code := status(t, a, "attacker.example", "/"); code != http.StatusMisdirectedRequest {
			t.Errorf("%s answers a stranger's name with %d", a, code)
		}
	}
}

// endPod deletes a pod under load. No request fails. /ready fails before connections are refused. Metrics and
// the Dataplane API answer while the pod drains.
func (r *release) endPod(t *testing.T, host string) {
	t.Helper()
	load := r.load(t, host)
	load.Await(t, 200)
	long := r.hold(t, host)
	pod := r.pods(t, "haproxy")[long.pod]
	r.delete(t, pod)
	eventually.Holds(t, "/ready fails", func() bool {
		return status(t, pod.Status.PodIP+":8404", host, "/ready") == http.StatusServiceUnavailable
	})
	if got := status(t, pod.Status.PodIP+":80", host, "/"); got != http.StatusOK {
		t.Errorf("a pod that just begins to end answers %d", got)
	}
	eventually.Holds(t, "the pod refuses connections", func() bool { return refuses(pod.Status.PodIP + ":80") })
	if got := status(t, pod.Status.PodIP+":8404", host, "/metrics"); got != http.StatusOK {
		t.Errorf("metrics of a pod that drains: %d", got)
	}
	if refuses(pod.Status.PodIP + ":5555") {
		t.Error("the Dataplane API of a pod that drains is gone")
	}
	if got := long.finish(t); got != http.StatusOK {
		t.Errorf("the request that took long got %d", got)
	}
	eventually.Holds(t, "the pod is gone, and another is there", func() bool {
		names := r.names(t, "haproxy")
		return len(names) == 2 && !slices.Contains(names, pod.Name) && len(r.addresses(traffic, "http")) == 2
	})
	unharmed(t, load)
}

// beginForEver starts two pods whose first container does not end. One is deleted. The other stays until the
// end of the test, which waits for no pod.
func (r *release) beginForEver(t *testing.T) {
	t.Helper()
	names := []string{"begins-and-ends", "begins"}
	for _, name := range names {
		r.server.Apply(t, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s}, spec: {
terminationGracePeriodSeconds: 60, nodeName: node-1, securityContext: {runAsNonRoot: true, runAsUser: 1000, runAsGroup: 1000, seccompProfile: {type: RuntimeDefault}},
initContainers: [{name: first, image: haproxytech/haproxy-debian, command: [sh, -c, "trap 'exit 0' TERM; echo begun; sleep 1d & wait"], securityContext: &s {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}],
containers: [{name: second, image: haproxytech/haproxy-debian, command: [sleep, 1d], securityContext: *s}]}}`, name, r.namespace))
	}
	pods := make([]corev1.Pod, len(names))
	eventually.Holds(t, "both pods begin", func() bool {
		for i, name := range names {
			err := r.server.Client().Get(t.Context(), client.ObjectKey{Namespace: r.namespace, Name: name}, &pods[i])
			if err != nil || !strings.Contains(r.kubelet.Log(pods[i], "first"), "begun") {
				return false
			}
		}
		return true
	})
	r.delete(t, pods[0])
	eventually.Holds(t, "the pod that was deleted is gone", func() bool {
		return apierrors.IsNotFound(r.server.Client().Get(t.Context(), client.ObjectKeyFromObject(&pods[0]), &corev1.Pod{}))
	})
}

// inspected adds an Ingress whose policy blocks attacks. Every pod's agent answers its HAProxy.
func (r *release) inspected(t *testing.T, port string) {
	t.Helper()
	// The webhook refuses an Ingress whose policy does not exist.
	r.server.Apply(t, `{apiVersion: v1, kind: Namespace, metadata: {name: guarded}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: strict, namespace: guarded}
data:
  policy: |
    apiVersion: hapsnap.dev/v1alpha1
    kind: WAFPolicy
    spec: {engine: block}
`)
	guarded := strings.Replace(tenant("guarded", port), "kind: Ingress, metadata: {", "kind: Ingress, metadata: {annotations: {hapsnap.dev/waf: strict}, ", 1)
	r.server.Apply(t, guarded)
	defer r.server.Delete(t, guarded)
	r.served(t, "guarded.example")
	for _, a := range r.addresses(traffic, "http") {
		if code := status(t, a, "guarded.example", "/?q=1%27%20or%201=1%20union%20select%201,2,3%20--%20-"); code != http.StatusForbidden {
			t.Errorf("%s answers an attack with %d", a, code)
		}
	}
	// An agent answers first, and writes its log afterwards.
	for name, pod := range r.pods(t, "haproxy") {
		eventually.Holds(t, "the agent of "+name+" writes a line about the attack", func() bool {
			return strings.Contains(r.kubelet.Log(pod, "waf"), `"action":"deny"`)
		})
	}
}

// breakPod makes a HAProxy container start with a configuration that somebody edited. It starts all the same,
// and the pusher brings the right one. Meanwhile the pusher is stopped: it would otherwise repair the file
// before HAProxy reads it, and begin a repair conflict after three repairs.
func (r *release) breakPod(t *testing.T, host string) {
	t.Helper()
	r.apply(t, "--set", "pusher.replicas=0")
	eventually.Holds(t, "the pushers are gone", func() bool { return len(r.names(t, "pusher")) == 0 })
	names := r.names(t, "haproxy")
	pod := r.pods(t, "haproxy")[names[0]]
	path := filepath.Join(r.kubelet.Volume(pod, "config"), "haproxy.cfg")
	text, err := os.ReadFile(path)
	// The file is renamed into place, readable for HAProxy. The Dataplane API watches it, and would take a
	// half-written file for an edit, and write that back.
	if err == nil {
		err = errors.Join(os.WriteFile(path+".new", append(text, "nonsense\n"...), 0o644), os.Rename(path+".new", path))
	}
	if err != nil {
		t.Fatal(err)
	}
	r.kubelet.Kill(pod, "haproxy")
	t.Cleanup(func() {
		if t.Failed() {
			refused, err := os.ReadFile(path + ".refused")
			t.Logf("%s was %d bytes long; refused are %d bytes, which end with %q, %v", path, len(text), len(refused), refused[max(0, len(refused)-200):], err)
		}
	})
	eventually.Holds(t, "HAProxy goes back to the first configuration", func() bool {
		refused, err := os.ReadFile(path + ".refused")
		return err == nil && strings.Contains(string(refused), "nonsense")
	})
	r.apply(t)
	eventually.Holds(t, "the pod is ready again", func() bool {
		return status(t, pod.Status.PodIP+":8404", host, "/ready") == http.StatusOK && status(t, pod.Status.PodIP+":80", host, "/") == http.StatusOK
	})
	r.served(t, host)
}

// replaceFleet changes something in all pods of the fleet, under load.
func (r *release) replaceFleet(t *testing.T, host string, change func()) {
	t.Helper()
	before := r.names(t, "haproxy")
	load := r.load(t, host)
	load.Await(t, 200)
	change()
	eventually.Holds(t, "the fleet is replaced", func() bool {
		names := r.names(t, "haproxy")
		return len(names) == 2 && !slices.Contains(before, names[0]) && !slices.Contains(before, names[1]) && len(r.addresses(traffic, "http")) == 2
	})
	load.Await(t, 200)
	unharmed(t, load)
}

// unharmed ends a load. None of its requests may have failed.
func unharmed(t *testing.T, load *loadtest.Load) {
	t.Helper()
	served, failed := load.Stop()
	t.Logf("%d requests served", served)
	if len(failed) > 0 {
		t.Errorf("%d requests failed: %v", len(failed), failed[:min(len(failed), 5)])
	}
}

// request is a request that a backend holds, through a pod.
type request struct {
	pod     string
	release func()
	status  chan int
}

// hold sends a request to a pod of the fleet. The backend holds its answer.
func (r *release) hold(t *testing.T, host string) *request {
	t.Helper()
	for name, pod := range r.pods(t, "haproxy") {
		q := &request{pod: name, status: make(chan int, 1)}
		arrived, release := make(chan struct{}), make(chan struct{})
		q.release = sync.OnceFunc(func() { close(release) })
		held.Store(&holding{arrived: sync.OnceFunc(func() { close(arrived) }), release: release})
		t.Cleanup(q.release)
		go func() { q.status <- status(t, pod.Status.PodIP+":80", host, "/held") }()
		select {
		case <-arrived:
		case got := <-q.status:
			t.Fatalf("a request that was to be held got %d", got)
		}
		return q
	}
	t.Fatal("there is no pod")
	return nil
}

func (q *request) finish(t *testing.T) int {
	t.Helper()
	q.release()
	return <-q.status
}

// accepts reports whether all Dataplane APIs of the fleet accept a password.
func (r *release) accepts(t *testing.T, username, password string) bool {
	t.Helper()
	c := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // its certificate is not what is asked about
	for _, pod := range r.pods(t, "haproxy") {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+pod.Status.PodIP+":5555/v3/info", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.SetBasicAuth(username, password)
		response, err := c.Do(request)
		if err != nil {
			return false
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return false
		}
	}
	return true
}

func refuses(address string) bool {
	conn, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// tenant is a namespace with an Ingress and a Service. The endpoint is a port of the test.
func tenant(name, port string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %[1]s}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: %[1]s}, spec: {ports: [{name: http, port: 80}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web-1, namespace: %[1]s, labels: {kubernetes.io/service-name: web}},
addressType: IPv4, ports: [{name: http, port: %[2]s}], endpoints: [{addresses: ["10.245.0.1"], conditions: {ready: true}}]}
---
{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web, namespace: %[1]s},
spec: {ingressClassName: hapsnap, rules: [{host: %[1]s.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}]}}]}}
`, name, port)
}

// load starts clients that send requests to the fleet. They notice changes of its endpoints late.
func (r *release) load(t *testing.T, host string) *loadtest.Load {
	t.Helper()
	load := loadtest.Start(t, loadtest.Options{Clients: 40, Host: host, Pause: 50 * time.Millisecond}, r.addresses(traffic, "http")...)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			heard := r.addresses(traffic, "http")
			select {
			case <-stop:
				return
			case <-time.After(time.Second):
				if len(heard) > 0 {
					load.Use(heard...)
				}
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
	return load
}

func written(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
