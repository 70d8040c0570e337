// Package podtest is a kubelet and the controllers of workloads for tests, without containers. It runs the pods
// of the Deployments, DaemonSets and StatefulSets of an API server. Each pod has a network namespace of its
// own. Each container has the root of its image, its own namespaces of processes and mounts, the user, volumes
// and ServiceAccount's token that the pod names, and its probes. Starts and ends have the kubelet's order.
//
// Everything goes through the API server: pods are created there, so that defaults and Pod Security apply.
// Containers reach it with their own tokens, through a proxy on their loopback address. EndpointSlices of
// Services follow the pods.
//
// It needs root, and iproute2.
//
// # What is left out
//
// Limits of CPU and memory, seccomp, hooks other than sleep and httpGet, probes other than
// httpGet and tcpSocket, volumes other than emptyDir, configMap and secret, several nodes,
// ports of nodes for UDP, externalTrafficPolicy, and NetworkPolicies. Volumes of a changed
// ConfigMap or Secret are brought up to date within seconds, where a kubelet may take more than
// a minute. A pod whose port of the node another pod has waits for it, as for a scheduler.
package podtest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hapsnap/hapsnap/internal/testing/imagetest"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

// look is how often everything is checked.
const look = 200 * time.Millisecond

// node is the name of the only node.
const node = "node-1"

// Options describe a kubelet.
type Options struct {
	// Namespaces are the namespaces whose pods run; by default all.
	Namespaces []string
	// Image returns an image by its name in a pod.
	Image func(name string) (imagetest.Image, bool)
	// Logs makes the API server serve the logs of containers, for which there is a Node object.
	Logs bool
}

// Kubelet runs pods.
type Kubelet struct {
	options   Options
	client    client.Client
	api       string // host and port of the API server
	authority []byte
	network   *network
	nodePorts map[int32]*nodePort // of Services
	dir       string
	names     int

	mu        sync.Mutex
	pods      map[string]*podRun // by UID
	notes     []string
	endpoints map[client.ObjectKey]*discoveryv1.EndpointSlice // of Services, as they were written last
}

// Start starts a kubelet, which ends with the test. If the test fails, it prints its notes and the output of
// containers.
func Start(tb testing.TB, server *kubetest.Server, o Options) *Kubelet {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Skip("pods are run by root only")
	}
	network, err := newNetwork()
	if err != nil {
		tb.Fatal(err)
	}
	config := server.Config()
	k := &Kubelet{
		options: o, client: server.Client(), api: strings.Trim(strings.TrimPrefix(config.Host, "https:"), "/"), authority: config.CAData,
		network: network, dir: tb.TempDir(), pods: map[string]*podRun{}, endpoints: map[client.ObjectKey]*discoveryv1.EndpointSlice{}, nodePorts: map[int32]*nodePort{},
	}
	if err := os.Chmod(k.dir, 0o755); err != nil { //nolint:gosec // users of containers pass through
		tb.Fatal(err)
	}
	if o.Logs {
		k.serveLogs(tb)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			k.step(ctx)
			pause(ctx, look)
		}
	}()
	tb.Cleanup(func() {
		cancel()
		<-done
		if tb.Failed() {
			tb.Log(k.Report())
		}
		k.close()
	})
	return k
}

// close ends all pods. They may add notes meanwhile, so it does not hold the mutex.
func (k *Kubelet) close() {
	k.mu.Lock()
	pods := slices.Collect(maps.Values(k.pods))
	k.mu.Unlock()
	var all sync.WaitGroup
	for _, p := range pods {
		all.Go(p.kill)
	}
	all.Wait()
	for _, p := range k.nodePorts {
		_ = p.listener.Close()
	}
	k.network.close()
}

// step does what is due in every namespace.
func (k *Kubelet) step(ctx context.Context) {
	for _, namespace := range k.namespaces(ctx) {
		var pods corev1.PodList
		if err := k.client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
			continue // the API server may be away
		}
		err := k.publishEndpoints(ctx, namespace, pods.Items)
		if err != nil && ctx.Err() == nil {
			k.note("%v", err)
		}
		k.runPods(ctx, pods.Items, err == nil)
		if err := k.workloads(ctx, namespace, pods.Items); err != nil && ctx.Err() == nil {
			k.note("%v", err)
		}
	}
}

// namespaces returns the namespaces to check. There are none while the API server is away.
func (k *Kubelet) namespaces(ctx context.Context) []string {
	if len(k.options.Namespaces) > 0 {
		return k.options.Namespaces
	}
	var list corev1.NamespaceList
	if err := k.client.List(ctx, &list); err != nil {
		return nil
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return names
}

// runPods starts new pods, and ends pods that are being deleted when their endpoints are withdrawn. A cluster
// does not wait for that, but is not as slow as an API server on a machine that is busy with tests. Tests
// decide how late clients learn of it.
func (k *Kubelet) runPods(ctx context.Context, pods []corev1.Pod, withdrawn bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range pods {
		pod := &pods[i]
		run := k.pods[string(pod.UID)]
		if run == nil {
			life, cancel := context.WithCancel(context.Background())
			run = &podRun{kubelet: k, pod: pod, dir: filepath.Join(k.dir, pod.Name), cancel: cancel, settled: make(chan struct{}), over: make(chan struct{})}
			if err := os.MkdirAll(run.dir, 0o755); err != nil { //nolint:gosec // as above
				k.notes = append(k.notes, err.Error())
				cancel()
				continue
			}
			k.pods[string(pod.UID)] = run
			run.lives.Go(func() { run.run(life) })
		}
		if pod.DeletionTimestamp != nil && withdrawn {
			grace := time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
			run.end(ctx, maxTime(pod.DeletionTimestamp.Time, time.Now().Add(grace)))
		}
	}
}

// note keeps what is useful to know when a test fails. A repeated note is kept once.
func (k *Kubelet) note(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(k.notes, text) {
		k.notes = append(k.notes, text)
	}
}

// Notes returns what was noted, such as containers that ended by themselves or were killed.
func (k *Kubelet) Notes() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string(nil), k.notes...)
}

// Volume is the folder of a pod's volume.
func (k *Kubelet) Volume(pod corev1.Pod, name string) string {
	return filepath.Join(k.dir, pod.Name, "volumes", name)
}

// Log returns what a container of a pod wrote.
func (k *Kubelet) Log(pod corev1.Pod, container string) string {
	text, _ := os.ReadFile(filepath.Join(k.dir, pod.Name, container+".log")) // none yet
	return string(text)
}

// Kill ends a container like a machine without memory. The container is started again, without a note.
func (k *Kubelet) Kill(pod corev1.Pod, container string) {
	k.mu.Lock()
	run := k.pods[string(pod.UID)]
	k.mu.Unlock()
	<-run.settled
	for _, c := range slices.Concat(run.main, run.sidecars) {
		if c.mu.Lock(); c.spec.Name == container && c.process != nil {
			c.killed = c.process
			c.process.kill(syscall.SIGKILL)
		}
		c.mu.Unlock()
	}
}

// Report returns everything that was noted and written.
func (k *Kubelet) Report() string {
	var out strings.Builder
	for _, n := range k.Notes() {
		fmt.Fprintln(&out, "noticed:", n)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		out.WriteString(p.log())
	}
	return out.String()
}

// serveLogs serves the logs of containers where the API server looks for them: at the kubelet of the pod's
// node. It serves the whole log, for any requested time.
func (k *Kubelet) serveLogs(tb testing.TB) {
	tb.Helper()
	paths := http.NewServeMux()
	paths.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		if file, ok := k.logFile(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")); ok {
			http.ServeFile(w, r, file)
			return
		}
		http.Error(w, "there is no such pod", http.StatusNotFound)
	})
	server := httptest.NewTLSServer(paths) // the API server believes whom it reaches
	tb.Cleanup(server.Close)
	at, ok := server.Listener.Addr().(*net.TCPAddr)
	if !ok {
		tb.Fatalf("the kubelet listens at %v", server.Listener.Addr())
	}
	self := &corev1.Node{}
	self.Name = node
	if err := k.client.Create(tb.Context(), self); err != nil {
		tb.Fatal(fmt.Errorf("create the node: %w", err))
	}
	self.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: at.IP.String()}}
	self.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(at.Port)
	if err := k.client.Status().Update(tb.Context(), self); err != nil {
		tb.Fatal(fmt.Errorf("say where the kubelet is: %w", err))
	}
}

// logFile returns where the log of a container of a pod is.
func (k *Kubelet) logFile(namespace, pod, container string) (string, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		if p.pod.Namespace == namespace && p.pod.Name == pod {
			return filepath.Join(p.dir, filepath.Base(container)+".log"), true
		}
	}
	return "", false
}
