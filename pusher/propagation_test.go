package pusher

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/snapshots"
)

// A change has arrived where the worker has it, and not where the instance is busy with
// something else, or has to write its file first.
func TestArrived(t *testing.T) {
	t.Parallel()
	has := instanceNeeds{Reachable: true, Bound: true, SameNode: true, SameServers: true, SameMaps: true, SameCertificates: true, Persisted: true}
	edit := func(change func(*instanceNeeds)) instanceNeeds {
		s := has
		change(&s)
		return s
	}
	for name, test := range map[string]struct {
		s    instanceNeeds
		want bool
	}{
		"it has all":                              {has, true},
		"not on disk yet":                         {edit(func(s *instanceNeeds) { s.Persisted = false }), true},
		"busy, and has all":                       {edit(func(s *instanceNeeds) { s.Busy = true }), true},
		"other servers":                           {edit(func(s *instanceNeeds) { s.SameServers = false }), false},
		"other servers, and busy":                 {edit(func(s *instanceNeeds) { s.SameServers, s.Busy = false, true }), false},
		"other servers, and its file comes first": {edit(func(s *instanceNeeds) { s.SameServers, s.Unserved, s.Updated = false, true, true }), false},
		"other certificates":                      {edit(func(s *instanceNeeds) { s.SameCertificates = false }), false},
		"other entries":                           {edit(func(s *instanceNeeds) { s.SameMaps = false }), false},
		"another shape":                           {edit(func(s *instanceNeeds) { s.SameNode = false }), false},
		"another shape, and busy":                 {edit(func(s *instanceNeeds) { s.SameNode, s.Busy = false, true }), false},
		"out of reach":                            {edit(func(s *instanceNeeds) { s.Reachable, s.SameServers = false, false }), true},
	} {
		if got := arrived(test.s); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Changes of endpoints are one line for ten seconds, however many there are.
func TestEndpointChangesAreSummed(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	web, api := snapshots.ServicePort{Namespace: "shop", Service: "web"}, snapshots.ServicePort{Namespace: "shop", Service: "api"}
	at := func(last ...string) (list []snapshots.Endpoint) {
		for _, l := range last {
			name, draining := strings.CutSuffix(l, " drains")
			list = append(list, snapshots.Endpoint{Address: "10.0.0." + name, Port: 80, Draining: draining})
		}
		return list
	}
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	var s tally
	s.changed("edge-1") // nothing has changed yet
	s.log(log, begin)
	if s.change(web, at("1"), at("1"), begin); !s.since.IsZero() {
		t.Error("the same counts as a change")
	}
	s.change(web, at("1"), at("1", "2"), begin)
	s.change(web, at("1", "2"), at("1 drains", "2"), begin.Add(time.Second))
	s.change(web, at("1 drains", "2"), at("2"), begin.Add(2*time.Second))
	s.change(api, nil, at("7", "8"), begin.Add(3*time.Second))
	s.changed("edge-1")
	s.changed("edge-1")
	s.changed("edge-2")
	s.log(log, begin.Add(9*time.Second))
	s.log(log, begin.Add(10*time.Second))
	s.log(log, begin.Add(60*time.Second))
	want := "level=INFO msg=\"endpoints changed\" services=2 added=3 removed=1 instances=2 within=10s\n"
	if got := out.String(); !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 1 {
		t.Errorf("logged\n%s, want\n%s", got, want)
	}
}

// How long changes take is measured for manifests too.
func TestPropagationFromADirectory(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V34, "a")
	registry := prometheus.NewRegistry()
	r.options.Metrics = registry
	r.endpoints(echo(t, "one"))
	r.allRunAfter(r.publish(config("1", "")))
	if n := propagations(t, registry, propagationEndpoints); n != 0 {
		t.Errorf("%d changes before there was one", n)
	}
	r.endpoints(echo(t, "two"))
	eventually(t, "the new endpoint answers", func() bool { return r.answersOnly("a", "two") })
	eventually(t, "its way is timed", func() bool { return propagations(t, registry, propagationEndpoints) == 1 })
}

func propagations(t *testing.T, g prometheus.Gatherer, kind string) uint64 {
	t.Helper()
	all, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range all {
		if family.GetName() != "hapsnap_pusher_propagation_seconds" {
			continue
		}
		for _, m := range family.GetMetric() {
			if m.GetLabel()[0].GetValue() == kind {
				return m.GetHistogram().GetSampleCount()
			}
		}
	}
	return 0
}
