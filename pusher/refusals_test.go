package pusher

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// What is refused was said, and is no loss; what instances are is told apart from what else
// runs on their addresses, also when they come and go later.
func TestRefusals(t *testing.T) {
	t.Parallel()
	web, api := snapshots.ServicePort{Namespace: "shop", Service: "web"}, snapshots.ServicePort{Namespace: "shop", Service: "api"}
	good, node, admin := snapshots.Endpoint{Address: "10.1.0.1", Port: 8080}, snapshots.Endpoint{Address: "10.0.0.11", Port: 8080}, snapshots.Endpoint{Address: "10.0.0.11", Port: 5555}
	loop := snapshots.Endpoint{Address: "64:ff9b::7f00:1", Port: 80}
	r := newRefusals(Options{RefuseEndpoints: live.DefaultRefused, RefuseInManifests: true})
	used := r.filter(map[snapshots.ServicePort][]snapshots.Endpoint{web: {good, loop, node, admin}, api: {loop}})
	if got, there := used[api]; !there || len(got) != 0 {
		t.Errorf("a Service of which all is refused has %v, %v", got, there)
	}
	if !slices.Equal(used[web], []snapshots.Endpoint{good, node, admin}) {
		t.Errorf("used %v", used[web])
	}
	if err := r.refused.trouble(); err == nil || !strings.Contains(err.Error(), "[64:ff9b::7f00:1]:80 of shop/api: it is in 127.0.0.0/8; [64:ff9b::7f00:1]:80 of shop/web") {
		t.Errorf("it says %v", err)
	}
	own := map[netip.AddrPort]string{netip.MustParseAddrPort("10.0.0.11:5555"): "the Dataplane API of edge-1"}
	if changed := r.setOwn(own); len(changed) != 1 || !slices.Equal(changed[web], []snapshots.Endpoint{good, node}) {
		t.Errorf("with an instance: %v", changed)
	}
	if changed := r.setOwn(own); len(changed) != 0 {
		t.Errorf("once more: %v", changed)
	}
	if changed := r.setOwn(nil); !slices.Equal(changed[web], []snapshots.Endpoint{good, node, admin}) {
		t.Errorf("without: %v", changed)
	}
	r.filter(map[snapshots.ServicePort][]snapshots.Endpoint{web: nil, api: {good}})
	if err := r.refused.trouble(); err != nil || len(r.offered) != 1 {
		t.Errorf("mended: %v, %v", err, r.offered)
	}
}

// saidEvents keeps what was said last of what holds.
type saidEvents struct{ lasting []events.Event }

// Run waits for the end.
func (s *saidEvents) Run(ctx context.Context) { <-ctx.Done() }

// Say keeps what holds.
func (s *saidEvents) Say(lasting, _ []events.Event) { s.lasting = lasting }

// In manifests, too, no Service has the addresses where the instances listen, whether these are
// known by address or by name; networks are refused there if somebody asks for that. What is
// refused is in the status, in a metric and in an Event, which says nothing of the instances.
func TestRefusalsInManifests(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(api.Close)
	named, err := dataplane.New(dataplane.Options{URL: strings.Replace(api.URL, "127.0.0.1", "localhost", 1)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := named.Info(t.Context()); err == nil {
		t.Fatal("what is no Dataplane API answered as one")
	}
	config := []byte("frontend http\n    bind :8080\nfrontend status\n    bind 10.0.0.9:8404\n")
	web := snapshots.ServicePort{Namespace: "shop", Service: "web"}
	endpoint := func(address string) snapshots.Endpoint {
		at := netip.MustParseAddrPort(address)
		return snapshots.Endpoint{Address: at.Addr().String(), Port: int(at.Port())}
	}
	good, loop := endpoint("10.0.0.11:9090"), endpoint("127.0.0.2:80")
	own := []snapshots.Endpoint{endpoint(named.Peer().String()), endpoint("10.0.0.11:5555"), endpoint("10.0.0.11:8080"), endpoint("10.0.0.9:8404"), endpoint("[::ffff:10.0.0.11]:5555")}
	for name, test := range map[string]struct {
		given bool
		used  []snapshots.Endpoint
	}{
		"as a matter of course": {false, []snapshots.Endpoint{good, loop}},
		"with networks":         {true, []snapshots.Endpoint{good}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := &saidEvents{}
			o := Options{Live: "live", RefuseEndpoints: live.DefaultRefused, RefuseInManifests: test.given, Metrics: prometheus.NewRegistry(), Events: said}.withDefaults()
			now := time.Now()
			e := newEngine(o, state{}, nil, now)
			e.instances["edge-1"] = &instance{Instance: fleet.Instance{Name: "edge-1", URL: "http://10.0.0.11:5555"}}
			e.instances["edge-2"] = &instance{Instance: fleet.Instance{Name: "edge-2", URL: "http://edge-2.example:5555"}, client: named}
			e.bindings.prepared[snapshots.ID{Revision: 1}] = prepared{listeners: listenersOf(config)}
			e.takeLive(liveData{slices: 1, Live: bind.Live{Endpoints: map[snapshots.ServicePort][]snapshots.Endpoint{web: slices.Concat([]snapshots.Endpoint{good, loop}, own)}}}, nil, now)
			e.refuseOwn(now)
			if !slices.Equal(e.live.Endpoints[web], test.used) {
				t.Errorf("used %v, want %v", e.live.Endpoints[web], test.used)
			}
			refused := 2 + len(own) - len(test.used)
			if got := testutil.ToFloat64(e.metrics.refusedEndpoints); got != float64(refused) {
				t.Errorf("the metric says %v, want %v", got, refused)
			}
			if text := e.troubles["endpoints"].Error; !strings.Contains(text, "10.0.0.11:5555 of shop/web: it is the Dataplane API of edge-1") {
				t.Errorf("the status says %q", text)
			}
			e.sayObjects(nil, now)
			if len(said.lasting) != 1 || said.lasting[0].Regarding.Kind != "Service" || !strings.Contains(said.lasting[0].Note, "10.0.0.9:8404") || strings.Contains(said.lasting[0].Note, "edge") {
				t.Errorf("Events: %v", said.lasting)
			}
			delete(e.instances, "edge-1")
			e.refuseOwn(now)
			if !slices.Contains(e.live.Endpoints[web], own[1]) {
				t.Errorf("an address is refused after its instance went: %v", e.live.Endpoints[web])
			}
		})
	}
}

// Endpoints that are recorded in a snapshot are refused by their networks.
func TestRefusalsOfRecordedEndpoints(t *testing.T) {
	t.Parallel()
	web := snapshots.ServicePort{Namespace: "shop", Service: "web"}
	good, loop := snapshots.Endpoint{Address: "10.1.0.1", Port: 80}, snapshots.Endpoint{Address: "2002:7f00:1::", Port: 80}
	content, err := snapshots.MarshalEndpoints(map[snapshots.ServicePort][]snapshots.Endpoint{web: {good, loop}})
	if err != nil {
		t.Fatal(err)
	}
	d := snapshots.Draft{Files: []snapshots.File{
		{Path: snapshots.ConfigFile, Content: []byte("backend b\n    #hapsnap servers shop/web\n")}, {Path: snapshots.EndpointsFile, Content: content},
	}}
	for given, want := range map[bool]int{false: 0, true: 1} {
		r := newRefusals(Options{RefuseEndpoints: live.DefaultRefused, RefuseInManifests: given})
		p := prepare(d.Seal(1, snapshots.ID{}), true, &r)
		if p.err != nil || p.refused.count() != want || strings.Contains(fmt.Sprint(p.servers), loop.Address) != (want == 0) {
			t.Errorf("given %v: refused %v, servers %v, %v", given, p.refused, p.servers, p.err)
		}
	}
}

// However many endpoints a namespace has, others keep theirs; where it has fewer again, all of
// them are used.
func TestRefusalsOfTooManyEndpoints(t *testing.T) {
	t.Parallel()
	many := func(n int) []snapshots.Endpoint {
		out := make([]snapshots.Endpoint, n)
		for i := range out {
			out[i] = snapshots.Endpoint{Address: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String(), Port: 80}
		}
		return out
	}
	port := func(namespace string, n int) snapshots.ServicePort {
		return snapshots.ServicePort{Namespace: namespace, Service: fmt.Sprint("s", n)}
	}
	offered := map[snapshots.ServicePort][]snapshots.Endpoint{port("good", 0): many(4_000)}
	for n := range 7 {
		offered[port("bad", n)] = many(6_000)
	}
	r := newRefusals(Options{})
	used := r.filter(offered)
	count := map[string]int{}
	for port, endpoints := range used {
		count[port.Namespace] += len(endpoints)
	}
	if count["good"] != 4_000 || count["bad"] != mostOfNamespace || len(used[port("bad", 0)]) != mostOfService || len(used[port("bad", 6)]) != 0 {
		t.Errorf("used: %v", count)
	}
	if text := r.refused.trouble().Error(); !strings.Contains(text, "a Service may have 5000 endpoints") || len(text) > 1000 {
		t.Errorf("it is said %q", text)
	}
	if all := r.refused.events(); len(all) != 7 || len(all[0].Note) > 1000 || !strings.Contains(all[0].Note, "and 980 more") {
		t.Errorf("Events: %v", all)
	}
	used = r.filter(map[snapshots.ServicePort][]snapshots.Endpoint{port("bad", 0): many(3), port("bad", 1): nil})
	if len(used[port("bad", 5)]) != mostOfService || len(used[port("bad", 6)]) != mostOfService-3 || len(used) != 7 {
		t.Errorf("with fewer: %d ports, %d", len(used), len(used[port("bad", 6)]))
	}
}

func TestListeners(t *testing.T) {
	t.Parallel()
	const text = `
frontend http
    bind :80
    bind *:80 # once
    bind 0.0.0.0:8080,[::]:8081 v4v6
frontend status
bind ipv4@10.0.0.1:8404 # not indented
    bind "quic6@[2001:db8::1]:443" ssl
    bind ${ADDRESS}:9000
    bind :${PORT}
    bind unix@/run/socket
    bind :9100-9200
    bind
    binding :77
`
	got := ""
	for _, l := range listenersOf([]byte(text)) {
		got += fmt.Sprintf("%s %d, ", l.address, l.port)
	}
	if want := "invalid IP 80, invalid IP 8080, invalid IP 8081, 10.0.0.1 8404, 2001:db8::1 443, "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
