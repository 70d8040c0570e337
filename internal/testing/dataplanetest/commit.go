package dataplanetest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

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

// setAside keeps a copy of what could not be committed, for ever.
func (a *api) setAside(folder, id string) {
	if err := os.MkdirAll(filepath.Join(a.paths.Transactions, folder), 0o755); err == nil {
		_ = os.Rename(a.transactionFile("", id), a.transactionFile(folder, id))
	}
}

func (a *api) versionMismatch(given int64) error {
	return failf(http.StatusConflict, "version mismatch: version in configuration file is %d, given version is %d",
		a.currentVersion(), given)
}

// commit makes a document the configuration: it is written, validated as it will
// be on disk, and only then put there and into memory. With anyVersion its version
// stays as it is and no other is looked at.
func (a *api) commit(ctx context.Context, id string, doc document, anyVersion bool) error {
	a.commits.Lock()
	defer a.commits.Unlock()
	began := time.Now()
	// Asking for the version gives one to a text that has none.
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

// validate runs HAProxy on the text as it will be, in the folder of transactions:
// its line numbers are those of the normal form.
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

// edit changes a copy of the memory and commits it, as each structured change
// does that names no transaction.
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
