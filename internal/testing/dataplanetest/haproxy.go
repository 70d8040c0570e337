package dataplanetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// startupLimit and stopLimit bound how long HAProxy may take to come up or go, on a
// machine that is busy with other tests.
const (
	startupLimit = time.Minute
	stopLimit    = 3 * time.Second
	pollInterval = 2 * time.Millisecond
)

// haproxy is one HAProxy in master-worker mode: what a container would run.
type haproxy struct {
	binary string
	minor  int // 206 for 2.6
	env    []string
	config string
	socket string
	log    string

	mu     sync.Mutex
	master *os.Process
	exited chan struct{}
	alive  atomic.Bool

	reloading sync.Mutex // the master does one reload at a time
	late      lateAddresses
}

// findHAProxy resolves the binary; /usr/sbin is not on everybody's PATH.
func findHAProxy(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil && !strings.Contains(name, "/") {
		path, err = exec.LookPath(filepath.Join("/usr/sbin", name))
	}
	if err != nil {
		return "", fmt.Errorf("find haproxy: %w", err)
	}
	return filepath.Abs(path)
}

var versionLine = regexp.MustCompile(`version (\d+)\.(\d+)`)

// binaryVersion returns 206 for 2.6.
func binaryVersion(binary string) (int, error) {
	out, err := exec.CommandContext(context.Background(), binary, "-v").Output()
	if err != nil {
		return 0, fmt.Errorf("ask haproxy for its version: %w", err)
	}
	m := versionLine.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("ask haproxy for its version: unknown answer %q", out)
	}
	major, _ := strconv.Atoi(string(m[1]))
	minor, _ := strconv.Atoi(string(m[2]))
	return major*100 + minor, nil
}

// start runs HAProxy with what is on disk and returns when its worker answers.
func (h *haproxy) start() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.alive.Load() {
		return errors.New("start haproxy: it runs already")
	}
	if err := os.Remove(h.socket); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("start haproxy: %w", err)
	}
	from := h.logSize()
	if err := h.launch(); err != nil {
		return fmt.Errorf("start haproxy: %w", err)
	}
	return h.awaitWorker(from)
}

// launch starts the master so that it cannot outlive this process: it gets
// SIGKILL with the thread that forked it, hence that thread is held until the
// master has gone. Workers leave by themselves when their master is gone.
func (h *haproxy) launch() error {
	log, err := os.OpenFile(h.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(context.Background(), h.binary, "-W", "-S", h.socket, "-f", h.config)
	cmd.Env = h.env
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started, exited := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		h.alive.Store(err == nil)
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is seen in the log
			h.alive.Store(false)
			close(exited)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	h.master, h.exited = cmd.Process, exited
	return nil
}

// awaitWorker polls until the worker answers through the master.
func (h *haproxy) awaitWorker(logFrom int64) error {
	answers := false
	poll(startupLimit, func() bool {
		out, err := h.askWithin(firstLimit, "@1 show info")
		answers = err == nil && strings.Contains(out, "Pid:")
		return answers || !h.alive.Load()
	})
	switch {
	case answers:
		return nil
	case !h.alive.Load():
		return fmt.Errorf("start haproxy: it exited:\n%s", h.logSince(logFrom))
	default:
		return fmt.Errorf("start haproxy: no answer in %v:\n%s", startupLimit, h.logSince(logFrom))
	}
}

func (h *haproxy) masterPID() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.master == nil {
		return 0
	}
	return h.master.Pid
}

// stop ends HAProxy as a container runtime does: first asking, then not.
func (h *haproxy) stop() { h.end(syscall.SIGTERM) }

// kill ends it at once, workers and all.
func (h *haproxy) kill() { h.end(syscall.SIGKILL) }

func (h *haproxy) end(first syscall.Signal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.master == nil {
		return
	}
	group := -h.master.Pid
	if h.alive.Load() && first != syscall.SIGKILL {
		_ = h.master.Signal(first)
		select {
		case <-h.exited:
		case <-time.After(stopLimit):
		}
	}
	// Workers of earlier reloads may linger in the group for as long as a client
	// holds a connection.
	_ = syscall.Kill(group, syscall.SIGKILL)
	<-h.exited
	h.master = nil
}

// reload loads what is on disk into a new worker and returns what HAProxy said.
func (h *haproxy) reload() (startupLog string, err error) {
	h.reloading.Lock()
	defer h.reloading.Unlock()
	if h.minor < 207 {
		return h.reloadAndWatch()
	}
	out, err := h.ask("reload")
	if err != nil {
		return "", fmt.Errorf("cannot reload: %w", err)
	}
	status, logs, _ := strings.Cut(out, "\n--\n")
	switch strings.TrimSpace(status) {
	case "Success=1":
		return logs, nil
	case "Success=0":
		return logs, errReloadFailed
	default:
		return logs, fmt.Errorf("reload: unknown status: %s", status)
	}
}

var errReloadFailed = errors.New("failed to reload configuration")

// reloadAndWatch is for HAProxy before 2.7, where "reload" answers before
// anything has happened: the count of reloads says when it is over, and the count
// of failures how it ended.
func (h *haproxy) reloadAndWatch() (string, error) {
	from := h.logSize()
	before, _, err := h.reloadCounts()
	if err != nil {
		return "", fmt.Errorf("cannot reload: %w", err)
	}
	if _, err := h.ask("reload"); err != nil {
		return "", fmt.Errorf("cannot reload: %w", err)
	}
	var failed int
	over := poll(startupLimit, func() bool {
		var after int
		after, failed, err = h.reloadCounts()
		return err == nil && after > before // else the master is between two lives
	})
	switch {
	case !over:
		return h.logSince(from), fmt.Errorf("reload: no verdict in %v", startupLimit)
	case failed > 0:
		return h.logSince(from), errReloadFailed
	default:
		return h.logSince(from), nil
	}
}

// poll asks until the answer is yes or the time is over.
func poll(limit time.Duration, done func() bool) bool {
	deadline := time.Now().Add(limit)
	for !done() {
		if time.Now().After(deadline) {
			return false
		}
		<-time.After(pollInterval)
	}
	return true
}

var masterLine = regexp.MustCompile(`(?m)^\d+\s+master\s+(\d+) \[failed: (\d+)\]`)

// reloadCounts returns the reloads since the master started, and how many of the
// latest failed in a row.
func (h *haproxy) reloadCounts() (reloads, failed int, err error) {
	out, err := h.ask("show proc")
	if err != nil {
		return 0, 0, err
	}
	m := masterLine.FindStringSubmatch(out)
	if m == nil {
		return 0, 0, fmt.Errorf("unknown answer to show proc: %q", out)
	}
	reloads, _ = strconv.Atoi(m[1])
	failed, _ = strconv.Atoi(m[2])
	return reloads, failed, nil
}

func (h *haproxy) logSize() int64 {
	info, err := os.Stat(h.log)
	if err != nil {
		return 0
	}
	return info.Size()
}

func (h *haproxy) logSince(offset int64) string {
	text, err := os.ReadFile(h.log)
	if err != nil || int64(len(text)) < offset {
		return ""
	}
	return string(text[offset:])
}
