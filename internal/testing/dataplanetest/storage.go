package dataplanetest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

// storageAPI is the files beside haproxy.cfg.
type storageAPI struct{ *api }

// folder is one of the API's storages.
type folder struct {
	api         storageAPI
	dir         string
	suffix      string // given to new names that lack it
	description string // in lists
	created     string // of a new file
	multipart   bool   // how a replacement comes
}

func (a storageAPI) routes(service func(string, handler)) {
	maps := folder{
		api: a, dir: a.paths.Maps, suffix: ".map", description: "managed map file",
		created: "managed but not loaded map file (no runtime ID)",
	}
	general := folder{
		api: a, dir: a.paths.General, multipart: true,
		description: "managed general use file", created: "managed general use file",
	}
	for name, f := range map[string]folder{"maps": maps, "general": general} {
		service("GET /storage/"+name, f.list)
		service("POST /storage/"+name, f.create)
		service("GET /storage/"+name+"/{name}", f.read)
		service("PUT /storage/"+name+"/{name}", f.replace)
		service("DELETE /storage/"+name+"/{name}", f.remove)
	}
	a.certRoutes(service)
	a.crtListRoutes(service)
}

// existing returns the path of a stored file. The name in a URL is sanitised like
// the name of an upload.
func (f folder) existing(name string) (string, error) {
	name = dataplane.SanitizeFilename(name)
	if name == "" {
		return "", fmt.Errorf("no file name")
	}
	path := filepath.Join(f.dir, name)
	if _, err := os.Stat(path); err != nil {
		return "", failf(http.StatusNotFound, "missing object: file %s doesn't exist in dir: %s", name, f.dir)
	}
	return path, nil
}

// vacant returns the path that a new file gets.
func (f folder) vacant(name string) (string, error) {
	name = dataplane.SanitizeFilename(name)
	if !strings.HasSuffix(name, f.suffix) {
		name += f.suffix
	}
	path := filepath.Join(f.dir, name)
	if _, err := os.Stat(path); err == nil {
		return "", failf(http.StatusConflict, "object already exists: file %s already exists", path)
	}
	return path, nil
}

func (f folder) list(w http.ResponseWriter, _ *http.Request) error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	files := []fileInfo{}
	for _, e := range entries {
		if !e.IsDir() && strings.HasSuffix(e.Name(), f.suffix) {
			files = append(files, fileInfo{
				Description: f.description, File: filepath.Join(f.dir, e.Name()), StorageName: e.Name(),
			})
		}
	}
	writeBody(w, http.StatusOK, files)
	return nil
}

func (f folder) read(w http.ResponseWriter, r *http.Request) error {
	path, err := f.existing(r.PathValue("name"))
	if err != nil {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(content) // the client may have gone
	return nil
}

// create never reloads: nothing can name a file that was not there.
func (f folder) create(w http.ResponseWriter, r *http.Request) error {
	name, content, err := f.api.readUpload(r)
	if err != nil {
		return err
	}
	path, err := f.vacant(name)
	if err != nil {
		return err
	}
	if err := store(r.Context(), path, content); err != nil {
		return err
	}
	size := len(content)
	writeBody(w, http.StatusCreated, fileInfo{
		Description: f.created, File: path, StorageName: filepath.Base(path), Size: &size,
	})
	return nil
}

func (f folder) replace(w http.ResponseWriter, r *http.Request) error {
	content, err := f.replacement(r)
	if err != nil {
		return err
	}
	path, err := f.existing(r.PathValue("name"))
	if err != nil {
		return err
	}
	if err := store(r.Context(), path, content); err != nil {
		return err
	}
	return f.api.loadFile(w, r, http.StatusNoContent, nil)
}

func (f folder) replacement(r *http.Request) ([]byte, error) {
	if f.multipart {
		_, content, err := f.api.readUpload(r)
		return content, err
	}
	return f.api.readText(r)
}

func (f folder) remove(w http.ResponseWriter, r *http.Request) error {
	if err := f.unlink(r); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// unlink removes a file unless haproxy.cfg names its path. That is all that is
// looked at: a longer path that begins so counts, a list that names it does not.
func (f folder) unlink(r *http.Request) error {
	path, err := f.existing(r.PathValue("name"))
	if err != nil {
		return err
	}
	f.api.mu.RLock()
	text := f.api.memory.body()
	f.api.mu.RUnlock()
	n := 0
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.Contains(line, path) && !strings.HasPrefix(line, "#") {
			return failf(http.StatusConflict,
				"rejecting attempt to delete file %s referenced in haproxy conf at line %d: %s", path, n-1, line)
		}
		n++
	}
	return os.Remove(path)
}

// loadFile answers a change of a file that the worker may have loaded.
func (a storageAPI) loadFile(w http.ResponseWriter, r *http.Request, done int, body any) error {
	switch {
	case flag(r, "skip_reload"):
	case flag(r, "force_reload"):
		if err := a.agent.force(r.Context()); err != nil {
			return err
		}
	default:
		w.Header().Set("Reload-ID", a.agent.schedule(r.Context()))
		done = http.StatusAccepted
	}
	if body == nil {
		w.WriteHeader(done)
	} else {
		writeBody(w, done, body)
	}
	return nil
}
