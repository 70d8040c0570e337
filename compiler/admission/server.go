package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// Path is where reviews are answered.
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

// Options are those of a [Server]. All fields are needed, except ConfigMap.
type Options struct {
	// Address to listen on, host:port; port 0 chooses a free one.
	Address string
	// CertDir holds tls.crt and tls.key. They may come later, and change.
	CertDir string
	// ClientCA is a file with the authorities of the clients that may ask, and ClientNames are the
	// names in their certificates; if empty, any name may. Without the file everybody may ask.
	ClientCA    string
	ClientNames []string
	Judge       Judge
	// ConfigMap is the one that holds the configuration; zero is none.
	ConfigMap types.NamespacedName
	Metrics   prometheus.Registerer
	Log       *slog.Logger

	bodyTime time.Duration // another one, in tests
}

// Server answers the reviews of an API server over HTTPS.
type Server struct {
	pair    *certificate
	clients *clients
	address string
	done    chan struct{}
}

// Start listens and serves until ctx is done. It listens even without a certificate: connections fail
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
	mux.Handle("POST "+Path, newHandler(o))
	secure := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.pair.get}
	if o.ClientCA != "" { // the accepted authorities may change while a connection lasts
		secure.ClientAuth, secure.VerifyConnection = tls.RequireAnyClientCert, s.clients.check
	}
	server := &http.Server{
		Handler: s.clients.only(mux), TLSConfig: secure, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
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

// Address is where the server listens, host:port.
func (s *Server) Address() string { return s.address }

// Ready returns why no review can be answered, or nil.
func (s *Server) Ready() error { return errors.Join(s.pair.ready(), s.clients.ready()) }

// Wait returns when the context is done and all reviews that had begun have ended.
func (s *Server) Wait() { <-s.done }

// shutdown lets reviews end that have begun.
func shutdown(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		server.Close()
	}
}
