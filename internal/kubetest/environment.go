package kubetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

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
	env := &envtest.Environment{UseExistingCluster: &existing}
	scripts := filepath.Join(root, "internal", "kubetest", "bin")
	env.ControlPlane.Etcd = &envtest.Etcd{Path: filepath.Join(scripts, "etcd"), DataDir: filepath.Join(s.dir, "etcd")}
	api := env.ControlPlane.GetAPIServer()
	api.Path = filepath.Join(scripts, "kube-apiserver")
	api.CertDir = filepath.Join(s.dir, "apiserver")
	api.Out, api.Err = log, log
	api.SecureServing.ListenAddr = envtest.ListenAddr{Address: "127.0.0.1", Port: strconv.Itoa(s.lock.port)}
	api.Configure().
		Set("advertise-address", "127.0.0.1").
		Set("endpoint-reconciler-type", "none"). // another one refuses to advertise a loopback address
		Set("service-cluster-ip-range", "127.96.0.0/12").
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

// log returns the end of what the API server said.
func (s *Server) log() string {
	content, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-4096):])
}

// Kubectl returns the path of the kubectl that belongs to the API server.
func Kubectl() (string, error) {
	if err := findBinaries(); err != nil {
		return "", err
	}
	dir, err := binaries()
	return filepath.Join(dir, "kubectl"), err
}

// findBinaries fails if a program is missing.
func findBinaries() error {
	dir, err := binaries()
	if err != nil {
		return err
	}
	for _, name := range []string{"kube-apiserver", "etcd", "kubectl"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("find Kubernetes for tests: %w\n\thint: run make kube", err)
		}
	}
	if _, err := exec.LookPath("setpriv"); err != nil {
		return fmt.Errorf("find setpriv of util-linux: %w", err)
	}
	return nil
}

// binaries returns the folder of the programs, as bin/kube-apiserver finds it.
func binaries() (string, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		return dir, nil
	}
	root, err := moduleRoot()
	return filepath.Join(root, "build", "kube"), err
}

// moduleRoot looks for go.mod above the folder that tests run in, their package's.
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
