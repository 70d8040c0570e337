package bootstrap

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/internal/testing/loopback"
)

// limit is how long HAProxy may take for immediate actions.
const limit = time.Minute

// A pod is one HAProxy with the folders that its containers share.
type pod struct {
	dir, web, status string
	api              string // where its Dataplane API should listen
	log              string // a file with its output
	runDir           string // of the socket, if not the usual one
	env              []string
	process          *exec.Cmd
	ended            chan error
}

// newPod lays out a pod whose HAProxy sends requests to a backend.
func newPod(t *testing.T, backend, global string) *pod {
	t.Helper()
	p := &pod{dir: filepath.Join(t.TempDir(), "pod"), web: loopback.Address(), status: loopback.Address()}
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p.configure(t, backend, global)
	p.env = append(os.Environ(), asProgram+"=1", "CONFIG_DIR="+p.dir, "FILES_DIR="+p.dir, "MASTER_SOCKET="+p.socket(), "HAPROXY="+haproxy(t),
		"DRAIN_PROPAGATION_SECONDS=3", "DRAIN_SECONDS=10")
	return p
}

// configure writes a configuration of the same form as the compiler's.
func (p *pod) configure(t *testing.T, backend, global string) {
	t.Helper()
	write(t, filepath.Join(p.dir, "haproxy.cfg"), p.config(backend, global))
}

func (p *pod) config(backend, global string) string {
	return strings.NewReplacer("WEB", p.web, "STATUS", p.status, "BACKEND", backend, "GLOBAL", global).Replace(`global
    maxconn 1000
    hard-stop-after 10s
    GLOBAL
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option idle-close-on-response
frontend http
    bind WEB
    default_backend web
frontend status
    bind STATUS
    monitor-uri /healthz
    http-request return status 503 if { path /ready } { nbsrv(hapsnap_ready) eq 0 }
    http-request return status 200 if { path /ready }
backend web
    server one BACKEND
backend hapsnap_ready
    server instance 192.0.2.1:1
`)
}

func (p *pod) socket() string { return filepath.Join(cmp.Or(p.runDir, p.dir), "m.sock") }

// start starts a program of the pod, and waits until its HAProxy is ready.
func (p *pod) start(t *testing.T, path string, args ...string) {
	t.Helper()
	p.process = exec.Command(path, args...)
	p.process.Env = p.env
	p.launch(t)
	eventually.Holds(t, "HAProxy is ready", func() bool { return code("http://"+p.status+"/ready") == http.StatusOK })
	eventually.Holds(t, "its master answers", func() bool { _, err := p.tryAsk("show proc"); return err == nil })
}

// launch starts the pod's program, which ends with the test.
func (p *pod) launch(t *testing.T) {
	t.Helper()
	if p.log == "" {
		p.log = p.dir + ".log"
	}
	said, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	p.process.Stderr = said
	if p.process.SysProcAttr == nil {
		p.process.SysProcAttr = &syscall.SysProcAttr{}
	}
	p.process.SysProcAttr.Setpgid = true
	if err := p.process.Start(); err != nil {
		t.Fatal(err)
	}
	p.ended = make(chan error, 1)
	gone := make(chan struct{})
	go func() {
		p.ended <- p.process.Wait()
		close(gone)
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-p.process.Process.Pid, syscall.SIGKILL)
		<-gone
		if t.Failed() {
			t.Log(p.wrote(t))
		}
	})
}

// wrote returns the output of the pod's program.
func (p *pod) wrote(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(p.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// startBootstrap starts HAProxy as the pod's container does, startHAProxy without it.
func (p *pod) startBootstrap(t *testing.T) { t.Helper(); p.start(t, "/proc/self/exe", "haproxy") }

func (p *pod) startHAProxy(t *testing.T) {
	t.Helper()
	p.start(t, haproxy(t), "-W", "-db", "-S", p.socket(), "-f", filepath.Join(p.dir, "haproxy.cfg"))
}

func (p *pod) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.process.Process.Signal(s); err != nil {
		t.Error(err)
	}
}

// masterReloaded reports whether HAProxy was reloaded once, without a failure.
func (p *pod) masterReloaded() bool {
	out, err := p.tryAsk("show proc")
	return err == nil && regexp.MustCompile(`(?m)^\d+\s+master\s+1 \[failed: 0\]`).MatchString(out)
}

// ask sends a command to the master.
func (p *pod) ask(t *testing.T, command string) {
	t.Helper()
	if _, err := p.tryAsk(command); err != nil {
		t.Error(err)
	}
}

func (p *pod) tryAsk(command string) (string, error) {
	conn, err := net.DialTimeout("unix", p.socket(), limit)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprint(conn, command+";quit\n"); err != nil {
		return "", err
	}
	out, err := io.ReadAll(conn)
	return string(out), err
}

// slow answers each request after 100 ms.
func slow(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-time.After(100 * time.Millisecond)
		fmt.Fprint(w, "served")
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func haproxy(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv("HAPROXY"), "haproxy"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// code is the status of a response, 0 where there is none.
func code(url string) int {
	c := http.Client{Timeout: limit, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := c.Get(url)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// withDisk is a folder that the program finds on a disk of its own, which is full except for the former content
// of the folder.
const withDisk = "HAPSNAP_TEST_DISK"

// asProgram makes the test's own binary act as the program.
const asProgram = "HAPSNAP_TEST_BOOTSTRAP"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		if err := fillDisk(os.Getenv(withDisk)); err != nil {
			fmt.Fprintln(os.Stderr, "fill the disk:", err)
			os.Exit(99)
		}
		os.Exit(Main(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// fillDisk mounts a small disk at a folder, with the folder's content, and fills it. Only this process sees the
// mount.
func fillDisk(dir string) error {
	if dir == "" {
		return nil
	}
	copied := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if copied[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	if err := errors.Join(syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""), syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k")); err != nil {
		return err
	}
	for name, content := range copied {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "other"), make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("it is not full: %w", err)
	}
	return nil
}
