package push

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

func TestDynamicSettings(t *testing.T) {
	none := "refused"
	for words, want := range map[string]string{
		"":                             `{"name":"","address":"","port":0}`,
		"check inter 5s rise 2 fall 3": `{"name":"","address":"","port":0}`,
		"check maxconn 100 maxqueue 5": `{"name":"","address":"","port":0,"maxconn":100,"maxqueue":5}`,
		"maxconn 5 check maxconn 7":    `{"name":"","address":"","port":0,"maxconn":7}`,
		"send-proxy-v2":                `{"name":"","address":"","port":0,"send-proxy-v2":"enabled"}`,
		"ssl alpn h2 verify none":      `{"name":"","address":"","port":0,"ssl":"enabled","alpn":"h2","verify":"none"}`,
		"weight 0":                     `{"name":"","address":"","port":0,"weight":0}`,
		"ssl verify required ca-file @system-ca sni str(a.example) check-sni a.example verifyhost a.example": `{"name":"","address":"","port":0,"ssl":"enabled","verify":"required","verifyhost":"a.example","ssl_cafile":"@system-ca","sni":"str(a.example)"}`,
		"ssl verify required ca-file ca/shop.pem":                                                            none, // the file has another name when it is bound
		"ssl verify none crt ssl/shop.pem":                                                                   none,
		"slowstart 10s":                                                                                      none,
		"cookie a":                                                                                           none,
		"backup":                                                                                             none,
		"resolvers dns":                                                                                      none,
		"track other/s1":                                                                                     none,
		"agent-check":                                                                                        none,
		"on-marked-down shutdown-sessions":                                                                   none,
		`sni "str(a b)"`:                                                                                     none,
		"sni hapsnap:secret/shop/name/key":                                                                   none,
		"maxconn many":                                                                                       none,
		"maxconn":                                                                                            none,
		"# a comment":                                                                                        none,
	} {
		got := none
		if s, ok := dynamicSettings(strings.Fields(words)); ok {
			got = jsonOf(s)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", words, got, want)
		}
	}
}

// large is a backend among so many servers that a post takes long.
func large(servers ...bind.Server) []bind.Server {
	for n := range quickPost {
		servers = append(servers, bind.Server{
			Backend: fmt.Sprintf("other%d", n), Name: "s1", Address: "10.1.0.1", Port: 80, Weight: 1, State: bind.SlotReady,
		})
	}
	return servers
}

// boundLarge is a bound configuration with servers of many backends.
func boundLarge(servers []bind.Server) bind.Bound {
	b := bound(1, servers)
	var text strings.Builder
	fmt.Fprintf(&text, "global\n    node %s\n", b.Node)
	for n, s := range servers {
		if n == 0 || servers[n-1].Backend != s.Backend {
			fmt.Fprintf(&text, "\nbackend %s\n", s.Backend)
		}
		fmt.Fprintf(&text, "    server %s %s%s\n", s.Name, lineOf(s).address, map[bool]string{true: " disabled"}[s.State != bind.SlotReady])
	}
	fmt.Fprintf(&text, "# hapsnap end %s\n", b.Node)
	b.Config = []byte(text.String())
	return b
}

// dynamicFake is a large instance with an API of 3.2, and what is known about it.
func dynamicFake(t *testing.T, servers ...bind.Server) (*fake, Running) {
	t.Helper()
	old := boundLarge(large(servers...))
	f := newFake(t)
	f.put(old)
	f.load()
	f.servers = asServers(old.Servers...)
	f.post = func(text string, o dataplane.PostOptions) (dataplane.Posted, error) {
		posted, err := f.commit(text, o)
		calls := f.calls
		for _, a := range o.Actions {
			var kind, backend, name, value string
			var ch dataplane.ServerChange
			switch _, _ = fmt.Sscan(a.String(), &kind, &backend, &name, &value, &ch.Port); kind {
			case "SetServerState":
				ch.AdminState = value
			case "SetServerAddr":
				ch.Address = value
			}
			_, _ = f.SetServer(t.Context(), backend, name, ch)
		}
		f.calls = calls
		return posted, err
	}
	return f, Running{Servers: old.Servers, Written: old.Servers, Persisted: true, Info: dataplane.RuntimeInfo{Node: f.node, PID: f.pid}}
}

// wantedWith is what a worker should have, if dynamic servers can be added.
func wantedWith(b bind.Bound) Wanted {
	w := wanted(b)
	w.Dynamic = map[string]dataplane.DynamicServer{"web": {Maxconn: 5}}
	return w
}

func TestDynamicServersServeUntilTheNextPost(t *testing.T) {
	ready := bind.SlotReady
	f, have := dynamicFake(t, server("s1", "10.0.0.1", ready), spare("s2"))
	i := Instance{API: f, ReloadTimeout: time.Second}
	step := func(what string, do func() (Running, error), want []string) {
		t.Helper()
		f.calls = nil
		var err error
		if have, err = do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if diff := cmp.Diff(want, f.calls); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	update := func(b bind.Bound) func() (Running, error) {
		return func() (Running, error) { return i.Update(t.Context(), wantedWith(b), have) }
	}
	two := boundLarge(large(server("s1", "10.0.0.1", bind.SlotDrain), server("s2", "10.0.0.2", ready)))
	step("one endpoint replaces another", update(two), []string{
		"add web/hapsnap-s2-10.0.0.2-80 10.0.0.2:80", "set web/hapsnap-s2-10.0.0.2-80 :0 ready", "set web/s1 :0 drain",
	})
	if !have.Serves(two.Servers) || have.Has(two.Servers) || have.Persisted || len(have.Leftovers()) > 0 {
		t.Errorf("before the post it is known that %+v", have.Dynamic)
	}
	step("nothing is done again", update(two), nil)
	back := boundLarge(large(server("s1", "10.0.0.1", ready), spare("s2")))
	step("it goes again before it has its slot", update(back), []string{"set web/s1 :0 ready", "set web/hapsnap-s2-10.0.0.2-80 :0 drain"})
	if !have.Serves(back.Servers) || have.Deferred || len(have.Leftovers()) != 1 {
		t.Errorf("when it went it is known that %+v", have.Dynamic)
	}
	step("what nobody needs is deleted", func() (Running, error) { return i.DropDynamicServers(t.Context(), have) }, []string{"delete web/hapsnap-s2-10.0.0.2-80"})

	step("it comes again", update(two), []string{
		"add web/hapsnap-s2-10.0.0.2-80 10.0.0.2:80", "set web/hapsnap-s2-10.0.0.2-80 :0 ready", "set web/s1 :0 drain",
	})
	step("the post gives the slot its address", func() (Running, error) { return i.WriteServers(t.Context(), two, have) }, []string{
		"post " + two.Node + ", no reload; SetServerState web s2 maint; SetServerAddr web s2 10.0.0.2 80", "set web/s2 :0 ready",
		"delete web/hapsnap-s2-10.0.0.2-80",
	})
	if !have.Has(two.Servers) || have.Deferred || !have.Persisted || len(have.Dynamic) > 0 || len(f.servers["web"]) != 2 {
		t.Errorf("after the post it is known that %+v, and there are %+v", have.Dynamic, f.servers["web"])
	}
}

// A killed pusher leaves dynamic servers behind. The next one finds them, and uses or deletes them.
func TestDynamicServersAreFoundAgain(t *testing.T) {
	ready := bind.SlotReady
	old := []bind.Server{server("s1", "10.0.0.1", ready), spare("s2")}
	two := boundLarge(large(old[0], server("s2", "10.0.0.2", ready)))
	f, have := dynamicFake(t, old...)
	i := Instance{API: f, ReloadTimeout: time.Second}
	if _, err := i.Update(t.Context(), wantedWith(two), have); err != nil {
		t.Fatal(err)
	}
	f.calls = nil
	have, err := i.Update(t.Context(), wantedWith(two), Running{})
	if err != nil || len(f.calls) > 0 || !have.Serves(two.Servers) || len(have.Dynamic) != 1 || !have.Deferred {
		t.Errorf("the next pusher called %v, and knows %+v, %v", f.calls, have.Dynamic, err)
	}
	// The endpoint has gone meanwhile.
	have, err = i.Update(t.Context(), wantedWith(boundLarge(large(old...))), Running{})
	if err != nil || len(have.Leftovers()) != 1 {
		t.Errorf("a leftover is not known: %+v, %v", have.Dynamic, err)
	}
	// An inspection finds one too.
	have.Dynamic = nil
	out, err := i.Inspect(t.Context(), boundLarge(large(old...)), have, 0)
	if err != nil || len(out.Running.Leftovers()) != 1 || slices.ContainsFunc(out.Faults, func(f Fault) bool { return strings.Contains(f.What, "server") }) {
		t.Errorf("an inspection finds %+v, %v", out, err)
	}
}

// If a dynamic server is refused or cannot be used, everything is posted.
func TestDynamicServersThatCannotBe(t *testing.T) {
	ready := bind.SlotReady
	old := []bind.Server{server("s1", "10.0.0.1", ready), spare("s2")}
	next := []bind.Server{old[0], server("s2", "10.0.0.2", ready)}
	for name, test := range map[string]struct {
		version string
		next    []bind.Server
		edit    func(f *fake, w *Wanted)
		adds    bool
	}{
		"HAProxy refuses it":        {"v3.2.5", next, func(f *fake, _ *Wanted) { f.adding = refuseServer }, true},
		"the backend takes none":    {"v3.2.5", next, func(_ *fake, w *Wanted) { delete(w.Dynamic, "web"); w.Dynamic["x"] = dataplane.DynamicServer{} }, false},
		"weights change":            {"v3.2.5", []bind.Server{weighing(old[0], 5), next[1]}, nil, false},
		"the API can set addresses": {"v3.4.2", next, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			f, have := dynamicFake(t, old...)
			f.version = test.version
			b := boundLarge(large(test.next...))
			w := wantedWith(b)
			if test.edit != nil {
				test.edit(f, &w)
			}
			got, err := Instance{API: f, ReloadTimeout: time.Second}.Update(t.Context(), w, have)
			added := slices.ContainsFunc(f.calls, func(c string) bool { return strings.HasPrefix(c, "add ") })
			if err != nil || !got.Has(b.Servers) || got.Deferred || added != test.adds {
				t.Errorf("called %v, %v", f.calls, err)
			}
		})
	}
}

func refuseServer(string, dataplane.DynamicServer) error { return classed{dataplane.ErrUnavailable} }

// A server that still has connections is deleted later.
func TestDynamicServerWithConnections(t *testing.T) {
	f, have := dynamicFake(t, spare("s1"))
	have.Dynamic = []Dynamic{{"web", "hapsnap-s1-10.0.0.1-80", "10.0.0.1", 80, bind.SlotReady}}
	f.deleting = func(string, string) error { return classed{dataplane.ErrUnavailable} }
	i := Instance{API: f, ReloadTimeout: time.Second}
	have, err := i.DropDynamicServers(t.Context(), have)
	if err != nil || len(have.Leftovers()) != 1 {
		t.Errorf("it is forgotten: %+v, %v", have, err)
	}
	f.deleting = func(string, string) error { return classed{dataplane.ErrNotFound} }
	if have, err = i.DropDynamicServers(t.Context(), have); err != nil || len(have.Dynamic) > 0 {
		t.Errorf("it is not forgotten: %+v, %v", have, err)
	}
}

// Whatever comes, drains and goes between posts, the worker serves exactly the endpoints that are ready, each
// from one server.
func TestDynamicServersServeWhatIsWanted(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	states := []bind.SlotState{bind.SlotReady, bind.SlotDrain, bind.SlotSpare}
	for range 50 {
		f, have := dynamicFake(t, spare("s1"), spare("s2"), spare("s3"))
		i := Instance{API: f, ReloadTimeout: time.Second}
		for n := range 20 {
			next := []bind.Server{spare("s1"), spare("s2"), spare("s3")}
			for s := range next {
				if state := states[random.IntN(3)]; state != bind.SlotSpare {
					next[s] = server(next[s].Name, fmt.Sprintf("10.0.%d.%d", s, random.IntN(3)), state)
				}
			}
			b := boundLarge(large(next...))
			var err error
			what := random.IntN(4)
			if have, err = i.Update(t.Context(), wantedWith(b), have); err == nil && what == 0 {
				have, err = i.WriteServers(t.Context(), b, have)
			}
			if what == 1 {
				have, err = i.DropDynamicServers(t.Context(), have)
			}
			if what == 2 && n%5 == 0 {
				have, err = i.Update(t.Context(), wantedWith(b), Running{}) // of another pusher, which knows nothing
			}
			if err != nil || !have.Serves(b.Servers) {
				t.Fatalf("%d: %v, serves: %v", n, err, have.Serves(b.Servers))
			}
			var want, got []string
			for _, s := range next {
				if s.State == bind.SlotReady {
					want = append(want, s.Address)
				}
			}
			for _, s := range f.servers["web"] {
				leftover := slices.ContainsFunc(have.Leftovers(), func(d Dynamic) bool { return d.Name == s.Name })
				if s.AdminState == "ready" && !leftover {
					got = append(got, s.Address)
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(want, got) {
				t.Fatalf("%d: it serves %v, want %v: %+v, dynamic %+v", n, got, want, f.servers["web"], have.Dynamic)
			}
		}
	}
}

func jsonOf(s dataplane.DynamicServer) string {
	text, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// A post that gives slots their addresses fails. Until one succeeds, dynamic servers are not left over.
func TestDynamicServersStayWhenThePostFails(t *testing.T) {
	f, have := dynamicFake(t, server("s1", "10.0.0.1", bind.SlotReady), spare("s2"))
	i := Instance{API: f, ReloadTimeout: time.Second}
	want := wantedWith(boundLarge(large(server("s1", "10.0.0.1", bind.SlotReady), server("s2", "10.0.0.2", bind.SlotReady))))
	have, err := updated(t, i, want, have)
	if err != nil || !have.Deferred || len(have.Dynamic) != 1 {
		t.Fatalf("deferred %t, %v", have.Deferred, err)
	}
	want.Servers = slices.Clone(want.Servers)
	want.Servers[0].Weight = 7
	f.failPosts(9, &dataplane.Error{Status: 500, Message: "no space left on device"})
	if have, err = updated(t, i, want, have); err == nil || len(have.Leftovers()) > 0 {
		t.Errorf("left over: %v, %v", have.Leftovers(), err)
	}
}
