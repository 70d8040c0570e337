package dataplane

import (
	"bytes"
	"context"
	"mime/multipart"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
)

// Storage is one of the API's folders.
type Storage string

// The folders. Certificate lists belong in General: there, creating one reloads
// nothing.
const (
	Maps         Storage = "maps"
	Certificates Storage = "ssl_certificates"
	General      Storage = "general"
)

// File is a file in a storage, or a certificate in the running worker.
type File struct {
	// Name is the one in the storage, see [SanitizeFilename].
	Name string
	// Path is absolute, as haproxy.cfg has to name it.
	Path string
	// Size is in bytes, 0 where the API does not say.
	Size int64
	// Serial is of a certificate: decimal from a storage, hexadecimal from the
	// worker. A storage says none of a chain in which it finds no leaf, such as where
	// that has no common name.
	Serial string
	// NotBefore and NotAfter are, from a storage, the latest and the earliest of all certificates
	// in the file; zero where the API does not say.
	NotBefore, NotAfter time.Time
	// Fingerprint is the certificate's SHA-256, else its SHA-1, in hexadecimal;
	// storages do not say it.
	Fingerprint string
}

type fileBody struct {
	StorageName string `json:"storage_name"`
	File        string `json:"file"`
	Size        int64  `json:"size"`
	Serial      string `json:"serial"`
	NotBefore   string `json:"not_before"`
	NotAfter    string `json:"not_after"`
	SHA1        string `json:"sha1_finger_print"`
	SHA256      string `json:"sha256_finger_print"`
}

func (b fileBody) file() File {
	f := File{Name: b.StorageName, Path: b.File, Size: b.Size, Serial: b.Serial, Fingerprint: b.SHA256}
	if f.Fingerprint == "" {
		f.Fingerprint = b.SHA1
	}
	f.NotBefore, _ = time.Parse(time.RFC3339, b.NotBefore) // those of a worker are in words
	f.NotAfter, _ = time.Parse(time.RFC3339, b.NotAfter)
	return f
}

// Files lists a storage. Of Certificates it lists only what parses as a
// certificate with its key.
func (c *Client) Files(ctx context.Context, s Storage) ([]File, error) {
	var bodies []fileBody
	if _, err := c.getJSON(ctx, "list "+string(s), s.path(""), &bodies); err != nil {
		return nil, err
	}
	files := make([]File, 0, len(bodies))
	for _, b := range bodies {
		files = append(files, b.file())
	}
	return files, nil
}

// ReadFile returns the content of a file of Maps or General. The API shows no
// certificate's content: ErrUnsupported.
func (c *Client) ReadFile(ctx context.Context, s Storage, name string) ([]byte, error) {
	op := "read " + string(s)
	if s == Certificates {
		return nil, &Error{Op: op, Message: "the content of a certificate cannot be read", kind: ErrUnsupported}
	}
	a, err := c.do(ctx, call{op: op, method: http.MethodGet, path: s.path(name), ok: []int{http.StatusOK}})
	return a.body, err
}

// Certificate returns what the API says of a certificate on disk.
func (c *Client) Certificate(ctx context.Context, name string) (File, error) {
	var body fileBody
	_, err := c.getJSON(ctx, "get certificate", Certificates.path(name), &body)
	return body.file(), err
}

// CreateFile writes a file that is not there yet, to disk only; ErrConflict when
// it is. The name is sanitised, and a map's gets its ".map". A certificate must
// hold its key, of RSA or ECDSA.
func (c *Client) CreateFile(ctx context.Context, s Storage, name string, content []byte) error {
	body, contentType := upload(name, content)
	_, err := c.do(ctx, call{
		op: "create " + string(s), method: http.MethodPost, path: s.path(""), query: s.quietly(),
		body: body, contentType: contentType, ok: []int{http.StatusCreated},
	})
	return err
}

// ReplaceFile writes a file that is there, to disk only; ErrNotFound when it is
// not. The API takes no empty map here.
func (c *Client) ReplaceFile(ctx context.Context, s Storage, name string, content []byte) error {
	body, contentType := content, "text/plain"
	if s == General {
		body, contentType = upload(name, content)
	}
	_, err := c.do(ctx, call{
		op: "replace " + string(s), method: http.MethodPut, path: s.path(name),
		query: url.Values{"skip_reload": {"true"}}, body: body, contentType: contentType,
		ok: []int{http.StatusOK, http.StatusNoContent},
	})
	return err
}

// RotateCertificate replaces a certificate on disk and in the running worker.
// live says that the worker has it; if not, the API scheduled a reload that will
// load it, and reloadID names that.
func (c *Client) RotateCertificate(ctx context.Context, name string, pem []byte) (live bool, reloadID string, err error) {
	a, err := c.do(ctx, call{
		op: "rotate certificate", method: http.MethodPut, path: Certificates.path(name),
		body: pem, contentType: "text/plain", ok: []int{http.StatusOK, http.StatusAccepted},
	})
	if err != nil {
		return false, "", err
	}
	return a.status == http.StatusOK, a.header.Get("Reload-ID"), nil
}

// DeleteFile removes a file from the disk; the worker keeps what it has loaded.
// ErrConflict says that haproxy.cfg names its path. That is all the API checks: a
// file that is in use through a list or a relative path goes without a word.
func (c *Client) DeleteFile(ctx context.Context, s Storage, name string) error {
	_, err := c.do(ctx, call{
		op: "delete " + string(s), method: http.MethodDelete, path: s.path(name), query: s.quietly(),
		ok: []int{http.StatusNoContent},
	})
	return err
}

func (s Storage) path(name string) string {
	p := "/services/haproxy/storage/" + string(s)
	if name == "" {
		return p
	}
	return p + "/" + url.PathEscape(name)
}

// quietly asks for no reload where creating or deleting would cause one.
func (s Storage) quietly() url.Values {
	if s == Certificates {
		return url.Values{"skip_reload": {"true"}}
	}
	return nil
}

// upload renders the multipart form in which the API takes files.
func upload(name string, content []byte) (body []byte, contentType string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part, _ := w.CreateFormFile("file_upload", name) // a buffer takes everything
	_, _ = part.Write(content)
	_ = w.Close()
	return b.Bytes(), w.FormDataContentType()
}

// SanitizeFilename returns the name that a storage gives to a file. What follows
// the last dot is the extension; in it and in the rest, each run of characters
// other than A-Z, a-z, 0-9, "_", "-" and "\" becomes one "_". Two names can become
// one; haproxy.cfg must use the sanitised one.
func SanitizeFilename(name string) string {
	stem, ext, dotted := cutLast(name)
	if stem != "" {
		stem = replaceRuns(path.Clean(stem))
	}
	switch {
	case !dotted:
		return stem
	case stem == "":
		return "_" + replaceRuns(ext)
	default:
		return stem + "." + replaceRuns(ext)
	}
}

// cutLast splits at the last dot of the last path element.
func cutLast(name string) (stem, ext string, dotted bool) {
	i := strings.LastIndexAny(name, "./")
	if i < 0 || name[i] == '/' {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}

func replaceRuns(s string) string {
	var b strings.Builder
	inRun := false
	for _, r := range s {
		if keptInName(r) {
			b.WriteRune(r)
			inRun = false
		} else if !inRun {
			b.WriteByte('_')
			inRun = true
		}
	}
	return b.String()
}

func keptInName(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
		r == '_' || r == '-' || r == '\\'
}
