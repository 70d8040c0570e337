package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/internal/manifests"
)

// certificate is a key pair in a directory, under the names that a Secret of
// type kubernetes.io/tls is mounted with. It may be used by several goroutines.
type certificate struct {
	dir string
	log *slog.Logger

	mu      sync.RWMutex
	current *tls.Certificate // nil until there is one
	wrong   error            // with what is in the directory, or nil
}

// get returns the pair for a new connection.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.current == nil {
		return nil, c.wrong
	}
	return c.current, nil
}

// ready returns why nobody can be served, or nil.
func (c *certificate) ready() error {
	if _, err := c.get(nil); err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	return nil
}

// follow reads the pair whenever the directory changes, until ctx is done. It has
// been read once when follow returns.
func (c *certificate) follow(ctx context.Context) {
	follow(ctx, c.dir, c.log, c.reload)
}

// follow calls reload at once, and then whenever the file or directory changes, until ctx
// is done.
func follow(ctx context.Context, path string, log *slog.Logger, reload func()) {
	changes := manifests.Watch(ctx, []string{path}, log)
	reload()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-changes:
				reload()
			}
		}
	}()
}

// reload takes the pair in the directory if it is one. Files are written one
// after the other: half a pair is not to be used, and the rest makes another
// change.
func (c *certificate) reload() {
	pair, err := readPair(c.dir)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		if c.wrong == nil || c.wrong.Error() != err.Error() {
			c.log.Error("webhook certificate not usable, one that was read before stays", "err", err)
		}
	case c.current == nil || !sameChain(*c.current, pair):
		c.log.Info("webhook certificate read", "dir", c.dir, "until", pair.Leaf.NotAfter)
		c.current = &pair
	}
	c.wrong = err
}

// readPair reads a certificate and the key that belongs to it.
func readPair(dir string) (tls.Certificate, error) {
	chain, chainErr := os.ReadFile(filepath.Join(dir, corev1.TLSCertKey))
	key, keyErr := os.ReadFile(filepath.Join(dir, corev1.TLSPrivateKeyKey))
	if err := errors.Join(chainErr, keyErr); err != nil {
		return tls.Certificate{}, fmt.Errorf("read certificate: %w", errors.Join(chainErr, keyErr))
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read certificate in %s: %w", dir, err)
	}
	return pair, nil
}

// sameChain reports whether two pairs have the same certificates, and thus the
// same key.
func sameChain(a, b tls.Certificate) bool {
	return bytes.Equal(bytes.Join(a.Certificate, nil), bytes.Join(b.Certificate, nil))
}
