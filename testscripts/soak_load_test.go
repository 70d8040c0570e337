package testscripts

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// soakPod is an endpoint that comes and goes.
type soakPod struct {
	name, address string
	server        *http.Server
}

func (p *soakPod) start() error {
	if p.server != nil {
		return nil
	}
	listener, err := net.Listen("tcp", p.address)
	if err != nil {
		return err
	}
	answer := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, p.name) }
	p.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(answer)}
	go func(s *http.Server) { _ = s.Serve(listener) }(p.server) // ends with stop
	return nil
}

// stop ends the pod when it has answered its requests.
func (p *soakPod) stop() error {
	if p.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), talkTimeout)
	defer cancel()
	err := p.server.Shutdown(ctx)
	p.server = nil
	return err
}

// soakLoad has clients that send requests to every instance, some on kept connections and some on a new one
// each time.
type soakLoad struct {
	cancel  context.CancelFunc
	clients sync.WaitGroup

	mu      sync.Mutex
	good    int
	bad     []badRequest
	excused int
	// restarts are the times in which each instance was restarted. The end is zero while a restart goes on.
	restarts map[string][]period
}

type period struct{ from, to time.Time }

// badRequest is a request that no pod answered.
type badRequest struct {
	period
	instance, url string
	err           error
}

func (b badRequest) String() string {
	return fmt.Sprintf("%s: %s asked at %s failed after %s: %v", b.instance, b.url, b.from.Format("15:04:05.000"), b.to.Sub(b.from).Round(time.Millisecond), b.err)
}

func startSoakLoad(w *world) *soakLoad {
	ctx, cancel := context.WithCancel(context.Background())
	l := &soakLoad{cancel: cancel, restarts: map[string][]period{}}
	urls := []string{"http://shop.example.com/", "https://shop.example.com/", "http://api.example.com/"}
	for _, i := range w.instances {
		for n := range 2 * len(urls) {
			client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
				DialContext: w.dialer(i), TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: n == 1,
				DisableKeepAlives: n >= len(urls),
			}}
			l.clients.Go(func() { l.run(ctx, i.name, client, urls[n%len(urls)]) })
		}
	}
	return l
}

func (l *soakLoad) run(ctx context.Context, instance string, client *http.Client, url string) {
	pace := time.NewTicker(4 * loadPace)
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
		began := time.Now()
		got, err := fetch(client, url)
		if err == nil && (got.status != http.StatusOK || !strings.HasPrefix(got.body, "pod-")) {
			err = fmt.Errorf("status %d", got.status)
		}
		l.note(badRequest{period{began, time.Now()}, instance, url, err})
	}
}

func (l *soakLoad) note(r badRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.err == nil {
		l.good++
		return
	}
	l.bad = append(l.bad, r)
}

// excuse begins a restart of an instance. The returned function ends it.
func (l *soakLoad) excuse(instance string) (ended func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.restarts[instance])
	l.restarts[instance] = append(l.restarts[instance], period{from: time.Now()})
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.restarts[instance][n].to = time.Now()
	}
}

// failures returns the requests that failed since the last call, without those that ran during a restart of
// their instance.
func (l *soakLoad) failures() []badRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []badRequest
	for _, r := range l.bad {
		if l.whileRestarted(r) {
			l.excused++
		} else {
			out = append(out, r)
		}
	}
	l.bad = nil
	return out
}

func (l *soakLoad) whileRestarted(r badRequest) bool {
	for _, p := range l.restarts[r.instance] {
		if r.to.After(p.from) && (p.to.IsZero() || r.from.Before(p.to)) {
			return true
		}
	}
	return false
}

// stop ends the load. It returns how many requests were answered, and how many were excused.
func (l *soakLoad) stop() (good, excused int) {
	l.cancel()
	l.clients.Wait()
	return l.good, l.excused
}
