package pusher

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/eventually"
)

// edgeConfig is a haproxy.cfg with a backend for each text. The header x-backend chooses one. The
// texts are complete except for the backend line.
func edgeConfig(backends map[string]string) string {
	var b strings.Builder
	b.WriteString(`global
    maxconn 200

defaults
    mode http
    option redispatch 1
    retry-on conn-failure
    retries 2
    timeout connect 5s
    timeout client 2m
    timeout server 2m

frontend edge
    bind "${WEB}"
    http-request set-src req.hdr(x-source)
    use_backend %[req.hdr(x-backend)]
`)
	for name, text := range backends {
		fmt.Fprintf(&b, "\nbackend %s\n    %s\n", name, text)
	}
	return b.String()
}

// conn is a connection to an instance that stays open. On one connection, HAProxy stops counting a
// request for its server before the next request begins.
type conn struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func (r *rig) dial(name string) conn {
	r.t.Helper()
	c, err := net.Dial("unix", r.binds[name])
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(4 * patience)); err != nil {
		r.t.Fatal(err)
	}
	return conn{r.t, c, bufio.NewReader(c)}
}

// reply is a response with its body.
type reply struct {
	*http.Response
	body string
}

// send sends a request to a backend. headers are lines.
func (c conn) send(backend, path string, headers ...string) {
	c.t.Helper()
	lines := append([]string{"GET " + path + " HTTP/1.1", "Host: shop.example.com", "X-Backend: " + backend}, headers...)
	if _, err := io.WriteString(c, strings.Join(lines, "\r\n")+"\r\n\r\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c conn) receive() reply {
	c.t.Helper()
	response, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return reply{response, string(body)}
}

func (c conn) get(backend, path string, headers ...string) reply {
	c.t.Helper()
	c.send(backend, path, headers...)
	return c.receive()
}

// count sends n requests to a backend, and counts the answers of each pod.
func (c conn) count(backend string, n int) map[string]int {
	c.t.Helper()
	got := map[string]int{}
	for range n {
		got[c.get(backend, "/").body]++
	}
	return got
}

// pod is an endpoint that answers with its name. It holds requests for /hold until letGo, and can
// fail its health checks.
type pod struct {
	name, address string
	held          atomic.Int32
	checks        atomic.Int32 // how many health checks there were
	sick          atomic.Bool
	release       atomic.Pointer[chan struct{}]
}

func newPod(t *testing.T, name string) *pod {
	t.Helper()
	p := &pod{name: name}
	p.release.Store(new(make(chan struct{})))
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	t.Cleanup(p.letGo) // before Close, which waits for requests
	p.address = s.Listener.Addr().String()
	return p
}

// letGo answers the held requests.
func (p *pod) letGo() { close(*p.release.Swap(new(make(chan struct{})))) }

func (p *pod) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/hold":
		release := *p.release.Load()
		p.held.Add(1)
		<-release
	case "/healthz":
		p.checks.Add(1)
		if p.sick.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	fmt.Fprint(w, p.name)
}

func (p *pod) port() int { return int(netip.MustParseAddrPort(p.address).Port()) }

// pods are several, by their names.
func newPods(t *testing.T, names ...string) map[string]*pod {
	t.Helper()
	out := map[string]*pod{}
	for _, name := range names {
		out[name] = newPod(t, name)
	}
	return out
}

// serve makes the pods of these names the endpoints of a Service in the namespace shop.
func (r *rig) serve(pods map[string]*pod, service string, names ...string) {
	r.t.Helper()
	var addresses []string
	for _, name := range names {
		addresses = append(addresses, pods[name].address)
	}
	r.endpointsOf(service, "live/"+service+".yaml", addresses...)
}

// slot is a server of a running worker, as HAProxy reports it.
type slot struct {
	name, address string
	port          int
	drains, up    bool // gets no new sessions; is up
	weight        string
}

// slots asks the worker for the servers of a backend.
func (r *rig) slots(name, backend string) []slot {
	r.t.Helper()
	out, err := r.instances[name].Socket("show servers state " + backend)
	if err != nil {
		r.t.Fatal(err)
	}
	var list []slot
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 19 || f[1] != backend {
			continue
		}
		s := slot{name: f[3], address: f[4], weight: f[7], up: f[5] == "2"}
		if _, err := fmt.Sscan(f[18], &s.port); err != nil {
			r.t.Fatal(err)
		}
		var admin int
		if _, err := fmt.Sscan(f[6], &admin); err != nil {
			r.t.Fatal(err)
		}
		s.drains = admin&0x18 != 0 // SRV_ADMF_FDRAIN and SRV_ADMF_IDRAIN
		list = append(list, s)
	}
	return list
}

// placed returns the slot of a pod. It is zero if the pod has none.
func (r *rig) placed(name, backend string, p *pod) slot {
	r.t.Helper()
	list := r.slots(name, backend)
	if i := slices.IndexFunc(list, func(s slot) bool { return s.port == p.port() }); i >= 0 {
		return list[i]
	}
	return slot{}
}

// settled waits until exactly these pods have slots in all backends, and are up.
func (r *rig) settled(backends []string, pods map[string]*pod, names ...string) {
	r.t.Helper()
	var want []int
	for _, name := range names {
		want = append(want, pods[name].port())
	}
	slices.Sort(want)
	for _, backend := range backends {
		eventually.Holds(r.t, fmt.Sprint(names)+" are up in "+backend, func() bool {
			var up []int
			for _, s := range r.slots("a", backend) {
				if s.up && !s.drains {
					up = append(up, s.port)
				}
			}
			slices.Sort(up)
			return slices.Equal(up, want)
		})
	}
}
