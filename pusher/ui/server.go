// Package ui is the web page of a fleet: what the instances run, the progress of a rollout, what changed and who
// changed it. The page is read-only. Where a person can act, it shows the command to copy.
//
// A [Source] provides the data. In a running pusher it returns immutable values. Elsewhere it reads the store, and
// the status that a pusher publishes. A [Server] makes pages of the data. Each tab has a Go file and a template, and
// tabs() lists them.
//
// A page is complete without JavaScript. It consists of parts, and a stream of server-sent events sends the parts
// that changed. One renderer serves all viewers, and waits for none: a slow viewer gets the newest state when it can
// take it. See stream.go.
//
// Pages contain no key and no value of a Secret. The data from which they are made has none.
package ui

import (
	"bytes"
	"context"
	_ "embed" // see below
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sync/semaphore"

	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// Options say how the page is served.
type Options struct {
	Source Source
	// Leader asks for the leader while this pusher stands by. It is nil if there is only one pusher. It is called
	// only while somebody looks.
	Leader func(ctx context.Context) (Leader, error)
	// Hosts are the names in addition to those of this machine that a Host header may have.
	Hosts []string
	Log   *slog.Logger
}

// Server serves the page.
type Server struct {
	source   Source
	tabs     []tab
	archive  *archive
	compiler *compiler
	health   *inquiries[string, map[netip.AddrPort]seen]
	origins  *inquiries[asking, said]
	lines    *inquiries[string, said]
	hub      *hub
	standby  *standby
	router   *http.ServeMux // from patterns to pages
	hosts    []string
	log      *slog.Logger
	answers  chan struct{}       // held while an answer is made
	unsent   *semaphore.Weighted // bytes of answers that viewers have not taken yet
	thinking chan struct{}       // held during a search of routes, which takes a processor
}

// New returns a server. Its goroutines end with ctx.
func New(ctx context.Context, o Options) *Server {
	s := &Server{source: o.Source, tabs: tabs(), hosts: o.Hosts, log: o.Log, answers: make(chan struct{}, maxAnswers), unsent: semaphore.NewWeighted(maxUnsent), thinking: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
	s.standby = newStandby(o.Leader, o.Log)
	s.hub = newHub(s.make)
	s.archive = newArchive(ctx, o.Source.Store, s.hub.change)
	s.compiler = newCompiler(ctx, o.Source.Compiled, s.hub.change)
	s.health = newHealth(ctx, o.Source.Servers, s.hub.change)
	s.origins = newOrigins(ctx, o.Source.Origins, s.hub.change)
	s.lines = newLines(ctx, o.Source.Lines, s.hub.change)
	go s.hub.run(ctx)
	if o.Source.Follow != nil {
		go o.Source.Follow(ctx, s.hub.change)
	}
	return s
}

// Handler returns the handler of all requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	s.router = http.NewServeMux()
	for i := range s.tabs {
		t := &s.tabs[i]
		for n := range t.pages {
			s.router.HandleFunc("GET "+t.pages[n].path, func(_ http.ResponseWriter, r *http.Request) { found(r, address{t, &t.pages[n], r}) })
		}
		for n := range t.apis {
			mux.Handle("GET /api/v1/"+t.apis[n].path, s.answered(func(w http.ResponseWriter, r *http.Request) { s.api(w, r, &t.apis[n]) }))
		}
	}
	static, err := fs.Sub(assets, "static")
	if err != nil {
		panic(err) // the folder is embedded
	}
	mux.Handle("GET /static/", http.StripPrefix("/static/", http.FileServerFS(static)))
	mux.HandleFunc("GET /events", s.stream)
	mux.HandleFunc("GET /api/v1/openapi.json", s.describe)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.Handle("GET /", s.answered(func(w http.ResponseWriter, r *http.Request) {
		a, ok := s.find(r)
		if !ok {
			a = nowhere(r)
		}
		s.page(w, a)
	}))
	return guard(s.hosts, s.sentOn(mux))
}

// wanted is the key of a context in which the router leaves the page that it found.
type wanted struct{}

func found(r *http.Request, a address) {
	if to, ok := r.Context().Value(wanted{}).(*address); ok {
		*to = a
	}
}

// find returns the page of a request.
func (s *Server) find(r *http.Request) (address, bool) {
	var a address
	s.router.ServeHTTP(discard{}, r.WithContext(context.WithValue(r.Context(), wanted{}, &a)))
	if a.r != nil {
		a.r = a.r.WithContext(r.Context())
	}
	return a, a.r != nil
}

// discard is a writer that drops everything.
type discard struct{}

func (discard) Header() http.Header            { return http.Header{} }
func (discard) Write(data []byte) (int, error) { return len(data), nil }
func (discard) WriteHeader(int)                {}

// nowhere is the page of an unknown address.
func nowhere(r *http.Request) address {
	return address{&tab{}, &page{data: func(context.Context, query) (any, error) {
		return nil, notFound("There is no such page.", "The tabs above lead to all that there are.")
	}}, r}
}

// answered limits how many answers are made at once, and the time for each. An answer is complete before its viewer
// gets the first byte, so a slow viewer delays no other.
func (s *Server) answered(answer http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerTimeout/2)
		defer cancel()
		select {
		case s.answers <- struct{}{}:
		case <-ctx.Done():
			http.Error(w, "too many ask for pages at once", http.StatusServiceUnavailable)
			return
		}
		whole := &wholeAnswer{ResponseWriter: w, code: http.StatusOK}
		s.made(answer, whole, r.WithContext(ctx))
		size := min(int64(whole.body.Len()), maxUnsent)
		if !s.unsent.TryAcquire(size) {
			w.Header().Set("Retry-After", "30")
			http.Error(w, "too many take long to read what they asked for", http.StatusServiceUnavailable)
			return
		}
		defer s.unsent.Release(size)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout)) // not every writer has a deadline
		w.Header().Set("Content-Length", strconv.Itoa(whole.body.Len()))
		w.WriteHeader(whole.code)
		_, _ = w.Write(whole.body.Bytes()) // an error means that the viewer is gone
	})
}

// made makes an answer. If the handler panics, the answer is an error.
func (s *Server) made(answer http.HandlerFunc, whole *wholeAnswer, r *http.Request) {
	defer func() { <-s.answers }()
	defer s.caught(r, func() {
		whole.body.Reset()
		http.Error(whole, "This cannot be shown. The log of the program says why.", http.StatusInternalServerError)
	})
	answer(whole, r)
}

// caught recovers from a panic, logs it, and calls then. Pages are made of what others wrote, and a fault must not
// stop the pusher.
func (s *Server) caught(r *http.Request, then func()) {
	if fault := recover(); fault != nil {
		s.log.Error("cannot make a page", "page", r.URL.Path, "err", fmt.Sprint(fault), "stack", string(debug.Stack()))
		then()
	}
}

// wholeAnswer is an answer in memory, before it is sent.
type wholeAnswer struct {
	http.ResponseWriter
	code int
	body bytes.Buffer
}

func (a *wholeAnswer) WriteHeader(code int)           { a.code = code }
func (a *wholeAnswer) Write(data []byte) (int, error) { return a.body.Write(data) }

// framed is the data of the template of the whole page.
type framed struct {
	Title, Channel string
	Parts, Frame   []rendered
	Live           bool
	Event          string // the ID of the last event that the page includes
}

func (s *Server) page(w http.ResponseWriter, a address) {
	event := s.hub.event()
	m := s.make(a.r.Context(), a)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(m.code)
	f := framed{Title: m.title, Channel: s.source.Channel, Frame: m.parts[:len(frameParts)], Parts: m.parts[len(frameParts):], Live: m.code == http.StatusOK, Event: event}
	if err := pages().ExecuteTemplate(readable{w}, "frame", f); err != nil {
		s.log.Debug("page not sent", "err", err) // an error means that the viewer is gone
	}
}

// api answers with a table as JSON.
func (s *Server) api(w http.ResponseWriter, r *http.Request, a *api) {
	v, err := a.data(r.Context(), s.query(address{nil, nil, r}))
	if err != nil {
		says := problemOf(err)
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(says.code)
		v = map[string]any{"status": says.code, "title": says.text, "detail": says.hint}
	}
	if h := w.Header(); h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	_ = json.NewEncoder(w).Encode(v) // an error means that the client is gone
}

// mostConnections is how many connections viewers may have at once.
const mostConnections = 1024

// Serve serves the page at an address until ctx is done. It returns the address, and a function that waits for the
// end.
func (s *Server) Serve(ctx context.Context, at string) (addr string, wait func(), err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
	if err != nil {
		return "", nil, fmt.Errorf("listen for the page: %w", err)
	}
	server := &http.Server{
		Handler: s.Handler(), MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headerTimeout, ReadTimeout: answerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), BaseContext: func(net.Listener) context.Context { return ctx },
	}
	var ended sync.WaitGroup
	ended.Go(func() { _ = server.Serve(netutil.LimitListener(listener, mostConnections)) }) // it returns an error when it is closed
	context.AfterFunc(ctx, func() { server.Close() })
	s.log.Info("serving the page", "address", listener.Addr().String())
	return listener.Addr().String(), func() {
		ended.Wait()
		s.archive.jobs.Wait() // the caller closes the store after wait
	}, nil
}

// Store is the part of a snapshot store that the page needs.
type Store interface {
	View(ctx context.Context) (channel.View, error)
	Manifest(ctx context.Context, id snapshots.ID) (snapshots.Manifest, error)
	Get(ctx context.Context, id snapshots.ID) (snapshots.Snapshot, error)
	Journal(ctx context.Context) ([]channel.Entry, error)
}

// Source provides the data of the page. A nil function means that its data is not known.
type Source struct {
	// Channel is the name of the channel.
	Channel string
	// Fleet returns what is known about the fleet, without waiting. The value is immutable.
	Fleet func() Fleet
	// Follow calls changed after each change of the fleet, until ctx is done.
	Follow func(ctx context.Context, changed func())
	// Store has the snapshots and the journal. It is nil if there is no store.
	Store Store
	// Repository is the URL of a git store, for links to commits. It is "" for other stores.
	Repository string
	// Servers asks instances for the servers of a backend. It may wait.
	Servers func(ctx context.Context, backend string) []ServerState
	// Origins returns the objects that wrote the lines which answer a request. It may wait.
	Origins func(ctx context.Context, q Question) ([]Wrote, error)
	// Lines returns the objects that wrote lines. A place is FILE:LINE, and the answer has the same order. It
	// explains what the objects make now. It may wait.
	Lines func(ctx context.Context, places []string) ([]Wrote, error)
	// Compiled asks a compiler for its status: the JSON of its /status. It may wait.
	Compiled func(ctx context.Context) (json.RawMessage, error)
}

// Fleet is the state of a fleet at a time.
type Fleet struct {
	Status report.Status
	// Live is nil unless a running pusher provides the data.
	Live *Live
	// Trouble says why nothing newer is known. It is "" if the state is current.
	Trouble string
	// At is the time of the state.
	At time.Time
}

// These limits bound what viewers can use up.
const (
	maxHeader     = 16 << 10
	maxAddress    = 4 << 10 // of a path with its query
	headerTimeout = 10 * time.Second
	answerTimeout = time.Minute
	idleTimeout   = 2 * time.Minute
	maxAnswers    = 16       // pages that are made at once
	maxUnsent     = 64 << 20 // bytes of answers that viewers have not taken
	maxWords      = 20       // that a list is searched for
)

// policy is the Content-Security-Policy of every answer. Pages load nothing from elsewhere, send nothing elsewhere,
// and cannot be framed.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// guard sets the security headers of every answer. It refuses requests with a foreign Host header, with a method that
// writes, with a long address, and from scripts of other sites.
func guard(hosts []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		switch {
		case !allowedHost(r.Host, hosts):
			http.Error(w, "this name is not one of the page's: start with --ui-host to allow it", http.StatusMisdirectedRequest)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "the page is read-only", http.StatusMethodNotAllowed)
		case len(r.RequestURI) > maxAddress:
			http.Error(w, "the address is too long", http.StatusRequestURITooLong)
		case r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate":
			http.Error(w, "another site asks for this", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// allowedHost reports whether the page may be requested under a Host header. The header of a DNS rebinding attack has
// the name of another site. So only the configured names and those of this machine are allowed. An IP address is
// always allowed, as it cannot be rebound.
func allowedHost(host string, hosts []string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || slices.ContainsFunc(hosts, func(h string) bool { return strings.EqualFold(h, name) })
}

// description is the OpenAPI 3.1 description of the tables of all tabs. A test generates it from their types.
//
//go:embed openapi.json
var description []byte

func (*Server) describe(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(description) // an error means that the client is gone
}
