package dataplane_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane/dataplanetest"
)

// startReal puts a real Dataplane API in the place of the double: before the same
// HAProxy, on the same files.
func startReal(t *testing.T, binary string) *subject {
	t.Helper()
	i := dataplanetest.Start(t, dataplanetest.Options{})
	i.StopAPI()
	_, port, err := net.SplitHostPort(i.Addr)
	if err != nil {
		t.Fatal(err)
	}
	run := filepath.Dir(i.MasterSocket())
	settings := filepath.Join(run, "dataplaneapi.yml")
	text := fmt.Sprintf(`config_version: 2
name: test
dataplaneapi:
  host: 127.0.0.1
  port: %s
  user:
  - name: %s
    password: %s
    insecure: true
  transaction:
    transaction_dir: %s
  resources:
    maps_dir: %s
    ssl_certs_dir: %s
    general_storage_dir: %s
    dataplane_storage_dir: %s
haproxy:
  config_file: %s
  haproxy_bin: %s
  master_worker_mode: true
  master_runtime: %s
  reload:
    reload_delay: 1
    reload_strategy: custom
    reload_cmd: /bin/false
    restart_cmd: /bin/false
`, port, username, password, i.Dirs.Transactions, i.Dirs.Maps, i.Dirs.Certificates, i.Dirs.General,
		filepath.Join(run, "storage"), i.ConfigFile(), i.Binary(), i.MasterSocket())
	if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	spawn(t, binary, settings)
	s := newSubject(t, i, i.URL())
	eventually(t, func() bool {
		_, err := s.Info(t.Context())
		return err == nil
	})
	http.DefaultClient.CloseIdleConnections()
	return s
}

// spawn runs a program that ends with the test, or with the test's process.
func spawn(t *testing.T, binary, settings string) {
	t.Helper()
	log, err := os.Create(settings + ".log")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-f", settings)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "CI_DATAPLANE_RELOAD_DELAY_OVERRIDE=50")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the signal comes with the end of this thread
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(ended)
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Error("the real API did not end")
		}
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("the real API wrote:\n%s", text)
		}
		_ = log.Close()
	})
}
