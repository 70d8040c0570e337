package dataplanetest

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// API is a version of the Dataplane API to stand in for.
type API string

// The versions that the double knows. The zero value of Options takes V32.
const (
	V32 API = "3.2"
	V34 API = "3.4"
)

// Options describe an instance. The zero value is complete.
type Options struct {
	// HAProxy is the binary; by default what the variable HAPROXY names, else
	// haproxy, from 2.6 on.
	HAProxy string
	API     API
	// Env is added to the environment of HAProxy, for what its configuration
	// takes from there, such as its addresses.
	Env []string
	// Config is the first haproxy.cfg. By default a small one whose node is
	// "bootstrap", without a TCP port. It replaces a file that is in Dir.
	Config string
	// ReloadDelay is the time between two looks at whether a reload is due; 50 ms
	// by default, where the API has 5 s.
	ReloadDelay time.Duration
	// Username and Password are admin and secret by default.
	Username, Password string
	// Dir holds all of the instance's files; by default a folder of its own that
	// goes with it. An instance can be made on the Dir of one that was closed.
	Dir string
	// Addr is where the API listens; by default a free port of 127.0.0.1.
	Addr string
}

// Dirs are the folders of an instance, and are absolute. A configuration names
// files in Maps, Certificates and General.
type Dirs struct {
	Maps, Certificates, General string
	Transactions, Backups       string

	config, lkg string
}

// Instance is one HAProxy with its API.
type Instance struct {
	// Addr is the host and port of the API. It stays the same for life.
	Addr string
	Dirs Dirs

	options  Options
	haproxy  *haproxy
	faults   faults
	requests requestLog
	tempDirs []string

	mu       sync.Mutex
	api      *api
	server   *http.Server
	listener net.Listener
}

// Start makes an instance for a test and ends it with the test.
func Start(tb testing.TB, o Options) *Instance {
	tb.Helper()
	i, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(i.Close)
	return i
}

// New makes an instance; its HAProxy runs and its API answers. Close ends it. Its
// processes end with this one even if this one is killed.
func New(o Options) (*Instance, error) {
	o.API = cmp.Or(o.API, V32)
	o.ReloadDelay = cmp.Or(o.ReloadDelay, 50*time.Millisecond)
	o.Username, o.Password = cmp.Or(o.Username, "admin"), cmp.Or(o.Password, "secret")
	o.Addr = cmp.Or(o.Addr, "127.0.0.1:0")
	i := &Instance{options: o}
	if err := i.prepare(); err != nil {
		i.Close()
		return nil, err
	}
	if err := i.haproxy.start(); err != nil {
		i.Close()
		return nil, err
	}
	if err := i.StartAPI(); err != nil {
		i.Close()
		return nil, err
	}
	return i, nil
}

// prepare lays out the files. Sockets get a folder of their own, as their paths
// may not be long.
func (i *Instance) prepare() error {
	run, err := os.MkdirTemp("", "dp")
	if err != nil {
		return fmt.Errorf("make instance: %w", err)
	}
	i.tempDirs = append(i.tempDirs, run)
	dir := i.options.Dir
	if dir == "" {
		dir = filepath.Join(run, "etc")
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("make instance: %w", err)
	}
	i.Dirs = Dirs{
		Maps: filepath.Join(dir, "maps"), Certificates: filepath.Join(dir, "ssl"), General: filepath.Join(dir, "general"),
		Transactions: filepath.Join(dir, "transactions"), Backups: filepath.Join(dir, "backups"),
		config: filepath.Join(dir, "haproxy.cfg"),
		lkg:    filepath.Join(dir, "backups", "haproxy.cfg.lkg"),
	}
	for _, d := range []string{i.Dirs.Maps, i.Dirs.Certificates, i.Dirs.General, i.Dirs.Backups, i.Dirs.Transactions} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("make instance: %w", err)
		}
	}
	if err := i.firstConfig(run); err != nil {
		return fmt.Errorf("make instance: %w", err)
	}
	i.haproxy, err = newHAProxy(i.options, i.Dirs.config, run)
	return err
}

func newHAProxy(o Options, config, run string) (*haproxy, error) {
	binary, err := findHAProxy(cmp.Or(o.HAProxy, os.Getenv("HAPROXY"), "haproxy"))
	if err != nil {
		return nil, err
	}
	minor, err := binaryVersion(binary)
	if err != nil {
		return nil, err
	}
	return &haproxy{
		binary: binary, minor: minor, config: config, env: append(os.Environ(), o.Env...),
		socket: filepath.Join(run, "master.sock"), log: filepath.Join(run, "haproxy.log"),
	}, nil
}

func (i *Instance) firstConfig(run string) error {
	_, err := os.Stat(i.Dirs.config)
	if err == nil && i.options.Config == "" {
		return nil
	}
	return writeFile(i.Dirs.config, []byte(cmp.Or(i.options.Config, minimalConfig(run))))
}

// minimalConfig is a configuration that starts and serves nobody.
func minimalConfig(run string) string {
	return strings.ReplaceAll(`global
  node bootstrap
  stats socket RUN/stats.sock mode 600 level admin expose-fd listeners

defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s

frontend bootstrap
  bind unix@RUN/bootstrap.sock mode 600
  http-request return status 503
`, "RUN", run)
}

// Close ends the API and HAProxy and removes what New made. It may be called
// more than once.
func (i *Instance) Close() {
	i.StopAPI()
	if i.haproxy != nil {
		i.haproxy.kill()
	}
	for _, d := range i.tempDirs {
		_ = os.RemoveAll(d)
	}
}

// URL is where a client finds the API, without /v3.
func (i *Instance) URL() string { return "http://" + i.Addr }

// StartAPI starts the API, at the address it had before. It counts its reloads
// from 0 and takes the file on disk for the last good one.
func (i *Instance) StartAPI() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.api != nil {
		return errors.New("start api: it runs already")
	}
	a, err := newAPI(i.options, i.haproxy, i.Dirs)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", cmp.Or(i.Addr, i.options.Addr))
	if err != nil {
		a.stop()
		return fmt.Errorf("start api: %w", err)
	}
	i.Addr = l.Addr().String()
	i.api, i.listener = a, l
	i.server = &http.Server{Handler: i.observed(a), ReadHeaderTimeout: 10 * time.Second}
	go func(s *http.Server) { _ = s.Serve(l) }(i.server) // ends with StopAPI
	return nil
}

// StopAPI ends the API as SIGKILL would: connections are cut, a pending reload is
// lost, HAProxy runs on.
func (i *Instance) StopAPI() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.api == nil {
		return
	}
	i.api.stop()
	_ = i.server.Close()
	i.api = nil
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

// StartHAProxy starts HAProxy after it was ended; its worker loads what is on
// disk, which may be what no worker ever ran, and may fail.
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

// Socket sends a command to the running worker, past the API.
func (i *Instance) Socket(command string) (string, error) { return i.haproxy.ask("@1 " + command) }

// Log returns what HAProxy wrote so far.
func (i *Instance) Log() string { return i.haproxy.logSince(0) }

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

// Leftovers counts the copies of refused configurations that wait to be deleted.
func (i *Instance) Leftovers() (failed, outdated int) {
	count := func(folder string) int {
		entries, _ := os.ReadDir(filepath.Join(i.Dirs.Transactions, folder)) // absent: none
		return len(entries)
	}
	return count("failed"), count("outdated")
}

// Inject adds failures to the list of those to come. The first that matches a
// request is the one that it meets.
func (i *Instance) Inject(list ...Fault) { i.faults.add(list...) }

// ClearFaults ends all failures.
func (i *Instance) ClearFaults() { i.faults.clear() }

// Requests returns all requests since the instance was made, in the order in
// which they came.
func (i *Instance) Requests() []Request { return i.requests.all() }

// Count returns how many requests had the method and a path that begins so, see
// [Fault.On].
func (i *Instance) Count(method, path string) int {
	all := i.Requests()
	return len(slices.DeleteFunc(all, func(r Request) bool { return !(Fault{}).On(method, path).matches(r.Method, r.Path) }))
}
