package push

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

const spareAddress = bind.SpareAddress

// spare is a slot without an endpoint.
func spare(name string) bind.Server {
	return bind.Server{Backend: "web", Name: name, Address: spareAddress, Port: 1, Weight: 1, State: bind.SlotSpare}
}

func weighing(s bind.Server, weight int) bind.Server {
	s.Weight = weight
	return s
}

func TestActions(t *testing.T) {
	ready, drain := bind.SlotReady, bind.SlotDrain
	tests := map[string]struct {
		from, to bind.Server
		want     []string
	}{
		"an endpoint comes: its address before its traffic": {
			spare("s1"), server("s1", "10.0.0.1", ready),
			[]string{"SetServerState web s1 maint", "SetServerAddr web s1 10.0.0.1 80", "SetServerState web s1 ready"},
		},
		"an endpoint goes: its traffic before its address": {
			server("s1", "10.0.0.1", drain), spare("s1"),
			[]string{"SetServerState web s1 maint", "SetServerAddr web s1 192.0.2.1 1"},
		},
		"it takes the place of one that drains": {
			server("s1", "10.0.0.1", drain), server("s1", "10.0.0.2", ready),
			[]string{"SetServerState web s1 maint", "SetServerAddr web s1 10.0.0.2 80", "SetServerState web s1 ready"},
		},
		"it drains":          {server("s1", "10.0.0.1", ready), server("s1", "10.0.0.1", drain), []string{"SetServerState web s1 drain"}},
		"it recovers":        {server("s1", "10.0.0.1", drain), server("s1", "10.0.0.1", ready), []string{"SetServerState web s1 ready"}},
		"it moves":           {server("s1", "10.0.0.1", ready), server("s1", "10.0.0.2", ready), []string{"SetServerAddr web s1 10.0.0.2 80"}},
		"its weight changes": {server("s1", "10.0.0.1", ready), weighing(server("s1", "10.0.0.1", ready), 5), []string{"SetServerWeight web s1 5"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, a := range actions(changes([]bind.Server{test.from}, []bind.Server{test.to})) {
				got = append(got, a.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("actions differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAtLeast34(t *testing.T) {
	for version, want := range map[string]bool{
		"v3.4.2 1a2b": true, "v3.4.0": true, "3.10.1": true, "v4.0.0": true,
		"v3.2.5 1a2b": false, "v3.3.9": false, "dev.dirty": false, " dev.dirty": false, "": false, "v3": false, "v3.x.1": false,
	} {
		if got := atLeast34(version); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}

// asServers returns the servers as the API shows them.
func asServers(list ...bind.Server) map[string][]dataplane.Server {
	out := map[string][]dataplane.Server{}
	for _, s := range list {
		out[s.Backend] = append(out[s.Backend], dataplane.Server{Name: s.Name, Address: s.Address, Port: s.Port, AdminState: string(s.State)})
	}
	return out
}

func TestUpdate(t *testing.T) {
	old := bound(1, []bind.Server{server("s1", "10.0.0.1", bind.SlotReady), spare("s2")})
	next := bound(1, []bind.Server{server("s1", "10.0.0.1", bind.SlotDrain), server("s2", "10.0.0.2", bind.SlotReady)})
	const node = "r000001-0000000001_aaaaaaaa"
	tests := map[string]struct {
		version   string
		forget    bool // what the worker has is not known
		want      bind.Bound
		edit      func(f *fake)
		calls     []string
		persisted bool
		fails     error
	}{
		"nothing to do":                  {version: "v3.2.5", want: old, persisted: true},
		"nothing to do, unknown":         {version: "v3.4.2", want: old, forget: true, persisted: true},
		"before 3.4, with the file":      {version: "v3.2.5", want: next, persisted: true, calls: []string{"post " + node + ", no reload; SetServerState web s2 maint; SetServerAddr web s2 10.0.0.2 80", "set web/s2 :0 ready", "set web/s1 :0 drain"}},
		"from 3.4, one by one":           {version: "v3.4.2", want: next, calls: []string{"set web/s2 10.0.0.2:80 ", "set web/s2 :0 ready up", "set web/s1 :0 drain"}},
		"states only, before 3.4":        {version: "v3.2.5", want: drained(old), calls: []string{"set web/s1 :0 drain"}},
		"the worker runs something else": {version: "v3.2.5", want: next, edit: func(f *fake) { f.node = "other" }, fails: ErrElsewhere, persisted: true},
		"a call fails": {
			version: "v3.4.2", want: next, fails: dataplane.ErrUnavailable, calls: []string{"set web/s2 10.0.0.2:80 "},
			edit: func(f *fake) {
				f.setting = func(string, string, dataplane.ServerChange) error { return classed{dataplane.ErrUnavailable} }
			},
		},
		"one that tracks another cannot be said to be up": {
			version: "v3.4.2", want: next,
			edit: func(f *fake) {
				f.setting = func(_, _ string, ch dataplane.ServerChange) error {
					if ch.Up {
						return classed{dataplane.ErrUnavailable}
					}
					return nil
				}
			},
			calls: []string{"set web/s2 10.0.0.2:80 ", "set web/s2 :0 ready up", "set web/s2 :0 ready", "set web/s1 :0 drain"},
		},
		"a conflict with another writer": {
			version: "v3.2.5", want: next, persisted: true,
			edit: func(f *fake) { f.failPosts(1, classed{dataplane.ErrConflict}) },
			calls: []string{
				"post " + node + ", no reload; SetServerState web s2 maint; SetServerAddr web s2 10.0.0.2 80", "delete transaction 1",
				"post " + node + ", no reload; SetServerState web s2 maint; SetServerAddr web s2 10.0.0.2 80", "set web/s2 :0 ready", "set web/s1 :0 drain",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.version = test.version
			f.put(old)
			f.load()
			f.servers = asServers(old.Servers...)
			f.obey()
			if test.edit != nil {
				test.edit(f)
			}
			have := Running{Servers: old.Servers, Persisted: true, Info: dataplane.RuntimeInfo{Node: f.node, PID: f.pid}}
			if test.forget {
				have = Running{}
			}
			got, err := Instance{API: f, ReloadTimeout: time.Second}.Update(t.Context(), wanted(test.want), have)
			if !errors.Is(err, test.fails) {
				t.Fatalf("error is %v, want %v", err, test.fails)
			}
			if diff := cmp.Diff(test.calls, f.calls); diff != "" {
				t.Errorf("called otherwise (-want +got):\n%s", diff)
			}
			if got.Persisted != test.persisted {
				t.Errorf("persisted is %v", got.Persisted)
			}
			if test.fails == nil && !cmp.Equal(got.Servers, test.want.Servers) {
				t.Errorf("servers are %+v, want %+v", got.Servers, test.want.Servers)
			}
		})
	}
}

// The file of a snapshot is not written where the worker runs another one by now.
func TestWriteFileOfWhatRuns(t *testing.T) {
	f := newFake(t)
	b := bound(1, []bind.Server{server("s1", "10.0.0.1", bind.SlotReady)})
	f.put(b)
	f.load()
	f.node = "r000002-0000000002_bbbbbbbb"
	if _, err := (Instance{API: f, ReloadTimeout: time.Second}).WriteFile(t.Context(), b, Running{}); !errors.Is(err, ErrElsewhere) || len(f.calls) > 0 {
		t.Errorf("error is %v, calls were %v", err, f.calls)
	}
}

// While the file is written, an update changes servers by calls, and leaves alone what would take files or a post.
func TestCallsOnlyLeaveMapsAlone(t *testing.T) {
	old := bound(1, []bind.Server{server("s1", "10.0.0.1", bind.SlotReady), spare("s2")})
	next := bound(1, []bind.Server{server("s1", "10.0.0.1", bind.SlotDrain), server("s2", "10.0.0.2", bind.SlotReady)})
	f := newFake(t)
	f.version = "v3.4.2"
	f.put(old)
	f.load()
	f.servers = asServers(old.Servers...)
	f.obey()
	want := wanted(next)
	want.CallsOnly, want.Entries = true, "others"
	want.Bind = func() (bind.Bound, error) {
		t.Error("the snapshot is bound")
		return next, nil
	}
	have := Running{Servers: old.Servers, Info: dataplane.RuntimeInfo{Node: f.node, PID: f.pid}, Maps: "these"}
	got, err := Instance{API: f, ReloadTimeout: time.Second}.Update(t.Context(), want, have)
	if err != nil || got.Maps != "these" || !cmp.Equal(got.Servers, next.Servers) {
		t.Errorf("maps %q, servers %+v: %v", got.Maps, got.Servers, err)
	}
}

// wanted is what a worker should have for a bound snapshot.
func wanted(b bind.Bound) Wanted {
	return Wanted{Node: b.Node, Servers: b.Servers, Certificates: Hashes(b), Entries: b.Entries, Bind: func() (bind.Bound, error) { return b, nil }}
}

// drained returns the bound snapshot with its first server drained.
func drained(b bind.Bound) bind.Bound {
	servers := append([]bind.Server(nil), b.Servers...)
	servers[0].State = bind.SlotDrain
	return bound(b.ID.Revision, servers)
}

// obey makes posts carry out their actions, as the API does.
func (f *fake) obey() {
	next := f.post
	f.post = func(text string, o dataplane.PostOptions) (dataplane.Posted, error) {
		posted, err := next(text, o)
		if err != nil || !o.SkipReload {
			return posted, err
		}
		calls := f.calls
		for key, line := range readText([]byte(text)).servers() {
			state := "ready"
			if line.disabled {
				state = "drain"
			}
			change := dataplane.ServerChange{Address: line.address.Addr().String(), Port: int(line.address.Port()), AdminState: state}
			_, _ = f.SetServer(f.t.Context(), key.backend, key.name, change)
		}
		f.calls = calls
		return posted, nil
	}
}

// The pusher does not trust an API that answers 200 and changes nothing.
func TestUpdateReadsBack(t *testing.T) {
	old := bound(1, []bind.Server{spare("s1")})
	next := bound(1, []bind.Server{server("s1", "10.0.0.1", bind.SlotReady)})
	f := newFake(t)
	f.put(old)
	f.load()
	f.servers = asServers(old.Servers...)
	have := Running{Servers: old.Servers, Info: dataplane.RuntimeInfo{Node: f.node, PID: f.pid}}
	got, err := Instance{API: f, ReloadTimeout: 10 * time.Millisecond}.Update(t.Context(), wanted(next), have)
	if err == nil || !cmp.Equal(got.Servers, old.Servers) {
		t.Errorf("servers are %+v, and the error is %v", got.Servers, err)
	}
}

// A changed endpoint costs one call, whose answer proves it, and one call before it, whatever else exists. All
// servers are read only after a failed call. The version of the API is read once, and again if it turned out to
// be too old.
func TestUpdateAsksForWhatProves(t *testing.T) {
	at := func(address string) bind.Bound {
		other := spare("s1")
		other.Backend = "other"
		return bound(1, []bind.Server{server("s1", address, bind.SlotReady), spare("s2"), other})
	}
	f := newFake(t)
	f.version = "v3.4.2"
	f.put(at("10.0.0.1"))
	f.load()
	f.servers = asServers(at("10.0.0.1").Servers...)
	have := Running{Servers: at("10.0.0.1").Servers, Info: dataplane.RuntimeInfo{Node: f.node, PID: f.pid}}
	i := Instance{API: f, ReloadTimeout: time.Second}
	known, first := []string{"info"}, []string{"info", "version of the API"}
	failed := []string{"info", "servers of web"}
	for _, step := range []struct {
		address string
		refuses bool
		asked   []string
	}{
		{"10.0.0.2", false, first}, {"10.0.0.3", false, known}, {"10.0.0.4", true, failed}, {"10.0.0.5", false, first}, {"10.0.0.6", false, known},
	} {
		f.asked, f.calls = nil, nil
		f.setting = func(string, string, dataplane.ServerChange) error {
			if step.refuses {
				return classed{dataplane.ErrUnavailable}
			}
			return nil
		}
		want := wanted(at(step.address))
		want.Bind = func() (bind.Bound, error) {
			t.Error("everything was bound")
			return bind.Bound{}, errors.New("for nothing")
		}
		next, err := i.Update(t.Context(), want, have)
		if (err != nil) != step.refuses || len(f.calls) != 1 {
			t.Errorf("%s: error %v, calls %q", step.address, err, f.calls)
		}
		if diff := cmp.Diff(step.asked, f.asked); diff != "" {
			t.Errorf("%s: asked otherwise (-want +got):\n%s", step.address, diff)
		}
		have = next
	}
}

// If an answer does not describe the changed server, the servers of its backend are read. The others stay as
// known.
func TestUpdateReadsBackItsBackendOnly(t *testing.T) {
	of := func(backend string, s bind.Server) bind.Server {
		s.Backend = backend
		return s
	}
	ready := func(address string) bind.Server { return server("s1", address, bind.SlotReady) }
	old := bound(1, []bind.Server{of("a", ready("10.0.1.1")), of("a", spare("s2")), of("b", ready("10.0.2.1")), of("b", spare("s2")), of("c", ready("10.0.3.1"))})
	next := bound(1, slices.Clone(old.Servers))
	next.Servers[3] = of("b", server("s2", "10.0.2.2", bind.SlotReady))
	f := runningFake(t, old)
	f.servers["b"][0].AdminState = "drain"                      // somebody else changed it
	f.servers["c"][0].AdminState, f.servers["a"] = "drain", nil // nothing reads these
	have := Running{Servers: old.Servers, Info: dataplane.RuntimeInfo{Node: f.node, PID: f.pid}}
	got, err := Instance{API: mute{f}, ReloadTimeout: time.Second}.Update(t.Context(), wanted(next), have)
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(next.Servers)
	want[2].State = bind.SlotDrain
	if diff := cmp.Diff(want, got.Servers); diff != "" || len(got.ManualDrains) != 1 || got.ManualDrains[0].Backend != "b" {
		t.Errorf("manual drains: %v; servers (-want +got):\n%s", got.ManualDrains, diff)
	}
	if diff := cmp.Diff(old.Servers, have.Servers); diff != "" {
		t.Errorf("what was known before has changed (-was +is):\n%s", diff)
	}
}

// The API carries a post out after the pusher has given it up, and has made the changes by calls of their own. What
// that takes out of traffic is not taken for somebody's wish, or the endpoint would never be served again.
func TestLatePostIsNobodysWish(t *testing.T) {
	t.Parallel()
	old := bound(1, []bind.Server{server("s1", "10.0.0.1", bind.SlotReady), spare("s2")})
	next := bound(1, []bind.Server{spare("s1"), server("s2", "10.0.0.2", bind.SlotReady)})
	f := runningFake(t, old)
	f.post = func(string, dataplane.PostOptions) (dataplane.Posted, error) {
		return dataplane.Posted{}, classed{dataplane.ErrUnknownOutcome}
	}
	i := Instance{API: f, ReloadTimeout: time.Second}
	have := Running{Servers: old.Servers, Written: old.Servers, Info: dataplane.RuntimeInfo{Node: f.node, PID: f.pid}}
	have, err := i.Update(t.Context(), wanted(next), have)
	if err != nil || !have.Has(next.Servers) {
		t.Fatalf("%v: %+v", err, have.Servers)
	}
	inspected := func() Inspection {
		found := Inspection{Running: have}
		if err := i.inspectServers(t.Context(), next, &found, 0); err != nil {
			t.Fatal(err)
		}
		return found
	}
	f.servers["web"][1].AdminState, f.servers["web"][1].OperationalState = "maint", "down" // the post
	found := inspected()
	if len(found.Running.ManualDrains) > 0 || len(found.Faults) != 1 {
		t.Errorf("manual drains: %v, faults: %+v", found.Running.ManualDrains, found.Faults)
	}
	if have, err = i.Update(t.Context(), wanted(next), found.Running); err != nil || f.servers["web"][1].AdminState != "ready" {
		t.Errorf("%v: %+v", err, f.servers["web"])
	}
	f.servers["web"][1].AdminState, f.servers["web"][1].OperationalState = "maint", "down" // somebody
	if found = inspected(); len(found.Running.ManualDrains) != 1 || len(found.Faults) != 0 {
		t.Errorf("manual drains: %v, faults: %+v", found.Running.ManualDrains, found.Faults)
	}
}

// narrow is a fake behind a proxy that takes short headers only.
type narrow struct {
	*fake
	limit int // in bytes
	got   []string
	posts int
}

func (n *narrow) PostRaw(ctx context.Context, config []byte, o dataplane.PostOptions) (dataplane.Posted, error) {
	n.posts++
	var got []string
	length := 0
	for _, a := range o.Actions {
		got = append(got, a.String())
		length += len(a.String()) + 1
	}
	if length > n.limit {
		return dataplane.Posted{}, &dataplane.Error{Status: 431, Message: "Request Header Fields Too Large"}
	}
	n.got = append(n.got, got...)
	return n.fake.PostRaw(ctx, config, o)
}

// As many actions as a header may have go with one post. If the header is too long for somebody on the way, shorter ones
// carry them, each once and in order.
func TestActionsOfManyServers(t *testing.T) {
	t.Parallel()
	var before, after []bind.Server
	for n := range 6000 {
		before = append(before, server(fmt.Sprint("s", n), "10.0.0.1", bind.SlotReady))
		after = append(after, server(fmt.Sprint("s", n), "10.0.0.1", bind.SlotDrain))
	}
	all := actions(changes(before, after))
	var want []string
	for _, a := range all {
		want = append(want, a.String())
	}
	for limit, posts := range map[int]int{1 << 20: 1, 16 << 10: 17} { // all have 190 kB
		f := &narrow{fake: newFake(t), limit: limit}
		if _, err := (Instance{API: f}).postActions(t.Context(), []byte(f.disk), all); err != nil {
			t.Errorf("headers of %d bytes: %v", limit, err)
		}
		if f.posts != posts || !slices.Equal(f.got, want) {
			t.Errorf("headers of %d bytes: %d posts with %d of %d actions", limit, f.posts, len(f.got), len(want))
		}
	}
	f := &narrow{fake: newFake(t), limit: 10}
	_, err := Instance{API: f}.postActions(t.Context(), []byte(f.disk), all)
	if e, ok := errors.AsType[*dataplane.Error](err); !ok || e.Status != 431 || f.posts != 2 {
		t.Errorf("no header is short enough: %v after %d posts", err, f.posts)
	}
}

// A pusher that has just begun does not know what the one before it has left unanswered.
func TestPostOfAPredecessorIsNobodysWish(t *testing.T) {
	t.Parallel()
	old := bound(1, []bind.Server{server("s1", "10.0.0.1", bind.SlotReady), spare("s2")})
	next := bound(1, []bind.Server{server("s1", "10.0.0.1", bind.SlotReady), server("s2", "10.0.0.2", bind.SlotReady)})
	f := runningFake(t, old)
	i := Instance{API: f, ReloadTimeout: time.Second}
	have, err := i.Update(t.Context(), wanted(next), Running{})
	if err != nil || !have.Has(next.Servers) {
		t.Fatalf("%v: %+v", err, have.Servers)
	}
	for n := range f.servers["web"] { // the first one was ready before: only somebody can have taken that out
		f.servers["web"][n].AdminState, f.servers["web"][n].OperationalState = "maint", "down"
	}
	found := Inspection{Running: have}
	if err := i.inspectServers(t.Context(), next, &found, 0); err != nil {
		t.Fatal(err)
	}
	if drains := found.Running.ManualDrains; len(drains) != 1 || drains[0].Server != "s1" || len(found.Faults) != 1 {
		t.Errorf("manual drains: %v, faults: %+v", drains, found.Faults)
	}
}

// mute is a fake whose answers to changes are empty.
type mute struct{ *fake }

func (m mute) SetServer(ctx context.Context, backend, server string, ch dataplane.ServerChange) (dataplane.Server, error) {
	_, err := m.fake.SetServer(ctx, backend, server, ch)
	return dataplane.Server{}, err
}

// If an answer describes another state or address than was set, that counts, and not the status of the call.
func TestUpdateBelievesWhatAnswersTell(t *testing.T) {
	old := bound(1, []bind.Server{server("s1", "10.0.0.1", bind.SlotReady), spare("s2")})
	next := bound(1, []bind.Server{server("s1", "10.0.0.1", bind.SlotReady), server("s2", "10.0.0.2", bind.SlotReady)})
	f := runningFake(t, old)
	have := Running{Servers: old.Servers, Info: dataplane.RuntimeInfo{Node: f.node, PID: f.pid}}
	got, err := Instance{API: deaf{f}, ReloadTimeout: 10 * time.Millisecond}.Update(t.Context(), wanted(next), have)
	if err == nil || !strings.Contains(err.Error(), "web/s2 is maint at "+spareAddress) {
		t.Errorf("error is %v", err)
	}
	if diff := cmp.Diff(old.Servers, got.Servers); diff != "" { // it takes no traffic
		t.Errorf("servers (-want +got):\n%s", diff)
	}
}

// deaf is a fake that sets no addresses, like an API that is older than it says.
type deaf struct{ *fake }

func (d deaf) SetServer(ctx context.Context, backend, server string, ch dataplane.ServerChange) (dataplane.Server, error) {
	ch.Address, ch.Port = "", 0
	return d.fake.SetServer(ctx, backend, server, ch)
}

// The API's report about a drained server depends on whether its slot is disabled in the configuration, and on
// its health check.
func TestDrainedServerIsKnownAsSuch(t *testing.T) {
	old := bound(1, []bind.Server{server("s1", "10.0.0.1", bind.SlotReady)})
	for _, found := range []dataplane.Server{
		{AdminState: "drain", OperationalState: "up"}, {AdminState: "maint", OperationalState: "up"}, {AdminState: "maint", OperationalState: "down"},
	} {
		f := newFake(t)
		f.put(old)
		f.load()
		found.Name, found.Address, found.Port = "s1", "10.0.0.1", 80
		f.servers = map[string][]dataplane.Server{"web": {found}}
		f.setting = func(string, string, dataplane.ServerChange) error {
			f.servers["web"][0] = found
			return nil
		}
		have := Running{Servers: old.Servers, Info: dataplane.RuntimeInfo{Node: f.node, PID: f.pid}}
		got, err := Instance{API: stubborn{f}, ReloadTimeout: time.Second}.Update(t.Context(), wanted(drained(old)), have)
		if err != nil || got.Servers[0].State != bind.SlotDrain {
			t.Errorf("%s and %s: servers are %+v, and the error is %v", found.AdminState, found.OperationalState, got.Servers, err)
		}
	}
}

// If a slot was disabled in the configuration and then drained, the API reports it as in maintenance, and does
// not put it there. Without health checks it is up. When its endpoint is gone, it must count as spare, or it
// would be set again and again.
func TestDrainedSlotBecomesSpare(t *testing.T) {
	drains := bound(1, []bind.Server{server("s1", "10.0.0.1", bind.SlotDrain)})
	next := bound(1, []bind.Server{spare("s1")})
	f := newFake(t)
	f.version = "v3.4.2"
	f.put(drains)
	f.load()
	found := dataplane.Server{Name: "s1", Address: "10.0.0.1", Port: 80, AdminState: "maint", OperationalState: "up"}
	f.servers = map[string][]dataplane.Server{"web": {found}}
	f.setting = func(_, _ string, ch dataplane.ServerChange) error {
		if ch.Address != "" {
			found.Address, found.Port = ch.Address, ch.Port
		}
		f.servers["web"][0] = found
		return nil
	}
	have := Running{Servers: drains.Servers, Info: dataplane.RuntimeInfo{Node: f.node, PID: f.pid}}
	got, err := Instance{API: stubborn{f}, ReloadTimeout: time.Second}.Update(t.Context(), wanted(next), have)
	if err != nil || got.Servers[0] != next.Servers[0] {
		t.Errorf("servers are %+v, and the error is %v", got.Servers, err)
	}
}

// stubborn is a fake whose servers never change.
type stubborn struct{ *fake }

func (s stubborn) SetServer(_ context.Context, backend, server string, ch dataplane.ServerChange) (dataplane.Server, error) {
	return dataplane.Server{}, s.setting(backend, server, ch)
}
