package dataplanetest

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest/certinfo"
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
	certificates := certFolder{folder{api: a, dir: a.paths.Certificates}}
	service("GET /storage/ssl_certificates", certificates.list)
	service("POST /storage/ssl_certificates", certificates.create)
	service("GET /storage/ssl_certificates/{name}", certificates.describe)
	service("PUT /storage/ssl_certificates/{name}", certificates.replace)
	service("DELETE /storage/ssl_certificates/{name}", certificates.remove)
	lists := crtListFolder{folder{
		api: a, dir: a.paths.Certificates, description: "managed certificate list", created: "managed certificate list",
	}}
	service("GET /storage/ssl_crt_lists", lists.list)
	service("POST /storage/ssl_crt_lists", lists.create)
	service("GET /storage/ssl_crt_lists/{name}", lists.read)
	service("PUT /storage/ssl_crt_lists/{name}", lists.replace)
	service("DELETE /storage/ssl_crt_lists/{name}", lists.remove)
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

// vacant returns the path for a new file.
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

// create never reloads, since nothing can name a new file.
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

// unlink removes a file unless haproxy.cfg contains its path. The check is no better than that: a longer path
// with this beginning counts, a list that names the file does not.
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

// certFolder is the storage of certificates, which tries to give the worker a stored certificate before it
// falls back to a reload.
type certFolder struct{ folder }

// list shows only files that would be accepted.
func (f certFolder) list(w http.ResponseWriter, _ *http.Request) error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	files := []fileInfo{}
	for _, e := range entries {
		path := filepath.Join(f.dir, e.Name())
		content, err := os.ReadFile(path)
		if err == nil && checkPEM(content) == nil {
			files = append(files, fileInfo{Description: "managed SSL file", File: path, StorageName: e.Name()})
		}
	}
	writeBody(w, http.StatusOK, files)
	return nil
}

func (f certFolder) describe(w http.ResponseWriter, r *http.Request) error {
	path, err := f.existing(r.PathValue("name"))
	if err != nil {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	info, err := certInfo(path, content)
	if err != nil {
		return err
	}
	writeBody(w, http.StatusOK, info)
	return nil
}

func (f certFolder) create(w http.ResponseWriter, r *http.Request) error {
	name, content, err := f.api.readUpload(r)
	if err != nil {
		return err
	}
	path, err := f.vacant(name)
	if err != nil {
		return err
	}
	return f.put(w, r, path, content, http.StatusCreated, runtimeAPI(f.api).newCert)
}

func (f certFolder) replace(w http.ResponseWriter, r *http.Request) error {
	content, err := f.api.readText(r)
	if err != nil {
		return err
	}
	path, err := f.existing(r.PathValue("name"))
	if err != nil {
		return err
	}
	return f.put(w, r, path, content, http.StatusOK, runtimeAPI(f.api).setCert)
}

// put stores a certificate and, unless the request says how to load it, gives it to the worker. It reloads only
// if that fails.
func (f certFolder) put(w http.ResponseWriter, r *http.Request, path string, content []byte, done int, give runtimeCertCall) error {
	if err := checkPEM(content); err != nil {
		return err
	}
	if err := store(r.Context(), path, content); err != nil {
		return err
	}
	info, err := certInfo(path, content)
	if err != nil {
		return err
	}
	if !flag(r, "skip_reload") && !flag(r, "force_reload") && faultOf(r.Context()).kind != certificateReload {
		if err := give(r.Context(), path, string(content)); err == nil {
			writeBody(w, done, info)
			return nil
		}
	}
	return f.api.loadFile(w, r, done, info)
}

// remove removes the certificate from the worker since 3.4, by the name of the file, by which the worker knows
// only certificates from the runtime API. Otherwise it reloads.
func (f certFolder) remove(w http.ResponseWriter, r *http.Request) error {
	if err := f.unlink(r); err != nil {
		return err
	}
	if f.api.version == V34 && !flag(r, "skip_reload") && !flag(r, "force_reload") {
		if _, err := f.api.haproxy.worker(r.Context(), "del ssl cert "+r.PathValue("name")); err == nil {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
	}
	return f.api.loadFile(w, r, http.StatusNoContent, nil)
}

// crtListFolder is the storage of certificate lists, in the folder of certificates. Each of its changes
// reloads.
type crtListFolder struct{ folder }

// list shows only names that end in .txt.
func (f crtListFolder) list(w http.ResponseWriter, r *http.Request) error {
	txt := f.folder
	txt.suffix = ".txt"
	return txt.list(w, r)
}

func (f crtListFolder) create(w http.ResponseWriter, r *http.Request) error {
	name, content, err := f.api.readUpload(r)
	if err != nil {
		return err
	}
	path, err := f.vacant(name)
	if err != nil {
		return err
	}
	if len(content) == 0 { // the API panics, past what sets the version
		if v, ok := w.(*versioned); ok {
			v.written = true
		}
		return failf(http.StatusInternalServerError, "runtime error: index out of range [-1]")
	}
	if err := store(r.Context(), path, withFinalNewline(content)); err != nil {
		return err
	}
	info := f.info(path, len(content))
	if flag(r, "force_reload") {
		return f.api.loadFile(w, r, http.StatusCreated, info)
	}
	w.Header().Set("Reload-ID", f.api.agent.schedule(r.Context())) // skip_reload is no parameter here
	writeBody(w, http.StatusAccepted, info)
	return nil
}

func (f crtListFolder) replace(w http.ResponseWriter, r *http.Request) error {
	content, err := f.api.readText(r)
	if err != nil {
		return err
	}
	path, err := f.existing(r.PathValue("name"))
	if err != nil {
		return err
	}
	if err := store(r.Context(), path, withFinalNewline(content)); err != nil {
		return err
	}
	return f.api.loadFile(w, r, http.StatusOK, f.info(path, len(content)))
}

func (f crtListFolder) remove(w http.ResponseWriter, r *http.Request) error {
	if err := f.unlink(r); err != nil {
		return err
	}
	return f.api.loadFile(w, r, http.StatusNoContent, nil)
}

func (f crtListFolder) info(path string, size int) fileInfo {
	return fileInfo{Description: f.created, File: path, StorageName: filepath.Base(path), Size: &size}
}

func withFinalNewline(content []byte) []byte {
	if content[len(content)-1] == '\n' {
		return content
	}
	return append(content, '\n')
}

var (
	errNoCertificate = errors.New("failed to parse certificate")
	errNoKey         = errors.New("file should contain both certificate and private key")
)

// checkPEM requires a certificate and a key of RSA or ECDSA in one file. It does not check that they belong
// together.
func checkPEM(content []byte) error {
	if !x509.NewCertPool().AppendCertsFromPEM(content) {
		return errNoCertificate
	}
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" && usableKey(block.Bytes) {
			return nil
		}
	}
	return errNoKey
}

func usableKey(der []byte) bool {
	if _, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return true
	}
	if _, err := x509.ParseECPrivateKey(der); err == nil {
		return true
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return false
	}
	switch key.(type) {
	case *rsa.PrivateKey, *ecdsa.PrivateKey:
		return true
	default:
		return false
	}
}

// fileInfo returns what the API reports about a stored file.
type fileInfo struct {
	Description string `json:"description,omitempty"`
	File        string `json:"file,omitempty"`
	StorageName string `json:"storage_name,omitempty"`
	Size        *int   `json:"size,omitempty"`

	Issuers     string     `json:"issuers,omitempty"`
	NotAfter    *time.Time `json:"not_after,omitempty"`
	NotBefore   *time.Time `json:"not_before,omitempty"`
	Serial      string     `json:"serial,omitempty"`
	Subject     string     `json:"subject,omitempty"`
	Domains     string     `json:"domains,omitempty"`
	IPAddresses string     `json:"ip_addresses,omitempty"`
}

// certInfo describes a certificate as the real API does: never its content, and no hash of it. A chain without
// a recognisable leaf has no serial number.
func certInfo(path string, content []byte) (fileInfo, error) {
	info := fileInfo{Description: "managed SSL file", File: path, StorageName: filepath.Base(path)}
	size := len(content)
	info.Size = &size
	found, err := certinfo.Of(content)
	if err != nil {
		return info, err
	}
	info.Issuers, info.Subject, info.Serial = found.Issuers, found.Subject, found.Serial
	info.NotBefore, info.NotAfter, info.Domains, info.IPAddresses = &found.NotBefore, &found.NotAfter, found.Domains, found.Addresses
	return info, nil
}
