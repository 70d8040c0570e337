package dataplanetest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// URL is the address of the API for clients, without /v3.
func (i *Instance) URL() string {
	if i.options.TLS != nil {
		return "https://" + i.Addr
	}
	return "http://" + i.Addr
}

// SetPassword changes the password that the API requires, also for later starts.
func (i *Instance) SetPassword(password string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.options.Password = password
	switch a := i.api.(type) {
	case *api:
		a.users.Store(&map[string]string{i.options.Username: password})
	case *program: // it reads its file when it starts
		i.end()
		if err := i.begin(); err != nil {
			panic(err)
		}
	}
}

// StartAPI starts the API at its former address. The API counts its reloads from 0 and takes the file on disk
// for the last good one.
func (i *Instance) StartAPI() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.api != nil {
		return errors.New("start api: it runs already")
	}
	return i.begin()
}

// begin starts a life. It is called with mu held.
func (i *Instance) begin() error {
	a, err := i.newLife()
	if err != nil {
		return err
	}
	// The port belongs to the API from the first start on.
	if i.port == nil {
		p, err := holdPort(i.options.Addr)
		if err != nil {
			a.stop()
			return fmt.Errorf("start api: %w", err)
		}
		i.port, i.Addr = p, p.address
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", i.Addr)
	if err != nil {
		a.stop()
		return fmt.Errorf("start api: %w", err)
	}
	socket := l
	if i.options.TLS != nil {
		l = tls.NewListener(l, i.options.TLS)
	}
	i.api, i.listener = a, socket
	i.server = &http.Server{
		Handler: i.observed(a), ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // of clients that are turned away
	}
	go func(s *http.Server) { _ = s.Serve(l) }(i.server) // ends with StopAPI
	return nil
}

func (i *Instance) newLife() (life, error) {
	if i.options.Program != "" {
		return startProgram(i.options, i.haproxy, i.Dirs, func(p *program) { i.stopAPI(p) })
	}
	a, err := newAPI(i.options, i.haproxy, i.Dirs)
	if err != nil {
		return nil, err
	}
	a.died = func() { i.stopAPI(a) }
	a.run()
	return a, nil
}

func (i *Instance) releasePort() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.port != nil {
		i.port.release()
		i.port = nil
	}
}

// StopAPI ends the API as SIGKILL would: connections are cut, a pending reload is lost, and HAProxy runs on.
func (i *Instance) StopAPI() { i.stopAPI(nil) }

// stopAPI ends the life that is given, or nil for the present one.
func (i *Instance) stopAPI(given life) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.api == nil || given != nil && i.api != given {
		return
	}
	i.end()
}

// end ends the present life. It is called with mu held.
func (i *Instance) end() {
	i.api.stop()
	stopListening(i.listener)
	_ = i.server.Close()
	_ = i.listener.Close() // the server may not have got to it yet
	i.api = nil
}

// stopListening has a socket listen no more, whoever has a copy of it: a program that is being started has one until it runs,
// and meanwhile nobody else could listen on the port.
func stopListening(l net.Listener) {
	if tcp, ok := l.(*net.TCPListener); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RD) })
		}
	}
}

// APIRuns reports whether the API runs: it was not stopped, and did not die.
func (i *Instance) APIRuns() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.api != nil
}

// Restart ends the API and starts it again.
func (i *Instance) Restart() error {
	i.StopAPI()
	return i.StartAPI()
}

// StopHAProxy ends HAProxy with SIGTERM.
func (i *Instance) StopHAProxy() { i.haproxy.stop() }

// KillHAProxy ends HAProxy with SIGKILL.
func (i *Instance) KillHAProxy() { i.haproxy.kill() }

// ReloadHAProxy makes the master load the file on disk, past the API, with "reload" on the master socket, as a
// person might. It returns when that is over, with HAProxy's output.
func (i *Instance) ReloadHAProxy() (string, error) { return i.haproxy.reload() }

// RestartHAProxy ends HAProxy with SIGTERM and starts it again with what is on disk, as
// a service manager does, or a container that is started anew.
func (i *Instance) RestartHAProxy() error {
	i.StopHAProxy()
	return i.StartHAProxy()
}

// StartHAProxy starts HAProxy after it was ended. Its worker loads the file on disk, which may be one that no
// worker ever ran, and may fail.
func (i *Instance) StartHAProxy() error { return i.haproxy.start() }

// WorkerPID returns the pid of the running worker, from HAProxy itself.
func (i *Instance) WorkerPID() (int, error) {
	out, err := i.haproxy.ask("@1 show info")
	if err != nil {
		return 0, fmt.Errorf("ask for the worker: %w", err)
	}
	_, after, found := strings.Cut(out, "\nPid: ")
	line, _, _ := strings.Cut(after, "\n")
	if !found {
		return 0, fmt.Errorf("ask for the worker: unknown answer %q", out)
	}
	return strconv.Atoi(strings.TrimSpace(line))
}

// Reloads returns how often HAProxy was told to reload since it was started, according to HAProxy. Failed
// reloads count.
func (i *Instance) Reloads() (int, error) {
	n, _, err := i.haproxy.reloadCounts()
	if err != nil {
		return 0, fmt.Errorf("count reloads: %w", err)
	}
	return n, nil
}

// Socket sends a command to the running worker, past the API.
func (i *Instance) Socket(command string) (string, error) { return i.haproxy.ask("@1 " + command) }

// Log returns what HAProxy wrote so far.
func (i *Instance) Log() string { return i.haproxy.logSince(0) }

// APILog returns what a real API wrote so far, "" for the double.
func (i *Instance) APILog() string {
	text, _ := os.ReadFile(filepath.Join(filepath.Dir(i.MasterSocket()), programLog)) // absent: none
	return string(text)
}

// MasterPID returns the pid of HAProxy's master, 0 if none was started.
func (i *Instance) MasterPID() int { return i.haproxy.masterPID() }

// Binary is the path of the haproxy that runs.
func (i *Instance) Binary() string { return i.haproxy.binary }

// MasterSocket is the path of HAProxy's master socket.
func (i *Instance) MasterSocket() string { return i.haproxy.socket }

// ConfigFile is the path of haproxy.cfg.
func (i *Instance) ConfigFile() string { return i.Dirs.config }

// Config returns haproxy.cfg as it is on disk.
func (i *Instance) Config() (string, error) {
	text, err := os.ReadFile(i.Dirs.config)
	return string(text), err
}

// EditConfig replaces haproxy.cfg past the API, as a person would. The API
// notices shortly after: the version goes up by one.
func (i *Instance) EditConfig(text string) error { return writeFile(i.Dirs.config, []byte(text)) }

// Leftovers counts the copies of refused configurations that are still to be deleted.
func (i *Instance) Leftovers() (failed, outdated int) {
	count := func(folder string) int {
		entries, _ := os.ReadDir(filepath.Join(i.Dirs.Transactions, folder)) // absent: none
		return len(entries)
	}
	return count("failed"), count("outdated")
}

// Inject adds faults to the list of those to come. A request meets the first one that matches. Inject panics
// for a fault inside a real API.
func (i *Instance) Inject(list ...Fault) {
	if i.options.Program != "" && slices.ContainsFunc(list, Fault.inside) {
		panic("such a failure can be injected into the double only")
	}
	i.faults.add(list...)
}

// ClearFaults removes all faults.
func (i *Instance) ClearFaults() { i.faults.clear() }

// Requests returns all requests since the instance was made, in the order in
// which they came.
func (i *Instance) Requests() []Request { return i.requests.all() }

// Count returns how many requests had the method and a path with this prefix, see [Fault.On].
func (i *Instance) Count(method, path string) int {
	all := i.Requests()
	return len(slices.DeleteFunc(all, func(r Request) bool { return !(Fault{}).On(method, path).matches(r.Method, r.Path) }))
}
