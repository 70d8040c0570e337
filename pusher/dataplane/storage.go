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

// These are the folders. Certificate lists belong in General, where creating one causes no reload.
const (
	Maps         Storage = "maps"
	Certificates Storage = "ssl_certificates"
	General      Storage = "general"
)

// File is a file in a storage, or a certificate in the running worker.
type File struct {
	// Name is the name in the storage, see [SanitizeFilename].
	Name string
	// Path is the absolute path, as haproxy.cfg has to name it.
	Path string
	// Size is in bytes. It is 0 if the API does not say it.
	Size int64
	// Serial is the serial number of a certificate: in decimal from a storage, and in hexadecimal from the
	// worker. A storage does not say it for a chain in which it finds no leaf, such as one whose leaf has no
	// common name.
	Serial string
	// NotBefore and NotAfter from a storage are the latest and the earliest of all certificates in the file.
	// They are zero if the API does not say them.
	NotBefore, NotAfter time.Time
	// Fingerprint is the SHA-256 of the certificate, or else its SHA-1, in hexadecimal. Storages do not say
	// it.
	Fingerprint string
	// Unused is set if the worker has loaded the certificate, and serves it nowhere.
	Unused bool
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
	Status      string `json:"status"`
}

func (b fileBody) file() File {
	f := File{Name: b.StorageName, Path: b.File, Size: b.Size, Serial: b.Serial, Fingerprint: b.SHA256, Unused: b.Status == "Unused"}
	if f.Fingerprint == "" {
		f.Fingerprint = b.SHA1
	}
	f.NotBefore, _ = time.Parse(time.RFC3339, b.NotBefore) // the worker's dates have another form
	f.NotAfter, _ = time.Parse(time.RFC3339, b.NotAfter)
	return f
}

// Files lists a storage. For Certificates, the API lists only files that it can read as a certificate with
// its key.
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

// ReadFile returns the content of a file in Maps or General. The API never returns a certificate's content,
// so the error is ErrUnsupported for Certificates.
func (c *Client) ReadFile(ctx context.Context, s Storage, name string) ([]byte, error) {
	op := "read " + string(s)
	if s == Certificates {
		return nil, &Error{Op: op, Message: "the content of a certificate cannot be read", kind: ErrUnsupported}
	}
	a, err := c.do(ctx, call{op: op, method: http.MethodGet, path: s.path(name), ok: []int{http.StatusOK}})
	return a.body, err
}

// Certificate returns what the API says about a certificate on disk.
func (c *Client) Certificate(ctx context.Context, name string) (File, error) {
	var body fileBody
	_, err := c.getJSON(ctx, "get certificate", Certificates.path(name), &body)
	return body.file(), err
}

// CreateFile writes a new file to disk only. The error is ErrConflict if the file exists. The API sanitizes
// the name, and appends ".map" to the name of a map. A certificate must come with its key, of type RSA or
// ECDSA.
func (c *Client) CreateFile(ctx context.Context, s Storage, name string, content []byte) error {
	body, contentType := upload(name, content)
	_, err := c.do(ctx, call{
		op: "create " + string(s), method: http.MethodPost, path: s.path(""), query: s.quietly(),
		body: body, contentType: contentType, ok: []int{http.StatusCreated},
	})
	return err
}

// ReplaceFile overwrites an existing file on disk only. The error is ErrNotFound if there is none. The API
// refuses an empty map here.
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

// RotateCertificate replaces a certificate on disk and in the running worker. live is set if the worker has
// it. Otherwise the API has scheduled a reload that will load it, and reloadID names that.
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

// DeleteFile removes a file from the disk. The worker keeps what it has loaded. The error is ErrConflict if
// haproxy.cfg names the path. The API checks nothing else: it deletes a file that is in use through a list or
// a relative path.
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

// quietly returns the parameter that prevents a reload when the API would make one for a new or deleted file.
func (s Storage) quietly() url.Values {
	if s == Certificates {
		return url.Values{"skip_reload": {"true"}}
	}
	return nil
}

// upload renders the multipart form in which the API accepts files.
func upload(name string, content []byte) (body []byte, contentType string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part, _ := w.CreateFormFile("file_upload", name) // writing to a buffer cannot fail
	_, _ = part.Write(content)
	_ = w.Close()
	return b.Bytes(), w.FormDataContentType()
}

// SanitizeFilename returns the name that a storage gives to a file. The extension is what follows the last
// dot. In both parts, each run of characters other than A-Z, a-z, 0-9, "_", "-" and "\" becomes one "_". Two
// names can become the same. haproxy.cfg must use the sanitized one.
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

// cutLast splits a path at the last dot of its last element.
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
