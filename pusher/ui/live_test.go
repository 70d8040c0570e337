package ui

import (
	"testing"

	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
)

// A page has a copy of the endpoints, since the pusher changes its own meanwhile.
func TestWatcherCopiesEndpoints(t *testing.T) {
	t.Parallel()
	web := snapshots.ServicePort{Namespace: "shop", Service: "web", Port: "http"}
	latest := NewLatest()
	w := NewWatcher(latest)
	v := observe.View{Now: noon}
	w.Watch(v, report.Status{}, nil)
	if got := latest.Fleet().Live.Endpoints; got != nil {
		t.Errorf("before they are known: %v", got)
	}
	v.Endpoints = map[snapshots.ServicePort][]snapshots.Endpoint{web: {{Address: "10.0.0.1", Port: 80}}}
	v.Now = v.Now.Add(watchPace)
	w.Watch(v, report.Status{}, nil)
	first := latest.Fleet().Live.Endpoints
	delete(v.Endpoints, web)
	if len(first) != 1 {
		t.Fatalf("got %v", first)
	}
	v.Now = v.Now.Add(watchPace)
	w.Watch(v, report.Status{}, nil)
	if got := latest.Fleet().Live.Endpoints; len(got) != 1 {
		t.Errorf("copied again after %v: %v", watchPace, got)
	}
	v.Now = v.Now.Add(endpointsPace)
	if w.Watch(v, report.Status{}, nil); len(latest.Fleet().Live.Endpoints) != 0 {
		t.Errorf("not copied after %v", endpointsPace)
	}
}
