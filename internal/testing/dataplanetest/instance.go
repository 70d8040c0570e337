package dataplanetest

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// API is a version of the Dataplane API that the double imitates.
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
	// Program is a real dataplaneapi to run in place of the double, with a HAProxy from 2.7 on; see [Real]. API
	// is ignored then. Faults inside an API cannot be injected, and APIVersion and HAProxyVersion cannot be
	// set.
	Program string
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
	// TLS makes the API speak HTTPS; nil means plain HTTP.
	TLS *tls.Config
	// APIVersion and HAProxyVersion are the versions that the API reports; by default those of API and of the
	// HAProxy that runs.
	APIVersion, HAProxyVersion string
	// Dir holds all of the instance's files. By default it is a folder that is removed with the instance. An
	// instance can be made on the Dir of a closed one.
	Dir string
	// Files holds the folders of maps, certificates and general files; by default they
	// are in Dir. Instances whose API has the same paths may share them.
	Files string
	// Folders are the directories of these files if they are not maps, ssl and general in Files; relative paths
	// are below Files. Packagings of the API differ in them.
	Folders Folders
	// UsersInConfig makes the API take its users from the section "userlist controller" of haproxy.cfg, as an
	// API without users in its own file does. A Config must have that section.
	UsersInConfig bool
	// Cost returns the least time that a commit of a configuration with so many backends takes, see
	// [MeasuredCost]. Nil adds no time.
	Cost func(backends int) time.Duration
	// Addr is the address of the API; by default a free port of 127.0.0.1.
	Addr string
}

// Folders are the directories of an API's files.
type Folders struct{ Maps, Certificates, General string }

// Dirs are the folders of an instance, and are absolute. A configuration names
// files in Maps, Certificates and General.
type Dirs struct {
	Maps, Certificates, General string
	Transactions, Backups       string

	config, lkg string
}

// Instance is one HAProxy with its API.
type Instance struct {
	// Addr is the host and port of the API. It never changes.
	Addr string
	Dirs Dirs

	options  Options
	haproxy  *haproxy
	faults   faults
	requests requestLog
	tempDirs []string

	mu       sync.Mutex
	port     *port // nil before the API was started
	api      life
	server   *http.Server
	listener net.Listener
}

// life is an API between its start and its end.
type life interface {
	http.Handler
	currentVersion() int64
	stop()
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

// prepare lays out the files. Sockets are in a folder of their own, since their paths must be short.
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
	within := func(folder, standard string) string {
		folder = cmp.Or(folder, standard)
		if filepath.IsAbs(folder) {
			return folder
		}
		return filepath.Join(cmp.Or(i.options.Files, dir), folder)
	}
	folders := i.options.Folders
	i.Dirs = Dirs{
		Maps: within(folders.Maps, "maps"), Certificates: within(folders.Certificates, "ssl"), General: within(folders.General, "general"),
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
	first := minimalConfig(run)
	if i.options.UsersInConfig {
		first += userlist(i.options.Username, i.options.Password)
	}
	return writeFile(i.Dirs.config, []byte(cmp.Or(i.options.Config, first)))
}

// minimalConfig is a configuration that starts and serves no traffic.
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
	i.releasePort()
	for _, d := range i.tempDirs {
		_ = os.RemoveAll(d)
	}
}

// port is a port that stays taken while nobody listens on it: a socket that does not listen is bound to it. The
// kernel gives it to no other process that asks for any port, and refuses connections meanwhile.
type port struct {
	address string
	socket  int
}

// holdPort takes a port of an IPv4 address; 0 means any free one.
func holdPort(address string) (*port, error) {
	at, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return nil, fmt.Errorf("hold %s: %w", address, err)
	}
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("hold %s: %w", address, err)
	}
	p := &port{socket: socket}
	if err := p.bind(at); err != nil {
		p.release()
		return nil, fmt.Errorf("hold %s: %w", address, err)
	}
	return p, nil
}

func (p *port) bind(at *net.TCPAddr) error {
	// The listener has to set this option too.
	if err := syscall.SetsockoptInt(p.socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return err
	}
	wanted := &syscall.SockaddrInet4{Port: at.Port}
	copy(wanted.Addr[:], at.IP.To4())
	if err := syscall.Bind(p.socket, wanted); err != nil {
		return err
	}
	bound, err := syscall.Getsockname(p.socket)
	if err != nil {
		return err
	}
	p.address = (&net.TCPAddr{IP: at.IP, Port: bound.(*syscall.SockaddrInet4).Port}).String()
	return nil
}

func (p *port) release() { _ = syscall.Close(p.socket) }

// Fault is a failure to inject. Each of the functions that return one names what
// goes wrong; On and Times say where and how often.
type Fault struct {
	kind   faultKind
	method string
	path   string
	times  int // 0: until cleared
	status int
	delay  time.Duration
	log    string
}

type faultKind int

const (
	noFault faultKind = iota
	answer
	hang
	slow
	cutBefore
	cutAfter
	failReload
	masterSocketGone
	diskFull
	certificateReload
	mapChangeLost
	addressLate
)

// Answer makes requests get a status and the body that goes with it, without any effect. 401, 409, 429 and 500
// look like the API's own; others look like those of a proxy in between.
func Answer(status int) Fault { return Fault{kind: answer, status: status} }

// Hang leaves requests without an answer until the client gives up.
func Hang() Fault { return Fault{kind: hang} }

// Slow delays requests before anything is done.
func Slow(d time.Duration) Fault { return Fault{kind: slow, delay: d} }

// CutBefore closes the connection before anything is done.
func CutBefore() Fault { return Fault{kind: cutBefore} }

// CutAfter carries out the whole request and closes the connection instead of answering.
func CutAfter() Fault { return Fault{kind: cutAfter} }

// FailReload makes the reload that the request asks for fail, whether forced or due later, without HAProxy; log
// is what HAProxy would have written.
func FailReload(log string) Fault { return Fault{kind: failReload, log: log} }

// MasterSocketGone makes the API find no master socket, also for the reload that the request asks for.
func MasterSocketGone() Fault { return Fault{kind: masterSocketGone} }

// DiskFull makes writes of configurations and files fail for lack of space.
func DiskFull() Fault { return Fault{kind: diskFull} }

// CertificateReload makes a certificate go to disk only and schedules a reload, as when the worker refuses the
// certificate.
func CertificateReload() Fault { return Fault{kind: certificateReload} }

// CertificateReloadFails is CertificateReload with a reload that fails when it is due; log is what HAProxy
// would have written.
func CertificateReloadFails(log string) Fault { return Fault{kind: certificateReload, log: log} }

// MapChangeLost makes changes of maps in the worker look successful without an effect.
func MapChangeLost() Fault { return Fault{kind: mapChangeLost} }

// AddressLate acknowledges addresses of servers at once, and sets them in the worker after a time, as HAProxy
// 3.0 and later do on a busy machine.
func AddressLate(d time.Duration) Fault { return Fault{kind: addressLate, delay: d} }

// On limits the fault to a method, "" for any, and to paths with a prefix. The path is the part after
// /v3/services/haproxy, such as "/configuration/raw", or the whole path.
func (f Fault) On(method, path string) Fault {
	f.method, f.path = method, path
	return f
}

// Times ends the fault after n requests. Without it, it stays until cleared.
func (f Fault) Times(n int) Fault {
	f.times = n
	return f
}

// inside reports whether the fault happens inside the API, and not on the way to it.
func (f Fault) inside() bool { return f.kind >= failReload }

func (f Fault) matches(method, path string) bool {
	return (f.method == "" || f.method == method) &&
		(strings.HasPrefix(path, f.path) || strings.HasPrefix(path, servicePath+f.path))
}

// faults is the list of faults to come.
type faults struct {
	mu   sync.Mutex
	list []Fault
}

func (fs *faults) add(list ...Fault) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.list = append(fs.list, list...)
}

func (fs *faults) clear() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.list = nil
}

// take returns the first fault for a request and counts it.
func (fs *faults) take(method, path string) Fault {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for i, f := range fs.list {
		if !f.matches(method, path) {
			continue
		}
		switch f.times {
		case 0:
		case 1:
			fs.list = append(fs.list[:i:i], fs.list[i+1:]...)
		default:
			fs.list[i].times--
		}
		return f
	}
	return Fault{}
}

type faultKey struct{}

func withFault(ctx context.Context, f Fault) context.Context {
	return context.WithValue(ctx, faultKey{}, f)
}

// faultOf returns the fault that goes with the request.
func faultOf(ctx context.Context) Fault {
	f, _ := ctx.Value(faultKey{}).(Fault)
	return f
}

// serve applies the faults that replace or surround the whole request, and passes the others to the code that
// they concern.
func (f Fault) serve(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	switch f.kind {
	case answer:
		f.answer(w)
	case hang:
		_, _ = io.Copy(io.Discard, r.Body) // only then is the client's leaving seen
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case slow:
		select {
		case <-time.After(f.delay):
			next(w, r)
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	case cutBefore:
		panic(http.ErrAbortHandler)
	case cutAfter:
		next(&discarded{header: http.Header{}}, r)
		panic(http.ErrAbortHandler)
	default:
		next(w, r.WithContext(withFault(r.Context(), f)))
	}
}

func (f Fault) answer(w http.ResponseWriter) {
	switch f.status {
	case http.StatusUnauthorized:
		w.Header().Set("Www-Authenticate", `Basic realm="API"`)
		writeError(w, f.status, "unauthorized")
	case http.StatusConflict:
		writeError(w, f.status, "version mismatch: version in configuration file is 3, given version is 2")
	case http.StatusTooManyRequests:
		writeError(w, f.status, "cannot start a new transaction, reached the maximum amount of 20 active transactions available")
	case http.StatusInternalServerError:
		writeError(w, f.status, "general error")
	default:
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(f.status)
		_, _ = w.Write([]byte("<html><body><h1>" + http.StatusText(f.status) + "</h1></body></html>\n"))
	}
}

// discarded receives an answer that nobody will see.
type discarded struct{ header http.Header }

func (d *discarded) Header() http.Header         { return d.header }
func (d *discarded) Write(b []byte) (int, error) { return len(b), nil }
func (d *discarded) WriteHeader(int)             {}
