package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// shutdownTimeout is how long a request may continue once the process stops.
const shutdownTimeout = 2 * time.Second

// Server answers GET /healthz (200 while the process lives), /readyz (200, or
// 503 with the reason) and /metrics (Prometheus), and whatever Handle adds.
type Server struct {
	// Address to listen on, host:port; ":0" chooses a free port; "" serves nothing.
	Address string
	// Ready returns why the process is not ready, or nil.
	Ready func() error
	// Metrics is the registry to expose.
	Metrics *prometheus.Registry
	// Handle holds further handlers by pattern, as in [http.ServeMux].
	Handle map[string]http.Handler
	Log    *slog.Logger
}

// NewRegistry returns a registry that already holds the metrics of the Go
// runtime and of the process.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Start listens and serves until ctx is done. It returns the address, which is "" if the server has none, and a
// function that waits for the end.
func (s Server) Start(ctx context.Context) (addr string, wait func(), err error) {
	if s.Address == "" {
		return "", func() {}, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.Address)
	if err != nil {
		return "", nil, fmt.Errorf("listen for health and metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.Metrics, promhttp.HandlerOpts{Registry: s.Metrics}))
	for pattern, handler := range s.Handle {
		mux.Handle(pattern, handler)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.Log.Error("health and metrics server stopped", "err", err)
		}
	}()
	context.AfterFunc(ctx, func() { shutdown(server) })
	s.Log.Info("serving health and metrics", "address", listener.Addr().String())
	return listener.Addr().String(), func() { <-done }, nil
}

func shutdown(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		server.Close()
	}
}

func (s Server) readyz(w http.ResponseWriter, _ *http.Request) {
	if err := s.Ready(); err != nil {
		http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// StatusPath is the path under which the compiler and the pusher serve their status.
const StatusPath = "/status"

// AskStatus reads into v the status that a program serves at the address of its metrics. It returns the time at which the
// program answered, by the program's own clock, by which the times of the status are.
func AskStatus(ctx context.Context, address string, timeout time.Duration, v any) (at time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+StatusPath, nil)
	if err != nil {
		return at, Usage("%q is not an address: %w", address, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return at, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return at, fmt.Errorf("%s answers %s", address, response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(v); err != nil {
		return at, fmt.Errorf("what answers at %s is none of our programs: %w", address, err)
	}
	if at, err = http.ParseTime(response.Header.Get("Date")); err != nil {
		at = time.Now()
	}
	return at, nil
}
