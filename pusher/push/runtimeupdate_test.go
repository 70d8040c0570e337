package push

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// entriesOf reads "key=value" words.
func entriesOf(text string) (out []bind.MapEntry) {
	for word := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(word, "=")
		out = append(out, bind.MapEntry{Key: key, Value: value})
	}
	return out
}

func inWorker(text string) (out []dataplane.MapEntry) {
	for _, e := range entriesOf(text) {
		out = append(out, dataplane.MapEntry(e))
	}
	return out
}

// mapped is a bound snapshot with a map of hosts and a map of paths.
func mapped(revision uint64, hosts, paths string) bind.Bound {
	b := bound(revision, nil)
	b.Shape = "sha256:one"
	b.Maps = []bind.Map{{Source: "maps/host.map", Entries: entriesOf(hosts)}, {Source: "maps/path.map", Entries: entriesOf(paths)}}
	b.Entries = snapshots.Digest("sha256:" + hosts + paths)
	return b
}

func TestChangesOfMaps(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		have, want    string
		add, set, del string
	}{
		"nothing":                      {have: "a=1 b=2", want: "b=2 a=1"},
		"one of each":                  {have: "a=1 b=2 c=3", want: "a=1 b=5 d=4", add: "d=4", set: "b=5", del: "c"},
		"twice, and right":             {have: "a=1 a=1", want: "a=1"},
		"twice, and once wrong":        {have: "a=1 a=2", want: "a=2", set: "a=2"},
		"twice, and nobody's":          {have: "a=1 a=2", want: "", del: "a"},
		"an empty map gets its first":  {want: "a=1", add: "a=1"},
		"a map loses all that it has":  {have: "a=1 b=2", del: "a b"},
		"all values change, no key is": {have: "a=1 b=1", want: "a=2 b=2", set: "a=2 b=2"},
	} {
		c := changeMap(bind.Map{Source: "maps/x.map", Entries: entriesOf(test.want)}, inWorker(test.have))
		want := mapChange{source: "maps/x.map", add: inWorker(test.add), set: inWorker(test.set), del: strings.Fields(test.del)}
		if c.String() != want.String() || !slices.Equal(c.add, want.add) || !slices.Equal(c.set, want.set) || !slices.Equal(c.del, want.del) {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// Lines that no call of the API can name change only with a reload, whatever the worker reports about them.
func TestOddEntriesOfMapsStay(t *testing.T) {
	t.Parallel()
	want := bind.Map{Source: "maps/x.map", Entries: entriesOf("a=1"), Odd: []string{"e;x 1\n"}}
	for _, have := range []string{"a=1 e;x=1", "a=1", "a=1 e;x=2"} {
		if c := changeMap(want, inWorker(have)); c.count() > 0 {
			t.Errorf("%s: %s", have, c)
		}
	}
	if c := changeMap(want, inWorker("a=2 e;x=1 b=1")); c.count() != 2 {
		t.Errorf("the others: %s", c)
	}
}

func TestEntriesAreSharedOutOverCommands(t *testing.T) {
	t.Parallel()
	long := dataplane.MapEntry{Key: strings.Repeat("k", bind.MaxMapPayload/2), Value: "v"}
	if got := payloads([]dataplane.MapEntry{long, {Key: "a", Value: "b"}, long, long}); len(got) != 3 || len(got[0]) != 2 {
		t.Errorf("%d commands", len(got))
	}
	if payloads(nil) != nil {
		t.Error("a command for nothing")
	}
}

// runtimeTests change a worker from the first of two snapshots to the second at run time.
var runtimeTests = map[string]struct {
	edit  func(f *fake, from *bind.Bound)
	err   error
	calls []string
	lost  int
}{
	"all goes well": {calls: []string{
		post2, "add 1 to path-22222222.map", "add 1 to host-11111111.map", "set a in host-11111111.map", "take b out of host-11111111.map", "take b/ out of path-22222222.map",
	}},
	"somebody else was there": {
		edit: func(f *fake, _ *bind.Bound) { f.maps["path-22222222.map"] = inWorker("a/=x c/=z x/=x") },
		calls: []string{
			post2, "add 1 to host-11111111.map", "set a in host-11111111.map", "take b out of host-11111111.map", "take x/ out of path-22222222.map",
		},
	},
	"a change is lost": {
		edit:  func(f *fake, _ *bind.Bound) { f.lose = 1 },
		calls: []string{post2, "add 1 to path-22222222.map", "add 1 to host-11111111.map", "set a in host-11111111.map", "take b out of host-11111111.map", "take b/ out of path-22222222.map", "add 1 to path-22222222.map"},
		lost:  1,
	},
	"changes are lost for ever": {
		edit: func(f *fake, _ *bind.Bound) { f.lose = 1000 }, err: ErrNeedsReload, lost: 10,
	},
	"the worker has no such map": {
		edit: func(f *fake, _ *bind.Bound) { delete(f.maps, "host-11111111.map") }, err: ErrNeedsReload, calls: []string{post2, post1},
	},
	"it runs something else": {
		edit: func(f *fake, _ *bind.Bound) { f.node = "bootstrap" }, err: ErrElsewhere,
	},
	"another shape": {
		edit: func(_ *fake, from *bind.Bound) { from.Shape = "sha256:two" }, err: ErrNeedsReload,
	},
	"HAProxy refuses the file": {
		edit: func(f *fake, _ *bind.Bound) { f.failPosts(1, classed{dataplane.ErrValidation}) }, err: ErrRefused, calls: []string{post2, tidy, "validate r000001-0000000001_aaaaaaaa"},
	},
}

func TestApplyAtRuntime(t *testing.T) {
	t.Parallel()
	for name, test := range runtimeTests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			from, to := mapped(1, "a=1 b=2", "a/=x b/=y"), mapped(2, "a=2 c=3", "a/=x c/=z")
			f.put(from)
			f.load()
			f.maps = map[string][]dataplane.MapEntry{"host-11111111.map": inWorker("a=1 b=2"), "path-22222222.map": inWorker("a/=x b/=y")}
			f.calls = nil
			if test.edit != nil {
				test.edit(f, &from)
			}
			pid := f.pid
			i := Instance{API: f, ReloadTimeout: time.Minute, Poll: time.Millisecond, Override: &RunningOverride{}}
			done, err := i.ApplyAtRuntime(t.Context(), to, from, Running{}, CertificateHashes{})
			if !errors.Is(err, test.err) || (err == nil) != (test.err == nil) || done.Lost != test.lost || f.pid != pid {
				t.Errorf("%v, %d lost, worker %d of %d", err, done.Lost, f.pid, pid)
			}
			if diff := cmp.Diff(test.calls, f.calls); diff != "" && test.calls != nil {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			f.checkLight(i, err, from, to, done)
		})
	}
}

// A new host is served before the file is written, which takes the API as long as HAProxy takes to check it. What has to
// go stays until then. If the file is not written, the worker has what it had before.
func TestNewEntriesDoNotWaitForTheFile(t *testing.T) {
	t.Parallel()
	adds := []string{"add 1 to path-22222222.map", "add 1 to host-11111111.map"}
	takes := []string{"take c out of host-11111111.map", "take c/ out of path-22222222.map"}
	for name, test := range map[string]struct {
		post  error
		calls []string
	}{
		"the file is written":         {calls: slices.Concat(adds, []string{post2, "take b out of host-11111111.map", "take b/ out of path-22222222.map"})},
		"HAProxy refuses the file":    {post: classed{dataplane.ErrValidation}, calls: slices.Concat(adds, []string{post2, tidy, "validate r000001-0000000001_aaaaaaaa"}, takes)},
		"the API does not answer":     {post: classed{dataplane.ErrUnavailable}, calls: slices.Concat(adds, []string{post2}, takes)},
		"what became of it is open":   {post: classed{dataplane.ErrUnknownOutcome}, calls: slices.Concat(adds, []string{post2}, takes)},
		"nobody may write any longer": {post: OutrankedError{Term: 1, By: 2}, calls: slices.Concat(adds, []string{post2}, takes)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			from, to := mapped(1, "a=1 b=2", "a/=x b/=y"), mapped(2, "a=1 c=3", "a/=x c/=z")
			f.put(from)
			f.load()
			f.maps = map[string][]dataplane.MapEntry{"host-11111111.map": inWorker("a=1 b=2"), "path-22222222.map": inWorker("a/=x b/=y")}
			f.calls = nil
			if test.post != nil {
				f.failPosts(1, test.post)
			}
			i := Instance{API: f, ReloadTimeout: time.Minute, Poll: time.Millisecond, Override: &RunningOverride{}}
			done, err := i.ApplyAtRuntime(t.Context(), to, from, Running{}, CertificateHashes{})
			if (err == nil) != (test.post == nil) || errors.Is(err, ErrRefused) != errors.Is(test.post, dataplane.ErrValidation) {
				t.Errorf("error is %v", err)
			}
			if diff := cmp.Diff(test.calls, f.calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if err != nil && (!slices.Equal(f.maps["host-11111111.map"], inWorker("a=1 b=2")) || !slices.Equal(f.maps["path-22222222.map"], inWorker("a/=x b/=y"))) {
				t.Errorf("the worker has %v", f.maps)
			}
			f.checkLight(i, err, from, to, done)
		})
	}
}

// A call for a server has no answer: the server is not taken for one that somebody takes out later.
func TestFailedPushRemembersWhatIsOpen(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.version = "v3.4.2"
	from := bound(1, []bind.Server{server("s1", "10.0.0.1", bind.SlotReady)})
	to := bound(2, []bind.Server{server("s1", "10.0.0.2", bind.SlotReady)})
	to.Shape = from.Shape
	f.put(from)
	f.load()
	f.servers = asServers(from.Servers...)
	f.setting = func(string, string, dataplane.ServerChange) error { return classed{dataplane.ErrUnknownOutcome} }
	i := Instance{API: f, ReloadTimeout: time.Minute, Poll: time.Millisecond, Override: &RunningOverride{}}
	done, err := i.ApplyAtRuntime(t.Context(), to, from, Running{}, CertificateHashes{})
	if !errors.Is(err, dataplane.ErrUnknownOutcome) {
		t.Fatal(err)
	}
	out := slices.Clone(to.Servers)
	out[0].State = bind.SlotSpare
	for range 2 { // what one value forgets, its copies know
		next := Running{}.Another().Unsure(done.Running).noteDrains(to.Servers, out, nil)
		if len(next.ManualDrains) > 0 {
			t.Errorf("manual drains: %v", next.ManualDrains)
		}
	}
	if next := (Running{}).noteDrains(to.Servers, out, nil); len(next.ManualDrains) != 1 {
		t.Errorf("of nothing that is open: %v", next.ManualDrains)
	}
}

// checkLight checks that a changed worker is known by the snapshot that it runs, and that the disk has the
// same.
func (f *fake) checkLight(i Instance, err error, from, to bind.Bound, done Done) {
	f.t.Helper()
	info, askErr := i.RuntimeInfo(f.t.Context())
	if askErr != nil {
		f.t.Fatal(askErr)
	}
	if err != nil {
		if info.Node != f.node || info.Loaded != "" || (f.node == from.Node && !readText([]byte(f.disk)).holds(from)) {
			f.t.Errorf("the worker is known as %+v, and on disk is\n%s", info, f.disk)
		}
		return
	}
	if info.Node != to.Node || info.Loaded != from.Node || done.Info != info || !readText([]byte(f.disk)).holds(to) {
		f.t.Errorf("the worker is known as %+v, and on disk is\n%s", info, f.disk)
	}
	for n, m := range to.Maps {
		name := []string{"host-11111111.map", "path-22222222.map"}[n]
		if c := changeMap(m, f.maps[name]); c.count() > 0 {
			f.t.Error(c)
		}
	}
	// Now a push has nothing to do, and a new worker is known by its own name.
	f.calls = nil
	if _, err := i.Push(f.t.Context(), to, nil, CertificateHashes{}); err != nil || f.calls != nil {
		f.t.Errorf("a push does %v, %v", f.calls, err)
	}
	f.pid++
	if info, _ = i.RuntimeInfo(f.t.Context()); info.Node != from.Node || info.Loaded != "" {
		f.t.Errorf("another worker is known as %+v", info)
	}
}

func TestUpdateKeepsMaps(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := mapped(1, "a=1 b=2", "")
	f.put(b)
	f.load()
	f.maps = map[string][]dataplane.MapEntry{"host-11111111.map": inWorker("a=1 x=2"), "path-22222222.map": nil}
	i := Instance{API: f, ReloadTimeout: time.Minute, Poll: time.Millisecond, Override: &RunningOverride{}}
	have, err := i.Update(t.Context(), wanted(b), Running{})
	if err != nil || have.Maps != b.Entries || have.Lost != 0 {
		t.Fatalf("%+v, %v", have, err)
	}
	if !slices.Equal(f.maps["host-11111111.map"], inWorker("a=1 b=2")) {
		t.Errorf("the map has %v", f.maps["host-11111111.map"])
	}
	f.maps["host-11111111.map"] = inWorker("a=1")
	found, err := i.Inspect(t.Context(), b, have, 0)
	if err != nil || len(found.Faults) != 1 || found.Faults[0].What != "map maps/host.map" || found.Running.Maps != "" {
		t.Fatalf("found %+v, %v", found, err)
	}
	f.lose = 1000
	f.pid--
	i.Override.Set(Override{PID: f.pid, Loaded: f.node, Runs: b.Node, Started: time.Now()})
	if have, err = i.Update(t.Context(), wanted(b), found.Running); !errors.Is(err, errMaps) || have.Maps != "" || have.Lost != 2 || i.Override.Get().Runs != "" {
		t.Errorf("%+v, %v", have, err)
	}
}

// A pusher that begins with a clock that is ahead still knows what a worker runs that was changed at run time. It
// concludes that from the file, which has the same. So there is no reload.
func TestOverrideByAnotherClock(t *testing.T) {
	t.Parallel()
	from, to := mapped(1, "a=1", ""), mapped(2, "a=2", "")
	for name, test := range map[string]struct {
		onDisk bind.Bound
		last   time.Duration // the age of the worker that the pusher before knew
		want   string
	}{
		"it":                               {to, time.Hour, to.Node},
		"the file has what it was started": {from, time.Hour, from.Node},
		"a younger worker":                 {to, 2 * time.Hour, from.Node},
	} {
		f := newFake(t)
		f.put(from)
		f.load()
		f.put(test.onDisk)
		f.info = func() (dataplane.RuntimeInfo, error) {
			return dataplane.RuntimeInfo{Node: f.node, PID: f.pid, Uptime: time.Hour + time.Minute}, nil
		}
		then := time.Now().Add(-3 * time.Hour)
		i := Instance{API: f, ReloadTimeout: time.Minute, Poll: time.Millisecond, Override: &RunningOverride{}}
		i.Record = NewRecord(Remembered{Worker: Process{PID: f.pid, Loaded: f.node, Uptime: test.last, Asked: then}})
		i.Override.Restore(Override{PID: f.pid, Loaded: f.node, Runs: to.Node, Started: then.Add(-test.last)})
		if info, err := i.RuntimeInfo(t.Context()); err != nil || info.Node != test.want {
			t.Errorf("%s: the worker runs %s, %v", name, info.Node, err)
		}
	}
}

func TestOverrideIsOfOneWorker(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	a := Override{PID: 7, Loaded: "one", Runs: "two", Started: at.Add(-time.Minute)}
	for name, test := range map[string]struct {
		override Override
		info     dataplane.RuntimeInfo
		want     bool
	}{
		"it":                         {a, dataplane.RuntimeInfo{PID: 7, Node: "one", Uptime: time.Minute}, true},
		"it, a second off":           {a, dataplane.RuntimeInfo{PID: 7, Node: "one", Uptime: 59 * time.Second}, true},
		"another worker":             {a, dataplane.RuntimeInfo{PID: 8, Node: "one", Uptime: time.Minute}, false},
		"another configuration":      {a, dataplane.RuntimeInfo{PID: 7, Node: "three", Uptime: time.Minute}, false},
		"by a clock that is ahead":   {a, dataplane.RuntimeInfo{PID: 7, Node: "one", Uptime: 30 * time.Second}, true},
		"another of the same number": {Override{PID: 7, Loaded: "one", Runs: "two", Started: at.Add(-time.Hour)}, dataplane.RuntimeInfo{PID: 7, Node: "one", Uptime: 30 * time.Second}, false},
		"nothing is known":           {Override{}, dataplane.RuntimeInfo{}, false},
	} {
		if got := test.override.of(test.info, at); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The servers are set before the worker is known by the bound snapshot. If it is not known what the worker has,
// the disk may have weights that the worker never got. What an earlier attempt posted is not posted again.
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
		f.put(to) // by an earlier attempt
		f.calls = nil
		i := Instance{API: f, ReloadTimeout: time.Minute, Poll: time.Millisecond, Override: &RunningOverride{}}
		done, err := i.ApplyAtRuntime(t.Context(), to, from, have, CertificateHashes{})
		if err != nil || !done.Running.Has(to.Servers) || !done.Running.Persisted || done.Running.Info.Node != to.Node {
			t.Errorf("%s: %+v, %v", name, done.Running, err)
		}
		if diff := cmp.Diff([]string{post2 + weights}, f.calls); diff != "" {
			t.Errorf("%s: calls (-want +got):\n%s", name, diff)
		}
	}
}

// If a server is not as it should be, the worker does not count as running the snapshot.
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
	if _, err := i.ApplyAtRuntime(t.Context(), to, from, Running{}, CertificateHashes{}); !errors.Is(err, dataplane.ErrUnavailable) || errors.Is(err, ErrNeedsReload) {
		t.Errorf("error is %v", err)
	}
	if info, _ := i.RuntimeInfo(t.Context()); info.Node != from.Node || i.Override.Get().Runs != "" {
		t.Errorf("the worker is known as %+v", info)
	}
}

// Several changes follow each other, and then the loaded snapshot comes back.
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
		done, err := i.ApplyAtRuntime(t.Context(), step.to, step.from, have, CertificateHashes{})
		if err != nil || done.Info.Loaded != step.loaded || !bind.SameNode(done.Info.Node, step.to.Node) {
			t.Fatalf("to %s: %+v, %v", step.to.Node, done.Info, err)
		}
		have = done.Running
	}
	if !slices.Equal(f.maps["host-11111111.map"], inWorker("a=1")) || i.Override.Get().Runs != "" {
		t.Errorf("the map has %v, and the override is %+v", f.maps["host-11111111.map"], i.Override.Get())
	}
}

// The entries of a map are read before new ones are added only if it is not known that the worker has the running
// ones. Those of a map that changed are read afterwards, so that it does not matter what somebody else changed in it.
func TestNewEntriesAreAddedToKnownOnes(t *testing.T) {
	t.Parallel()
	from, to := mapped(1, "a=1", "/=w"), mapped(2, "a=1 b=2", "/=w")
	known := Running{Maps: from.Entries, Info: dataplane.RuntimeInfo{PID: 101}}
	another := known
	another.Info.PID = 7
	older := known
	older.Maps = mapped(1, "a=0", "/=w").Entries
	for name, test := range map[string]struct {
		have  Running
		hosts string // of the worker
		reads int
		calls string // about maps
	}{
		"known":                                {known, "a=1", 1, "add 1 to host-11111111.map"},
		"known of another worker":              {another, "a=1", 3, "add 1 to host-11111111.map"},
		"known with other entries":             {older, "a=1", 3, "add 1 to host-11111111.map"},
		"unknown":                              {Running{}, "a=1", 3, "add 1 to host-11111111.map"},
		"unknown, and an earlier try added it": {Running{}, "a=1 b=2", 3, ""},
		"known, and changed by somebody":       {known, "a=7", 2, "add 1 to host-11111111.map; set a in host-11111111.map"},
		"known, and added by somebody":         {known, "a=1 b=7", 2, "add 1 to host-11111111.map; set b in host-11111111.map"},
	} {
		f := newFake(t)
		f.put(from)
		f.load()
		f.maps = map[string][]dataplane.MapEntry{"host-11111111.map": inWorker(test.hosts), "path-22222222.map": inWorker("/=w")}
		f.calls = nil
		i := Instance{API: f, ReloadTimeout: time.Minute, Poll: time.Millisecond, Override: &RunningOverride{}}
		done, err := i.ApplyAtRuntime(t.Context(), to, from, test.have, CertificateHashes{})
		if err != nil || done.Running.Maps != to.Entries {
			t.Errorf("%s: %+v, %v", name, done.Running, err)
		}
		calls := slices.DeleteFunc(slices.Clone(f.calls), func(c string) bool { return !strings.HasSuffix(c, ".map") })
		if got := strings.Join(calls, "; "); got != test.calls || f.mapsRead != test.reads {
			t.Errorf("%s: the maps were read %d times, and changed by %q, want %d and %q", name, f.mapsRead, got, test.reads, test.calls)
		}
		if c := changeMap(to.Maps[0], f.maps["host-11111111.map"]); c.count() > 0 {
			t.Errorf("%s: the map ends as %v", name, f.maps["host-11111111.map"])
		}
	}
}

// If HAProxy loads its maps from another folder than the API's, the maps cannot be changed. A worker that runs
// what it loaded is not affected.
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
	if _, err := i.ApplyAtRuntime(t.Context(), to, from, have, CertificateHashes{}); !errors.Is(err, ErrNeedsReload) {
		t.Errorf("error is %v", err)
	}
}
