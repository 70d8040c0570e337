// Package kubetest runs a real API server for tests: the stock kube-apiserver and etcd, started by envtest,
// without containers. It promises that processes of a test end with it, however it ends. The cluster has no
// controllers: nothing fills EndpointSlices, makes the ServiceAccount "default" or finishes deleting a
// namespace.
//
// `make test` builds the programs into build/kube, and so does `make kube` alone; KUBEBUILDER_ASSETS names
// another folder. A test fails if they are missing. Binary finds them, and kubectl and kustomize.
//
// An API server takes about three seconds to start, so the tests of a package share one, each in a namespace of
// its own. Only tests that break it have their own (Start).
//
//	var cluster kubetest.Shared
//
//	func TestMain(m *testing.M) { os.Exit(kubetest.Main(m, &cluster)) }
//
//	func TestWatch(t *testing.T) {
//		t.Parallel()
//		server := cluster.Server(t)
//		namespace := server.Namespace(t)
//		server.Apply(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: `+namespace+`}}`)
//		…
//	}
//
// # Rights
//
// The API server learns of roles and bindings by a watch. So Grant, Apply and Delete wait until they hold.
// After other writers, such as kubectl, call AwaitRights.
//
// # Addresses of pods
//
// The API server refuses 127.0.0.0/8 and ::1 in EndpointSlices. Main runs the tests in a network namespace of
// their own, in which every address of PodRange and PodRange6 is the machine's: servers can listen on
// 10.244.3.7, and HAProxy reaches them there. InNamespace does only that. It needs root, or a kernel that lets
// users make namespaces.
//
// # Faults
//
// Stop and Resume end the API server and start it again, on the same port and with all its content. Expire does
// so in a way that watches cannot continue: they end with 410, "too old resource version".
package kubetest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Server is an API server with its own etcd. Several tests may use its methods at once, except those that stop
// it.
type Server struct {
	env  *envtest.Environment
	dir  string
	lock *portLock
	// thread runs functions on the thread that lives as long as the processes do.
	thread *heldThread
	client client.Client
	// rights is held while AwaitRights writes objects of its own.
	rights        sync.Mutex
	rightsAwaited int
}

// New starts an API server. Close ends it.
func New() (*Server, error) {
	if err := findBinaries(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "hapsnap-kubetest-")
	if err != nil {
		return nil, fmt.Errorf("make the server's folder: %w", err)
	}
	s := &Server{dir: dir, thread: holdThread()}
	if err := s.start(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Start starts an API server for one test.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s, err := New()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// silence gives controller-runtime a logger. Without one it complains with a stack trace after 30 seconds, and
// it has only one logger for the process.
var silence = sync.OnceFunc(func() { log.SetLogger(logr.Discard()) })

func (s *Server) start() error {
	silence()
	var err error
	if s.lock, err = lockPort(); err != nil {
		return err
	}
	if s.env, err = s.environment(); err != nil {
		return err
	}
	start := func() error { _, err := s.env.Start(); return err }
	if err := inTurn(func() error { return s.thread.run(start) }); err != nil {
		return fmt.Errorf("start the API server: %w\n%s", err, s.log())
	}
	if err := os.WriteFile(s.Kubeconfig(), s.env.KubeConfig, 0o600); err != nil {
		return err
	}
	s.client, err = newClient(s.env.Config)
	return err
}

// Close ends the API server, then etcd, and removes what they stored.
func (s *Server) Close() error {
	var errs []error
	if s.env != nil {
		errs = append(errs, s.env.Stop())
	}
	s.thread.release()
	if s.lock != nil {
		errs = append(errs, s.lock.release())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// Config returns an administrator's configuration, without rate limits.
func (s *Server) Config() *rest.Config { return rest.CopyConfig(s.env.Config) }

// Kubeconfig is the path of the administrator's kubeconfig.
func (s *Server) Kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

// Stop ends the API server. etcd runs on. Watches of clients end, and no connection is accepted until Resume.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	must(tb, s.StopAPI())
}

// Resume starts the API server again, at the same address.
func (s *Server) Resume(tb testing.TB) {
	tb.Helper()
	must(tb, s.ResumeAPI())
}

// Restart ends the API server and starts it again.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.Stop(tb)
	s.Resume(tb)
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// StopAPI is Stop without a test.
func (s *Server) StopAPI() error {
	if err := s.env.ControlPlane.APIServer.Stop(); err != nil {
		return fmt.Errorf("stop the API server: %w", err)
	}
	return nil
}

// ResumeAPI is Resume without a test.
func (s *Server) ResumeAPI() error {
	if err := inTurn(func() error { return s.thread.run(s.env.ControlPlane.APIServer.Start) }); err != nil {
		return fmt.Errorf("start the API server again: %w\n%s", err, s.log())
	}
	return s.AwaitRights(context.Background())
}

// Shared is the API server that the tests of a package share. The first test that asks starts it.
type Shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Server returns the API server.
func (s *Shared) Server(tb testing.TB) *Server {
	tb.Helper()
	s.once.Do(func() { s.server, s.err = New() })
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return s.server
}

// close ends the API server if there is one.
func (s *Shared) close() error {
	if s.server == nil {
		return nil
	}
	return s.server.Close()
}

// Main runs the tests of a package in a network namespace of their own, ends the servers that they shared, and
// returns the exit code.
func Main(m *testing.M, servers ...*Shared) int {
	return InNamespace(func() int {
		code := m.Run()
		for _, s := range servers {
			if err := s.close(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = max(code, 1)
			}
		}
		return code
	})
}

// A machine with few processors may be busy with more important work.
const (
	startTimeout = 5 * time.Minute
	stopTimeout  = time.Minute
)

// apis are the versions that the server has.
const apis = "api/v1=true,admissionregistration.k8s.io/v1=true,apiextensions.k8s.io/v1=true,apiregistration.k8s.io/v1=true," +
	"apps/v1=true,authentication.k8s.io/v1=true,authorization.k8s.io/v1=true,autoscaling/v2=true,batch/v1=true,coordination.k8s.io/v1=true," +
	"discovery.k8s.io/v1=true,events.k8s.io/v1=true,networking.k8s.io/v1=true,node.k8s.io/v1=true,policy/v1=true,rbac.authorization.k8s.io/v1=true,scheduling.k8s.io/v1=true,storage.k8s.io/v1=true"

// environment describes the server to envtest. Ports and folders are ours, so that
// the server can be stopped and found again.
func (s *Server) environment() (*envtest.Environment, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(s.logFile())
	if err != nil {
		return nil, err
	}
	existing := false
	env := &envtest.Environment{UseExistingCluster: &existing, ControlPlaneStartTimeout: startTimeout, ControlPlaneStopTimeout: stopTimeout}
	scripts := filepath.Join(root, "internal", "testing", "kubetest", "bin")
	env.ControlPlane.Etcd = &envtest.Etcd{Path: filepath.Join(scripts, "etcd"), DataDir: filepath.Join(s.dir, "etcd")}
	api := env.ControlPlane.GetAPIServer()
	api.Path = filepath.Join(scripts, "kube-apiserver")
	api.CertDir = filepath.Join(s.dir, "apiserver")
	api.Out, api.Err = log, log
	api.SecureServing.ListenAddr = envtest.ListenAddr{Address: "127.0.0.1", Port: strconv.Itoa(s.lock.port)}
	webhooks, err := s.webhookClient()
	if err != nil {
		return nil, err
	}
	api.Configure().
		Set("admission-control-config-file", webhooks).
		Set("advertise-address", "127.0.0.1").
		Set("endpoint-reconciler-type", "none"). // another one refuses to advertise a loopback address
		Set("service-cluster-ip-range", "127.96.0.0/12").
		Set("runtime-config", "api/all=false", apis).         // the others take a third of the time to start
		Set("enable-priority-and-fairness", "false").         // which is one of them
		Set("kubelet-preferred-address-types", "InternalIP"). // the default asks DNS for nodes
		Set("shutdown-send-retry-after", "true")              // else it waits a minute for watches to end
	for _, dir := range []string{env.ControlPlane.Etcd.DataDir, api.CertDir} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	return env, nil
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "apiserver.log") }

// log returns the end of the API server's log.
func (s *Server) log() string {
	content, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-4096):])
}

// Binary returns the path of kube-apiserver, etcd, kubectl or kustomize, all of the
// same release. kustomize runs functions that are programs, with
// --enable-alpha-plugins and --enable-exec; the one in kubectl does not.
func Binary(name string) (string, error) {
	dir := os.Getenv("KUBEBUILDER_ASSETS") // as bin/kube-apiserver finds it
	if dir == "" {
		root, err := moduleRoot()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(root, "build", "kube")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find Kubernetes for tests: %w\n\thint: run make kube", err)
	}
	return path, nil
}

// findBinaries fails if something is missing that a server needs.
func findBinaries() error {
	for _, name := range []string{"kube-apiserver", "etcd"} {
		if _, err := Binary(name); err != nil {
			return err
		}
	}
	if _, err := exec.LookPath("setpriv"); err != nil {
		return fmt.Errorf("find setpriv of util-linux: %w", err)
	}
	return nil
}

// moduleRoot looks for go.mod above the folder in which tests run, their package's.
func moduleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the module of %s: no go.mod", start)
		}
	}
}

// inTurn calls a function while no other process of this user is in such a call, since API servers that start
// at once keep each other from starting in time. Without the lock it calls the function all the same.
func inTurn(start func() error) error {
	file, err := os.OpenFile(filepath.Join(os.TempDir(), "hapsnap-kubetest.lock"), os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return start()
	}
	defer file.Close() // which gives the lock back
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return start()
	}
	return start()
}

// WebhookClientName is the common name of the certificate that the server shows to
// admission webhooks.
const WebhookClientName = "kube-apiserver"

// WebhookClientCA is a file with the authority of that certificate.
func (s *Server) WebhookClientCA() string { return filepath.Join(s.dir, "webhooks", "ca.crt") }

// webhookClient writes files that make the server show a certificate to admission webhooks, and returns the
// file for --admission-control-config-file.
func (s *Server) webhookClient() (string, error) {
	dir := filepath.Dir(s.WebhookClientCA())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	certificate, key, err := selfSigned(WebhookClientName)
	if err != nil {
		return "", err
	}
	kubeconfig, err := clientcmd.Write(api.Config{AuthInfos: map[string]*api.AuthInfo{"*": {ClientCertificateData: certificate, ClientKeyData: key}}})
	if err != nil {
		return "", err
	}
	configuration := filepath.Join(dir, "admission.yaml")
	for file, content := range map[string]string{
		s.WebhookClientCA(): string(certificate), filepath.Join(dir, "kubeconfig"): string(kubeconfig),
		configuration: `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: ` + filepath.Join(dir, "kubeconfig") + "\n",
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return "", err
		}
	}
	return configuration, nil
}

// selfSigned makes a certificate of a client, which is its own authority.
func selfSigned(name string) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), err
}
