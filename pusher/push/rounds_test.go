package push

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// The configuration of a large test: backends, each with some slots.
const (
	manyBackends = 200
	slotsEach    = 5
)

// pass has time pass on the clock of a test.
func pass(d time.Duration) { <-time.After(d) }

// timed is a fake in which each call and each post takes some time. It remembers when each backend was first changed.
type timed struct {
	*fake
	call, post time.Duration
	refused    map[string]bool // backends whose servers cannot be changed
	deaf       map[string]bool // backends whose servers keep their state, without an error
	changed    map[string]time.Time
	posts      int
	asked      int
}

func (f *timed) SetServer(ctx context.Context, backend, name string, ch dataplane.ServerChange) (dataplane.Server, error) {
	pass(f.call)
	if f.refused[backend] {
		return dataplane.Server{}, &dataplane.Error{Status: 500, Message: "no"}
	}
	f.noteChange(backend)
	if f.deaf[backend] && ch.Address == "" {
		return dataplane.Server{}, nil
	}
	return f.fake.SetServer(ctx, backend, name, ch)
}

func (f *timed) noteChange(backend string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.changed[backend]; !ok {
		f.changed[backend] = time.Now()
	}
}

func (f *timed) Servers(ctx context.Context, backend string) ([]dataplane.Server, error) {
	pass(f.call)
	f.asked++
	return f.fake.Servers(ctx, backend)
}

func (f *timed) PostRaw(ctx context.Context, config []byte, o dataplane.PostOptions) (dataplane.Posted, error) {
	pass(f.post)
	f.posts++
	for _, a := range o.Actions {
		var kind, backend, name, value, more string
		_, _ = fmt.Sscan(a.String(), &kind, &backend, &name, &value, &more)
		ch := dataplane.ServerChange{}
		switch kind {
		case "SetServerState":
			ch.AdminState = value
		case "SetServerAddr":
			ch.Address = value
			_, _ = fmt.Sscan(more, &ch.Port)
		}
		if _, err := f.fake.SetServer(ctx, backend, name, ch); err != nil {
			return dataplane.Posted{}, err
		}
	}
	return f.fake.PostRaw(ctx, config, o)
}

// stormy is an instance of a large configuration, and what it should have.
type stormy struct {
	t     *testing.T
	f     *timed
	i     Instance
	want  []bind.Server
	have  Running
	parts int

	node       string
	given      bool // an update has the list of what is wanted
	moved      map[string]time.Time
	namespaces map[string]string
	callsOnly  bool
}

// newStormy returns an instance in which each backend has two endpoints that are ready, and free slots.
func newStormy(t *testing.T) *stormy {
	t.Helper()
	var servers []bind.Server
	for b := range manyBackends {
		for n := range slotsEach {
			s := bind.Server{Backend: backendName(b), Name: fmt.Sprint("s", n), Address: spareAddress, Port: 1, Weight: 1, State: bind.SlotSpare}
			if n < 2 {
				s.Address, s.Port, s.State = fmt.Sprintf("10.0.%d.%d", b, n), 80, bind.SlotReady
			}
			servers = append(servers, s)
		}
	}
	old := bound(1, servers)
	f := &timed{fake: runningFake(t, old), call: callsAtOnce * time.Millisecond, post: 2 * time.Second, refused: map[string]bool{}, deaf: map[string]bool{}, changed: map[string]time.Time{}}
	return &stormy{
		t: t, f: f, i: Instance{API: f, ReloadTimeout: 30 * time.Second}, want: servers, node: old.Node, moved: map[string]time.Time{}, namespaces: map[string]string{},
		have: Running{Servers: slices.Clone(servers), Persisted: true, Info: dataplane.RuntimeInfo{Node: f.node, PID: f.pid}},
	}
}

func backendName(n int) string { return fmt.Sprintf("web-%03d", n) }

// own makes the list of what is wanted one that no update has.
func (s *stormy) own() {
	if s.given {
		s.want, s.given = slices.Clone(s.want), false
	}
}

// replace has another endpoint take the place of the first one that serves in a backend.
func (s *stormy) replace(backend int, address string) {
	s.own()
	of := s.want[backend*slotsEach : (backend+1)*slotsEach]
	free := slices.IndexFunc(of, func(s bind.Server) bool { return s.State != bind.SlotReady })
	serves := slices.IndexFunc(of, func(s bind.Server) bool { return s.State == bind.SlotReady })
	of[free].Address, of[free].Port, of[free].State = address, 80, bind.SlotReady
	of[serves].State = bind.SlotDrain
	s.moved[backendName(backend)] = time.Now()
}

// free ends the drains of a backend whose changes are made.
func (s *stormy) free(backend int) {
	if backend >= manyBackends {
		return
	}
	s.own()
	from, to := backend*slotsEach, (backend+1)*slotsEach
	for n := from; n < to; n++ {
		if s.want[n].State == bind.SlotDrain && s.want[n] == s.have.Servers[n] {
			s.want[n].Address, s.want[n].Port, s.want[n].State = spareAddress, 1, bind.SlotSpare
			s.moved[backendName(backend)] = time.Now()
		}
	}
}

// update makes one update.
func (s *stormy) update() error {
	s.t.Helper()
	s.parts++
	servers := s.want
	s.given = true
	want := Wanted{Node: s.node, Servers: servers, Bind: func() (bind.Bound, error) { return bound(1, servers), nil }}
	want.Moved, want.Namespaces, want.CallsOnly = s.moved, s.namespaces, s.callsOnly
	have, err := s.i.Update(s.t.Context(), want, s.have)
	if s.have = have; err == nil && !have.Unfinished && !have.Has(s.want) {
		s.t.Fatalf("the update says that it is over, and the worker has not what it should")
	}
	return err
}

// finish makes updates until one is the last.
func (s *stormy) finish() error {
	s.t.Helper()
	for {
		if err := s.update(); err != nil || !s.have.Unfinished {
			return err
		}
		if s.parts > 1000 {
			s.t.Fatal("updates do not come to an end")
		}
	}
}

// serves says whether the worker itself serves an address.
func (s *stormy) serves(backend int, address string) bool {
	return slices.ContainsFunc(s.f.servers[backendName(backend)], func(s dataplane.Server) bool {
		return s.Address == address && s.AdminState == dataplane.StateReady
	})
}

// While all backends change at once, another one waits for two parts at most: its endpoint, and then the end of its drain.
func TestStormDelaysNobodyElse(t *testing.T) {
	t.Parallel()
	for name, namespaces := range map[string]int{"all are of one namespace": 1, "each has its own": manyBackends} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStormy(t)
				for b := range manyBackends {
					s.namespaces[backendName(b)] = fmt.Sprint("team-", b%namespaces)
				}
				storm := func(n int) {
					for b := range manyBackends - 1 {
						s.replace(b, fmt.Sprintf("10.1.%d.%d", b, n))
					}
				}
				storm(1)
				if err := s.finish(); err != nil {
					t.Fatal(err)
				}
				storm(2)
				began := time.Now()
				if err := s.update(); err != nil || !s.have.Unfinished {
					t.Fatalf("unfinished %t, %v", s.have.Unfinished, err)
				}
				const other = manyBackends - 1
				for n := 0; s.have.Unfinished; n++ {
					address := fmt.Sprintf("10.2.0.%d", n)
					s.replace(other, address)
					pass(time.Millisecond)
					if n == 0 {
						for b := range manyBackends - 1 {
							s.free(b) // the drains of the first storm end now
						}
					}
					came := time.Now()
					if err := s.update(); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(came); took > 2*partTime || !s.serves(other, address) {
						t.Errorf("after %s, the worker serves the endpoint of another backend: %t", took, s.serves(other, address))
					}
				}
				if calls := time.Duration(5*(manyBackends+s.parts)) * s.f.call / callsAtOnce; time.Since(began) > calls {
					t.Errorf("all took %s, and the calls alone take %s", time.Since(began), calls)
				}
				for b := range manyBackends - 1 {
					if !s.serves(b, fmt.Sprintf("10.1.%d.2", b)) {
						t.Errorf("the worker does not serve the endpoint of %s", backendName(b))
					}
				}
				if s.f.posts > 0 {
					t.Errorf("there were %d posts", s.f.posts)
				}
			})
		})
	}
}

// The backends of one namespace change faster than calls can be made, for ever. Those of another one wait for two parts at
// most, although theirs are older then, and each backend gets its turn.
func TestOverloadLeavesNobodyOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStormy(t)
		const busy = manyBackends - 10
		for b := range manyBackends {
			s.namespaces[backendName(b)] = map[bool]string{true: "busy", false: "calm"}[b < busy]
		}
		for n := range 40 {
			if n == 20 {
				for b := busy; b < manyBackends; b++ {
					s.replace(b, "10.2.0.1")
				}
				pass(time.Millisecond)
			}
			for b := range busy { // a round takes 600 milliseconds
				s.replace(b, fmt.Sprintf("10.1.%d.%d", b, n))
			}
			if err := s.update(); err != nil {
				t.Fatal(err)
			}
			for b := busy; n == 21 && b < manyBackends; b++ {
				if !s.serves(b, "10.2.0.1") {
					t.Errorf("%s waits for those of another namespace", backendName(b))
				}
			}
		}
		first := s.f.changed[backendName(0)]
		for b := range busy {
			if at, ok := s.f.changed[backendName(b)]; !ok || at.Sub(first) > 3*time.Second {
				t.Errorf("%s was changed %s after the first one", backendName(b), at.Sub(first))
			}
		}
	})
}

// What a worker says that it has counts, and not the status of a call, whatever the order in which changes are made.
func TestDeafBackendInAStorm(t *testing.T) {
	t.Parallel()
	for _, deaf := range []int{0, 3, manyBackends - 1} {
		synctest.Test(t, func(t *testing.T) {
			s := newStormy(t)
			s.f.deaf[backendName(deaf)] = true
			for b := range manyBackends {
				s.replace(b, fmt.Sprintf("10.1.%d.1", b))
				pass(time.Millisecond) // the last ones are made first
			}
			if err := s.finish(); err == nil || !strings.Contains(err.Error(), backendName(deaf)) {
				t.Errorf("error is %v", err)
			}
			for b := range manyBackends {
				if b != deaf && !s.serves(b, fmt.Sprintf("10.1.%d.1", b)) {
					t.Errorf("%s is not served", backendName(b))
				}
			}
			delete(s.f.deaf, backendName(deaf))
			if err := s.finish(); err != nil || !s.serves(deaf, fmt.Sprintf("10.1.%d.1", deaf)) {
				t.Errorf("once it can be changed: %v", err)
			}
		})
	}
}

// A backend that cannot be changed holds up no other one, and its error is reported once all others are done.
func TestBackendThatFailsInAStorm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStormy(t)
		s.f.refused[backendName(3)] = true
		for b := range manyBackends {
			s.replace(b, fmt.Sprintf("10.1.%d.1", b))
		}
		err := s.finish()
		if e, ok := errors.AsType[*dataplane.Error](err); !ok || e.Status != 500 {
			t.Errorf("error is %v", err)
		}
		for b := range manyBackends {
			if serves := s.serves(b, fmt.Sprintf("10.1.%d.1", b)); serves != (b != 3) {
				t.Errorf("%s is served: %t", backendName(b), serves)
			}
		}
		if s.f.asked > 1 {
			t.Errorf("%d backends were read back, and one had failed", s.f.asked)
		}
		delete(s.f.refused, backendName(3))
		if err := s.finish(); err != nil || !s.serves(3, "10.1.3.1") {
			t.Errorf("once it can be changed: %v, %t", err, s.serves(3, "10.1.3.1"))
		}
	})
}

// A weight is changed by a post. It comes after the calls for others, and not much later if these do not end.
func TestWeightInAStorm(t *testing.T) {
	t.Parallel()
	for _, endless := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newStormy(t)
			began := time.Now()
			s.want = slices.Clone(s.want)
			s.want[0].Weight = 7
			for n := 0; s.f.posts == 0 && time.Since(began) < time.Minute; n++ {
				if n == 0 || endless {
					for b := range manyBackends - 1 {
						s.replace(b+1, fmt.Sprintf("10.1.%d.%d", b+1, n))
					}
				}
				if err := s.update(); err != nil {
					t.Fatal(err)
				}
				if !endless && s.f.posts > 0 && !s.serves(manyBackends-1, fmt.Sprintf("10.1.%d.0", manyBackends-1)) {
					t.Error("the post came before the calls were over")
				}
			}
			if took := time.Since(began); s.f.posts == 0 || took > postPatience+4*time.Second {
				t.Errorf("after %s there were %d posts", took, s.f.posts)
			}
			if err := s.finish(); err != nil {
				t.Error(err)
			}
		})
	}
}

// While the file is written, calls go on, and what takes a post waits.
func TestUpdateByCallsOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStormy(t)
		s.callsOnly = true
		s.replace(1, "10.1.1.1")
		s.want[0].Weight = 7
		for s.parts < 2 {
			if err := s.update(); err != nil || !s.have.Unfinished || s.have.Waits != (s.parts == 2) {
				t.Errorf("update %d: unfinished %t, waits %t, %v", s.parts, s.have.Unfinished, s.have.Waits, err)
			}
		}
		if s.f.posts > 0 || !s.serves(1, "10.1.1.1") {
			t.Errorf("%d posts, the endpoint is served: %t", s.f.posts, s.serves(1, "10.1.1.1"))
		}
		s.callsOnly = false
		if err := s.finish(); err != nil || s.f.posts != 1 || s.have.Waits {
			t.Errorf("%d posts, %v", s.f.posts, err)
		}
	})
}

// The changes of one Service with very many endpoints are posted, since that is read back with one call.
func TestManyEndpointsOfOneServiceArePosted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		changes int
		posts   bool
	}{{100, false}, {1000, false}, {2000, true}} {
		synctest.Test(t, func(t *testing.T) {
			var before, after []bind.Server
			for n := range max(test.changes, quickPost+1) {
				s := server(fmt.Sprint("s", n), "10.0.0.1", bind.SlotReady)
				if before = append(before, s); n < test.changes {
					s.State = bind.SlotDrain
				}
				after = append(after, s)
			}
			s := newStormy(t)
			s.f.fake.servers, s.f.call = asServers(before...), 10*time.Millisecond
			s.have.Servers, s.have.postTook, s.want = before, s.f.post, after
			if err := s.finish(); err != nil {
				t.Error(err)
			}
			if s.f.posts > 0 != test.posts {
				t.Errorf("%d changes: %d posts", test.changes, s.f.posts)
			}
		})
	}
}

// What a post writes to disk is what is wanted, and calls make the rest: the post carries no actions that hold up others.
func TestFileIsWrittenInAStorm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStormy(t)
		for b := range manyBackends {
			s.replace(b, fmt.Sprintf("10.1.%d.1", b))
		}
		if err := s.update(); err != nil || s.have.Persisted {
			t.Fatalf("persisted %t, %v", s.have.Persisted, err)
		}
		have, err := s.i.WriteServers(t.Context(), bound(1, s.want), s.have)
		if s.have = have; err != nil || !have.Persisted {
			t.Fatalf("persisted %t, %v", have.Persisted, err)
		}
		if last := s.f.calls[len(s.f.calls)-1]; s.f.posts != 1 || strings.Contains(last, "SetServer") {
			t.Errorf("%d posts, the last is %q", s.f.posts, last)
		}
		if err := s.finish(); err != nil || !s.have.Persisted {
			t.Errorf("persisted %t, %v", s.have.Persisted, err)
		}
	})
}

// The connection is lost in the middle. What the worker has is read again, and the round begins anew.
func TestInstanceIsLostInAStorm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStormy(t)
		for b := range manyBackends {
			s.replace(b, fmt.Sprintf("10.1.%d.1", b))
		}
		lost, calls := errors.New("connection refused"), 0
		s.f.setting = func(string, string, dataplane.ServerChange) error {
			if calls++; calls > 100 {
				return lost
			}
			return nil
		}
		if err := s.update(); !errors.Is(err, lost) || s.have.Unfinished {
			t.Fatalf("unfinished %t, %v", s.have.Unfinished, err)
		}
		s.f.setting = func(string, string, dataplane.ServerChange) error { return nil }
		if err := s.finish(); err != nil {
			t.Error(err)
		}
	})
}
