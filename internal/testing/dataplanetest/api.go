package dataplanetest

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

const servicePath = "/v3/services/haproxy"

// api is one life of the API's process: the memory between its start and its end, without the disk.
type api struct {
	version API
	haproxy *haproxy
	paths   Dirs
	users   atomic.Pointer[map[string]string] // passwords
	told    Options                           // the versions that it reports, if not its own
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

// newAPI starts a life with the file on disk.
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

// ServeHTTP serves a request: it sets the version on every answer, then checks the password, then the path. 3.2
// checks the path before the password.
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

// versioned puts the version in memory on an answer when the answer is written.
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
	service("GET /transactions", a.getTransactions)
	service("POST /transactions", a.postTransaction)
	service("GET /transactions/{id}", a.getTransaction)
	service("PUT /transactions/{id}", a.commitTransaction)
	service("DELETE /transactions/{id}", a.deleteTransaction)
	service("GET /reloads", a.getReloads)
	service("GET /reloads/{id}", a.getReload)
	structuredAPI{a}.routes(service)
	storageAPI{a}.routes(service)
	runtimeAPI{a}.routes(service)
}

func (a *api) getInfo(w http.ResponseWriter, _ *http.Request) error {
	version := cmp.Or(a.told.APIVersion, map[API]string{V32: "v3.2.5 double", V34: "v3.4.2 double"}[a.version])
	writeBody(w, http.StatusOK, map[string]any{
		"api": map[string]any{"build_date": "2026-01-01T00:00:00.000Z", "version": version}, "system": map[string]any{},
	})
	return nil
}

// getHealth always answers "unknown", as without status_cmd.
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

// failure is an error with the status that the API gives it.
type failure struct {
	status  int
	code    int // 0: as status
	message string
}

func (f *failure) Error() string { return f.message }

func failf(status int, format string, args ...any) *failure {
	return &failure{status: status, message: fmt.Sprintf(format, args...)}
}

// schemaFailure is a request that breaks the API's schema: 422 with a code of its
// own in 3.2, a plain 400 since 3.4.
func (a *api) schemaFailure(code int, text32, text34 string) *failure {
	if a.version == V34 {
		return failf(http.StatusBadRequest, "%s", text34)
	}
	return &failure{status: http.StatusUnprocessableEntity, code: code, message: text32}
}

// unprocessable is the error for a body with an invalid value: 422, with a code of its own in 3.2.
func (a *api) unprocessable(code int, text string) *failure {
	if a.version == V34 {
		code = 0
	}
	return &failure{status: http.StatusUnprocessableEntity, code: code, message: text}
}

func writeError(w http.ResponseWriter, status int, message string) {
	writeBody(w, status, map[string]any{"code": status, "message": message})
}

func writeBody(w http.ResponseWriter, status int, body any) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(status)
	text := json.NewEncoder(w)
	text.SetEscapeHTML(false)
	_ = text.Encode(body) // the client may have gone
}

// handler is a request handler that leaves errors to its caller.
type handler func(w http.ResponseWriter, r *http.Request) error

func (h handler) serve(w http.ResponseWriter, r *http.Request) {
	if err := h(w, r); err != nil {
		// Any other error is the API's own, 500.
		var f *failure
		if !errors.As(err, &f) {
			f = failf(http.StatusInternalServerError, "%s", err)
		}
		code := f.code
		if code == 0 {
			code = f.status
		}
		writeBody(w, f.status, map[string]any{"code": code, "message": f.message})
	}
}

// flag reads a boolean of the query, as leniently as the API: unknown words are false.
func flag(r *http.Request, name string) bool {
	v, _ := strconv.ParseBool(r.URL.Query().Get(name))
	return v
}

// queryVersion reads the version in the query, 0 if there is none.
func (a *api) queryVersion(r *http.Request) (int64, error) {
	text := r.URL.Query().Get("version")
	if text == "" {
		return 0, nil
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		text32 := fmt.Sprintf("version in query must be of type int64: %q", text)
		return 0, a.schemaFailure(601, text32, fmt.Sprintf("parameter \"version\" in query has an error: value %s: an invalid integer", text))
	}
	return v, nil
}

// readJSON decodes a body of JSON.
func (a *api) readJSON(r *http.Request, into any) error {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		return failf(http.StatusBadRequest, "parsing body body from \"\" failed, because %s", err)
	}
	return nil
}

// Request is a request that the instance received.
type Request struct {
	Method string
	Path   string
	Query  string
	// Status of the answer; 0 as long as there is none, and forever if the connection was cut.
	Status int
}

type requestLog struct {
	mu   sync.Mutex
	list []Request
}

// begin records a request and returns a function that completes the record.
func (l *requestLog) begin(r *http.Request) func(status int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.list)
	l.list = append(l.list, Request{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery})
	return func(status int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.list[n].Status = status
	}
}

func (l *requestLog) all() []Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// observed records each request and applies the fault that waits for it.
func (i *Instance) observed(a life) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := &recorded{ResponseWriter: w, done: i.requests.begin(r)}
		f := i.faults.take(r.Method, r.URL.Path)
		if f.kind == answer {
			f.serve(&versioned{ResponseWriter: seen, version: a.currentVersion}, r, nil)
			return
		}
		f.serve(seen, r, a.ServeHTTP)
	})
}

// recorded records the status of an answer.
type recorded struct {
	http.ResponseWriter
	done func(status int)
}

func (r *recorded) WriteHeader(status int) {
	r.done(status)
	r.ResponseWriter.WriteHeader(status)
}

// readUpload returns the file of a form. Only the last element of its name counts.
func (a *api) readUpload(r *http.Request) (name string, content []byte, err error) {
	kind := r.Header.Get("Content-Type")
	if !strings.HasPrefix(kind, "multipart/form-data") {
		return "", nil, failf(http.StatusUnsupportedMediaType,
			"unsupported media type %q, only [multipart/form-data] are allowed", kind)
	}
	file, header, err := r.FormFile("file_upload")
	if err != nil {
		return "", nil, a.schemaFailure(602, "file_upload in formData is required", err.Error())
	}
	defer file.Close()
	content, err = io.ReadAll(file)
	return header.Filename, content, err
}

// readText returns a body of plain text, which must not be empty.
func (a *api) readText(r *http.Request) ([]byte, error) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "text/plain" {
		return nil, failf(http.StatusUnsupportedMediaType,
			"unsupported media type %q, only [text/plain] are allowed", r.Header.Get("Content-Type"))
	}
	content, err := io.ReadAll(r.Body)
	if err == nil && len(content) == 0 {
		err = a.schemaFailure(602, "data in body is required", "request body has an error: value is required but missing")
	}
	return content, err
}
