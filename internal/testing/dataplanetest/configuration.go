package dataplanetest

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

func (a *api) getVersion(w http.ResponseWriter, _ *http.Request) error {
	writeBody(w, http.StatusOK, a.currentVersion())
	return nil
}

func (a *api) getRaw(w http.ResponseWriter, r *http.Request) error {
	path := a.paths.config
	version, err := a.queryVersion(r)
	if err != nil {
		return err
	}
	if version != 0 {
		// The API runs without backups, so there is never an older file.
		return failf(http.StatusNotFound, "missing object: backup file for version %d does not exist", version)
	}
	if id := r.URL.Query().Get("transaction_id"); id != "" {
		if path = a.findTransaction(id); path == "" {
			return failf(http.StatusBadRequest, "transaction does not exist: transaction file %s does not exist", id)
		}
	}
	return sendConfig(w, path, http.StatusOK)
}

// sendConfig answers with a file as it is on disk.
func sendConfig(w http.ResponseWriter, path string, status int) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if sum := fileChecksum(string(text)); sum != "" {
		w.Header().Set("Configuration-Checksum", sum)
	}
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client may have gone
	return nil
}

func (a *api) postRaw(w http.ResponseWriter, r *http.Request) error {
	err := a.acceptRaw(w, r)
	if err != nil && a.version == V32 {
		w.Header().Set("Content-Type", "text/plain")
	}
	return err
}

func (a *api) acceptRaw(w http.ResponseWriter, r *http.Request) error {
	text, err := a.readConfig(r)
	if err != nil {
		return err
	}
	version, err := a.queryVersion(r)
	if err != nil {
		return err
	}
	if flag(r, "only_validate") {
		if err := a.onlyValidate(r.Context(), text); err != nil {
			return err
		}
		return sendConfig(w, a.paths.config, http.StatusAccepted)
	}
	if err := a.replaceConfig(r.Context(), text, version, flag(r, "skip_version")); err != nil {
		return err
	}
	// Whether the new file is loaded depends on the request.
	switch {
	case flag(r, "skip_reload"):
		if err := (runtimeAPI{a}).runtimeActions(r.Context(), r.Header.Get("X-Runtime-Actions")); err != nil {
			return err
		}
		return sendConfig(w, a.paths.config, http.StatusCreated)
	case flag(r, "force_reload"):
		if err := a.agent.force(r.Context()); err != nil {
			return err
		}
		return sendConfig(w, a.paths.config, http.StatusCreated)
	default:
		w.Header().Set("Reload-ID", a.agent.schedule(r.Context()))
		return sendConfig(w, a.paths.config, http.StatusAccepted)
	}
}

func (a *api) readConfig(r *http.Request) (string, error) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "text/plain" {
		return "", failf(http.StatusUnsupportedMediaType,
			"unsupported media type %q, only [text/plain] are allowed", r.Header.Get("Content-Type"))
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return "", err
	}
	if len(body) == 0 {
		return "", a.schemaFailure(602, "data in body is required", "request body has an error: value is required but missing")
	}
	if !strings.Contains(string(body), "\n") {
		return "", failf(http.StatusBadRequest, "invalid configuration: no newline character found")
	}
	return string(body), nil
}

// onlyValidate checks the text as it was sent, not in normal form, and leaves no trace.
func (a *api) onlyValidate(ctx context.Context, text string) error {
	tmp, err := os.CreateTemp("", "onlyvalidate")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if _, err := tmp.WriteString(text); err != nil {
		return err
	}
	return a.haproxy.check(ctx, tmp.Name(), "")
}

// replaceConfig commits a whole text. With skipVersion the version is the one in the text, else 1.
func (a *api) replaceConfig(ctx context.Context, text string, version int64, skipVersion bool) error {
	if !skipVersion {
		if version == 0 {
			return errNoVersion
		}
		if version != a.currentVersion() {
			return a.versionMismatch(version)
		}
		text = fmt.Sprintf("# _version=%s\n%s", strconv.FormatInt(version, 10), dropVersion(text))
	}
	doc, err := parseDocument(text)
	if err != nil {
		return err
	}
	id := newID()
	if err := os.MkdirAll(a.paths.Transactions, 0o755); err != nil {
		return err
	}
	if err := store(ctx, filepath.Clean(a.transactionFile("", id)), []byte(text)); err != nil {
		return err
	}
	return a.commit(ctx, id, doc, skipVersion)
}

// check runs haproxy -c on a file and puts its output into the API's words.
func (h *haproxy) check(ctx context.Context, file, heading string) error {
	// A client that leaves does not end what it began.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), h.binary, "-W", "-f", file, "-c")
	cmd.Env = h.env
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return failf(http.StatusBadRequest, "validation error: %s: %s", err, heading+alerts(stderr.String()))
	}
	return nil
}

// alerts keeps the alerts of HAProxy's output, one a line, and drops the rest: the API never passes on
// warnings.
func alerts(output string) string {
	var lines []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "[ALERT]") {
			continue
		}
		if _, text, found := strings.Cut(line, " : "); found {
			text = strings.ReplaceAll(text, " : ", " ")
			lines = append(lines, fmt.Sprintf("msg=\"%s\"", strings.TrimSpace(text)))
		}
	}
	return strings.Join(lines, "\n")
}

// newID returns a random UUID, version 4.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (a *api) transactionFile(folder, id string) string {
	return filepath.Join(a.paths.Transactions, folder, filepath.Base(a.paths.config)+"."+id)
}

// setAside keeps a copy of a configuration that could not be committed, forever.
func (a *api) setAside(folder, id string) {
	if err := os.MkdirAll(filepath.Join(a.paths.Transactions, folder), 0o755); err == nil {
		_ = os.Rename(a.transactionFile("", id), a.transactionFile(folder, id))
	}
}

func (a *api) versionMismatch(given int64) error {
	return failf(http.StatusConflict, "version mismatch: version in configuration file is %d, given version is %d",
		a.currentVersion(), given)
}

// commit makes a document the configuration. It writes the document, validates it as it will be on disk, and
// only then puts it there and into memory. With anyVersion it neither changes nor checks versions.
func (a *api) commit(ctx context.Context, id string, doc document, anyVersion bool) error {
	a.commits.Lock()
	defer a.commits.Unlock()
	began := time.Now()
	// Reading the version gives one to a text that has none.
	if version, current := doc.version(), a.currentVersion(); !anyVersion && version != current {
		a.setAside("outdated", id)
		return failf(http.StatusConflict, "version mismatch: version mismatch, transaction version: %d, configured version: %d",
			version, current)
	}
	if err := a.validate(ctx, id, doc); err != nil {
		a.setAside("failed", id)
		return err
	}
	if !anyVersion {
		doc.incrementVersion()
	}
	text, err := doc.render()
	if err != nil {
		return err
	}
	if err := store(ctx, a.paths.config, []byte(text)); err != nil {
		a.setAside("failed", id)
		return err
	}
	_ = os.Remove(a.transactionFile("", id))
	a.costs(ctx, began, text)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.memory = doc
	return nil
}

// validate runs HAProxy on the text in its final form, in the folder of transactions: its line numbers are
// those of the normal form.
func (a *api) validate(ctx context.Context, id string, doc document) error {
	text, err := doc.render()
	if err != nil {
		return err
	}
	file := a.transactionFile("", id)
	if err := store(ctx, file, []byte(text)); err != nil {
		return err
	}
	return a.haproxy.check(ctx, file, fmt.Sprintf("err transactionId=%s \n", id))
}

// edit changes a copy of the memory and commits it, as each structured change without a transaction does.
func (a *api) edit(ctx context.Context, version int64, change func(document) error) error {
	if version == 0 {
		return errNoVersion
	}
	if version != a.currentVersion() {
		return a.versionMismatch(version)
	}
	doc, err := a.copyOfMemory()
	if err != nil {
		return err
	}
	if err := change(doc); err != nil {
		return err
	}
	return a.commit(ctx, newID(), doc, false)
}

var errNoVersion = failf(http.StatusBadRequest,
	"version or transaction not specified: version or transaction not specified, specify only one")

func (a *api) copyOfMemory() (document, error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return parseDocument(a.memory.body())
}

// MeasuredCost is how long a commit of a configuration with so many backends takes, of three checked servers
// each, for a whole post as for one structured change. It was measured with v3.2.5 and HAProxy 3.2: 34 ms for
// 100 backends, 128 ms for 1,000 and 1.1 s for 10,000. v3.4.2 takes the same within a tenth.
func MeasuredCost(backends int) time.Duration {
	return 20*time.Millisecond + time.Duration(backends)*108*time.Microsecond
}

// costs makes a commit take as long as it would with the real API, counted from its begin. As there, no other
// commit can begin meanwhile. It adds nothing if the double itself took that long.
func (a *api) costs(ctx context.Context, began time.Time, text string) {
	if a.told.Cost == nil {
		return
	}
	left := a.told.Cost(strings.Count(text, "\nbackend ")) - time.Since(began)
	if left <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(left):
	}
}

// watch notices when somebody else edits the configuration file. Then it reads the text into memory, increments
// its version, and writes it back in normal form. It reloads nothing.
func (a *api) watch(ctx context.Context) (func(), error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch configuration: %w", err)
	}
	if err := watcher.Add(filepath.Dir(a.paths.config)); err != nil {
		watcher.Close()
		return nil, fmt.Errorf("watch configuration: %w", err)
	}
	return func() {
		defer watcher.Close()
		for {
			select {
			case <-ctx.Done():
				return
			case _, open := <-watcher.Errors:
				if !open {
					return
				}
			case event, open := <-watcher.Events:
				if !open {
					return
				}
				if event.Name == a.paths.config && event.Op&(fsnotify.Write|fsnotify.Create) != 0 {
					a.adoptEdit(ctx)
				}
			}
		}
	}, nil
}

// adoptEdit reads a file whose hash is wrong. The API writes files with the right hash, so its own writes do
// not count as edits. A file without a hash, such as a restored first one, does. It also reads the users in the
// file again, and without any the API dies.
func (a *api) adoptEdit(ctx context.Context) {
	a.commits.Lock()
	defer a.commits.Unlock()
	text, err := os.ReadFile(a.paths.config)
	if err != nil || ctx.Err() != nil || ownHash(string(text)) {
		return
	}
	doc, err := parseDocument(string(text))
	if err != nil {
		return
	}
	if a.told.UsersInConfig {
		users, err := doc.users(a.paths.config)
		if err != nil {
			a.died()
			return
		}
		a.users.Store(&users)
	}
	doc.insertDisclaimer()
	doc.incrementVersion()
	normal, err := doc.render()
	if err != nil || writeFile(a.paths.config, []byte(normal)) != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.memory = doc
}

func ownHash(text string) bool {
	first, _, _ := strings.Cut(text, "\n")
	hash, found := strings.CutPrefix(first, "# _md5hash=")
	return found && hash == dataplane.Checksum([]byte(text))
}
