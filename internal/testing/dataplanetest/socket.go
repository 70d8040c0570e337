package dataplanetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// socketLimit bounds one exchange on the master socket: a reload that fights for a
// port takes two seconds, and more where HAProxy has to wait for its turn.
const socketLimit = time.Minute

// firstLimit bounds an exchange with a HAProxy that starts: 3.4 never answers one that
// comes before its worker is ready.
const firstLimit = time.Second

// giveUp is how long the real API waits for an answer that does not come.
const giveUp = 10 * time.Second

// reexecLimit is how long a master that refuses connections is taken for one that
// reloads itself. A process that has ended is not waited for.
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

// dial connects to the master. Before 2.7 a master that reloads itself refuses
// connections for a moment; later ones, which are all that the real API takes,
// have them wait.
func (h *haproxy) dial() (net.Conn, error) {
	var conn net.Conn
	var err error
	poll(reexecLimit, func() bool {
		conn, err = (&net.Dialer{Timeout: socketLimit}).DialContext(context.Background(), "unix", h.socket)
		return h.minor >= 207 || !h.alive.Load() || !errors.Is(err, syscall.ECONNREFUSED)
	})
	return conn, err
}

// closing has the master hang up after the command. What follows a payload must
// stand on a line of its own.
func closing(command string) string {
	if strings.Contains(command, "<<") {
		return command + "\n\nquit\n"
	}
	return command + ";quit\n"
}

// workerError is a refusal by the worker, in its words.
type workerError struct{ text, command string }

func (e workerError) Error() string { return fmt.Sprintf("[3] %s [%s]", e.text, e.command) }

// worker sends one command to the running worker. A refusal is an workerError.
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

// noSocket is what dialling says when the socket's file is gone.
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

// refusedByWorker tells a refusal from an answer where HAProxy, before 2.7, does
// not name the severity: changes answer nothing or one of a few known sentences.
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

// lateAddresses are the addresses that were acknowledged and are not set yet, by server.
type lateAddresses struct {
	mu       sync.Mutex
	commands map[string]string
}

var setAddress = regexp.MustCompile(`^set server (\S+) addr `)

// take keeps a command that sets an address, in the place of an earlier one for the same
// server. It reports whether the command is one.
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

// set gives the worker an address, unless that was done or another was set since.
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
