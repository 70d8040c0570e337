package push

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// Whatever changes: in the first stage, no server begins or stops to take traffic. In the second stage, no
// server that takes traffic at its end gets its address. Both stages together make the change.
func TestStages(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	states := []bind.SlotState{bind.SlotReady, bind.SlotDrain, bind.SlotSpare}
	some := func(name string) bind.Server {
		s := server(name, fmt.Sprintf("10.0.0.%d", 1+random.IntN(3)), states[random.IntN(3)])
		return weighing(s, random.IntN(3))
	}
	for range 2000 {
		var from, to []bind.Server
		for n := range 4 {
			from, to = append(from, some(fmt.Sprint("s", n))), append(to, some(fmt.Sprint("s", n)))
		}
		first, then := stages(changes(from, to))
		now := append([]bind.Server(nil), from...)
		for _, c := range first {
			if (c.from.State == bind.SlotReady) != (c.to.State == bind.SlotReady) {
				t.Fatalf("the first stage makes %+v %+v", c.from, c.to)
			}
			if now[c.at] != c.from {
				t.Fatalf("the first stage begins with %+v, not %+v", c.from, now[c.at])
			}
			now[c.at] = c.to
		}
		for _, c := range then {
			if c.to.State == bind.SlotReady && c.moves() {
				t.Fatalf("the second stage makes %+v %+v", c.from, c.to)
			}
			if now[c.at] != c.from {
				t.Fatalf("the second stage begins with %+v, not %+v", c.from, now[c.at])
			}
			now[c.at] = c.to
		}
		if left := changes(now, to); len(left) > 0 {
			t.Fatalf("%+v is left of %+v to %+v", left, from, to)
		}
	}
}

// late is a fake that acknowledges addresses some calls before its servers have them, like HAProxy 3.0.
type late struct {
	*fake
	by      int
	pending []func()
}

// turn sets the addresses that are due.
func (l *late) turn() {
	if len(l.pending) > 0 && l.by == 0 {
		for _, set := range l.pending {
			set()
		}
		l.pending = nil
	}
	l.by = max(l.by-1, 0)
}

func (l *late) Servers(ctx context.Context, backend string) ([]dataplane.Server, error) {
	l.turn()
	return l.fake.Servers(ctx, backend)
}

func (l *late) SetServer(ctx context.Context, backend, name string, ch dataplane.ServerChange) (dataplane.Server, error) {
	l.turn()
	if address, port := ch.Address, ch.Port; address != "" {
		l.pending = append(l.pending, func() {
			for n := range l.servers[backend] {
				if s := &l.servers[backend][n]; s.Name == name {
					s.Address, s.Port = address, port
				}
			}
		})
	}
	ch.Address, ch.Port = "", 0
	server, err := l.fake.SetServer(ctx, backend, name, ch)
	if ch.AdminState == "ready" && server.Address == bind.SpareAddress {
		l.t.Errorf("%s is made ready at the address of a spare slot", name)
	}
	return server, err
}

// PostRaw carries out the actions, and addresses late.
func (l *late) PostRaw(ctx context.Context, config []byte, o dataplane.PostOptions) (dataplane.Posted, error) {
	for _, a := range o.Actions {
		var kind, backend, name, value, more string
		_, _ = fmt.Sscan(a.String(), &kind, &backend, &name, &value, &more)
		var ch dataplane.ServerChange
		switch kind {
		case "SetServerState":
			ch.AdminState = value
		case "SetServerAddr":
			ch.Address = value
			_, _ = fmt.Sscan(more, &ch.Port)
		}
		if _, err := l.SetServer(ctx, backend, name, ch); err != nil {
			return dataplane.Posted{}, err
		}
	}
	return l.fake.PostRaw(ctx, config, o)
}

// A worker may acknowledge an address before its server has it. The server is not made ready until it has,
// whether a call or a post sets the address.
func TestUpdateWaitsForAddresses(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v3.2.5", "v3.4.2"} {
		for _, n := range []int{1, 3, manyChanges} {
			var before, after []bind.Server
			for s := range n {
				before = append(before, server(fmt.Sprint("a", s), "10.0.0.1", bind.SlotReady), spare(fmt.Sprint("b", s)))
				after = append(after, server(fmt.Sprint("a", s), "10.0.0.1", bind.SlotDrain), server(fmt.Sprint("b", s), "10.0.0.2", bind.SlotReady))
			}
			old, next := bound(1, before), bound(1, after)
			f := newFake(t)
			f.version = version
			f.put(old)
			f.load()
			f.servers = asServers(before...)
			have := Running{Servers: before, Persisted: true, Info: dataplane.RuntimeInfo{Node: f.node, PID: f.pid}}
			got, err := Instance{API: &late{fake: f, by: 5}, ReloadTimeout: time.Second}.Update(t.Context(), wanted(next), have)
			if err != nil || !got.Has(after) {
				t.Errorf("API %s, %d endpoints: %v", version, n, err)
			}
		}
	}
}

// A large configuration is not posted for changes that calls make while others change too, see [round].
func TestUpdateByCallsOrByAPost(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		servers, changes int
		posts            bool
	}{
		{100, 49, false},
		{100, 50, true},
		{401, 400, false},
		{2000, 2000, false},
	} {
		var before, after []bind.Server
		for n := range test.servers {
			s := server(fmt.Sprint("s", n), "10.0.0.1", bind.SlotReady)
			if before = append(before, s); n < test.changes {
				s.State = bind.SlotDrain
			}
			after = append(after, s)
		}
		old, next := bound(1, before), bound(1, after)
		f := newFake(t)
		f.put(old)
		f.load()
		f.servers = asServers(before...)
		have := Running{Servers: before, Persisted: true, Info: dataplane.RuntimeInfo{Node: f.node, PID: f.pid}}
		got, err := updated(t, Instance{API: &late{fake: f}, ReloadTimeout: time.Second}, wanted(next), have)
		if err != nil || !got.Has(after) {
			t.Errorf("%d changes of %d servers: %v", test.changes, test.servers, err)
		}
		if posts := slices.ContainsFunc(f.calls, func(call string) bool { return strings.HasPrefix(call, "post ") }); posts != test.posts {
			t.Errorf("%d changes of %d servers: a post: %t, want %t", test.changes, test.servers, posts, test.posts)
		}
	}
}

func TestNotice(t *testing.T) {
	ready := server("s1", "10.0.0.1", bind.SlotReady)
	drained := server("s1", "10.0.0.1", bind.SlotDrain)
	maintained := server("s1", "10.0.0.1", bind.SlotSpare)
	elsewhere := server("s1", "10.0.0.2", bind.SlotDrain)
	drain := ManualDrain{ready.Backend, "s1", "10.0.0.1", ready.Port, bind.SlotDrain}
	other := drain
	other.State = bind.SlotSpare
	tests := map[string]struct {
		drains  []ManualDrain
		was, is bind.Server
		want    []ManualDrain
		list    []change
	}{
		"nothing happened":            {was: ready, is: ready},
		"taken out":                   {was: ready, is: drained, want: []ManualDrain{drain}},
		"moved, and out":              {was: ready, is: elsewhere},
		"taken out by us":             {was: ready, is: drained, list: []change{{from: ready, to: drained}}},
		"still out":                   {drains: []ManualDrain{drain}, was: drained, is: drained, want: []ManualDrain{drain}},
		"given back":                  {drains: []ManualDrain{drain}, was: drained, is: ready},
		"from drain to maintenance":   {drains: []ManualDrain{drain}, was: drained, is: maintained, want: []ManualDrain{other}},
		"a spare one that is drained": {was: maintained, is: drained},
		"remembered, not yet set":     {drains: []ManualDrain{drain}, was: ready, is: ready, want: []ManualDrain{drain}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := Running{ManualDrains: test.drains}.noteDrains([]bind.Server{test.was}, []bind.Server{test.is}, test.list)
			if !slices.Equal(got.ManualDrains, test.want) {
				t.Errorf("drains are %v, want %v", got.ManualDrains, test.want)
			}
		})
	}
}

func TestRespect(t *testing.T) {
	ready := server("s1", "10.0.0.1", bind.SlotReady)
	drain := ManualDrain{ready.Backend, "s1", "10.0.0.1", ready.Port, bind.SlotSpare}
	for name, test := range map[string]struct {
		want   bind.Server
		state  bind.SlotState
		drains int
	}{
		"its endpoint is there":         {ready, bind.SlotSpare, 1},
		"its endpoint is leaving":       {server("s1", "10.0.0.1", bind.SlotDrain), bind.SlotDrain, 0},
		"another endpoint has the slot": {server("s1", "10.0.0.2", bind.SlotReady), bind.SlotReady, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, drains := keepDrained([]bind.Server{test.want}, []ManualDrain{drain})
			if got[0].State != test.state || len(drains) != test.drains {
				t.Errorf("state %s, drains %v", got[0].State, drains)
			}
		})
	}
}

// What a worker loaded is the list that was bound, unless a slot of it is drained.
func TestLoadedIsNoCopy(t *testing.T) {
	want := list(server("s1", "10.0.0.1", bind.SlotReady), server("s2", "10.0.0.2", bind.SlotSpare))
	if got := Loaded(want); &got[0] != &want[0] {
		t.Error("it is a copy")
	}
	want[1].State = bind.SlotDrain
	if got := Loaded(want); &got[0] == &want[0] || got[1].State != bind.SlotSpare || want[1].State != bind.SlotDrain {
		t.Errorf("a drained slot is %s, and %s in the list", got[1].State, want[1].State)
	}
}
