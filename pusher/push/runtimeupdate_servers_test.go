package push

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// The servers are as they were bound before the worker is known by what was bound. Where
// it is not known what it has, the disk may tell of weights that it never got. What an
// earlier try has posted is not posted again for itself.
func TestApplyAtRuntimeSetsServers(t *testing.T) {
	t.Parallel()
	const weights = "; SetServerWeight web s1 9"
	one, two := server("s1", "10.0.0.1", bind.SlotReady), server("s2", "10.0.0.2", bind.SlotReady)
	reweighed := one
	reweighed.Weight = 9
	for name, have := range map[string]Running{
		"known":   {Servers: []bind.Server{one, two}, Info: dataplane.RuntimeInfo{PID: 101}},
		"unknown": {},
		"known of another worker": {
			Servers: []bind.Server{reweighed, two}, Info: dataplane.RuntimeInfo{PID: 7},
		},
	} {
		f := newFake(t)
		from, to := bound(1, []bind.Server{one, two}), bound(2, []bind.Server{reweighed, two})
		f.put(from)
		f.load()
		f.servers = map[string][]dataplane.Server{"web": {
			{Name: "s1", Address: "10.0.0.1", Port: 80, AdminState: "ready"}, {Name: "s2", Address: "10.0.0.2", Port: 80, AdminState: "ready"},
		}}
		f.put(to) // by an earlier try
		f.calls = nil
		i := Instance{API: f, ReloadTimeout: time.Minute, Poll: time.Millisecond, Override: &RunningOverride{}}
		done, err := i.ApplyAtRuntime(t.Context(), to, from, have, Known{})
		if err != nil || !done.Running.Has(to.Servers) || !done.Running.Persisted || done.Running.Info.Node != to.Node {
			t.Errorf("%s: %+v, %v", name, done.Running, err)
		}
		if diff := cmp.Diff([]string{post2 + weights}, f.calls); diff != "" {
			t.Errorf("%s: calls (-want +got):\n%s", name, diff)
		}
	}
}

// Where a server does not become what it should be, the worker is not said to run it.
func TestApplyAtRuntimeWithoutItsServersIsNone(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	from, to := bound(1, []bind.Server{server("s1", "10.0.0.1", bind.SlotReady)}), bound(2, []bind.Server{server("s1", "10.0.0.2", bind.SlotReady)})
	f.put(from)
	f.load()
	f.version = "v3.4.0"
	f.servers = map[string][]dataplane.Server{"web": {{Name: "s1", Address: "10.0.0.1", Port: 80, AdminState: "ready"}}}
	f.setting = func(string, string, dataplane.ServerChange) error { return classed{dataplane.ErrUnavailable} }
	i := Instance{API: f, ReloadTimeout: time.Minute, Poll: time.Millisecond, Override: &RunningOverride{}}
	if _, err := i.ApplyAtRuntime(t.Context(), to, from, Running{}, Known{}); !errors.Is(err, dataplane.ErrUnavailable) || errors.Is(err, ErrNeedsReload) {
		t.Errorf("error is %v", err)
	}
	if info, _ := i.RuntimeInfo(t.Context()); info.Node != from.Node || i.Override.Get().Runs != "" {
		t.Errorf("the worker is known as %+v", info)
	}
}

// One after the other, and back to what was loaded.
func TestApplyAtRuntimeAgainAndBack(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	one, two, three := mapped(1, "a=1", ""), mapped(2, "a=2", ""), mapped(3, "a=3", "")
	back := one
	back.ID.Revision, back.Node = 4, strings.Replace(one.Node, "r000001", "r000004", 1) // another revision of the same content
	f.put(one)
	f.load()
	f.maps = map[string][]dataplane.MapEntry{"host-11111111.map": inWorker("a=1"), "path-22222222.map": nil}
	i := Instance{API: f, ReloadTimeout: time.Minute, Poll: time.Millisecond, Override: &RunningOverride{}}
	var have Running
	for _, step := range []struct {
		from, to bind.Bound
		loaded   string // "": it runs what it loaded
	}{{one, two, one.Node}, {two, three, one.Node}, {three, back, ""}} {
		done, err := i.ApplyAtRuntime(t.Context(), step.to, step.from, have, Known{})
		if err != nil || done.Info.Loaded != step.loaded || !bind.SameNode(done.Info.Node, step.to.Node) {
			t.Fatalf("to %s: %+v, %v", step.to.Node, done.Info, err)
		}
		have = done.Running
	}
	if !slices.Equal(f.maps["host-11111111.map"], inWorker("a=1")) || i.Override.Get().Runs != "" {
		t.Errorf("the map has %v, and the override is %+v", f.maps["host-11111111.map"], i.Override.Get())
	}
}

// Where HAProxy has its maps from another folder than the API, a worker that runs what it
// loaded is none the worse for it, and none can be changed.
func TestMapsThatTheAPIDoesNotSee(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	from, to := mapped(1, "a=1", ""), mapped(2, "a=2", "")
	f.put(from)
	f.load()
	i := Instance{API: f, ReloadTimeout: time.Minute, Poll: time.Millisecond, Override: &RunningOverride{}}
	have, err := i.Update(t.Context(), wanted(from), Running{})
	if err != nil || have.Maps != from.Entries {
		t.Errorf("%+v, %v", have, err)
	}
	if found, err := i.Inspect(t.Context(), from, have, 0); err != nil || len(found.Faults) > 0 {
		t.Errorf("found %+v, %v", found.Faults, err)
	}
	if _, err := i.ApplyAtRuntime(t.Context(), to, from, have, Known{}); !errors.Is(err, ErrNeedsReload) {
		t.Errorf("error is %v", err)
	}
}
