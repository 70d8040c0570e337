package core

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// benchBackends is how many backends there are. Each has three endpoints.
const benchBackends = 1000

// benchMachine returns a pusher whose HAProxy runs a snapshot. The benchmark decides when it takes a turn, and
// nothing else asks for work.
func benchMachine(b *testing.B) *driven {
	b.Helper()
	dir := b.TempDir()
	edge := dataplanetest.Start(b, dataplanetest.Options{API: dataplanetest.V34, Env: []string{"WEB=unix@" + filepath.Join(dir, "web.sock")}})
	soak := time.Duration(0)
	store := dirstore.Open(filepath.Join(dir, "store"), dirstore.Options{})
	d := newDriven(b, Settings{
		Source: binding.FromDirectory, Soak: &soak, PollInterval: time.Hour, DrainTime: time.Hour, PersistInterval: time.Hour, InspectInterval: time.Hour,
		CollectAfter: time.Hour,
	}, store)
	config := strings.Builder{}
	config.WriteString(edgeConfig(map[string]string{"bare": "server s1 192.0.2.1:80\n    server s2 192.0.2.1:80\n    server s3 192.0.2.1:80"}))
	read := binding.Objects{Live: bind.Live{Endpoints: map[snapshots.ServicePort][]snapshots.Endpoint{}}}
	for n := range benchBackends {
		port := httpPort(fmt.Sprintf("web-%d", n))
		fmt.Fprintf(&config, "\nbackend shop_web-%d\n    balance roundrobin\n    http-request set-header X-Backend web-%d\n    #hapsnap servers %s -- maxconn 100\n", n, n, port)
		for j := range 3 {
			read.Endpoints[port] = append(read.Endpoints[port], snapshots.Endpoint{Address: fmt.Sprintf("10.%d.%d.%d", n>>8, n&255, j+1), Port: 8080})
		}
	}
	draft := snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(config.String())}}, Time: time.Now()}
	if _, _, err := store.Publish(b.Context(), draft); err != nil {
		b.Fatal(err)
	}
	view, err := store.View(b.Context())
	d.waiting = []Event{ViewRead{view, err}, LiveRead{read, nil}, FleetRead{fleet.Fleet{Instances: []fleet.Instance{{
		Name: "a", URL: edge.URL(), Username: "admin", Password: "secret",
		Layout: bind.Layout{Maps: edge.Dirs.Maps, Certificates: edge.Dirs.Certificates, General: edge.Dirs.General},
	}}}, nil}}
	d.until(b, func() bool { s := d.status(); return s.InSync() == 1 && s.Rollout == nil })
	return d
}

// BenchmarkEndpoint measures what a changed endpoint among 1,000 backends costs, from the event to the worker's
// proof. In between it measures a single call that changes a server. price is the ratio of the two medians.
func BenchmarkEndpoint(b *testing.B) {
	d := benchMachine(b)
	i := d.instances["a"]
	client, err := dataplane.New(dataplane.Options{URL: i.URL, Username: i.Username, Password: i.Password, TLS: i.TLS})
	if err != nil {
		b.Fatal(err)
	}
	// The file, the state and the inspections are not due.
	i.persisted, i.inspectAfter = time.Now(), time.Now().Add(time.Hour)
	var calls, changes []time.Duration
	for n := 0; b.Loop(); n++ {
		began := time.Now()
		change := dataplane.ServerChange{AdminState: []string{dataplane.StateDrain, dataplane.StateReady}[n%2]}
		if _, err := client.SetServer(b.Context(), "bare", "s1", change); err != nil {
			b.Fatal(err)
		}
		called := time.Now()
		d.saving.saved = called
		port := httpPort(fmt.Sprintf("web-%d", n%benchBackends))
		list := slices.Clone(known(d.Machine)[port])
		list[0].Draining = !list[0].Draining
		d.live.TakeCluster(cluster.Change{Endpoints: map[snapshots.ServicePort][]snapshots.Endpoint{port: list}}, time.Now())
		for d.step(b.Context()); i.busy != ""; d.step(b.Context()) {
			d.waiting = append(d.waiting, <-d.events)
		}
		calls, changes = append(calls, called.Sub(began)), append(changes, time.Since(called))
		if d.step(b.Context()); !d.statusOf(i.Name).InSync {
			b.Fatalf("%+v", d.status())
		}
	}
	b.ReportMetric(float64(median(changes))/float64(median(calls)), "price")
	b.ReportMetric(float64(median(calls).Nanoseconds()), "ns/call")
}

func median(list []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(list))[len(list)/2]
}
