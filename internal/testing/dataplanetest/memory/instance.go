// Package memory has instances in memory, with the part of the Dataplane API that the pusher calls. They are
// for tests on a clock of their own (testing/synctest), in which nothing outside can be waited for. Package
// dataplanetest shows what an API really does. Tests describe what happens to the instances in the words of the
// pusher's stories.
package memory

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest/certinfo"
)

// way is how long a request, and an answer, takes to arrive.
const way = 5 * time.Millisecond

// ReloadTime is the time that a reload takes.
const ReloadTime = 3 * time.Second

// Instance is an instance in memory. A request continues if its sender leaves.
type Instance struct {
	Name string
	// Midst is called between a commit and its reload.
	Midst func(what string)

	version string // of the API
	haproxy string // the version
	refuses string // a configuration with this in it does not start
	ails    []ailment
	failing string // a configuration with this in it answers requests with 500
	down    string // a backend that has no server up, in a configuration with downIn in it
	downIn  string
	copied  string // haproxy.cfg

	api     http.Handler
	commits chan struct{} // holds a token while nobody commits
	mu      sync.Mutex    // not held while time passes
	State
}

// State is the state of an instance.
type State struct {
	Disk    string            // haproxy.cfg
	Memory  int64             // the version that the API has in its memory
	Files   map[string]string // by storage and name
	Worker  Worker
	Reloads int      // that were tried
	Writes  []string // what changed something

	loaded string // the haproxy.cfg that was loaded last
}

// Worker is a process of HAProxy.
type Worker struct {
	Node         string
	pid          int
	started      time.Time
	servers      map[string][]server // by backend
	Certificates map[string]string   // by path
	maps         map[string]entries  // by name of the file
}

type server struct {
	Name       string `json:"name"`
	Address    string `json:"address"`
	Port       int    `json:"port"`
	AdminState string `json:"admin_state"`
	Operation  string `json:"operational_state"`
}

// New returns an instance with the first configuration, and the API of a version.
func New(name, version string) *Instance {
	f := &Instance{Name: name, version: version, haproxy: "3.0.11", Midst: func(string) {}, commits: make(chan struct{}, 1)}
	f.commits <- struct{}{}
	f.api = f.handler()
	f.Disk, f.Memory, f.Files = "# _version=1\nglobal\n  node bootstrap\n", 1, map[string]string{}
	f.load()
	return f
}

// Clone returns the instance for another bubble of time.
func (f *Instance) Clone() *Instance {
	c := New(f.Name, f.version)
	c.refuses, c.copied, c.State = f.refuses, f.copied, f.Now()
	return c
}

// Now returns the state of the instance, as a copy.
func (f *Instance) Now() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.State
	s.Files, s.Writes = maps.Clone(s.Files), slices.Clone(s.Writes)
	s.Worker.servers, s.Worker.Certificates = map[string][]server{}, maps.Clone(s.Worker.Certificates)
	for backend, servers := range f.Worker.servers {
		s.Worker.servers[backend] = slices.Clone(servers)
	}
	s.Worker.maps = map[string]entries{}
	for name, m := range f.Worker.maps {
		s.Worker.maps[name] = slices.Clone(m)
	}
	return s
}

// load replaces the worker by one that runs the configuration on disk.
func (s *State) load() {
	w := Worker{pid: s.Worker.pid + 1, started: time.Now(), servers: map[string][]server{}, Certificates: map[string]string{}}
	section := ""
	for line := range strings.Lines(s.Disk) {
		words := strings.Fields(line)
		switch {
		case len(words) < 2:
		case words[0] == "backend" || words[0] == "frontend":
			section = words[1]
		case words[0] == "node":
			w.Node = strings.Trim(words[1], `"`)
		case words[0] == "server":
			w.servers[section] = append(w.servers[section], parseServer(words))
		}
	}
	for key, content := range s.Files {
		w.Certificates["/etc/haproxy/"+key] = content
	}
	w.maps = loadMaps(s.Disk, s.Files)
	s.Worker, s.loaded = w, s.Disk
}

// Ready returns the addresses of the servers of a backend that take traffic, sorted.
func (w Worker) Ready(backend string) []string {
	var out []string
	for _, s := range w.servers[backend] {
		if s.AdminState == "ready" {
			out = append(out, s.Address)
		}
	}
	slices.Sort(out)
	return out
}

// Routes returns the entries of the worker's maps.
func (s State) Routes() string {
	var out []string
	for _, m := range s.Worker.maps {
		for _, e := range m {
			out = append(out, e.Key+"="+e.Value)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// Essence is the part of an instance's state that counts, without the order of events.
func (s State) Essence() string {
	onDisk := State{Disk: s.Disk, Files: s.Files}
	onDisk.load()
	var text []string
	for line := range strings.Lines(s.Disk) {
		if words := strings.Fields(line); len(words) > 0 && words[0] != "server" && words[0] != "#" && words[0] != "node" {
			text = append(text, line)
		}
	}
	files := maps.Clone(s.Files)
	for name, content := range files {
		if c := LeafOf(content); c.SerialNumber != nil {
			files[name] = c.SerialNumber.String()
		}
	}
	files["ssl/fallback.pem"] = "" // each pusher's own
	var drained []string
	for _, servers := range s.Worker.servers {
		for _, server := range servers {
			if server.AdminState == "drain" {
				drained = append(drained, server.Address)
			}
		}
	}
	return fmt.Sprintf("servers %v, on disk %v, drained %v\nroutes %s, on disk %s\ncertificate %s\nfiles %v\nconfiguration\n%s", s.Worker.Ready("shop_web"), onDisk.Worker.Ready("shop_web"), drained,
		s.Routes(), onDisk.Routes(), LeafOf(s.Worker.Certificates["/etc/haproxy/ssl/shop_web-tls.pem"]).SerialNumber, files, strings.Join(text, ""))
}

func parseServer(words []string) server {
	host, port, _ := strings.Cut(words[2], ":")
	s := server{Name: words[1], Address: host, AdminState: "ready", Operation: "up"}
	s.Port, _ = strconv.Atoi(port)
	if slices.Contains(words, "disabled") {
		s.AdminState, s.Operation = "maint", "down"
	}
	return s
}

// handler serves the API.
func (f *Instance) handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, serve http.HandlerFunc) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" /v3/services/haproxy"+path, serve)
	}
	mux.HandleFunc("GET /v3/info", func(w http.ResponseWriter, _ *http.Request) {
		f.answer(w, http.StatusOK, map[string]any{"api": map[string]any{"version": f.version}})
	})
	handle("GET /runtime/info", f.getInfo)
	handle("GET /stats/native", f.getStatistics)
	handle("GET /configuration/raw", f.getRaw)
	handle("POST /configuration/raw", f.postRaw)
	handle("GET /runtime/backends/{backend}/servers", f.getServers)
	handle("PUT /runtime/backends/{backend}/servers/{server}", f.putServer)
	handle("GET /runtime/ssl_certs", f.getAllServed)
	handle("GET /runtime/ssl_certs/{path}", f.getServed)
	handle("GET /runtime/maps", f.getMaps)
	handle("GET /runtime/maps/{name}/entries", f.getEntries)
	handle("PUT /runtime/maps/{name}", f.putMap)
	handle("PUT /runtime/maps/{name}/entries/{key}", f.putEntry)
	handle("DELETE /runtime/maps/{name}/entries/{key}", f.deleteEntry)
	handle("GET /storage/{storage}", f.getFiles)
	handle("POST /storage/{storage}", f.postFile)
	handle("GET /storage/{storage}/{name}", f.getFile)
	handle("PUT /storage/{storage}/{name}", f.putFile)
	handle("DELETE /storage/{storage}/{name}", f.deleteFile)
	handle("GET /transactions", func(w http.ResponseWriter, _ *http.Request) { f.answer(w, http.StatusOK, []any{}) })
	return mux
}

// answer is called without the lock, or as the last thing with it.
func (f *Instance) answer(w http.ResponseWriter, status int, body any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (f *Instance) fail(w http.ResponseWriter, status int, format string, args ...any) {
	f.answer(w, status, map[string]any{"code": status, "message": fmt.Sprintf(format, args...)})
}

func (f *Instance) note(format string, args ...any) {
	f.Writes = append(f.Writes, fmt.Sprintf(format, args...))
}

func (f *Instance) getInfo(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer(w, http.StatusOK, map[string]any{"info": map[string]any{
		"node": f.Worker.Node, "pid": f.Worker.pid, "version": f.haproxy, "uptime": int64(time.Since(f.Worker.started).Seconds()),
	}})
}

// getStatistics reports a hundred requests a second. All have good answers, unless the configuration fails.
func (f *Instance) getStatistics(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	served, failed := int64(100*time.Since(f.Worker.started).Seconds()), int64(0)
	if f.failing != "" && strings.Contains(f.loaded, f.failing) {
		failed = served
	}
	stats := []any{map[string]any{"name": "web", "stats": map[string]any{"req_tot": served, "stot": served, "hrsp_5xx": failed, "status": "OPEN"}}}
	if r.URL.Query().Get("type") == "backend" {
		stats = nil
		for _, backend := range slices.Sorted(maps.Keys(f.Worker.servers)) {
			status := "UP"
			if backend == f.down && strings.Contains(f.loaded, f.downIn) {
				status = "DOWN"
			}
			stats = append(stats, map[string]any{"name": backend, "stats": map[string]any{"status": status}})
		}
	}
	f.answer(w, http.StatusOK, map[string]any{"stats": stats})
}

func (f *Instance) getRaw(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text(w, http.StatusOK, f.Disk)
}

func (f *Instance) text(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Configuration-Version", strconv.FormatInt(f.Memory, 10))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// postRaw commits a configuration, and loads it if told to. Other commits wait until then.
func (f *Instance) postRaw(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	<-f.commits
	defer func() { f.commits <- struct{}{} }()
	force := r.URL.Query().Get("force_reload") == "true"
	if !f.commit(w, r, string(body), force) {
		return
	}
	if force {
		f.Midst("a reload")
		pass(ReloadTime)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case force && f.refuses != "" && strings.Contains(f.Disk, f.refuses):
		f.Reloads++
		f.Disk = f.loaded // and the memory stays
		f.fail(w, http.StatusBadRequest, "Reload failed: failed to reload configuration, [ALERT] no")
		return
	case force:
		f.Reloads++
		f.load()
	default:
		f.act(r.Header.Get("X-Runtime-Actions"))
	}
	f.text(w, http.StatusCreated, f.Disk)
}

// commitOnly commits a configuration whose reload cannot be asked for: the file is put back, and the memory
// stays.
func (f *Instance) commitOnly(r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if f.commit(httptest.NewRecorder(), r, string(body), true) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.Disk = f.loaded
	}
}

var namedFile = regexp.MustCompile(`/etc/haproxy/([\w.-]+/[\w.-]+)`)

// commit accepts a configuration if its version is right and its files exist.
func (f *Instance) commit(w http.ResponseWriter, r *http.Request, text string, force bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if version := r.URL.Query().Get("version"); version != strconv.FormatInt(f.Memory, 10) {
		f.fail(w, http.StatusConflict, "version mismatch: version in configuration file is %d, given version is %s", f.Memory, version)
		return false
	}
	for _, name := range namedFile.FindAllStringSubmatch(text, -1) {
		if _, ok := f.Files[name[1]]; !ok {
			f.fail(w, http.StatusBadRequest, "validation error: failed to open %s", name[0])
			return false
		}
	}
	f.note("post the configuration, reload %v", force)
	f.Memory++
	f.Disk = fmt.Sprintf("# _version=%d\n%s", f.Memory, text)
	return true
}

// act carries out the actions that come with a post.
func (f *Instance) act(actions string) {
	for action := range strings.SplitSeq(actions, ";") {
		words := strings.Fields(action)
		if len(words) < 4 {
			continue
		}
		s := f.server(words[1], words[2])
		switch words[0] {
		case "SetServerAddr":
			s.Address = words[3]
			s.Port, _ = strconv.Atoi(words[4])
		case "SetServerState":
			s.set(words[3])
		}
	}
}

func (s *server) set(state string) {
	s.AdminState, s.Operation = state, "up"
	if state == "maint" {
		s.Operation = "down"
	}
}

// server returns a server to be changed. If it does not exist, the result belongs to no backend.
func (f *Instance) server(backend, name string) *server {
	servers := f.Worker.servers[backend]
	if n := slices.IndexFunc(servers, func(s server) bool { return s.Name == name }); n >= 0 {
		return &servers[n]
	}
	return &server{}
}

func (f *Instance) getServers(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer(w, http.StatusOK, f.Worker.servers[r.PathValue("backend")])
}

func (f *Instance) putServer(w http.ResponseWriter, r *http.Request) {
	var change server
	_ = json.NewDecoder(r.Body).Decode(&change)
	f.mu.Lock()
	defer f.mu.Unlock()
	backend, name := r.PathValue("backend"), r.PathValue("server")
	s := f.server(backend, name)
	was := *s
	if change.Address != "" && strings.HasPrefix(f.version, "v3.4") {
		s.Address, s.Port = change.Address, change.Port
	}
	if change.AdminState != "" {
		s.set(change.AdminState)
	}
	if *s != was {
		f.note("set %s/%s to %s:%d %s", backend, name, s.Address, s.Port, s.AdminState)
	}
	f.answer(w, http.StatusOK, s)
}

// folder is where a storage has its files.
func folder(storage string) string {
	return map[string]string{"maps": "maps", "general": "general", "ssl_certificates": "ssl"}[storage]
}

// LeafOf returns the first certificate of a file, an empty one if it has none.
func LeafOf(content string) *x509.Certificate {
	block, _ := pem.Decode([]byte(content))
	if block == nil {
		return &x509.Certificate{}
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return &x509.Certificate{}
	}
	return c
}

func described(name, content string) map[string]any {
	d := map[string]any{"storage_name": name, "size": len(content)}
	if found, err := certinfo.Of([]byte(content)); err == nil && !found.NotAfter.IsZero() {
		d["serial"], d["not_before"], d["not_after"] = found.Serial, found.NotBefore, found.NotAfter
	}
	return d
}

func (f *Instance) getFiles(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := []any{}
	for _, key := range slices.Sorted(maps.Keys(f.Files)) {
		if name, ok := strings.CutPrefix(key, folder(r.PathValue("storage"))+"/"); ok {
			list = append(list, map[string]any{"storage_name": name}) // the real one says no more of what a file holds
		}
	}
	f.answer(w, http.StatusOK, list)
}

func (f *Instance) getFile(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := r.PathValue("name")
	content, ok := f.Files[folder(r.PathValue("storage"))+"/"+name]
	switch {
	case !ok:
		f.fail(w, http.StatusNotFound, "missing object")
	case r.PathValue("storage") == "ssl_certificates":
		f.answer(w, http.StatusOK, described(name, content))
	default:
		f.text(w, http.StatusOK, content)
	}
}

// uploadOf returns the content that a request stores.
func uploadOf(r *http.Request) (name, content string) {
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") {
		body, _ := io.ReadAll(r.Body)
		return r.PathValue("name"), string(body)
	}
	file, header, err := r.FormFile("file_upload")
	if err != nil {
		return "", ""
	}
	body, _ := io.ReadAll(file)
	return header.Filename, string(body)
}

func (f *Instance) postFile(w http.ResponseWriter, r *http.Request) {
	name, content := uploadOf(r)
	f.mu.Lock()
	defer f.mu.Unlock()
	key := folder(r.PathValue("storage")) + "/" + name
	if _, there := f.Files[key]; there {
		f.fail(w, http.StatusConflict, "file %s already exists", name)
		return
	}
	f.note("create %s", key)
	f.Files[key] = content
	f.answer(w, http.StatusCreated, described(name, content))
}

// putFile gives a certificate to the worker too, unless it is told not to.
func (f *Instance) putFile(w http.ResponseWriter, r *http.Request) {
	name, content := uploadOf(r)
	f.mu.Lock()
	defer f.mu.Unlock()
	key := folder(r.PathValue("storage")) + "/" + r.PathValue("name")
	f.note("replace %s", key)
	f.Files[key] = content
	if r.PathValue("storage") == "ssl_certificates" && r.URL.Query().Get("skip_reload") == "" {
		f.Worker.Certificates["/etc/haproxy/"+key] = content
	}
	f.answer(w, http.StatusOK, described(name, content))
}

func (f *Instance) deleteFile(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := folder(r.PathValue("storage")) + "/" + r.PathValue("name")
	if _, there := f.Files[key]; !there {
		f.fail(w, http.StatusNotFound, "missing object")
		return
	}
	f.note("delete %s", key)
	delete(f.Files, key)
	w.WriteHeader(http.StatusNoContent)
}

// getAllServed lists the certificates that the worker's haproxy.cfg names.
func (f *Instance) getAllServed(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := []any{}
	for path := range f.Worker.Certificates {
		if strings.HasSuffix(path, ".pem") && strings.Contains(f.loaded, path) {
			list = append(list, map[string]any{"storage_name": path})
		}
	}
	f.answer(w, http.StatusOK, list)
}

func (f *Instance) getServed(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	content, ok := f.Worker.Certificates[r.PathValue("path")]
	if !ok {
		f.fail(w, http.StatusNotFound, "not found")
		return
	}
	sum := sha256.Sum256(LeafOf(content).Raw)
	f.answer(w, http.StatusOK, map[string]any{"storage_name": r.PathValue("path"), "sha256_finger_print": hex.EncodeToString(sum[:])})
}
