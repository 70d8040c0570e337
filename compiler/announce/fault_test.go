package announce_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/announce"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/snapshots"
)

// faulty answers as an API server whose etcd refuses writes.
type faulty struct {
	refuses func(path string) bool
	away    func() bool            // nobody answers
	hangs   func(path string) bool // nobody answers, such as where a webhook does not
	unknown func() bool            // the API server does not know the kinds of the Gateway API
	leader  events.Leader          // nil: always
	mu      sync.Mutex
	writes  map[string][]time.Time // by path
	written map[string]time.Time
}

func (f *faulty) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.away != nil && f.away() {
		return nil, errors.New("connection refused")
	}
	if f.unknown != nil && f.unknown() && strings.Contains(r.URL.Path, gatewayv1.GroupName) {
		return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader("404 page not found\n")), Request: r}, nil
	}
	if f.hangs != nil && f.hangs(r.URL.Path) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	code, path := http.StatusOK, r.URL.Path
	part := strings.Split(path, "/")
	switch write := r.Method != http.MethodGet; {
	case write && f.refuses != nil && f.refuses(path):
		code, body = http.StatusInternalServerError, []byte(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "message": "etcdserver: no leader"}`)
		f.writes[path] = append(f.writes[path], time.Now())
	case write:
		f.writes[path] = append(f.writes[path], time.Now())
		f.written[path] = time.Now()
		switch { // a patch says no kind
		case strings.Contains(path, "/ingresses/"):
			body = []byte(`{"kind": "Ingress", "apiVersion": "networking.k8s.io/v1"}`)
		case r.Method == http.MethodPatch && strings.Contains(path, "/gateways/"):
			body = []byte(`{"kind": "Gateway", "apiVersion": "gateway.networking.k8s.io/v1"}`)
		}
	case strings.Contains(path, gatewayv1.GroupName):
		body = fmt.Appendf(nil, `{"kind": "Gateway", "apiVersion": "gateway.networking.k8s.io/v1", "metadata": {"namespace": "shop", "name": %q, "uid": %[1]q, "resourceVersion": "1"}}`, part[len(part)-1])
	default:
		code, body = http.StatusNotFound, []byte(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"}`)
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
}

// announced runs an announcer in a bubble for some time, with an Ingress for each name, and with a Gateway for each that gets a
// Service. It returns the log.
func announced(t *testing.T, f *faulty, during time.Duration, names ...string) string {
	t.Helper()
	f.writes, f.written = map[string][]time.Time{}, map[string]time.Time{}
	account := &rest.Config{Host: "http://api", Transport: f, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	client, err := kubernetes.NewForConfig(account)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(account)
	if err != nil {
		t.Fatal(err)
	}
	if f.leader == nil {
		f.leader = events.Always{}
	}
	var log bytes.Buffer
	a := announce.New(announce.Options{
		Events: client.EventsV1(), Ingresses: client.NetworkingV1(), Dynamic: objects, Services: client.CoreV1(), Slices: client.DiscoveryV1(), Leader: f.leader, Lease: lease,
		Log: slog.New(slog.NewTextHandler(&log, nil)), Metrics: prometheus.NewRegistry(),
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	c := config.Default()
	c.GatewayAPI.Enabled, c.GatewayAPI.Services.Enabled = true, true
	var in inputs.Inputs
	var said gateway.Verdicts
	served := map[diag.Object]bool{}
	for _, name := range names {
		meta := metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), ResourceVersion: "1"}
		ing := inputs.Object[networkingv1.Ingress]{Ref: diag.Object{Kind: "Ingress", Namespace: "shop", Name: name}, Value: &networkingv1.Ingress{ObjectMeta: meta}}
		in.Ingresses, served[ing.Ref] = append(in.Ingresses, ing), true
		g := inputs.Object[gatewayv1.Gateway]{Ref: diag.Object{Kind: "Gateway", Namespace: "shop", Name: name}, Value: &gatewayv1.Gateway{ObjectMeta: meta}}
		in.Gateway.Gateways = append(in.Gateway.Gateways, g)
		said.Gateways = append(said.Gateways, gateway.GatewayVerdict{
			Ref: g.Ref, Service: &gateway.Service{Name: name, Ports: []int{80}},
			Status: gatewayv1.GatewayStatus{Conditions: []metav1.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted"}}},
		})
	}
	a.Published(in, served, config.IngressStatus{Addresses: []string{"192.0.2.1"}})
	a.Gateways(in, c, said, snapshots.ID{Revision: 1})
	<-time.After(during)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	return log.String()
}

// While etcd has no leader, the API server refuses each write as if it were for its object. Nothing waits for long after that, and
// the log has two lines of each loop.
func TestShortFaultOfEtcd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin, f := time.Now(), &faulty{}
		f.refuses = func(string) bool { return time.Since(begin) < 10*time.Second }
		log := announced(t, f, 20*time.Second, "web", "api")
		for _, path := range []string{
			"/apis/networking.k8s.io/v1/namespaces/shop/ingresses/web/status", "/apis/networking.k8s.io/v1/namespaces/shop/ingresses/api/status",
			"/apis/gateway.networking.k8s.io/v1/namespaces/shop/gateways/web/status", "/apis/gateway.networking.k8s.io/v1/namespaces/shop/gateways/api/status",
			"/api/v1/namespaces/shop/services",
		} {
			if len(f.writes[path]) < 2 || f.written[path].IsZero() {
				t.Errorf("%s was tried %d times, and not written ten seconds after the fault", path, len(f.writes[path]))
			}
		}
		if n := strings.Count(log, "level=WARN"); n != 3 {
			t.Errorf("the log warns %d times, want once for each loop:\n%s", n, log)
		}
		if n := strings.Count(log, "does not refuse it any more"); n != 3 {
			t.Errorf("the log says %d times that it is over:\n%s", n, log)
		}
	})
}

// An object that is refused for good is tried less and less often, and is one line of the log.
func TestRefusedForGood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin, f := time.Now(), &faulty{}
		f.refuses = func(path string) bool {
			return strings.Contains(path, "/large") || strings.HasSuffix(path, "/services")
		}
		log := announced(t, f, 15*time.Minute, "large", "web")
		for path, least := range map[string]int{
			"/apis/networking.k8s.io/v1/namespaces/shop/ingresses/large/status": 10, "/apis/gateway.networking.k8s.io/v1/namespaces/shop/gateways/large/status": 10,
			"/api/v1/namespaces/shop/services": 20, // two Services are created
		} {
			if n := len(f.writes[path]); n < least || n > least+2 {
				t.Errorf("%s was tried %d times in a quarter of an hour, want %d", path, n, least)
			}
		}
		for _, path := range []string{"/apis/networking.k8s.io/v1/namespaces/shop/ingresses/web/status", "/apis/gateway.networking.k8s.io/v1/namespaces/shop/gateways/web/status"} {
			if at := f.written[path]; at.IsZero() || f.writes[path][0].Sub(begin) > time.Second {
				t.Errorf("%s waited: %v", path, f.writes[path])
			}
		}
		if n := strings.Count(log, "\n"); n != 4 {
			t.Errorf("the log has %d lines, want one for each object:\n%s", n, log)
		}
	})
}

// statusesOf are the paths of the statuses of an Ingress and a Gateway.
func statusesOf(name string) []string {
	return []string{"/apis/networking.k8s.io/v1/namespaces/shop/ingresses/" + name + "/status", "/apis/gateway.networking.k8s.io/v1/namespaces/shop/gateways/" + name + "/status"}
}

// After nobody has answered for a while, nothing is forgotten, though nothing else changes.
func TestAPIServerIsAwayForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		f := &faulty{away: func() bool { return time.Since(begin) < 10*time.Second }}
		log := announced(t, f, time.Minute, "web", "api")
		for _, path := range slices.Concat(statusesOf("web"), statusesOf("api"), []string{"/api/v1/namespaces/shop/services"}) {
			if f.written[path].IsZero() {
				t.Errorf("%s is not written:\n%s", path, log)
			}
		}
	})
}

// Nobody answers what is written for one object, such as where a webhook of its namespace does not. Others do not wait for it.
func TestObjectThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{hangs: func(path string) bool { return strings.Contains(path, "/hangs") }}
		log := announced(t, f, time.Minute, "hangs", "web")
		for _, path := range append(statusesOf("web"), "/api/v1/namespaces/shop/services") {
			if f.written[path].IsZero() {
				t.Errorf("%s is not written:\n%s", path, log)
			}
		}
	})
}

// While the definitions of the Gateway API are replaced, the API server may not know their kinds. That is not to say that the
// objects are gone.
func TestKindIsUnknownForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		f := &faulty{unknown: func() bool { return time.Since(begin) < 10*time.Second }}
		if log := announced(t, f, time.Minute, "web"); f.written[statusesOf("web")[1]].IsZero() || strings.Contains(log, "the object is gone") {
			t.Errorf("the status of the Gateway is not written:\n%s", log)
		}
	})
}

// interrupted is a leader whose first terms end before anything is written.
type interrupted struct{ left atomic.Int32 }

func (l *interrupted) Term(ctx context.Context) (context.Context, context.CancelFunc, bool) {
	during, end := context.WithCancel(ctx)
	if l.left.Add(-1) >= 0 {
		end()
	}
	return during, end, true
}

// What was about to be written when a term ended is written in the next one.
func TestTermEndsBeforeTheWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		leader := &interrupted{}
		leader.left.Store(9)
		f := &faulty{leader: leader}
		log := announced(t, f, 5*time.Minute, "web", "api")
		for _, path := range slices.Concat(statusesOf("web"), statusesOf("api")) {
			if f.written[path].IsZero() {
				t.Errorf("%s is not written:\n%s", path, log)
			}
		}
	})
}
