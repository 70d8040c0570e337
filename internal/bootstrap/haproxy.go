package bootstrap

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// look is how often a drain counts the connections that are left.
	look = 200 * time.Millisecond
	// lookLimit bounds an exchange with HAProxy.
	lookLimit = 2 * time.Second
	// patience is how long a HAProxy that does not answer is asked again. While it reloads itself, it does not
	// answer for a moment.
	patience = 10 * time.Second
)

// runHAProxy runs HAProxy, and drains it at the first signal to end. A second signal cuts the wait short:
// HAProxy then stops softly at once. While HAProxy drains, signals do not reload it.
func (s Settings) runHAProxy() (int, error) {
	got := signals()
	haproxy, code, err := s.startHAProxy(got)
	if haproxy == nil {
		if err == nil {
			s.forgetStarts()
		}
		return code, err
	}
	s.keepReserve()
	proven := time.After(s.Proven)
	for {
		select {
		case <-proven:
			s.forgetStarts()
		case code := <-haproxy.ended:
			return code, nil
		case signal := <-got:
			if haproxy.reloads(signal) {
				continue
			}
			s.forgetStarts()
			fmt.Fprintf(s.stderr, "bootstrap haproxy: draining: signal=%v propagation=%v drain=%v\n", signal, s.Propagation, s.Drain)
			d := drain{settings: s, haproxy: haproxy, again: got, master: master(s.MasterSocket)}
			return d.run()
		}
	}
}

// A drain ends one HAProxy.
type drain struct {
	settings Settings
	haproxy  *child
	again    <-chan os.Signal
	master   master
}

// run carries out the end of an instance in order, and returns HAProxy's exit code.
func (d drain) run() (int, error) {
	served := d.until(d.settings.Propagation, func() bool {
		_ = d.master.unready() // again, as a reload brings a worker that is ready
		return false
	})
	if served == nil {
		deadline := time.Now().Add(d.settings.Drain)
		silent := time.Now()
		served = d.until(d.settings.Drain, func() bool {
			_ = d.master.unready()
			open, err := d.master.shutTraffic()
			if err == nil {
				silent = time.Now()
			}
			return err == nil && open == 0 || time.Since(silent) > patience
		})
		if served == nil {
			return d.stop(time.Until(deadline))
		}
	}
	if served.code != nil {
		return *served.code, nil
	}
	return d.stop(d.settings.Drain) // somebody is in a hurry
}

// interrupted is why a wait ended early: HAProxy's exit code, or nil for a second signal.
type interrupted struct{ code *int }

// until calls a function again and again until it returns true or the limit is over. It returns nil unless
// something interrupts the wait.
func (d drain) until(limit time.Duration, done func() bool) *interrupted {
	over := time.After(limit)
	tick := time.NewTicker(look)
	defer tick.Stop()
	for !done() {
		select {
		case <-over:
			return nil
		case <-tick.C:
		case code := <-d.haproxy.ended:
			return &interrupted{code: &code}
		case s := <-d.again:
			if s != syscall.SIGUSR2 && s != syscall.SIGHUP {
				return &interrupted{}
			}
		}
	}
	return nil
}

// stop begins a soft stop, in which workers that reloads replaced may finish too, and a hard stop when the time
// is over. A HAProxy that has just started may miss a signal, so stop sends several.
func (d drain) stop(limit time.Duration) (int, error) {
	fmt.Fprintln(d.settings.stderr, "bootstrap haproxy: no connection is left to wait for, or no time; HAProxy stops")
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	over := time.After(max(limit, time.Second))
	signal := syscall.SIGUSR1
	for {
		d.haproxy.signal(signal)
		select {
		case code := <-d.haproxy.ended:
			return code, nil
		case <-tick.C:
		case <-over:
			signal = syscall.SIGTERM
		}
	}
}

// statusFrontend is the frontend of health and metrics, in each of our configurations.
const statusFrontend = "status"

// A master is the path of HAProxy's master socket.
type master string

// ask sends a command to the present worker, and returns its answer.
func (m master) ask(command string) (string, error) {
	conn, err := (&net.Dialer{Timeout: lookLimit}).DialContext(context.Background(), "unix", string(m))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(lookLimit)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, "@1 "+command+";quit\n"); err != nil {
		return "", err
	}
	out, err := io.ReadAll(conn)
	return string(out), err
}

// unready makes /ready fail. The first configuration has no such server: it never was ready.
func (m master) unready() error {
	_, err := m.ask("set server hapsnap_ready/instance state maint")
	return err
}

// frontends returns the frontends of the present worker. It fails if there is no worker yet.
func (m master) frontends() ([]frontend, error) {
	out, err := m.ask("show stat -1 1 -1")
	if err != nil {
		return nil, err
	}
	return parse(out)
}

// shutTraffic makes all frontends except the one for status stop accepting connections, and returns how many
// connections they have.
func (m master) shutTraffic() (connections int, err error) {
	frontends, err := m.frontends()
	if err != nil {
		return 0, err
	}
	for _, f := range frontends {
		if f.name == statusFrontend {
			continue
		}
		connections += f.connections
		if !f.stopped {
			connections++ // accepted since it was asked
			// It takes both commands. The first one closes the port, but alone it leaves connections open. The
			// second one closes connections after their next response, but alone it leaves the port open for a
			// worker to come, to which clients would connect in vain.
			for _, command := range []string{"disable frontend ", "shutdown frontend "} {
				if _, err := m.ask(command + f.name); err != nil {
					return 0, err
				}
			}
		}
	}
	return connections, nil
}

// A frontend of HAProxy's statistics.
type frontend struct {
	name        string
	connections int
	stopped     bool
}

var errStatistics = errors.New("HAProxy's statistics have another form")

// parse reads what "show stat" prints of frontends.
func parse(text string) ([]frontend, error) {
	reader := csv.NewReader(strings.NewReader(strings.TrimPrefix(strings.TrimSpace(text), "# ")))
	reader.FieldsPerRecord = -1
	rows, err := reader.ReadAll()
	if err != nil || len(rows) == 0 {
		return nil, errors.Join(errStatistics, err)
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	name, connections, status := column["pxname"], column["scur"], column["status"]
	if rows[0][name] != "pxname" || connections == 0 || status == 0 {
		return nil, errStatistics
	}
	var out []frontend
	for _, row := range rows[1:] {
		if len(row) <= max(name, connections, status) {
			return nil, errStatistics
		}
		n, err := strconv.Atoi(row[connections])
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errStatistics, err)
		}
		out = append(out, frontend{name: row[name], connections: n, stopped: row[status] == "STOP"})
	}
	return out, nil
}

// A child is the main program of a container.
type child struct {
	command *exec.Cmd
	ended   chan int // gets its exit code, once
}

// start starts a program, which writes to this program's outputs.
func (s Settings) start(program string, args ...string) (*child, error) {
	return s.startWith(nil, program, args...)
}

// startWith starts a program with more variables in its environment.
func (s Settings) startWith(env []string, program string, args ...string) (*child, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", program, err)
	}
	c := &child{command: exec.CommandContext(context.Background(), path, args...), ended: make(chan int, 1)}
	c.command.Stdout, c.command.Stderr = s.stdout, s.stderr
	c.command.Env = append(os.Environ(), env...)
	if err := c.command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	go func() { c.ended <- exitCode(c.command.Wait()) }()
	return c, nil
}

// signal sends a signal to the program, unless it has ended.
func (c *child) signal(s syscall.Signal) { _ = c.command.Process.Signal(s) }

// reloads passes on a signal that reloads HAProxy, and reports whether it is one.
func (c *child) reloads(s os.Signal) bool {
	if s != syscall.SIGUSR2 && s != syscall.SIGHUP {
		return false
	}
	c.signal(s.(syscall.Signal))
	return true
}

// exitCode is what a shell would return: 128 plus the signal, for a program that a signal ended.
func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &exit):
		return exitFailure
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return exit.ExitCode()
}

// signals are the signals that end a container, and those that reload HAProxy.
func signals() chan os.Signal {
	got := make(chan os.Signal, 4)
	signal.Notify(got, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGHUP)
	return got
}

const (
	// startAttempts is how often a configuration is tried: the obstacle may be gone at the next attempt.
	startAttempts = 3
	// startPause is how long to wait before the next attempt.
	startPause = time.Second
	// killLimit is how long a HAProxy that did not start may take to end.
	killLimit = 5 * time.Second
)

// stateVariable is what the first configuration answers on /ready, in place of the message that there is no
// snapshot yet.
const stateVariable = "HAPSNAP_STATE"

// wentBack is the answer on /ready of an instance whose configuration could not be started.
const wentBack = "the last configuration could not be started, see the log of bootstrap"

// endedSoon is the answer if HAProxy started with the configuration and ended within seconds.
const endedSoon = "HAProxy ended soon after each start with the last configuration, see the log of bootstrap"

// startHAProxy starts HAProxy with the configuration on disk. It starts the first configuration instead if that
// cannot be started, or if HAProxy ended soon after each of the last starts. It returns when a worker serves.
// If it was told to end first, or neither configuration can be started, it returns no HAProxy, but an exit
// code.
func (s Settings) startHAProxy(got chan os.Signal) (*child, int, error) {
	if s.countStart() > startAttempts {
		fmt.Fprintf(s.stderr, "bootstrap haproxy: HAProxy ended soon after each start with %s: starts=%d\n", s.config(), startAttempts)
		return s.startFirst(got, endedSoon)
	}
	deadline := time.Now().Add(s.Start)
	for attempt := 1; ; attempt++ {
		haproxy, fault, code, err := s.attempt(got, time.Until(deadline))
		if err != nil || fault == "" {
			return haproxy, code, err
		}
		fmt.Fprintf(s.stderr, "bootstrap haproxy: %s cannot be started: attempt=%d fault=%q\n", s.config(), attempt, fault)
		if attempt >= startAttempts || time.Now().After(deadline) {
			if s.isFirst() {
				return nil, max(code, exitFailure), errors.New("the first configuration cannot be started")
			}
			return s.startFirst(got, wentBack)
		}
		select {
		case <-time.After(startPause):
		case <-got:
			return nil, 0, nil
		}
	}
}

// startFirst replaces the configuration on disk by the first one, and starts HAProxy with it. Why is what
// /ready says.
func (s Settings) startFirst(got chan os.Signal, why string) (*child, int, error) {
	s.forgetStarts()
	if err := s.goBack(); err != nil {
		return nil, exitFailure, fmt.Errorf("go back to the first configuration: %w", err)
	}
	fmt.Fprintf(s.stderr, "bootstrap haproxy: HAProxy starts with the first configuration, which serves nobody, until the pusher brings another one; the one before is kept as %s\n", s.refused())
	haproxy, fault, code, err := s.attempt(got, s.Start, stateVariable+"="+why)
	if err == nil && fault != "" {
		return nil, max(code, exitFailure), fmt.Errorf("the first configuration cannot be started: %s", fault)
	}
	return haproxy, code, err
}

// attempt starts HAProxy, and waits until one of its workers serves. It also returns a HAProxy that is told to
// end when it may serve already; the signal is still to be handled. Otherwise HAProxy has ended, and fault says
// why unless a signal ended it.
func (s Settings) attempt(got chan os.Signal, limit time.Duration, env ...string) (haproxy *child, fault string, code int, err error) {
	if err := os.Remove(s.MasterSocket); err != nil && !os.IsNotExist(err) {
		return nil, "", exitFailure, err
	}
	if haproxy, err = s.startWith(env, s.HAProxy, "-W", "-db", "-S", s.MasterSocket+",mode,600,level,admin", "-f", s.config()); err != nil {
		return nil, "", exitFailure, err
	}
	over := time.After(limit)
	tick := time.NewTicker(socketLook)
	defer tick.Stop()
	for {
		select {
		case code := <-haproxy.ended:
			if code == 0 {
				return nil, "", 0, nil
			}
			return nil, fmt.Sprintf("HAProxy ended with %d", code), code, nil
		case <-over:
			return nil, fmt.Sprintf("no worker serves after %v", limit.Round(time.Second)), haproxy.end(), nil
		case signal := <-got:
			if haproxy.reloads(signal) {
				continue
			}
			if _, err := os.Stat(s.MasterSocket); err == nil {
				select {
				case got <- signal:
				default: // others wait there
				}
				return haproxy, "", 0, nil
			}
			return nil, "", haproxy.end(), nil
		case <-tick.C:
			frontends, err := master(s.MasterSocket).frontends()
			switch {
			case err != nil: // not yet
			case len(frontends) == 0: // an empty file is one that HAProxy starts with
				return nil, "it has no frontend", haproxy.end(), nil
			default:
				return haproxy, "", 0, nil
			}
		}
	}
}

// end ends a HAProxy that serves nobody, and returns its exit code.
func (c *child) end() int {
	c.signal(syscall.SIGTERM)
	select {
	case code := <-c.ended:
		return code
	case <-time.After(killLimit):
		c.signal(syscall.SIGKILL)
		return <-c.ended
	}
}

func (s Settings) first() string { return filepath.Join(s.FilesDir, "bootstrap.cfg") }

// refused is the file that keeps the configuration that HAProxy could not run, for people to look at.
func (s Settings) refused() string { return s.config() + ".refused" }

// starts is the file that counts the starts after which HAProxy was not proven to run.
func (s Settings) starts() string { return filepath.Join(s.ConfigDir, "starts") }

// countStart counts this start, and returns how many consecutive starts have no known result. It does not count
// starts with the first configuration, which has nothing to go back to, nor starts with a full disk.
func (s Settings) countStart() int {
	if s.isFirst() {
		s.forgetStarts()
		return 0
	}
	text, _ := os.ReadFile(s.starts())
	n, _ := strconv.Atoi(string(text)) // 0 if there is no file, or half of one
	_ = os.WriteFile(s.starts(), strconv.AppendInt(nil, int64(n+1), 10), 0o600)
	return n + 1
}

// forgetStarts sets the count to zero: HAProxy was proven to run, or was told to end.
func (s Settings) forgetStarts() { _ = os.Remove(s.starts()) }

// reserve is a copy of the first configuration on the same disk, for the case that the disk is full.
func (s Settings) reserve() string { return filepath.Join(s.ConfigDir, "first.cfg") }

// isFirst reports whether the configuration on disk is the first one.
func (s Settings) isFirst() bool {
	text, err := os.ReadFile(s.config())
	first, also := os.ReadFile(s.first())
	return err == nil && also == nil && bytes.Equal(text, first)
}

// goBack replaces a configuration that cannot be started by the first one. On a full disk it uses the reserve,
// or the room of the refused configuration.
func (s Settings) goBack() error {
	text, err := os.ReadFile(s.first())
	if err != nil {
		return err
	}
	if err := os.Rename(s.config(), s.refused()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = replaceFile(s.config(), text, 0o600)
	if err == nil || os.Rename(s.reserve(), s.config()) == nil {
		return nil
	}
	_ = os.Remove(s.refused())
	return replaceFile(s.config(), text, 0o600)
}

// keepReserve makes the reserve, if there is room for it.
func (s Settings) keepReserve() {
	text, err := os.ReadFile(s.first())
	if have, absent := os.ReadFile(s.reserve()); err != nil || absent == nil && bytes.Equal(have, text) {
		return
	}
	_ = replaceFile(s.reserve(), text, 0o600)
}
