package discovery_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
	"github.com/hapsnap/hapsnap/pusher"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// world is a cluster whose pods are real HAProxies, with a pusher beside it.
type world struct {
	*kubetest.Server
	dir   string
	files string // of all instances
	store *dirstore.Store
	pods  map[string]*dataplanetest.Instance
	drain int // how many seconds a pod may take to terminate

	mu     sync.Mutex
	status report.Status
}

const fleetFile = `apiVersion: hapsnap.dev/v1alpha1
kind: Fleet
metadata: {name: edge}
spec:
  rollout: {waves: ["1", "100%%"], soak: 0s}
  pods:
    namespace: edge
    selector: {matchLabels: {app: haproxy}}
    port: dataplane
    scheme: http
    credentialsSecret: {name: dataplane}
    directories: {maps: %[1]s/maps, certificates: %[1]s/ssl, general: %[1]s/general}
`

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Server: kubetest.Start(t), dir: t.TempDir(), files: t.TempDir(), pods: map[string]*dataplanetest.Instance{}}
	if err := os.Mkdir(filepath.Join(w.dir, "live"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.store = dirstore.Open(filepath.Join(w.dir, "store"), dirstore.Options{})
	w.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: edge}}")
	w.Apply(t, "{apiVersion: v1, kind: ServiceAccount, metadata: {namespace: edge, name: default}}")
	w.password(t, "secret")
	if err := os.WriteFile(filepath.Join(w.dir, "fleet.yaml"), fmt.Appendf(nil, fleetFile, w.files), 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) password(t *testing.T, password string) {
	t.Helper()
	w.Apply(t, "{apiVersion: v1, kind: Secret, metadata: {namespace: edge, name: dataplane}, stringData: {username: admin, password: "+password+"}}")
}

// pod starts an instance at an address, and creates a pod for it that is not ready.
func (w *world) pod(t *testing.T, name, ip string) {
	t.Helper()
	w.pods[name] = dataplanetest.Start(t, dataplanetest.Options{
		Addr: ip + ":5555", Files: w.files, Env: []string{"WEB=" + ip + ":8080"},
	})
	w.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {namespace: edge, name: %s, labels: {app: haproxy}}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: %d
  containers: [{name: haproxy, image: haproxy, ports: [{name: dataplane, containerPort: 5555}]}]
`, name, w.drain))
	client := w.client(t)
	pod, err := client.CoreV1().Pods("edge").Get(t.Context(), name, metav1.GetOptions{})
	if err == nil {
		pod.Status.PodIP = ip
		_, err = client.CoreV1().Pods("edge").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", w.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (w *world) publish(t *testing.T, revision string) snapshots.ID {
	t.Helper()
	id, _, err := w.store.Publish(t.Context(), snapshots.Draft{Time: time.Now(), Files: []snapshots.File{{
		Path: snapshots.ConfigFile, Content: []byte(`global
    maxconn 100

defaults
    mode http
    timeout connect 1s
    timeout client 10s
    timeout server 10s

frontend web
    bind "${WEB}"
    http-request return status 200 content-type text/plain string ` + revision + "\n"),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// run runs a pusher until the test ends, or it is stopped.
func (w *world) run(t *testing.T) (stop func()) {
	t.Helper()
	client, done := w.client(t), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		done <- pusher.Run(ctx, pusher.Options{
			Store: w.store, Live: filepath.Join(w.dir, "live"), Fleet: filepath.Join(w.dir, "fleet.yaml"), State: filepath.Join(w.dir, "state.json"),
			Pods:         func() (kubernetes.Interface, error) { return client, nil },
			PollInterval: 50 * time.Millisecond, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
			Status: func(s report.Status) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.status = s
			},
		})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func (w *world) until(t *testing.T, what string, ok func(report.Status) bool) {
	t.Helper()
	deadline, look := time.After(time.Minute), time.NewTicker(5*time.Millisecond)
	defer look.Stop()
	for {
		w.mu.Lock()
		s := w.status
		w.mu.Unlock()
		if ok(s) {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("waited in vain: %s: %+v", what, s)
		case <-look.C:
		}
	}
}

// runs waits until the instances with these names are the fleet and run the snapshot.
func (w *world) runs(t *testing.T, id snapshots.ID, names ...string) {
	t.Helper()
	w.until(t, fmt.Sprintf("%s runs on %s", id, names), func(s report.Status) bool {
		var have []string
		for _, i := range s.Instances {
			if i.InSync && i.Running == id {
				have = append(have, i.Name)
			}
		}
		return s.Good == id && s.Rollout == nil && len(s.Instances) == len(names) && strings.Join(have, " ") == strings.Join(names, " ")
	})
}

// pushes counts the posts with a reload.
func pushes(i *dataplanetest.Instance) int {
	n := 0
	for _, q := range i.Requests() {
		if q.Method == http.MethodPost && strings.Contains(q.Query, "force_reload") {
			n++
		}
	}
	return n
}

func (w *world) expectPushes(t *testing.T, name string, want int) {
	t.Helper()
	if n := pushes(w.pods[name]); n != want {
		t.Errorf("%s was pushed to %d times, want %d", name, n, want)
	}
}

// The instances are the existing pods, with the present credentials.
func TestPodsAreTheFleet(t *testing.T) {
	w := newWorld(t)
	first := w.publish(t, "1")
	w.run(t)
	w.until(t, "there is no pod yet", func(s report.Status) bool { return !s.Channel.Hold && len(s.Instances) == 0 && len(s.Troubles) == 0 })
	w.pod(t, "edge-0", "10.244.1.1")
	w.runs(t, first, "edge-0")

	// A later pod gets the same snapshot, ready or not.
	w.pod(t, "edge-1", "10.244.1.2")
	w.runs(t, first, "edge-0", "edge-1")

	// A new password is rolled out, and needs no push.
	for _, i := range w.pods {
		i.SetPassword("another")
	}
	w.until(t, "the old password is refused", func(s report.Status) bool { return len(s.Instances) == 2 && !s.Instances[0].Reachable })
	w.password(t, "another")
	w.runs(t, first, "edge-0", "edge-1")
	w.expectPushes(t, "edge-0", 1)
	w.expectPushes(t, "edge-1", 1)

	// Another pod with the same name is another instance.
	w.Delete(t, "{apiVersion: v1, kind: Pod, metadata: {namespace: edge, name: edge-1}}")
	w.pods["edge-1"].Close()
	w.runs(t, first, "edge-0")
	w.pod(t, "edge-1", "10.244.1.3")
	w.pods["edge-1"].SetPassword("another")
	w.runs(t, first, "edge-0", "edge-1")
	w.expectPushes(t, "edge-1", 1)

	// A missing Secret, and an unreachable API server, change nothing.
	w.Delete(t, "{apiVersion: v1, kind: Secret, metadata: {namespace: edge, name: dataplane}}")
	w.until(t, "the Secret is missed", func(s report.Status) bool {
		return len(s.Troubles) == 1 && s.Troubles[0].Error == "there is no Secret edge/dataplane"
	})
	if err := w.StopAPI(); err != nil {
		t.Fatal(err)
	}
	w.runs(t, w.publish(t, "2"), "edge-0", "edge-1")
	w.expectPushes(t, "edge-0", 2)
	w.expectPushes(t, "edge-1", 2)
}
