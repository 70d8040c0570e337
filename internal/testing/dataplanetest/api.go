package dataplanetest

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

const servicePath = "/v3/services/haproxy"

// api is one life of the API's process: what it holds in memory between its start
// and its end, and nothing that is on disk.
type api struct {
	version API
	haproxy *haproxy
	paths   Dirs
	users   atomic.Pointer[map[string]string] // passwords
	told    Options                           // the versions that it tells, where they are not its own
	run     func()                            // begins to watch and to reload
	died    func()                            // ends this life

	commits sync.Mutex // one commit at a time, as the API does

	mu           sync.RWMutex
	memory       document
	transactions map[string]document // in progress

	agent  *agent
	mux    *http.ServeMux
	cancel context.CancelFunc
}

// newAPI starts a life: it believes the file on disk.
func newAPI(o Options, h *haproxy, paths Dirs) (*api, error) {
	text, err := os.ReadFile(paths.config)
	if err != nil {
		return nil, fmt.Errorf("start api: %w", err)
	}
	doc, err := parseDocument(string(text))
	if err != nil {
		return nil, fmt.Errorf("start api: %w", err)
	}
	users := map[string]string{o.Username: o.Password}
	if o.UsersInConfig {
		if users, err = doc.users(paths.config); err != nil {
			return nil, fmt.Errorf("start api: %w", err)
		}
	}
	doc.insertDisclaimer()
	if err := writeFile(paths.lkg, text); err != nil {
		return nil, fmt.Errorf("start api: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a := &api{
		version: o.API, haproxy: h, paths: paths, told: o,
		memory: doc, transactions: map[string]document{}, mux: http.NewServeMux(), cancel: cancel,
	}
	a.users.Store(&users)
	a.agent = newAgent(h, paths)
	a.routes()
	watching, err := a.watch(ctx)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("start api: %w", err)
	}
	a.run = func() {
		go watching()
		go a.agent.run(ctx, o.ReloadDelay)
	}
	return a, nil
}

func (a *api) stop() { a.cancel() }

func (a *api) currentVersion() int64 {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.memory.version()
}

// ServeHTTP serves a request: the version on every answer, then who asks, then
// what for. 3.2 looks at the path before it looks at the password.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w = &versioned{ResponseWriter: w, version: a.currentVersion}
	h, pattern := a.mux.Handler(r)
	if pattern == "" && a.version == V32 {
		unknownPath(w, r)
		return
	}
	if !a.authorized(w, r) {
		return
	}
	if pattern == "" {
		unknownPath(w, r)
		return
	}
	_ = h // found again with the values of its wildcards
	a.mux.ServeHTTP(w, r)
}

func unknownPath(w http.ResponseWriter, r *http.Request) {
	writeError(w, http.StatusNotFound, fmt.Sprintf("path %s was not found", r.URL.Path))
}

func (a *api) authorized(w http.ResponseWriter, r *http.Request) bool {
	user, password, given := r.BasicAuth()
	want, known := (*a.users.Load())[user]
	if given && known && subtle.ConstantTimeCompare([]byte(password), []byte(want)) == 1 {
		return true
	}
	w.Header().Set("Www-Authenticate", `Basic realm="API"`)
	switch {
	case given:
		writeError(w, http.StatusUnauthorized, "unauthorized")
	case a.version == V34:
		writeError(w, http.StatusUnauthorized, "missing or invalid authorization")
	default:
		writeError(w, http.StatusUnauthorized, "unauthenticated for invalid credentials")
	}
	return false
}

// versioned puts the version in memory on an answer when it is written.
type versioned struct {
	http.ResponseWriter
	version func() int64
	written bool
}

func (v *versioned) WriteHeader(status int) {
	if !v.written {
		v.written = true
		v.Header().Set("Configuration-Version", strconv.FormatInt(v.version(), 10))
	}
	v.ResponseWriter.WriteHeader(status)
}

func (v *versioned) Write(b []byte) (int, error) {
	if !v.written {
		v.WriteHeader(http.StatusOK)
	}
	return v.ResponseWriter.Write(b)
}

// routes lists every call that the double knows.
func (a *api) routes() {
	handle := func(pattern string, h handler) {
		method, path, _ := strings.Cut(pattern, " ")
		a.mux.HandleFunc(method+" "+path, h.serve)
	}
	service := func(pattern string, h handler) {
		method, path, _ := strings.Cut(pattern, " ")
		handle(method+" "+servicePath+path, h)
	}
	handle("GET /v3/info", a.getInfo)
	handle("GET /v3/health", a.getHealth)
	service("GET /configuration/version", a.getVersion)
	service("GET /configuration/raw", a.getRaw)
	service("POST /configuration/raw", a.postRaw)
	service("GET /configuration/backends", a.getBackends)
	service("POST /configuration/backends", a.postBackend)
	service("GET /configuration/backends/{backend}/servers", a.getServers)
	service("POST /configuration/backends/{backend}/servers", a.postServer)
	service("GET /configuration/backends/{backend}/servers/{server}", a.getServer)
	service("PUT /configuration/backends/{backend}/servers/{server}", a.putServer)
	service("GET /configuration/frontends/{frontend}/binds", a.getBinds)
	service("GET /transactions", a.getTransactions)
	service("POST /transactions", a.postTransaction)
	service("GET /transactions/{id}", a.getTransaction)
	service("PUT /transactions/{id}", a.commitTransaction)
	service("DELETE /transactions/{id}", a.deleteTransaction)
	service("GET /reloads", a.getReloads)
	service("GET /reloads/{id}", a.getReload)
	service("GET /runtime/info", a.getRuntimeInfo)
	service("GET /stats/native", a.getStats)
	a.storageRoutes(service)
	a.runtimeRoutes(service)
}

func (a *api) getInfo(w http.ResponseWriter, _ *http.Request) error {
	version := cmp.Or(a.told.APIVersion, map[API]string{V32: "v3.2.5 double", V34: "v3.4.2 double"}[a.version])
	writeBody(w, http.StatusOK, map[string]any{
		"api": map[string]any{"build_date": "2026-01-01T00:00:00.000Z", "version": version}, "system": map[string]any{},
	})
	return nil
}

// getHealth never knows anything, as without status_cmd.
func (a *api) getHealth(w http.ResponseWriter, _ *http.Request) error {
	writeBody(w, http.StatusOK, map[string]any{"haproxy": "unknown"})
	return nil
}

// writeFile replaces a file in one step.
func writeFile(path string, content []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path))
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(content)
	if err := errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// store writes a file for a request, unless its disk is full.
func store(ctx context.Context, path string, content []byte) error {
	if faultOf(ctx).kind == diskFull {
		return &fs.PathError{Op: "write", Path: filepath.Join(filepath.Dir(path), "."+filepath.Base(path)), Err: syscall.ENOSPC}
	}
	return writeFile(path, content)
}
