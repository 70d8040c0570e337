package ui

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/hapsnap/hapsnap/pusher/report"
)

// Leader is what a pusher that stands by knows about the leader.
type Leader struct {
	// Address is the IP address and port of the leader's page. It is zero if the leader does not say.
	Address netip.AddrPort
	// Status is the last status that the leader published.
	Status report.Status
}

// leaderAge is how long an answer is kept. leaderTimeout bounds the question. leaderAnswer bounds how long the
// leader's page may take to begin its answer.
const (
	leaderAge     = 3 * time.Second
	leaderTimeout = 5 * time.Second
	leaderAnswer  = 20 * time.Second
)

// forwarded is the header of a request that another pusher sent on. Such a request is not sent on again: two pushers
// that take each other for the leader would do so for ever.
const forwarded = "Hapsnap-Forwarded"

// passed are the headers of a request that are sent on, and passedBack those of the answer. Credentials are not among
// them: they are for a proxy in front of this pusher, and not for the leader.
var (
	passed       = []string{"Accept", "Last-Event-ID"}
	passedBack   = []string{"Content-Type", "Retry-After", "Content-Length", "X-Accel-Buffering"}
	errNoAddress = errors.New("the pusher that leads does not say where its page is")
)

// standby sends requests on to the leader. It does not redirect the browser, which may not reach the address of a pod
// (behind kubectl port-forward, for example).
type standby struct {
	ask  func(ctx context.Context) (Leader, error) // nil if there is only one pusher
	log  *slog.Logger
	wire http.RoundTripper

	mu     sync.Mutex
	asked  time.Time
	last   Leader
	err    error
	asking bool
}

func newStandby(ask func(context.Context) (Leader, error), log *slog.Logger) *standby {
	return &standby{ask: ask, log: log, wire: &http.Transport{
		Proxy: nil, DisableCompression: true, ResponseHeaderTimeout: leaderAnswer, MaxIdleConnsPerHost: 16, MaxConnsPerHost: mostStreams + maxAnswers, IdleConnTimeout: time.Minute,
	}}
}

// leader returns the last answer about the leader. It asks again if the answer is old and the caller can wait.
func (s *standby) leader(ctx context.Context) (Leader, error) {
	s.mu.Lock()
	if s.ask == nil || s.asking || time.Since(s.asked) < leaderAge || ctx.Value(nowait{}) != nil {
		defer s.mu.Unlock()
		return s.last, s.err
	}
	s.asking = true
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaderTimeout)
	defer cancel()
	last, err := s.ask(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking, s.asked, s.err = false, time.Now(), err
	if err == nil {
		s.last = last
	}
	return s.last, err
}

// standsBy reports whether this pusher stands by, and so leaves the page to the leader.
func (s *Server) standsBy() bool {
	return s.standby.ask != nil && s.source.Fleet != nil && s.source.Fleet().Status.Standby
}

// sentOn sends requests on to the leader while this pusher stands by. If the leader cannot be reached, this pusher
// answers itself.
func (s *Server) sentOn(own http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.standsBy() || r.Header.Get(forwarded) != "" {
			own.ServeHTTP(w, r)
			return
		}
		leader, err := s.standby.leader(r.Context())
		if err == nil && !leader.Address.IsValid() {
			err = errNoAddress
		}
		if err != nil {
			s.log.Debug("the leader is not asked for its page", "err", err)
			own.ServeHTTP(w, r)
			return
		}
		if r.URL.Path == "/events" {
			if !s.hub.enter() {
				tooMany(w)
				return
			}
			defer s.hub.exit()
		} else {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout)) // not every writer has a deadline
		}
		s.send(w, r, leader.Address, own)
	})
}

// send sends a request on to the leader. If the leader does not answer, own does.
func (s *Server) send(w http.ResponseWriter, r *http.Request, to netip.AddrPort, own http.Handler) {
	proxy := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: to.String()})
			p.Out.Host, p.Out.Header = to.String(), http.Header{forwarded: {"1"}}
			for _, name := range passed {
				if value := p.In.Header.Get(name); value != "" {
					p.Out.Header.Set(name, value)
				}
			}
		},
		ModifyResponse: func(answer *http.Response) error {
			kept := http.Header{}
			for _, name := range passedBack {
				if value := answer.Header.Get(name); value != "" {
					kept.Set(name, value)
				}
			}
			answer.Header = kept // the guard of this pusher has set the others
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			s.log.Debug("the leader does not answer for its page", "address", to, "err", err)
			own.ServeHTTP(w, r)
		},
		Transport: s.standby.wire, FlushInterval: -1, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	proxy.ServeHTTP(w, r)
}

// withLeader returns what a pusher that stands by shows: the last status of the leader, if there is one, with a
// message that says so.
func (s *Server) withLeader(f Fleet) Fleet {
	if !f.Status.Standby || s.standby.ask == nil {
		return f
	}
	leader, err := s.standby.leader(withoutWaiting())
	said := f.Status.Channel.Message
	switch {
	case err != nil:
		said += ", and its status cannot be read: " + report.FirstLine(err.Error(), report.LongestMessage)
	case leader.Status.Updated.IsZero():
	default:
		said += ". Its page cannot be reached, and this is what was said last"
	}
	if leader.Status.Updated.IsZero() {
		return f
	}
	return Fleet{Status: leader.Status.AsOf(time.Now(), report.FreshState), Trouble: said, At: leader.Status.Updated}
}
