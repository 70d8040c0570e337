package kubetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Server is an API server with an etcd of its own. Its methods are safe for use by
// several tests at once, but for those that stop it.
type Server struct {
	env  *envtest.Environment
	dir  string
	lock *portLock
	// thread runs functions on the thread that lives as long as the processes do.
	thread *heldThread
	client client.Client
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

// silence gives controller-runtime a logger, which asks for one with a stack trace
// after 30 seconds, and has one place for it in the process.
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

// Config is that of an administrator, who is not slowed down.
func (s *Server) Config() *rest.Config { return rest.CopyConfig(s.env.Config) }

// Kubeconfig is the path of the administrator's kubeconfig.
func (s *Server) Kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

// Stop ends the API server. etcd runs on. Clients see their watches end, and no
// connection is accepted until Resume.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	must(tb, s.StopAPI())
}

// Resume starts the API server again, where it was.
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

// StopAPI is Stop where there is no test.
func (s *Server) StopAPI() error {
	if err := s.env.ControlPlane.APIServer.Stop(); err != nil {
		return fmt.Errorf("stop the API server: %w", err)
	}
	return nil
}

// ResumeAPI is Resume where there is no test.
func (s *Server) ResumeAPI() error {
	if err := inTurn(func() error { return s.thread.run(s.env.ControlPlane.APIServer.Start) }); err != nil {
		return fmt.Errorf("start the API server again: %w\n%s", err, s.log())
	}
	return nil
}
