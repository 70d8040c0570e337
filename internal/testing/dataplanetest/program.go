package dataplanetest

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/internal/child"
)

// programLimit is how long a real API may take to answer for the first time.
const programLimit = time.Minute

// programLog is the name of the file in which it writes.
const programLog = "dataplaneapi.log"

// program is one life of a real API: a process that listens on a socket in the file system, behind a proxy that
// records requests and injects the faults on the way.
type program struct {
	options  Options
	settings string // its file
	socket   string
	log      string
	process  *os.Process
	exited   <-chan struct{}
	proxy    *httputil.ReverseProxy
	stopping sync.Once
}

// startProgram starts a real API, and returns when it answers.
func startProgram(o Options, h *haproxy, paths Dirs, ended func(*program)) (*program, error) {
	if err := takesHAProxy(h.binary); err != nil {
		return nil, fmt.Errorf("start api: %w", err)
	}
	run := filepath.Dir(h.socket)
	p := &program{
		options: o, settings: filepath.Join(run, "dataplaneapi.yml"), socket: filepath.Join(run, "api.sock"),
		log: filepath.Join(run, programLog),
	}
	p.proxy = &httputil.ReverseProxy{
		Transport: p.transport(),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "dataplaneapi"
		},
		// A client sees what it would see without the proxy: the connection ends.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	if err := os.WriteFile(p.settings, []byte(p.text(h, paths)), 0o600); err != nil {
		return nil, fmt.Errorf("start api: %w", err)
	}
	_ = os.Remove(p.socket) // of the life before
	if err := p.launch(); err != nil {
		return nil, fmt.Errorf("start api: %w", err)
	}
	if err := p.await(); err != nil {
		p.stop()
		return nil, fmt.Errorf("start api: %w", err)
	}
	go func() {
		<-p.exited
		ended(p)
	}()
	return p, nil
}

// text returns the API's own file. It has the users, unless they should be in haproxy.cfg.
func (p *program) text(h *haproxy, paths Dirs) string {
	users := ""
	if !p.options.UsersInConfig {
		users = fmt.Sprintf("  user:\n  - name: %s\n    password: %q\n    insecure: true\n", p.options.Username, p.options.Password)
	}
	return strings.NewReplacer(
		"USERS", users, "TRANSACTIONS", paths.Transactions, "BACKUPS", paths.Backups, "MAPS", paths.Maps,
		"CERTIFICATES", paths.Certificates, "GENERAL", paths.General, "OWN", filepath.Join(filepath.Dir(h.socket), "dataplane"),
		"CONFIG", paths.config, "BINARY", h.binary, "SOCKET", h.socket,
	).Replace(`config_version: 2
name: test
dataplaneapi:
USERS  transaction:
    transaction_dir: TRANSACTIONS
    backups_dir: BACKUPS
  resources:
    maps_dir: MAPS
    ssl_certs_dir: CERTIFICATES
    general_storage_dir: GENERAL
    dataplane_storage_dir: OWN
haproxy:
  config_file: CONFIG
  haproxy_bin: BINARY
  master_worker_mode: true
  master_runtime: SOCKET
  reload:
    reload_delay: 1
    reload_strategy: custom
    reload_cmd: /bin/false
    restart_cmd: /bin/false
`)
}

// launch starts the process so that it cannot outlive this one: it gets SIGKILL with
// the thread that forked it.
func (p *program) launch() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(context.Background(), p.options.Program, "-f", p.settings, "--scheme=unix", "--socket-path="+p.socket)
	delay := strconv.FormatInt(p.options.ReloadDelay.Milliseconds(), 10)
	cmd.Env = append(append(os.Environ(), p.options.Env...), "CI_DATAPLANE_RELOAD_DELAY_OVERRIDE="+delay)
	cmd.Stdout, cmd.Stderr = log, log
	exited, err := child.Start(cmd) // how it ended is seen in its log
	if err != nil {
		return err
	}
	p.process, p.exited = cmd.Process, exited
	return nil
}

func (p *program) transport() *http.Transport {
	return &http.Transport{
		DisableCompression: true, // answers pass as they are
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", p.socket)
		},
	}
}

// await polls until the API answers, or has ended.
func (p *program) await() error {
	answers := false
	poll(programLimit, func() bool {
		_, err := p.ask()
		answers = err == nil
		return answers || p.ended()
	})
	if answers {
		return nil
	}
	text, _ := os.ReadFile(p.log) // what it wrote is for people
	return fmt.Errorf("%s does not answer:\n%s", p.options.Program, text)
}

func (p *program) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// ask returns the version of the configuration in the API's memory.
func (p *program) ask() (int64, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://dataplaneapi/v3/info", nil)
	if err != nil {
		return 0, err
	}
	req.SetBasicAuth(p.options.Username, p.options.Password)
	resp, err := p.proxy.Transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	resp.Body.Close()
	return strconv.ParseInt(resp.Header.Get("Configuration-Version"), 10, 64)
}

func (p *program) currentVersion() int64 {
	version, _ := p.ask() // without an answer there is none
	return version
}

func (p *program) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.proxy.ServeHTTP(w, r) }

// stop ends the process at once.
func (p *program) stop() {
	p.stopping.Do(func() {
		_ = p.process.Kill()
		<-p.exited
		p.proxy.Transport.(*http.Transport).CloseIdleConnections()
	})
}

// Real returns the real Dataplane API that the variable DATAPLANEAPI names, or else
// the dataplaneapi on PATH, if it takes the HAProxy. Without one, or with
// DATAPLANEAPI=none, it returns "" and the reason.
func Real(haproxy string) (path, reason string) {
	name := os.Getenv("DATAPLANEAPI")
	if name == "none" {
		return "", "DATAPLANEAPI is none"
	}
	if name == "" {
		name = "dataplaneapi"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err.Error()
	}
	if haproxy, err = findHAProxy(haproxy); err == nil {
		err = takesHAProxy(haproxy)
	}
	if err != nil {
		return "", err.Error()
	}
	return path, ""
}

// takesHAProxy reports why a real API could not reload a HAProxy on its master socket.
func takesHAProxy(binary string) error {
	minor, err := binaryVersion(binary)
	if err != nil {
		return err
	}
	if minor < 207 {
		return errors.New("a real Dataplane API takes HAProxy from 2.7 on: HAPROXY names another one")
	}
	return nil
}

// settings are those settings of a real API's file that the double uses.
type settings struct {
	API struct {
		Host   string
		Port   int
		Scheme []string
		TLS    struct {
			Host        string `json:"tls_host"`
			Port        int    `json:"tls_port"`
			Certificate string `json:"tls_certificate"`
			Key         string `json:"tls_key"`
		}
		User        []struct{ Name, Password string }
		Transaction struct {
			Dir     string `json:"transaction_dir"`
			Backups string `json:"backups_dir"`
		}
		Resources struct {
			Maps         string `json:"maps_dir"`
			Certificates string `json:"ssl_certs_dir"`
			General      string `json:"general_storage_dir"`
		}
	} `json:"dataplaneapi"`
	HAProxy struct {
		Config string `json:"config_file"`
		Binary string `json:"haproxy_bin"`
		Master string `json:"master_runtime"`
	} `json:"haproxy"`
}

// Serve is a real API's program: it reads the API's file and answers for a HAProxy that another program runs,
// until the context ends.
func Serve(ctx context.Context, path string, version API) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("start api: %w", err)
	}
	var s settings
	if err := yaml.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("start api: %s: %w", path, err)
	}
	if len(s.API.User) == 0 {
		return fmt.Errorf("start api: %s has no users", path)
	}
	a, err := s.begin(version)
	if err != nil {
		return err
	}
	defer a.stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a.died = cancel
	a.run()
	listener, err := s.listen(ctx)
	if err != nil {
		return fmt.Errorf("start api: %w", err)
	}
	server := &http.Server{Handler: a, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); ctx.Err() == nil {
		return err
	}
	return nil
}

// begin starts the API's life in front of an existing HAProxy.
func (s settings) begin(version API) (*api, error) {
	binary, err := findHAProxy(s.HAProxy.Binary)
	if err != nil {
		return nil, err
	}
	minor, err := binaryVersion(binary)
	if err != nil {
		return nil, err
	}
	h := &haproxy{binary: binary, minor: minor, config: s.HAProxy.Config, env: os.Environ(), socket: s.HAProxy.Master, log: os.DevNull}
	h.alive.Store(true)
	r := s.API.Resources
	dirs := Dirs{
		Maps: r.Maps, Certificates: r.Certificates, General: r.General, Transactions: s.API.Transaction.Dir, Backups: s.API.Transaction.Backups,
		config: s.HAProxy.Config, lkg: filepath.Join(s.API.Transaction.Backups, "haproxy.cfg.lkg"),
	}
	for _, d := range []string{dirs.Maps, dirs.Certificates, dirs.General, dirs.Transactions, dirs.Backups} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, fmt.Errorf("start api: %w", err)
		}
	}
	a, err := newAPI(Options{API: version, ReloadDelay: 50 * time.Millisecond}, h, dirs)
	if err != nil {
		return nil, err
	}
	users := map[string]string{}
	for _, u := range s.API.User {
		users[u.Name] = u.Password
	}
	a.users.Store(&users)
	return a, nil
}

func (s settings) listen(ctx context.Context) (net.Listener, error) {
	host, port := s.API.Host, s.API.Port
	secure := slices.Contains(s.API.Scheme, "https")
	if secure {
		host, port = s.API.TLS.Host, s.API.TLS.Port
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(cmp.Or(host, "0.0.0.0"), strconv.Itoa(port)))
	if err != nil || !secure {
		return listener, err
	}
	certificate, err := tls.LoadX509KeyPair(s.API.TLS.Certificate, s.API.TLS.Key)
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	return tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}), nil
}
