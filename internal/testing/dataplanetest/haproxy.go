package dataplanetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hapsnap/hapsnap/internal/child"
)

// startupLimit and stopLimit bound how long HAProxy may take to start or stop, on a machine that is busy with
// other tests.
const (
	startupLimit = time.Minute
	stopLimit    = 3 * time.Second
	pollInterval = 2 * time.Millisecond
)

// haproxy is one HAProxy in master-worker mode, as a container runs it.
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

// findHAProxy resolves the binary, since /usr/sbin is not on everybody's PATH.
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
		return fmt.Errorf("start haproxy: it exited:\n%s", h.logSince(from))
	default:
		return fmt.Errorf("start haproxy: no answer in %v:\n%s", startupLimit, h.logSince(from))
	}
}

// launch starts the master so that it cannot outlive this process: it gets SIGKILL with the thread that forked
// it, so that thread is held until the master is gone. Workers end by themselves when their master is gone.
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
	ended, err := child.Start(cmd) // how it ended is seen in the log
	if h.alive.Store(err == nil); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		<-ended
		h.alive.Store(false)
		close(exited)
	}()
	h.master, h.exited = cmd.Process, exited
	return nil
}

func (h *haproxy) masterPID() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.master == nil {
		return 0
	}
	return h.master.Pid
}

// stop ends HAProxy as a container runtime does: first with SIGTERM, then by force.
func (h *haproxy) stop() { h.end(syscall.SIGTERM) }

// kill ends HAProxy at once, with all workers.
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
	// Workers of earlier reloads may stay in the group for as long as a client holds a connection.
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

// reloadAndWatch is for HAProxy before 2.7, where "reload" answers before anything has happened. The count of
// reloads shows when it is over, and the count of failures how it ended.
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

// poll calls a function until it returns true or the time is over.
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

// reloadCounts returns the number of reloads since the master started, and how many of the latest failed in a
// row.
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

// socketLimit bounds one exchange on the master socket: a reload that fights for a
// port takes two seconds, and more where HAProxy has to wait for its turn.
const socketLimit = time.Minute

// firstLimit bounds an exchange with a HAProxy that starts: 3.4 never answers a command that arrives before its
// worker is ready.
const firstLimit = time.Second

// giveUp is how long the real API waits for an answer.
const giveUp = 10 * time.Second

// reexecLimit is how long a master that refuses connections counts as one that reloads itself. A process that
// has ended is not waited for.
const reexecLimit = 10 * time.Second

// ask sends one command to the master and returns its answer.
func (h *haproxy) ask(command string) (string, error) { return h.askWithin(socketLimit, command) }

func (h *haproxy) askWithin(limit time.Duration, command string) (string, error) {
	conn, err := h.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, closing(command)); err != nil {
		return "", err
	}
	out, err := io.ReadAll(conn)
	if err != nil && len(out) == 0 {
		return "", err
	}
	return strings.TrimSpace(string(out)), nil
}

// dial connects to the master. Before 2.7 a master that reloads itself refuses connections for a moment. Later
// masters, which are the only ones that the real API accepts, let them wait.
func (h *haproxy) dial() (net.Conn, error) {
	var conn net.Conn
	var err error
	poll(reexecLimit, func() bool {
		conn, err = (&net.Dialer{Timeout: socketLimit}).DialContext(context.Background(), "unix", h.socket)
		return h.minor >= 207 || !h.alive.Load() || !errors.Is(err, syscall.ECONNREFUSED)
	})
	return conn, err
}

// closing makes the master close the connection after the command. Text after a payload must be on a line of
// its own.
func closing(command string) string {
	if strings.Contains(command, "<<") {
		return command + "\n\nquit\n"
	}
	return command + ";quit\n"
}

// workerError is a refusal by the worker, in its words.
type workerError struct{ text, command string }

func (e workerError) Error() string { return fmt.Sprintf("[3] %s [%s]", e.text, e.command) }

// worker sends one command to the running worker. A refusal is a workerError.
func (h *haproxy) worker(ctx context.Context, command string) (string, error) {
	if faultOf(ctx).kind == masterSocketGone {
		return "", h.noSocket()
	}
	if f := faultOf(ctx); f.kind == addressLate && h.late.take(command) {
		time.AfterFunc(f.delay, func() { h.late.set(h, command) })
		return "", nil
	}
	return h.tell(command)
}

// tell is worker without faults.
func (h *haproxy) tell(command string) (string, error) {
	first, _, _ := strings.Cut(command, "\n")
	if h.minor < 207 {
		out, err := h.ask("@1 " + command)
		if err == nil && refusedByWorker(first, out) {
			err = workerError{out, first}
		}
		return out, err
	}
	out, err := h.ask("set severity-output number;@1 " + command)
	if err != nil {
		return "", err
	}
	return bySeverity(first, out)
}

// noSocket is the error of dialling when the socket's file is gone.
func (h *haproxy) noSocket() error {
	return fmt.Errorf("dial unix %s: connect: no such file or directory", h.socket)
}

// bySeverity reads an answer that names its severity: 3 and below are errors.
func bySeverity(command, out string) (string, error) {
	if len(out) < 4 || out[0] != '[' || out[2:4] != "]:" {
		return out, nil
	}
	text := strings.TrimSpace(out[4:])
	if out[1] <= '3' {
		return "", workerError{text, command}
	}
	return text, nil
}

var (
	changeDone = regexp.MustCompile(`(?i)^(IP changed|no need to change|port changed|new server registered|` +
		`server deleted|(.*\n)*success!|committing|adding certificate|transaction (created|updated|aborted)|new empty certificate store|new version created|certificate '.*' deleted)`)
	nothingToShow = regexp.MustCompile(`^(Can't |Unknown |Key not found|Missing |Malformed |'(show|get) )`)
)

// refusedByWorker tells a refusal from an answer if HAProxy, before 2.7, does not name the severity: successful
// changes answer nothing or one of a few known sentences.
func refusedByWorker(command, out string) bool {
	verb, _, _ := strings.Cut(command, " ")
	if verb == "show" || verb == "get" {
		return nothingToShow.MatchString(out)
	}
	return out != "" && !changeDone.MatchString(out)
}

// isRefusal reports whether the worker answered and said no.
func isRefusal(err error) bool {
	var e workerError
	return errors.As(err, &e)
}

// lateAddresses are, by server, the addresses that were acknowledged and are not set yet.
type lateAddresses struct {
	mu       sync.Mutex
	commands map[string]string
}

var setAddress = regexp.MustCompile(`^set server (\S+) addr `)

// take keeps a command that sets an address, and replaces an earlier one for the same server. It reports
// whether the command is one.
func (l *lateAddresses) take(command string) bool {
	found := setAddress.FindStringSubmatch(command)
	if found == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.commands == nil {
		l.commands = map[string]string{}
	}
	l.commands[found[1]] = command
	return true
}

// set gives the worker an address, unless that was done or another one was set since.
func (l *lateAddresses) set(h *haproxy, command string) {
	server := setAddress.FindStringSubmatch(command)[1]
	l.mu.Lock()
	due := l.commands[server] == command
	if due {
		delete(l.commands, server)
	}
	l.mu.Unlock()
	if due {
		_, _ = h.tell(command) // who asked has been answered
	}
}
