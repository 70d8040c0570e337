package instance

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// hanging is an API that never answers. It reports each request.
func hanging(t *testing.T) (url string, asked <-chan string) {
	t.Helper()
	requests := make(chan string, 16)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requests <- r.Method + " " + r.URL.Path
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	return server.URL, requests
}

func spec(name, uid, url string) fleet.Instance {
	return fleet.Instance{Name: name, UID: uid, URL: url, Username: "u", Password: "p", Layout: bind.Layout{Maps: "/m", Certificates: "/c", General: "/g"}}
}

// ends runs a job, and returns the channel of its final event.
func ends(t *testing.T, job Job) <-chan Event {
	t.Helper()
	events := make(chan Event, 16)
	go job(t.Context(), func(ev Event) { events <- ev })
	return events
}

// received waits for an event.
func received(t *testing.T, what string, events <-chan Event) Event {
	t.Helper()
	select {
	case ev := <-events:
		return ev
	case <-time.After(time.Minute):
		t.Fatalf("%s: waited in vain", what)
		return nil
	}
}

// A job on a pod ends when the pod is gone or replaced, since its address may soon belong to another. A job on
// an instance that only reconnects continues.
func TestJobsEndWithThePod(t *testing.T) {
	t.Parallel()
	ref := Ref{Name: "edge", UID: "u1", Joined: 1}
	for name, test := range map[string]struct {
		then Effect
		ends bool
	}{
		"it left":                 {Leave{ref}, true},
		"another took its place":  {Join{Ref: Ref{Name: "edge", UID: "u2", Joined: 2}, Spec: spec("edge", "u2", "http://127.0.0.1:1")}, true},
		"its address has changed": {Join{Ref: Ref{Name: "edge", UID: "u1", Joined: 2}, Spec: spec("edge", "u1", "http://127.0.0.1:1")}, false},
		"other credentials":       {Renew{ref, spec("edge", "u1", "http://127.0.0.1:1")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, asked := hanging(t)
			s := New(Options{PollInterval: time.Hour, ReloadTimeout: time.Minute}, nil)
			s.Job(Join{Ref: ref, Spec: spec("edge", "u1", url)}) // not asked in this test
			job := ends(t, s.Job(Tidy{ref, push.Running{Dynamic: []push.Dynamic{{Backend: "b", Name: "s"}}}}))
			<-asked
			old := s.byName["edge"]
			s.Job(test.then)
			if ended := old.here.Err() != nil; ended != test.ends {
				t.Fatalf("it is over: %v", ended)
			}
			if !test.ends {
				old.gone() // so that the test ends
			}
			if ev, is := received(t, "the job ends", job).(TidyEnded); !is || ev.Err == nil || ev.Ref != ref {
				t.Errorf("it ended with %v", ev)
			}
		})
	}
}

// An instance is probed until it leaves or reconnects.
func TestAskedUntilItLeaves(t *testing.T) {
	t.Parallel()
	ref := Ref{Name: "edge", Joined: 1}
	for name, then := range map[string]Effect{
		"it left": Leave{ref}, "it joined again": Join{Ref: Ref{Name: "edge", Joined: 2}, Spec: spec("edge", "", "http://127.0.0.1:1")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := New(Options{PollInterval: time.Millisecond, ReloadTimeout: time.Minute}, nil)
			job := s.Job(Join{Ref: ref, Spec: spec("edge", "", "http://127.0.0.1:1")})
			over, events := make(chan struct{}), make(chan Event)
			go func() {
				job(t.Context(), func(ev Event) {
					select {
					case events <- ev:
					case <-over:
					}
				})
				close(events)
			}()
			if ev, is := received(t, "an answer", events).(Probed); !is || ev.Err == nil || ev.Ref != ref {
				t.Fatalf("it says %v", ev)
			}
			s.Job(then)
			close(over)
			for range events { // until the last event
			}
		})
	}
}

// While somebody else reloads HAProxy, no worker answers for a moment: the instance is not out of reach.
func TestAskedWhileTheWorkerIsReplaced(t *testing.T) {
	t.Parallel()
	times := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch times++; {
		case !strings.HasSuffix(r.URL.Path, "/runtime/info"):
			times = 0
			_, _ = w.Write([]byte(`{"api": {"version": "v3.2.5"}}`))
		case times == 1:
			_, _ = w.Write([]byte(`{"error": "dial unix /run/haproxy/master.sock: connect: connection refused"}`))
		default:
			_, _ = w.Write([]byte(`{"info": {"node": "r2", "pid": 7, "version": "3.0.1"}}`))
		}
	}))
	t.Cleanup(server.Close)
	s := New(Options{PollInterval: time.Hour, ReloadTimeout: time.Minute}, nil)
	job := ends(t, s.Job(Join{Ref: Ref{Name: "edge", Joined: 1}, Spec: spec("edge", "", server.URL)}))
	if ev, is := received(t, "an answer", job).(Probed); !is || ev.Err != nil || ev.Info.PID != 7 {
		t.Errorf("it says %v", ev)
	}
}

// What is known of an instance is ordered, over all connections to it, and is that of no other
// pod. What was remembered counts where nothing else is known.
func TestWhatIsKnownOfAnInstance(t *testing.T) {
	t.Parallel()
	s := New(Options{PollInterval: time.Hour, ReloadTimeout: time.Minute}, nil)
	about := func(j Join) About {
		s.Job(j)
		return s.byName["edge"].about()
	}
	join := Join{
		Ref: Ref{"edge", "u1", 1}, Spec: spec("edge", "u1", "http://127.0.0.1:1"),
		Remembered: push.Remembered{Marked: true}, Override: push.Override{Runs: "r2"},
	}
	first := about(join)
	if k := first.Known; !k.Record.Remembered.Marked || k.Override.Runs != "r2" || first.Ref != join.Ref {
		t.Errorf("after a restart of the pusher: %+v", first)
	}
	again := about(Join{Ref: Ref{"edge", "u1", 2}, Spec: join.Spec})
	if k := again.Known; !k.Record.Remembered.Marked || k.Override.Runs != "r2" || k.Number <= first.Known.Number || again.Ref.Joined != 2 {
		t.Errorf("after it joined again: %+v", again)
	}
	other := about(Join{Ref: Ref{"edge", "u2", 3}, Spec: join.Spec})
	if k := other.Known; k.Record.Remembered.Marked || k.Override.Runs != "" {
		t.Errorf("of another pod: %+v", other)
	}
}

// Without a connection, nothing is done on an instance. If a new connection cannot be made, the present one
// stays.
func TestInstanceThatCannotBeReached(t *testing.T) {
	t.Parallel()
	s := New(Options{PollInterval: time.Hour, ReloadTimeout: time.Minute}, nil)
	s.Job(Check{Ref{Name: "edge"}})(t.Context(), func(ev Event) { t.Errorf("an event: %v", ev) })
	s.Job(Join{Ref: Ref{Name: "edge", Joined: 1}, Spec: spec("edge", "", "http://127.0.0.1:1")})
	bad := spec("edge", "", "ftp://edge")
	if Valid(bad) == nil || Valid(spec("edge", "", "http://edge")) != nil {
		t.Error("instances are not told apart")
	}
	ev := received(t, "it failed", ends(t, s.Job(Join{Ref: Ref{Name: "edge", Joined: 2}, Spec: bad})))
	if failed, is := ev.(JoinFailed); !is || failed.Err == nil {
		t.Errorf("it ended with %v", ev)
	}
	if c := s.byName["edge"]; c == nil || c.ref.Joined != 1 || c.probing.Err() != nil {
		t.Error("the connection that there was is gone")
	}
}

// Each kind of effect ends with one event of its own.
func TestEachEffectEndsWithOneEvent(t *testing.T) {
	t.Parallel()
	s := New(Options{PollInterval: time.Hour, ReloadTimeout: time.Second}, nil)
	r := Ref{Name: "edge", Joined: 1}
	s.Job(Join{Ref: r, Spec: spec("edge", "", "http://127.0.0.1:1")})
	s.fence = push.NewFence(1, func() error { return nil })
	s.byName["edge"].fence = s.fence
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, x := range []Effect{
		Check{r}, Claim{r, 1}, Push{Ref: r}, Update{Ref: r}, Persist{Ref: r}, Tidy{Ref: r, Have: push.Running{Dynamic: []push.Dynamic{{}}}},
		Collect{Ref: r}, Inspect{Ref: r}, Mend{Ref: r}, Sample{Ref: r}, Renew{r, spec("edge", "", "http://127.0.0.1:1")},
	} {
		var got []Event
		s.Job(x)(ctx, func(ev Event) { got = append(got, ev) })
		if len(got) != 1 || got[0].From().Ref != r || got[0].From().Known.Number == 0 {
			t.Errorf("%s: events %v", x, got)
		}
	}
}

func TestSummaryOfStatistics(t *testing.T) {
	t.Parallel()
	got := summary(
		[]dataplane.FrontendStatistics{{Name: "http", Requests: 10, Errors: 2, Connections: 5}, {Name: "status", Requests: 7, Errors: 7}, {Name: "tcp", Connections: 3}},
		[]dataplane.BackendStatistics{{Name: "b", Down: true}, {Name: "c", Requests: 12, Errors: 3, Up: 2}, {Name: "a", Down: true}},
		[]string{"status"}, rollout.Sample{PID: 4},
	)
	want := rollout.Sample{PID: 4, Counters: rollout.Counters{Requests: 10, Errors: 2, Connections: 8}, Down: []string{"a", "b"}, By: map[string]int64{"c": 3}, Served: map[string]int64{"c": 12}, Up: rollout.ServersUp{Backends: []string{"a", "b", "c"}, Counts: []uint16{0, 0, 2}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("added up otherwise (-want +got):\n%s", diff)
	}
}
