package pusher

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
)

// The times that a fake instance takes.
const (
	fakeWay    = 5 * time.Millisecond // of a request, and of an answer
	fakeReload = 3 * time.Second
)

// fakeInstance is an instance in memory, with as much of the Dataplane API as the pusher
// calls. It is there for tests on a clock of their own, in which nothing outside may be
// waited for; what an API really does is shown by dataplanetest. What somebody asked for
// goes on without them.
type fakeInstance struct {
	name    string
	version string // of the API
	haproxy string // the version
	refuses string // a configuration with this in it does not start
	ails    []ailment
	failing string // a configuration with this in it answers requests with 500
	down    string // a backend that has no server up, in a configuration with downIn in it
	downIn  string
	// midst is called between a commit and its reload.
	midst func(what string)

	api     http.Handler
	commits chan struct{} // holds a token while nobody commits
	mu      sync.Mutex    // not held while time passes
	fakeState
}

// fakeState is what an instance is in.
type fakeState struct {
	disk, lkg string // haproxy.cfg, and the last that was loaded
	memory    int64
	files     map[string]string // by storage and name
	worker    fakeWorker
	reloads   int      // that were tried
	writes    []string // what changed something
}

type fakeWorker struct {
	node         string
	pid          int
	started      time.Time
	servers      map[string][]fakeServer // by backend
	certificates map[string]string       // by path
	maps         map[string]fakeMap      // by name of the file
}

type fakeServer struct {
	Name       string `json:"name"`
	Address    string `json:"address"`
	Port       int    `json:"port"`
	AdminState string `json:"admin_state"`
	Operation  string `json:"operational_state"`
}

func newFakeInstance(name, version string) *fakeInstance {
	f := &fakeInstance{name: name, version: version, haproxy: "3.0.11", midst: func(string) {}, commits: make(chan struct{}, 1)}
	f.commits <- struct{}{}
	f.api = f.handler()
	f.disk, f.memory, f.files = "# _version=1\nglobal\n  node bootstrap\n", 1, map[string]string{}
	f.load()
	return f
}

// clone returns the instance for another bubble of time.
func (f *fakeInstance) clone() *fakeInstance {
	c := newFakeInstance(f.name, f.version)
	c.refuses, c.fakeState = f.refuses, f.state()
	return c
}

// state returns what the instance is in, which nobody else touches.
func (f *fakeInstance) state() fakeState {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.fakeState
	s.files, s.writes = maps.Clone(s.files), slices.Clone(s.writes)
	s.worker.servers, s.worker.certificates = map[string][]fakeServer{}, maps.Clone(s.worker.certificates)
	for backend, servers := range f.worker.servers {
		s.worker.servers[backend] = slices.Clone(servers)
	}
	s.worker.maps = map[string]fakeMap{}
	for name, m := range f.worker.maps {
		s.worker.maps[name] = slices.Clone(m)
	}
	return s
}

// load has the worker replaced by one that runs what is on disk.
func (s *fakeState) load() {
	w := fakeWorker{pid: s.worker.pid + 1, started: time.Now(), servers: map[string][]fakeServer{}, certificates: map[string]string{}}
	section := ""
	for line := range strings.Lines(s.disk) {
		words := strings.Fields(line)
		switch {
		case len(words) < 2:
		case words[0] == "backend" || words[0] == "frontend":
			section = words[1]
		case words[0] == "node":
			w.node = strings.Trim(words[1], `"`)
		case words[0] == "server":
			w.servers[section] = append(w.servers[section], parseFakeServer(words))
		}
	}
	for key, content := range s.files {
		w.certificates["/etc/haproxy/"+key] = content
	}
	w.maps = loadFakeMaps(s.disk, s.files)
	s.worker, s.lkg = w, s.disk
}

// ready returns the addresses of the servers of a backend that take traffic, sorted.
func (w fakeWorker) ready(backend string) []string {
	var out []string
	for _, s := range w.servers[backend] {
		if s.AdminState == "ready" {
			out = append(out, s.Address)
		}
	}
	slices.Sort(out)
	return out
}

// routes are the entries of the worker's maps.
func (s fakeState) routes() string {
	var out []string
	for _, m := range s.worker.maps {
		for _, e := range m {
			out = append(out, e.Key+"="+e.Value)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// essence is what counts of the state of an instance: not in which order it came to be so.
func (s fakeState) essence() string {
	onDisk := fakeState{disk: s.disk, files: s.files}
	onDisk.load()
	var text []string
	for line := range strings.Lines(s.disk) {
		if words := strings.Fields(line); len(words) > 0 && words[0] != "server" && words[0] != "#" && words[0] != "node" {
			text = append(text, line)
		}
	}
	files := maps.Clone(s.files)
	for name, content := range files {
		if c := leafOf(content); c.SerialNumber != nil {
			files[name] = c.SerialNumber.String()
		}
	}
	files["ssl/fallback.pem"] = "" // each pusher's own
	var drained []string
	for _, servers := range s.worker.servers {
		for _, server := range servers {
			if server.AdminState == "drain" {
				drained = append(drained, server.Address)
			}
		}
	}
	return fmt.Sprintf("servers %v, on disk %v, drained %v\nroutes %s, on disk %s\ncertificate %s\nfiles %v\nconfiguration\n%s", s.worker.ready("shop_web"), onDisk.worker.ready("shop_web"), drained,
		s.routes(), onDisk.routes(), leafOf(s.worker.certificates["/etc/haproxy/ssl/shop_web-tls.pem"]).SerialNumber, files, strings.Join(text, ""))
}

func parseFakeServer(words []string) fakeServer {
	host, port, _ := strings.Cut(words[2], ":")
	s := fakeServer{Name: words[1], Address: host, AdminState: "ready", Operation: "up"}
	s.Port, _ = strconv.Atoi(port)
	if slices.Contains(words, "disabled") {
		s.AdminState, s.Operation = "maint", "down"
	}
	return s
}

// handler serves the API.
func (f *fakeInstance) handler() http.Handler {
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
func (f *fakeInstance) answer(w http.ResponseWriter, status int, body any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (f *fakeInstance) fail(w http.ResponseWriter, status int, format string, args ...any) {
	f.answer(w, status, map[string]any{"code": status, "message": fmt.Sprintf(format, args...)})
}

func (f *fakeInstance) note(format string, args ...any) {
	f.writes = append(f.writes, fmt.Sprintf(format, args...))
}

func (f *fakeInstance) getInfo(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer(w, http.StatusOK, map[string]any{"info": map[string]any{
		"node": f.worker.node, "pid": f.worker.pid, "version": f.haproxy, "uptime": int64(time.Since(f.worker.started).Seconds()),
	}})
}

// getStatistics tells of a hundred requests a second, all of which are answered well unless
// they fail.
func (f *fakeInstance) getStatistics(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	served, failed := int64(100*time.Since(f.worker.started).Seconds()), int64(0)
	if f.failing != "" && strings.Contains(f.lkg, f.failing) {
		failed = served
	}
	stats := []any{map[string]any{"name": "web", "stats": map[string]any{"req_tot": served, "stot": served, "hrsp_5xx": failed, "status": "OPEN"}}}
	if r.URL.Query().Get("type") == "backend" {
		stats = nil
		for _, backend := range slices.Sorted(maps.Keys(f.worker.servers)) {
			status := "UP"
			if backend == f.down && strings.Contains(f.lkg, f.downIn) {
				status = "DOWN"
			}
			stats = append(stats, map[string]any{"name": backend, "stats": map[string]any{"status": status}})
		}
	}
	f.answer(w, http.StatusOK, map[string]any{"stats": stats})
}

func (f *fakeInstance) getRaw(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text(w, http.StatusOK, f.disk)
}

func (f *fakeInstance) text(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Configuration-Version", strconv.FormatInt(f.memory, 10))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// postRaw commits a configuration, and loads it if it is told to. Until then, others
// who commit wait.
func (f *fakeInstance) postRaw(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	<-f.commits
	defer func() { f.commits <- struct{}{} }()
	force := r.URL.Query().Get("force_reload") == "true"
	if !f.commit(w, r, string(body), force) {
		return
	}
	if force {
		f.midst("a reload")
		pass(fakeReload)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case force && f.refuses != "" && strings.Contains(f.disk, f.refuses):
		f.reloads++
		f.disk = f.lkg // and the memory stays
		f.fail(w, http.StatusBadRequest, "Reload failed: failed to reload configuration, [ALERT] no")
		return
	case force:
		f.reloads++
		f.load()
	default:
		f.act(r.Header.Get("X-Runtime-Actions"))
	}
	f.text(w, http.StatusCreated, f.disk)
}

// commitOnly takes a configuration whose reload cannot be asked for: the file is put back, and
// the memory stays.
func (f *fakeInstance) commitOnly(r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if f.commit(httptest.NewRecorder(), r, string(body), true) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.disk = f.lkg
	}
}

var namedFile = regexp.MustCompile(`/etc/haproxy/([\w.-]+/[\w.-]+)`)

// commit takes a configuration if its version is right and its files are there.
func (f *fakeInstance) commit(w http.ResponseWriter, r *http.Request, text string, force bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if version := r.URL.Query().Get("version"); version != strconv.FormatInt(f.memory, 10) {
		f.fail(w, http.StatusConflict, "version mismatch: version in configuration file is %d, given version is %s", f.memory, version)
		return false
	}
	for _, name := range namedFile.FindAllStringSubmatch(text, -1) {
		if _, ok := f.files[name[1]]; !ok {
			f.fail(w, http.StatusBadRequest, "validation error: failed to open %s", name[0])
			return false
		}
	}
	f.note("post the configuration, reload %v", force)
	f.memory++
	f.disk = fmt.Sprintf("# _version=%d\n%s", f.memory, text)
	return true
}

// act does what travels with a post.
func (f *fakeInstance) act(actions string) {
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

func (s *fakeServer) set(state string) {
	s.AdminState, s.Operation = state, "up"
	if state == "maint" {
		s.Operation = "down"
	}
}

// server returns a server to be changed; one that is not there is nobody's.
func (f *fakeInstance) server(backend, name string) *fakeServer {
	servers := f.worker.servers[backend]
	if n := slices.IndexFunc(servers, func(s fakeServer) bool { return s.Name == name }); n >= 0 {
		return &servers[n]
	}
	return &fakeServer{}
}

func (f *fakeInstance) getServers(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer(w, http.StatusOK, f.worker.servers[r.PathValue("backend")])
}

func (f *fakeInstance) putServer(w http.ResponseWriter, r *http.Request) {
	var change fakeServer
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

func leafOf(content string) *x509.Certificate {
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
	if c := leafOf(content); c.SerialNumber != nil {
		d["serial"] = c.SerialNumber.String()
	}
	return d
}

func (f *fakeInstance) getFiles(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := []any{}
	for _, key := range slices.Sorted(maps.Keys(f.files)) {
		if name, ok := strings.CutPrefix(key, folder(r.PathValue("storage"))+"/"); ok {
			list = append(list, described(name, f.files[key]))
		}
	}
	f.answer(w, http.StatusOK, list)
}

func (f *fakeInstance) getFile(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := r.PathValue("name")
	content, ok := f.files[folder(r.PathValue("storage"))+"/"+name]
	switch {
	case !ok:
		f.fail(w, http.StatusNotFound, "missing object")
	case r.PathValue("storage") == "ssl_certificates":
		f.answer(w, http.StatusOK, described(name, content))
	default:
		f.text(w, http.StatusOK, content)
	}
}

// uploadOf returns what a request has to be kept.
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

func (f *fakeInstance) postFile(w http.ResponseWriter, r *http.Request) {
	name, content := uploadOf(r)
	f.mu.Lock()
	defer f.mu.Unlock()
	key := folder(r.PathValue("storage")) + "/" + name
	if _, there := f.files[key]; there {
		f.fail(w, http.StatusConflict, "file %s already exists", name)
		return
	}
	f.note("create %s", key)
	f.files[key] = content
	f.answer(w, http.StatusCreated, described(name, content))
}

// putFile gives a certificate to the worker too, unless it is told not to.
func (f *fakeInstance) putFile(w http.ResponseWriter, r *http.Request) {
	name, content := uploadOf(r)
	f.mu.Lock()
	defer f.mu.Unlock()
	key := folder(r.PathValue("storage")) + "/" + r.PathValue("name")
	f.note("replace %s", key)
	f.files[key] = content
	if r.PathValue("storage") == "ssl_certificates" && r.URL.Query().Get("skip_reload") == "" {
		f.worker.certificates["/etc/haproxy/"+key] = content
	}
	f.answer(w, http.StatusOK, described(name, content))
}

func (f *fakeInstance) deleteFile(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := folder(r.PathValue("storage")) + "/" + r.PathValue("name")
	if _, there := f.files[key]; !there {
		f.fail(w, http.StatusNotFound, "missing object")
		return
	}
	f.note("delete %s", key)
	delete(f.files, key)
	w.WriteHeader(http.StatusNoContent)
}

// getAllServed tells of the certificates that the worker's haproxy.cfg names.
func (f *fakeInstance) getAllServed(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := []any{}
	for path := range f.worker.certificates {
		if strings.HasSuffix(path, ".pem") && strings.Contains(f.lkg, path) {
			list = append(list, map[string]any{"storage_name": path})
		}
	}
	f.answer(w, http.StatusOK, list)
}

func (f *fakeInstance) getServed(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	content, ok := f.worker.certificates[r.PathValue("path")]
	if !ok {
		f.fail(w, http.StatusNotFound, "not found")
		return
	}
	sum := sha256.Sum256(leafOf(content).Raw)
	f.answer(w, http.StatusOK, map[string]any{"storage_name": r.PathValue("path"), "sha256_finger_print": hex.EncodeToString(sum[:])})
}
