package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/internal/manifests"
)

// certificate is a key pair in a directory, in files that are named as in a mounted Secret of type
// kubernetes.io/tls. Several goroutines may use it.
type certificate struct {
	dir string
	log *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate // nil until there is one
	wrong   error            // with what is in the directory, or nil
	expired *tls.Certificate // the last pair of which it was said that it expired
}

// get returns the pair for a new connection. One that expired is shown all the same: clients say why they refuse it.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		return nil, c.wrong
	}
	if err := c.lapsed(time.Now()); err != nil && c.expired != c.current {
		c.expired = c.current
		c.log.Error("no API server accepts the certificate of the webhook", "err", err)
	}
	return c.current, nil
}

// lapsed returns an error if the certificate expired.
func (c *certificate) lapsed(now time.Time) error {
	if until := c.current.Leaf.NotAfter; now.After(until) {
		return fmt.Errorf("the certificate in %s expired at %s", c.dir, until.UTC().Format(time.RFC3339))
	}
	return nil
}

// ready returns why the server cannot serve anybody, or nil.
func (c *certificate) ready() error {
	_, err := c.get(nil)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		err = c.lapsed(time.Now())
	}
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	return nil
}

// follow reads the pair now, and again whenever the directory changes, until ctx is done. It returns after
// the first reading.
func (c *certificate) follow(ctx context.Context) {
	follow(ctx, c.dir, c.log, c.reload)
}

// follow calls reload at once, and then whenever the file or directory changes, until ctx is done.
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

// reload reads the pair in the directory. It ignores a certificate and a key that do not belong together,
// since one file is written after the other: the second one causes another change.
func (c *certificate) reload() {
	pair, err := readPair(c.dir)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		if c.wrong == nil || c.wrong.Error() != err.Error() {
			c.log.Error("webhook certificate not usable, keeping the one that was read before", "err", err)
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

// clients decides which clients may ask for reviews: those whose certificate was signed by an authority in a
// file, and has one of some names. Without a file all clients may. Several goroutines may use it.
type clients struct {
	file  string
	names []string // empty: any name
	log   *slog.Logger

	mu      sync.Mutex
	roots   *x509.CertPool // nil until there are some
	text    string         // the content of the file that they were read from
	wrong   error          // fault of the content of the file, or nil
	refused string         // why a client was refused last
}

// check returns why a client may not ask, or nil. It is called for each connection and again for each review,
// since connections last for hours: meanwhile, authorities are removed and certificates expire.
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
		return errors.New("the client presents no certificate")
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
		return fmt.Errorf("the client's certificate is for %q, which is not among the names that may ask", names)
	}
	return nil
}

// only serves only clients that may ask.
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

// ready returns why all clients are refused, or nil.
func (c *clients) ready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file != "" && c.roots == nil {
		return fmt.Errorf("webhook: %w", c.wrong)
	}
	return nil
}

// follow reads the file now, and again whenever it changes, until ctx is done. It returns after the first
// reading.
func (c *clients) follow(ctx context.Context) {
	if c.file == "" {
		c.log.Warn("every client that reaches the webhook may ask for reviews", "hint", "name the authority of the API server's client certificate with --webhook-client-ca")
		return
	}
	follow(ctx, c.file, c.log, c.reload)
}

// reload reads the authorities in the file. If it has none, the ones from before stay.
func (c *clients) reload() {
	roots, text, err := readRoots(c.file)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		if c.wrong == nil || c.wrong.Error() != err.Error() {
			c.log.Error("webhook client authorities not usable, keeping those that were read before", "err", err)
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
	// An incomplete file is ignored, since it would refuse clients with a certificate of the missing part.
	if !roots.AppendCertsFromPEM(content) || strings.Count(string(content), "-----BEGIN") != strings.Count(string(content), "-----END") {
		return nil, "", fmt.Errorf("read client authorities: %s holds no certificates, or not all of them", file)
	}
	return roots, string(content), nil
}

// Path is the path of reviews.
const Path = "/validate"

// The times that bound a connection. An API server keeps connections for the next
// review. Its headers are small.
const (
	maxHeader       = 64 << 10
	headerTimeout   = 5 * time.Second
	readTimeout     = 10 * time.Second
	writeTimeout    = maxBudget + 10*time.Second
	idleTimeout     = 2 * time.Minute
	shutdownTimeout = 2 * time.Second
)

// Options configure a [Server]. All fields except ConfigMap are needed.
type Options struct {
	// Address is the address to listen on, as host:port. With port 0 the system chooses one.
	Address string
	// CertDir holds tls.crt and tls.key. They may appear later, and change.
	CertDir string
	// ClientCA is a file with the authorities of the clients that may ask. ClientNames are the names of which
	// their certificates must have one; if there are none, any name will do. Without the file, all clients
	// may ask.
	ClientCA    string
	ClientNames []string
	Judge       Judge
	// ConfigMap holds the configuration. Zero means none.
	ConfigMap types.NamespacedName
	Metrics   prometheus.Registerer
	Log       *slog.Logger

	bodyTime time.Duration // zero stands for the default; tests set it
}

// Server answers the reviews of an API server over HTTPS.
type Server struct {
	pair    *certificate
	clients *clients
	address string
	done    chan struct{}
}

// Start listens and serves until ctx is done. It listens even without a certificate. Connections then fail
// until there is one, and [Server.Ready] says why.
func Start(ctx context.Context, o Options) (*Server, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("listen for reviews: %w", err)
	}
	s := &Server{
		pair:    &certificate{dir: o.CertDir, log: o.Log},
		clients: &clients{file: o.ClientCA, names: o.ClientNames, log: o.Log},
		address: listener.Addr().String(), done: make(chan struct{}),
	}
	s.pair.follow(ctx)
	s.clients.follow(ctx)
	mux := http.NewServeMux()
	handler := newHandler(o)
	mux.Handle("POST "+Path, handler)
	secure := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.pair.get}
	if o.ClientCA != "" { // the accepted authorities may change while a connection lasts
		secure.ClientAuth, secure.VerifyConnection = tls.RequireAnyClientCert, s.clients.check
	}
	server := &http.Server{
		Handler: s.clients.only(mux), TLSConfig: secure, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(&connectionErrors{Handler: o.Log.Handler(), log: o.Log, distrusts: handler.metrics.distrusts}, slog.LevelDebug),
	}
	go func() {
		if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			o.Log.Error("webhook stopped", "err", err)
		}
	}()
	context.AfterFunc(ctx, func() {
		defer close(s.done)
		shutdown(server)
	})
	o.Log.Info("serving reviews", "address", s.address)
	return s, nil
}

// distrustRepeats is the shortest time between two warnings that a client does not accept the certificate.
const distrustRepeats = time.Minute

// connectionErrors takes what http.Server logs about connections. Most of it is noise, such as that of port scanners.
// But an API server that does not accept the certificate asks nothing, and may allow everything.
type connectionErrors struct {
	slog.Handler
	log       *slog.Logger
	distrusts prometheus.Counter

	mu   sync.Mutex
	said time.Time
}

func (c *connectionErrors) Enabled(context.Context, slog.Level) bool { return true }

func (c *connectionErrors) Handle(ctx context.Context, r slog.Record) error {
	_, alert, _ := strings.Cut(r.Message, "remote error: tls: ")
	if !strings.Contains(alert, "certificate") {
		if !c.Handler.Enabled(ctx, r.Level) {
			return nil
		}
		return c.Handler.Handle(ctx, r)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.said) >= distrustRepeats {
		c.said = now
		c.log.Warn("a client does not accept the certificate of the webhook; an API server that does so asks nothing, see the caBundle of the ValidatingWebhookConfiguration", "err", r.Message)
	}
	c.distrusts.Inc()
	return nil
}

// Address is where the server listens, host:port.
func (s *Server) Address() string { return s.address }

// Ready returns why no review can be answered, or nil.
func (s *Server) Ready() error { return errors.Join(s.pair.ready(), s.clients.ready()) }

// Wait returns when the context is done and all reviews that had begun have ended.
func (s *Server) Wait() { <-s.done }

// shutdown waits until the reviews that have begun have ended.
func shutdown(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		server.Close()
	}
}
