package admission

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
)

// clients says who may ask: who shows a certificate that an authority in a file has signed,
// for one of some names. Without a file it is everybody. It may be used by several
// goroutines.
type clients struct {
	file  string
	names []string // none: any
	log   *slog.Logger

	mu      sync.Mutex
	roots   *x509.CertPool // nil until there are some
	text    string         // that they were read from
	wrong   error          // with what is in the file, or nil
	refused string         // why somebody was refused last
}

// check returns why a client may not ask, or nil. It is asked for each connection, and again
// for each review: connections last for hours, in which authorities go and certificates
// expire.
func (c *clients) check(state tls.ConnectionState) error {
	if c.file == "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.verify(state.PeerCertificates)
	if err != nil && err.Error() != c.refused {
		c.refused = err.Error()
		c.log.Warn("webhook client refused", "err", err)
	}
	return err
}

func (c *clients) verify(chain []*x509.Certificate) error {
	switch {
	case c.roots == nil:
		return fmt.Errorf("no client is known yet: %w", c.wrong)
	case len(chain) == 0:
		return errors.New("the client shows no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, certificate := range chain[1:] {
		intermediates.AddCert(certificate)
	}
	options := x509.VerifyOptions{Roots: c.roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := chain[0].Verify(options); err != nil {
		return fmt.Errorf("the client's certificate is not good: %w", err)
	}
	names := append([]string{chain[0].Subject.CommonName}, chain[0].DNSNames...)
	if len(c.names) > 0 && !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(c.names, name) }) {
		return fmt.Errorf("the client's certificate is for %q, which is none of the names that may ask", names)
	}
	return nil
}

// only serves those who may ask.
func (c *clients) only(next http.Handler) http.Handler {
	if c.file == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || c.check(*r.TLS) != nil {
			w.Header().Set("Connection", "close")
			http.Error(w, "this client may not ask", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ready returns why nobody may ask, or nil.
func (c *clients) ready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file != "" && c.roots == nil {
		return fmt.Errorf("webhook: %w", c.wrong)
	}
	return nil
}

// follow reads the file whenever it changes, until ctx is done. It has been read once when
// follow returns.
func (c *clients) follow(ctx context.Context) {
	if c.file == "" {
		c.log.Warn("whoever reaches the webhook may ask it", "hint", "name the authority of the API server's client certificate with --webhook-client-ca")
		return
	}
	follow(ctx, c.file, c.log, c.reload)
}

// reload takes the authorities in the file if there are any. What is none leaves those of
// before.
func (c *clients) reload() {
	roots, text, err := readRoots(c.file)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		if c.wrong == nil || c.wrong.Error() != err.Error() {
			c.log.Error("webhook client authorities not usable, those that were read before stay", "err", err)
		}
	case text != c.text:
		c.log.Info("webhook client authorities read", "file", c.file)
		c.roots, c.text, c.refused = roots, text, ""
	}
	c.wrong = err
}

func readRoots(file string) (roots *x509.CertPool, text string, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, "", fmt.Errorf("read client authorities: %w", err)
	}
	roots = x509.NewCertPool()
	// Half a file is not to be used: who shows a certificate of the other half is refused.
	if !roots.AppendCertsFromPEM(content) || strings.Count(string(content), "-----BEGIN") != strings.Count(string(content), "-----END") {
		return nil, "", fmt.Errorf("read client authorities: %s holds no certificates, or not all of them", file)
	}
	return roots, string(content), nil
}
