package conformance_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/internal/child"
	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/internal/testing/imagetest"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
	"github.com/hapsnap/hapsnap/internal/testing/podtest"
)

const (
	// class is the name of the GatewayClass.
	class = "hapsnap"
	// addresses are those that Gateways get, all of them this machine's in the test's network. One that a
	// test asks for is among them, and one is nobody's.
	addresses = "10.244.200.0/24"
	usable    = "10.244.200.250"
	unusable  = "192.0.2.1"
	patience  = 5 * time.Minute
)

// An edge is a cluster with hapsnap and backends of the suite, all in the network of the test.
type edge struct {
	server *kubetest.Server
	dir    string
}

func newEdge(t *testing.T) *edge {
	t.Helper()
	t.Chdir(root)
	e := &edge{server: cluster.Server(t), dir: t.TempDir()}
	crds := kubetest.GatewayAPI(t)
	files, err := filepath.Glob(filepath.Join(crds, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v: %v", files, err)
	}
	for _, file := range files {
		e.server.Apply(t, read(t, file))
	}
	e.server.Apply(t, fmt.Sprintf("{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: %s}, spec: {controllerName: hapsnap.dev/gateway-controller}}", class))
	e.server.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: edge}}")
	e.build(t, ".", "compiler", "./cmd/compiler")
	e.build(t, ".", "pusher", "./cmd/pusher")
	e.build(t, "tools/conformance", "echo/echo-basic", "sigs.k8s.io/gateway-api/conformance/echo-basic")
	podtest.Start(t, e.server, podtest.Options{Image: e.image, Logs: true})
	e.startFleet(t)
	return e
}

// awaitFeatures waits until the compiler has said what it supports, from which the suite takes what to test.
func (e *edge) awaitFeatures(t *testing.T, c client.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		var of gatewayv1.GatewayClass
		if err := c.Get(ctx, client.ObjectKey{Name: class}, &of); err != nil {
			t.Fatalf("wait for the features of the class: %v", err)
		}
		if len(of.Status.SupportedFeatures) > 0 {
			return
		}
		<-tick.C
	}
}

// image is the backend of the suite, whatever image a pod names: the one other is a DNS server for routes of
// UDP, which only has to be there.
func (e *edge) image(string) (imagetest.Image, bool) {
	return imagetest.Image{Root: filepath.Join(e.dir, "echo"), Entrypoint: []string{"/echo-basic"}, User: "65532:65532", Env: []string{"PATH=/"}}, true
}

func (e *edge) build(t *testing.T, dir, name, program string) {
	t.Helper()
	out := filepath.Join(e.dir, name)
	cmd := exec.Command("go", "build", "-o", out, program)
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
	e.start(t, "compiler", "run", "--kubeconfig", e.server.Kubeconfig(), "--config", "config.yaml", "--store", "configmap:edge/shop")
	e.start(t, "pusher", "run", "--store", "configmap:edge/shop", "--kubeconfig", e.server.Kubeconfig(), "--instances", "fleet.yaml", "--state", "pusher.json", "--poll-interval", "100ms")
}

// start runs a program until the test ends. If the test fails, the end of what it logged is told.
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
