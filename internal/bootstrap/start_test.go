package bootstrap

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/eventually"
)

// firstConfig has the same form as the chart's.
const firstConfig = `global
    node bootstrap
defaults
    mode http
    timeout connect 5s
    timeout client 5s
    timeout server 5s
frontend status
    bind STATUS
    monitor-uri /healthz
    http-request return status 503 content-type text/plain string "${HAPSNAP_STATE-no snapshot yet}"
`

// newStart lays out a pod that has its first configuration, and returns the configuration that it should run.
func newStart(t *testing.T) (*pod, string) {
	t.Helper()
	p := newPod(t, slow(t), "")
	write(t, filepath.Join(p.dir, "bootstrap.cfg"), p.firstConfig())
	return p, p.config("192.0.2.1:80", "")
}

func (p *pod) firstConfig() string { return strings.ReplaceAll(firstConfig, "STATUS", p.status) }

// begin starts HAProxy's container.
func (p *pod) begin(t *testing.T) {
	t.Helper()
	p.process = exec.Command("/proc/self/exe", "haproxy")
	p.process.Env = p.env
	p.launch(t)
}

// A configuration that HAProxy cannot start with does not keep the container from starting. HAProxy runs the
// first configuration, which is alive and not ready and says why, and takes the next configuration with a
// reload. The refused configuration is kept.
func TestGoesBack(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	replaced := func(old, now string) func(string) string {
		return func(config string) string { return strings.Replace(config, old, now, 1) }
	}
	for name, broken := range map[string]func(config string) string{
		"port taken":          replaced("default_backend web", "default_backend web\n    bind "+taken.Addr().String()),
		"syntax error":        replaced("mode http", "mode htp"),
		"missing map":         replaced("default_backend web", "use_backend %[path,map(maps/none.map)]"),
		"missing certificate": replaced("default_backend web", "default_backend web\n    bind 127.0.0.1:0 ssl crt ssl/none.pem"),
		"cut in a line":       func(config string) string { return config[:len(config)/2] },
		"cut after a section": func(config string) string { return config[:strings.Index(config, "frontend http")] },
		"empty":               func(string) string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, good := newStart(t)
			refused := broken(good)
			write(t, filepath.Join(p.dir, "haproxy.cfg"), refused)
			p.begin(t)
			p.wentBack(t, p.dir)
			if text, err := os.ReadFile(filepath.Join(p.dir, "haproxy.cfg.refused")); err != nil || string(text) != refused {
				t.Errorf("what is refused was not kept: %v\n%s", err, text)
			}
			write(t, filepath.Join(p.dir, "haproxy.cfg"), good)
			p.ask(t, "reload")
			eventually.Holds(t, "HAProxy serves again", func() bool { return code("http://"+p.status+"/ready") == http.StatusOK })
		})
	}
	t.Run("file gone", func(t *testing.T) {
		t.Parallel()
		p, _ := newStart(t)
		if err := os.Remove(filepath.Join(p.dir, "haproxy.cfg")); err != nil {
			t.Fatal(err)
		}
		p.begin(t)
		p.wentBack(t, p.dir)
	})
	t.Run("no worker in time", func(t *testing.T) {
		t.Parallel()
		p, good := newStart(t)
		write(t, filepath.Join(p.dir, "haproxy.cfg"), good+"# hangs\n")
		script := filepath.Join(p.dir, "haproxy")
		write(t, script, "#!/bin/sh\ngrep -q '^# hangs' "+filepath.Join(p.dir, "haproxy.cfg")+" && exec sleep 600\nexec "+haproxy(t)+" \"$@\"\n")
		if err := os.Chmod(script, 0o700); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
		p.env = append(p.env, "HAPROXY="+script, "START_SECONDS=2")
		p.begin(t)
		p.wentBack(t, p.dir)
	})
}

// wentBack waits until HAProxy runs the first configuration, and checks that everybody who needs to know can
// see it. The folder is where the test finds the pod's files.
func (p *pod) wentBack(t *testing.T, dir string) {
	t.Helper()
	eventually.Holds(t, "HAProxy is alive", func() bool { return code("http://"+p.status+"/healthz") == http.StatusOK })
	if said := body(t, "http://"+p.status+"/ready"); code("http://"+p.status+"/ready") != http.StatusServiceUnavailable || !strings.Contains(said, "could not be started") {
		t.Errorf("/ready answers %q", said)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "haproxy.cfg")); err != nil || string(text) != p.firstConfig() {
		t.Errorf("the file on disk is not what runs: %v\n%s", err, text)
	}
	log := p.wrote(t)
	for _, want := range []string{"haproxy.cfg cannot be started: attempt=1 ", "HAProxy starts with the first configuration", "haproxy.cfg.refused"} {
		if !strings.Contains(log, want) {
			t.Errorf("no %q in the log", want)
		}
	}
	eventually.Holds(t, "the worker says that it runs the first configuration", func() bool {
		out, err := p.tryAsk("@1 show info")
		return err == nil && strings.Contains(out, "\nnode: bootstrap\n")
	})
}

// HAProxy also goes back from a configuration with which it starts and then ends. That happens after three
// starts, whether HAProxy crashed or the whole container was killed, as the kernel does when memory runs out. A
// container that was told to end, or has served for a while, does not count.
func TestGoesBackFromCrashes(t *testing.T) {
	t.Parallel()
	t.Run("three times", func(t *testing.T) {
		t.Parallel()
		p, good := newStart(t)
		for _, kill := range []func(*testing.T){p.killWorker, p.killContainer, p.killWorker} {
			p.serve(t, good)
			kill(t)
			if err := p.end(t); err == nil {
				t.Fatal("the container ended as if nothing had happened")
			}
		}
		p.begin(t)
		eventually.Holds(t, "HAProxy is alive", func() bool { return code("http://"+p.status+"/healthz") == http.StatusOK })
		eventually.Holds(t, "HAProxy runs the first configuration", func() bool {
			out, err := p.tryAsk("@1 show info")
			return err == nil && strings.Contains(out, "\nnode: bootstrap\n")
		})
		if said := body(t, "http://"+p.status+"/ready"); !strings.Contains(said, "ended soon after each start") {
			t.Errorf("/ready says %q", said)
		}
		if text, err := os.ReadFile(filepath.Join(p.dir, "haproxy.cfg.refused")); err != nil || string(text) != good {
			t.Errorf("the configuration was not kept: %v", err)
		}
		write(t, filepath.Join(p.dir, "haproxy.cfg"), good) // as the pusher does
		p.ask(t, "reload")
		eventually.Holds(t, "HAProxy serves again", p.ready)
		p.killContainer(t)
		_ = p.end(t)
		p.begin(t)
		eventually.Holds(t, "it counts anew", p.ready)
	})
	t.Run("told to end", func(t *testing.T) {
		t.Parallel()
		p, good := newStart(t)
		p.env = append(p.env, "DRAIN_PROPAGATION_SECONDS=0", "DRAIN_SECONDS=0")
		for range 5 {
			p.serve(t, good)
			p.signal(t, syscall.SIGTERM)
			_ = p.end(t)
		}
	})
	t.Run("after it served for a while", func(t *testing.T) {
		t.Parallel()
		p, good := newStart(t)
		p.env = append(p.env, "PROVEN_SECONDS=0")
		for range 5 {
			p.serve(t, good)
			eventually.Holds(t, "nothing is counted", func() bool {
				_, err := os.Stat(filepath.Join(p.dir, "starts"))
				return os.IsNotExist(err)
			})
			p.killContainer(t)
			_ = p.end(t)
		}
	})
}

// On a full disk the first configuration takes the room of the refused one, or the reserve if the refused one
// is empty.
func TestGoesBackOnAFullDisk(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]string{"a whole file": "# hand\nnonsense\n" + strings.Repeat("#\n", 3000), "an empty file": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := newStart(t)
			files, run := t.TempDir(), t.TempDir()
			write(t, filepath.Join(files, "bootstrap.cfg"), p.firstConfig())
			write(t, filepath.Join(p.dir, "haproxy.cfg"), refused)
			if err := os.Remove(filepath.Join(p.dir, "bootstrap.cfg")); err != nil {
				t.Fatal(err)
			}
			if refused == "" {
				write(t, filepath.Join(p.dir, "first.cfg"), p.firstConfig()) // as prepare makes it
			}
			p.env = append(p.env, withDisk+"="+p.dir, "FILES_DIR="+files, "MASTER_SOCKET="+filepath.Join(run, "m.sock"))
			p.process = exec.Command("/proc/self/exe", "haproxy")
			p.process.Env = p.env
			p.process.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
			if os.Getuid() != 0 {
				p.process.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
				p.process.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
				p.process.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
			}
			p.launch(t)
			p.runDir = run
			p.wentBack(t, fmt.Sprintf("/proc/%d/root%s", p.process.Process.Pid, p.dir))
		})
	}
}

// A temporary obstacle does not make HAProxy give up the configuration.
func TestTriesAgain(t *testing.T) {
	t.Parallel()
	p, _ := newStart(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", p.web)
	if err != nil {
		t.Fatal(err)
	}
	p.begin(t)
	eventually.Holds(t, "HAProxy does not start", func() bool { return strings.Contains(p.wrote(t), "attempt=1 ") })
	listener.Close()
	eventually.Holds(t, "HAProxy serves", func() bool { return code("http://"+p.status+"/ready") == http.StatusOK })
	if _, err := os.Stat(filepath.Join(p.dir, "haproxy.cfg.refused")); err == nil {
		t.Error("the configuration was refused")
	}
	eventually.Holds(t, "there is a reserve", func() bool { _, err := os.Stat(filepath.Join(p.dir, "first.cfg")); return err == nil })
}

// If HAProxy does not start with the first configuration either, the container ends with an error. If it is
// told to end meanwhile, it ends without one.
func TestStartEnds(t *testing.T) {
	t.Parallel()
	t.Run("nothing starts", func(t *testing.T) {
		t.Parallel()
		p, _ := newStart(t)
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", p.status)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		for _, want := range []string{"HAProxy starts with the first configuration", "the first configuration cannot be started"} {
			p.begin(t)
			if err := p.end(t); err == nil || !strings.Contains(p.wrote(t), want) {
				t.Errorf("it ended with %v, want a fault and %q", err, want)
			}
		}
	})
	t.Run("told to end", func(t *testing.T) {
		t.Parallel()
		p, _ := newStart(t)
		hangs, started := filepath.Join(p.dir, "haproxy"), filepath.Join(p.dir, "started")
		write(t, hangs, "#!/bin/sh\ntrap 'exit 0' TERM\n: >"+started+"\nwhile :; do sleep 0.05; done\n")
		if err := os.Chmod(hangs, 0o700); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
		p.env = append(p.env, "HAPROXY="+hangs)
		p.begin(t)
		eventually.Holds(t, "HAProxy begins to start", func() bool { _, err := os.Stat(started); return err == nil })
		p.signal(t, syscall.SIGTERM)
		if err := p.end(t); err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
}

func (p *pod) ready() bool { return code("http://"+p.status+"/ready") == http.StatusOK }

// serve starts HAProxy's container with a configuration, and waits until the program knows that HAProxy serves:
// then it makes the reserve.
func (p *pod) serve(t *testing.T, config string) {
	t.Helper()
	write(t, filepath.Join(p.dir, "haproxy.cfg"), config)
	reserve := filepath.Join(p.dir, "first.cfg")
	if err := os.Remove(reserve); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	p.begin(t)
	eventually.Holds(t, "HAProxy serves", p.ready)
	eventually.Holds(t, "the container knows", func() bool { _, err := os.Stat(reserve); return err == nil })
}

// killContainer kills all processes at once, as the kernel does when memory is short.
func (p *pod) killContainer(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(-p.process.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// killWorker makes HAProxy's worker crash.
func (p *pod) killWorker(t *testing.T) {
	t.Helper()
	eventually.Holds(t, "the worker is found", func() bool {
		out, err := p.tryAsk("show proc")
		found := regexp.MustCompile(`(?m)^(\d+)\s+worker\s`).FindStringSubmatch(out)
		if err != nil || found == nil {
			return false
		}
		pid, err := strconv.Atoi(found[1])
		return err == nil && syscall.Kill(pid, syscall.SIGSEGV) == nil
	})
}

// body is what a response says.
func body(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(said)
}

// end waits for the end of the pod's program.
func (p *pod) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(limit):
		t.Fatal("it did not end")
		return nil
	}
}
