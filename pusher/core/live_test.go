package core

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/notify"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// saidEvents keeps the last lasting Events.
type saidEvents struct{ lasting []events.Event }

// Run waits for the end.
func (s *saidEvents) Run(ctx context.Context) { <-ctx.Done() }

// Say keeps the lasting Events.
func (s *saidEvents) Say(lasting, _ []events.Event) { s.lasting = lasting }

// Also in manifests, no Service may have an address on which an instance listens, whether the instance is
// configured by address or by name. Networks are refused if that is configured. Refusals are in the status, in
// a metric and in an Event. The Event says nothing about the instances.
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
			registry := prometheus.NewRegistry()
			people := observe.New(observe.Options{
				Log: slog.New(slog.DiscardHandler), Metrics: registry, Tracers: noop.NewTracerProvider(), Notify: func(notify.Notice) {}, Events: said,
			})
			settings := usual
			settings.Source, settings.RefuseEndpoints, settings.RefuseInManifests = binding.FromDirectory, live.DefaultRefused, test.given
			now := time.Now()
			e := New(settings, State{}, nil, now)
			e.instances["edge-1"] = &instanceState{Instance: fleet.Instance{Name: "edge-1", URL: "http://10.0.0.11:5555"}}
			e.instances["edge-2"] = &instanceState{Instance: fleet.Instance{Name: "edge-2", URL: "http://edge-2.example:5555"}, known: instance.Known{Peer: named.Peer()}}
			e.live.Use(map[snapshots.ID]snapshots.Snapshot{{Revision: 1}: {Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: config}}}}, now)
			e.liveData.takeLive(binding.Objects{Slices: 1, Live: bind.Live{Endpoints: map[snapshots.ServicePort][]snapshots.Endpoint{web: slices.Concat([]snapshots.Endpoint{good, loop}, own)}}}, nil, now)
			e.liveData.refuseOwn(now)
			if !slices.Equal(known(e)[web], test.used) {
				t.Errorf("used %v, want %v", known(e)[web], test.used)
			}
			e.liveData.troubleWithLive(now)
			refused := 2 + len(own) - len(test.used)
			e.reporting.look(now)
			people.Show(e.Shown())
			metric := fmt.Sprintf("# HELP hapsnap_pusher_endpoints_refused Endpoints of EndpointSlices that are refused for their addresses: nothing is sent there.\n# TYPE hapsnap_pusher_endpoints_refused gauge\nhapsnap_pusher_endpoints_refused %d\n", refused)
			if err := testutil.GatherAndCompare(registry, strings.NewReader(metric), "hapsnap_pusher_endpoints_refused"); err != nil {
				t.Error(err)
			}
			if text := e.troubles["endpoints"].Error; !strings.Contains(text, "10.0.0.11:5555 of shop/web: it is the Dataplane API of edge-1") {
				t.Errorf("the status says %q", text)
			}
			if len(said.lasting) != 1 || said.lasting[0].Regarding.Kind != "Service" || !strings.Contains(said.lasting[0].Note, "10.0.0.9:8404") || strings.Contains(said.lasting[0].Note, "edge") {
				t.Errorf("Events: %v", said.lasting)
			}
			delete(e.instances, "edge-1")
			e.liveData.refuseOwn(now)
			if !slices.Contains(known(e)[web], own[1]) {
				t.Errorf("an address is refused after its instance went: %v", known(e)[web])
			}
		})
	}
}

// known returns the endpoints that a machine knows.
func known(e *Machine) map[snapshots.ServicePort][]snapshots.Endpoint { return e.live.Endpoints() }
