package push

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest/certinfo"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// fake is an instance in memory without faults. A test replaces the functions that should fail.
type fake struct {
	t  *testing.T
	mu sync.Mutex // of changes of servers, which come at the same time

	disk    string
	memory  int64
	node    string
	pid     int
	files   map[string]string // storage/name: content
	servers map[string][]dataplane.Server
	calls   []string // calls that may change something
	asked   []string // other calls, to the worker and the API

	info    func() (dataplane.RuntimeInfo, error)
	raw     func() (dataplane.Raw, error)
	post    func(text string, o dataplane.PostOptions) (dataplane.Posted, error)
	create  func(s dataplane.Storage, name string) error
	setting func(backend, server string, ch dataplane.ServerChange) error
	version string
	process dataplane.Process
	// adding and deleting replace the calls for dynamic servers.
	adding   func(backend string, s dataplane.DynamicServer) error
	deleting func(backend, server string) error

	maps     map[string][]dataplane.MapEntry // of the worker
	lose     int                             // how many changes of maps have no effect
	mapsRead int                             // how many times all entries of a map were read

	loseAt       int  // the change of a map that has no effect, counted from 1
	unfound      bool // whether no entry is found by its key
	entriesRead  int  // how many times one was
	countedTimes int  // how many times the worker counts each entry, 0 for once

	frontends []dataplane.FrontendStatistics

	served   map[string]string // certificates that the worker serves, by path
	loaded   []string          // names of certificates that the worker has
	unlisted error             // why the list cannot be read

	valid error  // for a text that is only validated
	dirs  string // where the files are, "" for no files
}

// classed is an error of the API of a certain class.
type classed struct{ error }

// saying is an error with its own text.
type saying struct {
	error
	text string
}

func (s saying) Error() string { return s.text }
func (s saying) Unwrap() error { return s.error }

func (c classed) Error() string   { return "the api: " + c.error.Error() }
func (c classed) Is(e error) bool { return e == c.error }

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{t: t, memory: 7, node: "bootstrap", pid: 100, files: map[string]string{}, version: "v3.2.5 abc"}
	f.disk = "# _version=7\nglobal\n  node bootstrap\n"
	f.info = func() (dataplane.RuntimeInfo, error) { return dataplane.RuntimeInfo{Node: f.node, PID: f.pid}, nil }
	f.raw = func() (dataplane.Raw, error) {
		return dataplane.Raw{Config: dataplane.Split([]byte(f.disk)), Version: f.memory}, nil
	}
	f.post = f.commit
	f.create = func(dataplane.Storage, string) error { return nil }
	f.setting = func(string, string, dataplane.ServerChange) error { return nil }
	return f
}

// runningFake is a fake of version 3.4 of the API, whose worker runs what was bound.
func runningFake(t *testing.T, b bind.Bound) *fake {
	t.Helper()
	f := newFake(t)
	f.version = "v3.4.2"
	f.put(b)
	f.load()
	f.servers = asServers(b.Servers...)
	return f
}

// commit carries out a post.
func (f *fake) commit(text string, o dataplane.PostOptions) (dataplane.Posted, error) {
	if o.Version != f.memory {
		return dataplane.Posted{}, classed{dataplane.ErrConflict}
	}
	f.memory++
	f.disk = fmt.Sprintf("# _version=%d\n%s", f.memory, text)
	if o.ForceReload {
		f.load()
	}
	return dataplane.Posted{Config: dataplane.Split([]byte(f.disk)), Version: f.memory}, nil
}

// load makes the worker load the file on disk.
func (f *fake) load() {
	f.node, f.pid = readText([]byte(f.disk)).node, f.pid+1
}

// failReload commits, and then restores the file as the API does.
func (f *fake) failReload(text string, o dataplane.PostOptions) (dataplane.Posted, error) {
	old := f.disk
	o.ForceReload = false
	if _, err := f.commit(text, o); err != nil {
		return dataplane.Posted{}, err
	}
	f.disk = old
	return dataplane.Posted{}, classed{dataplane.ErrReload}
}

func (f *fake) note(format string, args ...any) {
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

func (f *fake) Info(context.Context) (dataplane.APIInfo, error) {
	f.asked = append(f.asked, "version of the API")
	return dataplane.APIInfo{Version: f.version}, nil
}
func (f *fake) RuntimeInfo(context.Context) (dataplane.RuntimeInfo, error) {
	f.asked = append(f.asked, "info")
	return f.info()
}
func (f *fake) Process(context.Context) (dataplane.Process, error) { return f.process, nil }

func (f *fake) Raw(context.Context) (dataplane.Raw, error) {
	f.asked = append(f.asked, "configuration")
	return f.raw()
}

func (f *fake) PostRaw(_ context.Context, config []byte, o dataplane.PostOptions) (dataplane.Posted, error) {
	config = append([]byte(o.Head), config...)
	if o.OnlyValidate {
		f.note("validate %s", readText(config).node)
		return dataplane.Posted{}, f.valid
	}
	how := "reload"
	if o.SkipReload {
		how = "no reload"
	}
	actions := ""
	for _, a := range o.Actions {
		actions += "; " + a.String()
	}
	f.note("post %s, %s%s", readText(config).node, how, actions)
	return f.post(string(config), o)
}

func (f *fake) Reload(context.Context, string) (dataplane.Reload, error) {
	return dataplane.Reload{Status: dataplane.ReloadSucceeded}, nil
}

func (f *fake) Transactions(context.Context) ([]dataplane.Transaction, error) {
	return []dataplane.Transaction{{ID: "1", Status: "failed"}, {ID: "2", Status: "in_progress"}}, nil
}

func (f *fake) DeleteTransaction(_ context.Context, id string) error {
	f.note("delete transaction %s", id)
	return nil
}

func (f *fake) Servers(_ context.Context, backend string) ([]dataplane.Server, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, "servers of "+backend)
	return f.servers[backend], nil
}

func (f *fake) AddServer(_ context.Context, backend string, s dataplane.DynamicServer) error {
	f.note("add %s/%s %s:%d", backend, s.Name, s.Address, s.Port)
	if f.adding != nil {
		return f.adding(backend, s)
	}
	if slices.ContainsFunc(f.servers[backend], func(o dataplane.Server) bool { return o.Name == s.Name }) {
		return classed{dataplane.ErrConflict}
	}
	f.servers[backend] = append(f.servers[backend], dataplane.Server{Name: s.Name, Address: strings.Trim(s.Address, "[]"), Port: s.Port, AdminState: dataplane.StateMaint})
	return nil
}

func (f *fake) DeleteServer(_ context.Context, backend, server string) error {
	f.note("delete %s/%s", backend, server)
	if f.deleting != nil {
		return f.deleting(backend, server)
	}
	before := len(f.servers[backend])
	f.servers[backend] = slices.DeleteFunc(f.servers[backend], func(s dataplane.Server) bool { return s.Name == server })
	if len(f.servers[backend]) == before {
		return classed{dataplane.ErrNotFound}
	}
	return nil
}

func (f *fake) SetServer(_ context.Context, backend, server string, ch dataplane.ServerChange) (dataplane.Server, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note("set %s/%s %s:%d %s%s", backend, server, ch.Address, ch.Port, ch.AdminState, map[bool]string{true: " up"}[ch.Up])
	if err := f.setting(backend, server, ch); err != nil {
		return dataplane.Server{}, err
	}
	for i := range f.servers[backend] {
		s := &f.servers[backend][i]
		if s.Name != server {
			continue
		}
		if ch.Address != "" {
			s.Address, s.Port = ch.Address, ch.Port
		}
		if ch.AdminState != "" {
			s.AdminState = ch.AdminState
		}
		return *s, nil
	}
	return dataplane.Server{}, nil
}

func (f *fake) Files(_ context.Context, s dataplane.Storage) ([]dataplane.File, error) {
	var out []dataplane.File
	for key := range f.files {
		if name, ok := strings.CutPrefix(key, string(s)+"/"); ok { // the API returns no more about a certificate either
			file := ""
			if f.dirs != "" {
				file = f.dirs + "/" + name
			}
			out = append(out, dataplane.File{Name: name, Path: file})
		}
	}
	return out, nil
}

func (f *fake) ReadFile(_ context.Context, s dataplane.Storage, name string) ([]byte, error) {
	content, ok := f.files[string(s)+"/"+name]
	if !ok {
		return nil, classed{dataplane.ErrNotFound}
	}
	return []byte(content), nil
}

func (f *fake) CreateFile(_ context.Context, s dataplane.Storage, name string, content []byte) error {
	f.note("create %s", name)
	if err := f.create(s, name); err != nil {
		return err
	}
	f.files[string(s)+"/"+name] = string(content)
	return nil
}

func (f *fake) ReplaceFile(_ context.Context, s dataplane.Storage, name string, content []byte) error {
	f.note("replace %s", name)
	f.files[string(s)+"/"+name] = string(content)
	return nil
}

func (f *fake) DeleteFile(_ context.Context, _ dataplane.Storage, name string) error {
	f.note("delete %s", name)
	return classed{dataplane.ErrConflict}
}

func (f *fake) RotateCertificate(_ context.Context, name string, pem []byte) (bool, string, error) {
	f.note("rotate %s", name)
	f.files[string(dataplane.Certificates)+"/"+name] = string(pem)
	return true, "", nil
}

func (f *fake) Certificate(_ context.Context, name string) (dataplane.File, error) {
	content, ok := f.files[string(dataplane.Certificates)+"/"+name]
	if !ok {
		return dataplane.File{}, classed{dataplane.ErrNotFound}
	}
	says, err := certinfo.Of([]byte(content))
	if err != nil {
		return dataplane.File{}, &dataplane.Error{Op: "get certificate", Status: http.StatusInternalServerError, Message: err.Error()}
	}
	return dataplane.File{Name: name, Serial: says.Serial, Size: int64(len(content)), NotBefore: says.NotBefore, NotAfter: says.NotAfter}, nil
}

func (f *fake) RuntimeCertificate(_ context.Context, path string) (dataplane.File, error) {
	block, _ := pem.Decode([]byte(f.served[path]))
	if block == nil {
		return dataplane.File{}, classed{dataplane.ErrNotFound}
	}
	hash := sha256.Sum256(block.Bytes)
	return dataplane.File{Name: path, Fingerprint: strings.ToUpper(hex.EncodeToString(hash[:]))}, nil
}

func (f *fake) RuntimeCertificates(context.Context) ([]string, error) { return f.loaded, f.unlisted }

func (f *fake) FrontendStatistics(context.Context) ([]dataplane.FrontendStatistics, error) {
	return f.frontends, nil
}

func (f *fake) RuntimeMaps(context.Context) (out []dataplane.RuntimeMap, _ error) {
	for _, name := range slices.Sorted(maps.Keys(f.maps)) {
		out = append(out, dataplane.RuntimeMap{Name: name, Entries: len(f.maps[name]) * max(1, f.countedTimes)})
	}
	return out, nil
}

func (f *fake) MapEntries(_ context.Context, name string) ([]dataplane.MapEntry, error) {
	f.mapsRead++
	return f.maps[name], nil
}

func (f *fake) MapEntry(_ context.Context, name, key string) (dataplane.MapEntry, error) {
	f.entriesRead++
	at := slices.IndexFunc(f.maps[name], func(e dataplane.MapEntry) bool { return e.Key == key })
	if at < 0 || f.unfound {
		return dataplane.MapEntry{}, classed{dataplane.ErrNotFound}
	}
	return f.maps[name][at], nil
}

// lost records a change of a map, and reports whether it has no effect.
func (f *fake) lost(format string, args ...any) bool {
	f.note(format, args...)
	f.lose--
	f.loseAt--
	return f.lose >= 0 || f.loseAt == 0
}

func (f *fake) AddMapEntries(_ context.Context, name string, entries []dataplane.MapEntry) error {
	if !f.lost("add %d to %s", len(entries), name) {
		f.maps[name] = append(f.maps[name], entries...)
	}
	return nil
}

func (f *fake) SetMapEntry(_ context.Context, name, key, value string) error {
	if !f.lost("set %s in %s", key, name) {
		for n, e := range f.maps[name] {
			if e.Key == key {
				f.maps[name][n].Value = value
			}
		}
	}
	return nil
}

func (f *fake) DeleteMapEntry(_ context.Context, name, key string) error {
	if !f.lost("take %s out of %s", key, name) {
		f.maps[name] = slices.DeleteFunc(f.maps[name], func(e dataplane.MapEntry) bool { return e.Key == key })
	}
	return nil
}

// updated makes updates until one is the last.
func updated(t *testing.T, i Instance, want Wanted, have Running) (Running, error) {
	t.Helper()
	have, err := i.Update(t.Context(), want, have)
	for err == nil && have.Unfinished {
		have, err = i.Update(t.Context(), want, have)
	}
	return have, err
}

// bound is a bound snapshot with servers and files.
func bound(revision uint64, servers []bind.Server, files ...bind.File) bind.Bound {
	id := snapshots.ID{Revision: revision, Short: fmt.Sprintf("%010d", revision)}
	b := bind.Bound{ID: id, Node: id.String() + "_aaaaaaaa", Servers: servers, Files: files}
	var text strings.Builder
	fmt.Fprintf(&text, "global\n    node %s\n\nbackend web\n", b.Node)
	for _, s := range servers {
		disabled := ""
		if s.State != bind.SlotReady {
			disabled = " disabled"
		}
		fmt.Fprintf(&text, "    server %s %s%s\n", s.Name, lineOf(s).address, disabled)
	}
	fmt.Fprintf(&text, "# hapsnap end %s\n", b.Node)
	b.Config = []byte(text.String())
	return b
}

func server(name, address string, state bind.SlotState) bind.Server {
	return bind.Server{Backend: "web", Name: name, Address: address, Port: 80, Weight: 1, State: state}
}
