package ui

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/snapshots"
)

// The answer to a request says which servers are up, and on how many instances. The instances are asked once for
// all viewers.
func TestHealthOfServers(t *testing.T) {
	t.Parallel()
	s := shop(1)
	fleet := shopFleet(s.ID())()
	fleet.Status.Backends = nil
	web := snapshots.ServicePort{Namespace: "shop", Service: "web", Port: "http"}
	fleet.Live.Endpoints[web] = []snapshots.Endpoint{{Address: "10.0.0.1", Port: 8080}, {Address: "10.0.0.2", Port: 8080}, {Address: "fd00::3", Port: 8080}, {Address: "10.0.0.4", Port: 8080, Draining: true}}
	fleet.Live.Traffic = map[string]observe.Traffic{}
	var asked atomic.Int32
	h := server(t, Source{Channel: "edge", Fleet: func() Fleet { return fleet }, Store: storeOf(s), Servers: func(_ context.Context, backend string) []ServerState {
		if asked.Add(1); backend != "shop_web" {
			t.Errorf("asked for %s", backend)
		}
		return []ServerState{
			{"edge-1", "10.0.0.1", 8080, true}, {"edge-2", "10.0.0.1", 8080, true}, {"edge-1", "10.0.0.2", 8080, true}, {"edge-2", "10.0.0.2", 8080, false},
			{"edge-1", "fd00:0::3", 8080, false}, {"edge-2", "fd00::3", 8080, false}, {"edge-1", "127.0.0.1", 1, false}, {"edge-1", "nonsense", 0, true}, {"edge-1", "10.0.0.4", 8080, false},
		}
	}}).Handler()
	var answer answered
	eventually.Holds(t, "the page knows how the servers are", func() bool {
		_, body := get(t, h, "/api/v1/answer?host=shop.example.com&path=/")
		answer = answered{}
		if err := json.Unmarshal([]byte(body), &answer); err != nil || len(answer.Services) != 1 {
			t.Fatalf("%v: %s", err, body)
		}
		return answer.Services[0].Endpoints[0].On > 0
	})
	if e := answer.Services[0].Endpoints; e[0].Up != 2 || e[0].On != 2 || e[1].Up != 1 || e[2].Up != 0 || e[2].On != 2 {
		t.Errorf("got %+v", e)
	}
	_, body := get(t, h, "/routes?host=shop.example.com&path=/")
	text := plainText(body)
	for _, want := range []string{"1 of 4 servers up, and 1 on some instances only", " 10.0.0.1:8080 ", "▲ 10.0.0.2:8080 up on 1 of 2 instances", "▲ [fd00::3]:8080 down", " 10.0.0.4:8080 (draining)"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("instances were asked %d times", n)
	}
}

// An answer does not wait for instances that hang.
func TestHealthThatNobodyTells(t *testing.T) {
	t.Parallel()
	s := shop(1)
	hangs := make(chan struct{})
	defer close(hangs)
	h := server(t, Source{Channel: "edge", Fleet: shopFleet(s.ID()), Store: storeOf(s), Servers: func(ctx context.Context, _ string) []ServerState {
		select {
		case <-ctx.Done():
		case <-hangs:
		}
		return nil
	}}).Handler()
	_, body := get(t, h, "/routes?host=shop.example.com&path=/")
	if text := plainText(body); !strings.Contains(text, "shop/web:http : 2 endpoints") {
		t.Errorf("got %s", text)
	}
}
