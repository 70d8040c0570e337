package dataplanetest

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
		// The API is run without backups, so no older file is ever there.
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
	return a.loadConfig(w, r)
}

// loadConfig has the new file loaded, or not, as the request says.
func (a *api) loadConfig(w http.ResponseWriter, r *http.Request) error {
	switch {
	case flag(r, "skip_reload"):
		if err := a.runtimeActions(r.Context(), r.Header.Get("X-Runtime-Actions")); err != nil {
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

// onlyValidate checks the text as it was given, not in normal form, and leaves
// no trace.
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

// replaceConfig commits a whole text. With skipVersion the version is the one in
// the text, else 1.
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
