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
	// look is how often a drain looks at what is left.
	look = 200 * time.Millisecond
	// lookLimit bounds an exchange with HAProxy.
	lookLimit = 2 * time.Second
	// patience is how long a HAProxy that does not answer is asked. One that reloads itself
	// does not for a moment.
	patience = 10 * time.Second
)

// runHAProxy runs HAProxy, and drains it at the first signal to end. A second one cuts the
// wait short: HAProxy then stops softly at once. What ends is not reloaded by a signal.
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

// run tells the end of an instance in order, and returns HAProxy's exit code.
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

// until calls a function again and again for as long as it says no, and no longer than a
// limit. It returns nil unless something came between.
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

// stop is the end: a soft stop, in which workers that reloads replaced finish too, and
// when the time is over a hard one. A HAProxy that has just started may miss a signal,
// so it gets several.
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

// statusFrontend is the one of health and metrics, in every configuration of ours.
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

// unready has /ready fail. The first configuration has no such server: it never was ready.
func (m master) unready() error {
	_, err := m.ask("set server hapsnap_ready/instance state maint")
	return err
}

// frontends are those of the present worker. It fails where there is no worker yet.
func (m master) frontends() ([]frontend, error) {
	out, err := m.ask("show stat -1 1 -1")
	if err != nil {
		return nil, err
	}
	return parse(out)
}

// shutTraffic has all frontends but one accept nothing more, and returns how many
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
			connections++ // what it took since it was asked
			// Both: the first closes the port, and alone leaves connections open; the second
			// has connections close after their next response, and alone leaves the port open
			// for a worker to come, to which clients would connect in vain.
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

// A child is the program that a container is for.
type child struct {
	command *exec.Cmd
	ended   chan int // gets its exit code, once
}

// start starts a program, which writes to where this one does.
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

// signal tells the program something. One that has ended is told nothing.
func (c *child) signal(s syscall.Signal) { _ = c.command.Process.Signal(s) }

// reloads passes on a signal that reloads HAProxy, and reports whether it is one.
func (c *child) reloads(s os.Signal) bool {
	if s != syscall.SIGUSR2 && s != syscall.SIGHUP {
		return false
	}
	c.signal(s.(syscall.Signal))
	return true
}

// exitCode is what a shell would say: 128 and the signal for a program that one ended.
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

// signals are those that a container is told to end with, and those that reload HAProxy.
func signals() chan os.Signal {
	got := make(chan os.Signal, 4)
	signal.Notify(got, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGHUP)
	return got
}

const (
	// startAttempts is how often a configuration is tried: what is in its way may leave.
	startAttempts = 3
	// startPause is how long to wait before the next attempt.
	startPause = time.Second
	// killLimit is how long a HAProxy that did not get up may take to end.
	killLimit = 5 * time.Second
)

// stateVariable is what the first configuration answers on /ready, instead of that there is
// no snapshot yet.
const stateVariable = "HAPSNAP_STATE"

// wentBack is what /ready says of an instance whose configuration could not be started.
const wentBack = "the last configuration could not be started, see the log of bootstrap"

// endedSoon is what it says where HAProxy started with it, and ended within seconds.
const endedSoon = "HAProxy ended soon after each start with the last configuration, see the log of bootstrap"

// startHAProxy starts HAProxy with the configuration on disk, or with the first one if that
// cannot be started, or ended soon after each of the last starts. It returns when a worker serves. It returns no HAProxy, but an exit
// code, if it was told to end first or neither can be started.
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

// startFirst puts the first configuration into the place of the one on disk, and starts
// HAProxy with it. Why is what /ready says.
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

// attempt starts HAProxy, and waits until a worker of it serves. One that is told to end
// when it may serve already is returned as well, with the signal still to come. Otherwise
// HAProxy has ended, and fault says why if that was not for a signal.
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

// refused is where a configuration is kept that HAProxy went back from, for people.
func (s Settings) refused() string { return s.config() + ".refused" }

// starts is where the starts are counted after which HAProxy was not proven to run.
func (s Settings) starts() string { return filepath.Join(s.ConfigDir, "starts") }

// countStart counts this start, and returns how many there were in a row that nothing is
// known of. The first configuration has none to go back to. Where the disk is full nothing
// is counted.
func (s Settings) countStart() int {
	if s.isFirst() {
		s.forgetStarts()
		return 0
	}
	text, _ := os.ReadFile(s.starts())
	n, _ := strconv.Atoi(string(text)) // 0 where there is none, or half of one
	_ = os.WriteFile(s.starts(), strconv.AppendInt(nil, int64(n+1), 10), 0o600)
	return n + 1
}

// forgetStarts begins the count anew: HAProxy was proven to run, or was told to end.
func (s Settings) forgetStarts() { _ = os.Remove(s.starts()) }

// reserve is a copy of the first configuration on the same disk, for when that is full.
func (s Settings) reserve() string { return filepath.Join(s.ConfigDir, "first.cfg") }

// isFirst reports whether the configuration on disk is the first one.
func (s Settings) isFirst() bool {
	text, err := os.ReadFile(s.config())
	first, also := os.ReadFile(s.first())
	return err == nil && also == nil && bytes.Equal(text, first)
}

// goBack puts the first configuration into the place of one that cannot be started. On a
// disk that is full that takes the reserve, or the room of what is refused.
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
