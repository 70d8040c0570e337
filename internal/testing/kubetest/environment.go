package kubetest

import (
	"os"
	"path/filepath"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// A machine with few processors may have better things to do.
const (
	startTimeout = 5 * time.Minute
	stopTimeout  = time.Minute
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
