package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/utils/roundtripper"
	"sigs.k8s.io/gateway-api/pkg/features"

	"github.com/hapsnap/hapsnap/internal/child"
	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/internal/testing/imagetest"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
	"github.com/hapsnap/hapsnap/internal/testing/podtest"
)

const (
	// class is the name of the GatewayClass.
	class = "hapsnap"
	// addresses are the addresses for Gateways. All of them are local in the test's network. A test may ask for
	// usable. The suite also needs an address that nothing has.
	addresses = "10.244.200.0/24"
	usable    = "10.244.200.250"
	unusable  = "192.0.2.1"
	patience  = 5 * time.Minute

	pusherAddress             = "127.0.0.1:8481"
	storeNamespace, storeName = "edge", "shop"
	store                     = "configmap:" + storeNamespace + "/" + storeName
)

// edge is a cluster with hapsnap and the suite's backends, all in the network of the test.
type edge struct {
	server *kubetest.Server
	client client.Client
	dir    string
}

func newEdge(t *testing.T) *edge {
	t.Helper()
	t.Chdir(root)
	e := &edge{server: cluster.Server(t), dir: t.TempDir()}
	api := e.server.Config()
	api.QPS, api.Burst = 1000, 1000
	var err error
	if e.client, err = client.New(api, client.Options{Scheme: newScheme(t)}); err != nil {
		t.Fatal(err)
	}
	e.install(t, "standard")
	e.server.Apply(t, fmt.Sprintf("{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: %s}, spec: {controllerName: hapsnap.dev/gateway-controller}}", class))
	e.server.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: edge}}")
	e.build(t, ".", "compiler", "./cmd/compiler")
	e.build(t, ".", "pusher", "./cmd/pusher")
	e.build(t, "tools/conformance", "echo/echo-basic", "sigs.k8s.io/gateway-api/conformance/echo-basic")
	podtest.Start(t, e.server, podtest.Options{Image: e.image, Logs: true})
	e.startFleet(t)
	return e
}

// install applies the CustomResourceDefinitions of a channel.
func (e *edge) install(t *testing.T, channel string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.Dir(kubetest.GatewayAPI(t)), channel, "gateway.networking.k8s.io_*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v: %v", files, err)
	}
	for _, file := range files {
		// A policy of the standard channel refuses the experimental one. It is not what is tested here.
		if !strings.HasSuffix(file, "_vap_safeupgrades.yaml") {
			e.server.Apply(t, read(t, file))
		}
	}
}

// collect deletes the Services of deleted Gateways, with what belongs to them. Kubernetes would do that, but
// this cluster has no controllers.
func (e *edge) collect(t *testing.T) {
	t.Helper()
	ofGateways := schema.FromAPIVersionAndKind(gatewayv1.GroupVersion.String(), "Gateway")
	for _, of := range []struct{ owned, owner schema.GroupVersionKind }{
		{corev1.SchemeGroupVersion.WithKind("Service"), ofGateways},
		{discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), ofGateways},
		{discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), corev1.SchemeGroupVersion.WithKind("Service")},
	} {
		var owned, owners metav1.PartialObjectMetadataList
		owned.SetGroupVersionKind(of.owned)
		owners.SetGroupVersionKind(of.owner)
		if err := errors.Join(e.client.List(t.Context(), &owned), e.client.List(t.Context(), &owners)); err != nil {
			t.Fatal(err)
		}
		there := map[types.UID]bool{}
		for _, o := range owners.Items {
			there[o.UID] = true
		}
		for i, o := range owned.Items {
			if len(o.OwnerReferences) > 0 && o.OwnerReferences[0].Kind == of.owner.Kind && !there[o.OwnerReferences[0].UID] {
				if err := client.IgnoreNotFound(e.client.Delete(t.Context(), &owned.Items[i])); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// awaitFeature waits until the compiler claims a feature. The suite chooses its tests from the claims.
func (e *edge) awaitFeature(t *testing.T, name features.FeatureName) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		var of gatewayv1.GatewayClass
		if err := e.client.Get(ctx, client.ObjectKey{Name: class}, &of); err != nil {
			t.Fatalf("wait for the features of the class: %v", err)
		}
		if slices.ContainsFunc(of.Status.SupportedFeatures, func(f gatewayv1.SupportedFeature) bool { return string(f.Name) == string(name) }) {
			return
		}
		<-tick.C
	}
}

// afterRollouts sends requests once the fleet runs the newest snapshot. The suite wants the same answer three
// times within 30 seconds, and waits for a second after each wrong one. This way there are fewer wrong ones.
// After a rollout that took too long, it no longer waits, and the suite reports the failure.
type afterRollouts struct {
	e       *edge
	to      roundtripper.RoundTripper
	late    *atomic.Bool
	current *atomic.Int64 // in milliseconds, when the fleet last ran the newest
}

// CaptureRoundTrip implements [roundtripper.RoundTripper].
func (a afterRollouts) CaptureRoundTrip(r roundtripper.Request) (*roundtripper.CapturedRequest, *roundtripper.CapturedResponse, error) {
	if time.Now().UnixMilli()-a.current.Load() < 50 { // requests follow each other quickly
		return a.to.CaptureRoundTrip(r)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !a.late.Load() && !a.e.runsNewest(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			a.late.Store(true)
		}
	}
	a.current.Store(time.Now().UnixMilli())
	return a.to.CaptureRoundTrip(r)
}

// runsNewest reports whether every instance runs the store's newest snapshot, according to the pusher.
func (e *edge) runsNewest(ctx context.Context) bool {
	var manifests metav1.PartialObjectMetadataList
	manifests.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	err := e.client.List(ctx, &manifests, client.InNamespace(storeNamespace), client.MatchingLabels{"hapsnap.dev/snapshots": storeName, "hapsnap.dev/part": "manifest", "hapsnap.dev/state": "complete"})
	if err != nil || len(manifests.Items) == 0 {
		return false
	}
	newest := slices.MaxFunc(manifests.Items, func(a, b metav1.PartialObjectMetadata) int { return strings.Compare(a.Name, b.Name) })
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+pusherAddress+"/status", nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	var says struct {
		Instances []struct {
			Running string `json:"running"`
		} `json:"instances"`
	}
	if json.NewDecoder(response.Body).Decode(&says) != nil || len(says.Instances) == 0 {
		return false
	}
	for _, i := range says.Instances {
		if i.Running != newest.Labels["hapsnap.dev/snapshot"] {
			return false
		}
	}
	return true
}

// image returns the suite's backend, whatever image a pod names. The only other image is a DNS server for UDP
// routes, which only has to exist.
func (e *edge) image(string) (imagetest.Image, bool) {
	return imagetest.Image{Root: filepath.Join(e.dir, "echo"), Entrypoint: []string{"/echo-basic"}, User: "65532:65532", Env: []string{"PATH=/"}}, true
}

func (e *edge) build(t *testing.T, dir, name, program string) {
	t.Helper()
	out := filepath.Join(e.dir, name)
	// The flags are those of the Makefile, so that compiled packages are used again.
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", out, program)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", program, err, text)
	}
}

// startFleet starts a HAProxy with its API, the compiler and the pusher.
func (e *edge) startFleet(t *testing.T) {
	t.Helper()
	i := dataplanetest.Start(t, dataplanetest.Options{API: dataplanetest.V34})
	e.write(t, "config.yaml", fmt.Sprintf(`apiVersion: hapsnap.dev/v1alpha1
kind: CompilerConfig
spec:
  bind: {addresses: [127.0.0.1]}
  http: {port: 8080}
  https: {port: 8443}
  status: {port: 8404}
  maxconn: 2000
  gatewayAPI: {enabled: true, addresses: [%s], services: {enabled: true, labels: ["*"], annotations: ["*"]}}
  shrinkGuard: {lostPercent: 0}
`, addresses))
	e.write(t, "password", "secret\n")
	e.write(t, "fleet.yaml", fmt.Sprintf(`apiVersion: hapsnap.dev/v1alpha1
kind: Fleet
metadata: {name: edge}
spec:
  rollout: {waves: ["100%%"], soak: 0s, budget: {perInstance: 0}}
  instances:
  - name: edge-1
    url: %s
    username: admin
    passwordFile: password
    directories: {maps: %s, certificates: %s, general: %s}
`, i.URL(), i.Dirs.Maps, i.Dirs.Certificates, i.Dirs.General))
	e.start(t, "compiler", "run", "--kubeconfig", e.server.Kubeconfig(), "--config", "config.yaml", "--store", store, "--min-interval", "100ms")
	e.start(t, "pusher", "run", "--store", store, "--kubeconfig", e.server.Kubeconfig(), "--instances", "fleet.yaml", "--state", "pusher.json", "--poll-interval", "50ms", "--metrics-address", pusherAddress)
}

// start runs a program until the test ends. If the test fails, the end of its log is shown.
func (e *edge) start(t *testing.T, name string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(e.dir, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), filepath.Join(e.dir, name), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = e.dir, log, log
	ended, err := child.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		select {
		case <-ended:
			t.Errorf("%s has ended by itself: %v", name, cmd.ProcessState)
		default:
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		_ = log.Close()
		if t.Failed() {
			lines := strings.SplitAfter(read(t, log.Name()), "\n")
			t.Logf("the end of what %s logged:\n%s", name, strings.Join(lines[max(0, len(lines)-40):], ""))
		}
	})
}

func (e *edge) write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(e.dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
