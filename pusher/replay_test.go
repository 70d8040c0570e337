package pusher

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/preflight"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

var (
	replayed      = flag.String("replay", "", "the event log that TestReplayOfALog replays")
	replayedStore = flag.String("replay-store", "", "the directory of the store that it was recorded with")
)

// A log that somebody sent is replayed:
//
//	go test ./pusher -run TestReplayOfALog -args -replay FILE -replay-store FOLDER
func TestReplayOfALog(t *testing.T) {
	t.Parallel()
	if *replayed == "" {
		return
	}
	data, err := os.ReadFile(*replayed)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d turns came to the same effects", replay(t, data, dirstore.Open(*replayedStore, dirstore.Options{})))
}

// eventLines keeps the lines of an event log.
type eventLines struct {
	mu   sync.Mutex
	data bytes.Buffer
}

func (l *eventLines) add(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data.Write(line)
}

func (l *eventLines) all() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.data.Bytes())
}

// getter has the snapshots that a log names.
type getter interface {
	Get(ctx context.Context, id snapshots.ID) (snapshots.Snapshot, error)
}

// heldSnapshots are the snapshots of a store.
type heldSnapshots map[snapshots.ID]snapshots.Snapshot

func (h heldSnapshots) Get(_ context.Context, id snapshots.ID) (snapshots.Snapshot, error) {
	if s, ok := h[id]; ok {
		return s, nil
	}
	return snapshots.Snapshot{}, snapshots.ErrNotFound
}

// inMemory returns the snapshots of a store whose folder goes before the log is replayed.
func inMemory(t *testing.T, store Store) heldSnapshots {
	t.Helper()
	view, err := store.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := heldSnapshots{}
	for _, id := range view.IDs {
		if out[id], err = store.Get(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// replay takes the events of a log, with the code that took them when it was recorded and at
// the times in the log, and checks that each turn comes to the same effects. It returns how
// many turns there were.
func replay(t *testing.T, log []byte, store getter) int {
	t.Helper()
	r := replaying{t: t, store: store, servers: map[string]serverLists{}}
	turns, number := 0, 0
	lines := bufio.NewScanner(bytes.NewReader(log))
	lines.Buffer(nil, 256<<20)
	for lines.Scan() {
		number++
		var line logLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("line %d: %v", number, err)
		}
		if line.Lost > 0 || line.Continued {
			t.Fatalf("line %d: the log has a hole here", number)
		}
		if line.Begin != nil {
			r.begin(*line.Begin, line.At)
			continue
		}
		if r.engine == nil {
			t.Fatalf("line %d: the log does not begin with the state", number)
		}
		r.know(line)
		switch {
		case line.Event != nil:
			r.event(*line.Event).apply(r.engine, line.At)
		case line.Turn:
			turns++
			r.turn(line.At)
			var got []string
			for _, x := range r.engine.effects {
				got = append(got, x.String())
			}
			r.engine.effects = nil
			if !slices.Equal(got, line.Effects) {
				t.Fatalf("line %d: effects are\n%q, and were\n%q", number, got, line.Effects)
			}
		}
		r.engine.facts = nil
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return turns
}

// replaying is a replay under way.
type replaying struct {
	t       *testing.T
	store   getter
	engine  *engine
	replay  *binding.Replay
	servers map[string]serverLists
}

// deaf is a cluster of which nothing is heard.
type deaf struct{}

func (deaf) Run(context.Context)      {}
func (deaf) Want(cluster.Wanted)      {}
func (deaf) Changes() <-chan struct{} { return nil }
func (deaf) Take() cluster.Change     { return cluster.Change{} }

func (r *replaying) begin(b logBegin, at time.Time) {
	r.t.Helper()
	if b.Version != eventLogVersion {
		r.t.Fatalf("the log is of version %d", b.Version)
	}
	s, err := parseState(b.State, "the log")
	if err != nil {
		r.t.Fatal(err)
	}
	l := b.Options
	o := Options{
		RefuseEndpoints: l.RefuseEndpoints, AllowEndpoints: l.AllowEndpoints, RefuseInManifests: l.RefuseInManifests, Waves: l.Waves, Soak: l.Soak,
		PollInterval: l.PollInterval, ReloadTimeout: l.ReloadTimeout, DrainTime: l.DrainTime, PersistInterval: l.PersistInterval,
		InspectInterval: l.InspectInterval, CollectAfter: l.CollectAfter,
		State: filepath.Join(r.t.TempDir(), "state.json"), Metrics: prometheus.NewRegistry(),
	}
	switch l.Source {
	case binding.FromDirectory:
		o.Live = "recorded"
	case binding.FromCluster:
		o.Cluster = deaf{}
	case binding.FromSnapshots:
	}
	if l.Identity {
		o.Identity = "recorded"
	}
	if l.StateElsewhere {
		o.Keeper = &stateFile{file: o.State}
	}
	if l.KeepsSnapshots {
		o.Cache = "recorded"
	}
	r.engine = newEngine(o.withDefaults(), s, nil, at)
	if b.Fenced {
		r.engine.lead(b.Term, push.NewFence(b.Term, func() error { return nil }), nil)
	}
	r.replay = r.engine.bindings.Replay()
}

// know has the engine know what it knew besides events.
func (r *replaying) know(line logLine) {
	for _, n := range line.Nodes {
		r.replay.Give(n)
	}
}

func (r *replaying) turn(now time.Time) { r.engine.turn(now) }

// event returns an event of the log.
func (r *replaying) event(v loggedEvent) Event {
	r.t.Helper()
	err := v.Err.error()
	switch v.Kind {
	case "view":
		return ViewRead{read[channel.View](r, v), err}
	case "live":
		return LiveRead{r.replay.Objects(read[binding.RecordedObjects](r, v)), err}
	case "fleet":
		return FleetRead{read[loggedFleet](r, v).fleet(r), err}
	case "pods":
		data := read[loggedPods](r, v)
		of, found := data.Of, membersOf(data.Found)
		if data.Known && found == nil {
			found = []fleet.Instance{}
		}
		return PodsFound{of, found, err}
	case "credentials":
		return CredentialsMade{read[fleet.Pods](r, v), err}
	case "cluster":
		return ClusterChanged{r.replay.Change(read[binding.RecordedChange](r, v))}
	case "snapshot":
		return r.snapshot(read[snapshots.ID](r, v), v.Err)
	case "leader":
		return LeaderSeen{read[string](r, v)}
	case "forgotten":
		return SnapshotsForgotten{}
	case "certificates":
		data, found := read[loggedCertificates](r, v), map[string][]byte{}
		for version, digest := range data.Found {
			found[version] = []byte(digest)
		}
		return CertificatesOpened{data.Snapshot, found, err}
	case "rejection":
		return RejectionWritten{read[snapshots.ID](r, v), err}
	case "save":
		return SaveEnded{err}
	}
	return r.eventOfInstance(v, err)
}

func (r *replaying) eventOfInstance(v loggedEvent, err error) Event {
	r.t.Helper()
	if v.About == nil {
		r.t.Fatalf("event %q is not known", v.Kind)
	}
	about := *v.About
	switch v.Kind {
	case "raised":
		data := read[loggedRaise](r, v)
		return Raised{RaiseTerm{data.Above, about.Ref}, data.Term, err}
	case "join-failed":
		return OfInstance{instance.JoinFailed{About: about, Err: err}}
	case "renewed":
		return OfInstance{instance.Renewed{About: about, Err: err}}
	case "probed":
		data := read[loggedProbe](r, v)
		return OfInstance{instance.Probed{About: about, Info: data.Info, Err: err, Asked: data.Asked}}
	case "checked":
		return OfInstance{instance.Checked{About: about, Found: read[[]preflight.Finding](r, v), Err: err}}
	case "claim":
		return OfInstance{instance.ClaimEnded{About: about, Term: read[int64](r, v), Err: err}}
	case "push":
		return OfInstance{r.push(about, read[loggedPush](r, v), err)}
	case "update":
		data := read[loggedUpdate](r, v)
		had := push.Running{}
		if data.Had {
			had.Servers = []bind.Server{}
		}
		return OfInstance{instance.UpdateEnded{About: about, Node: data.Node, Began: data.Began, Had: had, Have: r.running(about, data.Have), Err: err}}
	case "persist":
		data := read[loggedPersist](r, v)
		return OfInstance{instance.PersistEnded{About: about, Have: r.running(about, data.Have), Took: data.Took, Err: err}}
	case "tidy":
		return OfInstance{instance.TidyEnded{About: about, Have: r.running(about, read[loggedRunning](r, v)), Err: err}}
	case "collect":
		data := read[loggedCollect](r, v)
		return OfInstance{instance.CollectEnded{About: about, Garbage: data.Garbage, Removed: data.Removed, Err: err}}
	case "inspect":
		data := read[loggedInspect](r, v)
		x := instance.Inspect{Have: push.Running{Info: dataplane.RuntimeInfo{PID: data.Had}}, Want: binding.Unbound{ID: data.Want}}
		return OfInstance{instance.InspectEnded{About: about, Inspect: x, Found: push.Inspection{Running: r.running(about, data.Found), Faults: data.Faults}, Err: err}}
	case "mend":
		data := read[loggedMend](r, v)
		return OfInstance{instance.MendEnded{About: about, Disk: data.Disk, Servers: data.Servers, Err: err}}
	case "sample":
		return OfInstance{instance.Sampled{About: about, Sample: read[rollout.Sample](r, v), Err: err}}
	}
	r.t.Fatalf("event %q is not known", v.Kind)
	return nil
}

func read[T any](r *replaying, v loggedEvent) T {
	r.t.Helper()
	var out T
	if err := json.Unmarshal(v.Data, &out); err != nil {
		r.t.Fatalf("event %s: %v", v.Kind, err)
	}
	return out
}

func (r *replaying) snapshot(id snapshots.ID, failed *loggedError) Event {
	r.t.Helper()
	if failed != nil && !failed.Unkept {
		return SnapshotRead{id, snapshots.Snapshot{}, failed.error()}
	}
	s, err := r.store.Get(r.t.Context(), id)
	if err != nil {
		r.t.Fatalf("the log names a snapshot that the store does not have: %v", err)
	}
	return SnapshotRead{id, s, failed.error()}
}

func (r *replaying) push(about instance.About, data loggedPush, err error) instance.PushEnded {
	data.Push.Instance = about.Ref.Name
	data.Done.Running = r.running(about, data.Running)
	return instance.PushEnded{
		About: about, Push: data.Push, Want: bind.Bound{ID: data.ID, Node: data.Node, Servers: data.Servers, Entries: data.Entries},
		Certificates: data.Certificates, Written: data.Wrote, Change: data.Change, Done: data.Done, Took: data.Took, Err: err,
	}
}

func (r *replaying) running(i instance.About, data loggedRunning) push.Running {
	last := r.servers[i.Ref.Name]
	out := data.Running
	out.Servers, out.Written = data.Servers.of(last.servers), data.Written.of(last.written)
	if out.Servers != nil {
		last.servers = out.Servers
	}
	if out.Written != nil {
		last.written = out.Written
	}
	r.servers[i.Ref.Name] = last
	return out
}

func (f loggedFleet) fleet(r *replaying) fleet.Fleet {
	out := fleet.Fleet{Name: f.Name, Rollout: f.Rollout.Rollout, Instances: membersOf(f.Instances), Pods: f.Pods}
	for _, b := range f.Rollout.Blackouts {
		if b.Zone != "" {
			zone, err := time.LoadLocation(b.Zone)
			if err != nil {
				r.t.Fatal(err)
			}
			b.Blackout.Zone = zone
		}
		out.Rollout.Blackouts = append(out.Rollout.Blackouts, b.Blackout)
	}
	return out
}

func membersOf(list []loggedMember) []fleet.Instance {
	var out []fleet.Instance
	for _, m := range list {
		out = append(out, fleet.Instance{Name: m.Name, URL: m.URL, Zone: m.Zone, UID: m.UID, Layout: m.Layout, Username: m.Credentials})
	}
	return out
}

// replayedError is an error of a log.
type replayedError struct {
	loggedError
	is []error
}

func (e replayedError) Error() string   { return e.Text }
func (e replayedError) Unwrap() []error { return e.is }
func (e replayedError) Gist() string    { return e.loggedError.Gist }

func (e *loggedError) error() error {
	if e == nil {
		return nil
	}
	out := replayedError{loggedError: *e}
	for _, kind := range e.Kinds {
		out.is = append(out.is, errorKinds[kind])
	}
	if e.By != 0 {
		out.is = append(out.is, push.OutrankedError{Term: e.Term, By: e.By})
	}
	if e.LedBy != nil {
		out.is = append(out.is, push.LedByOtherError{By: *e.LedBy})
	}
	if e.Unsupported {
		out.is = append(out.is, dataplane.UnsupportedError{Message: e.Text})
	}
	if e.Unkept {
		out.is = append(out.is, &binding.NotKeptError{Cause: errors.New(e.Text)})
	}
	return out
}

// replayAll replays the lives of pushers.
func replayAll(t *testing.T, logs []*eventLines, store getter) {
	t.Helper()
	turns := 0
	for _, log := range logs {
		turns += replay(t, log.all(), store)
	}
	if turns < 3 {
		t.Errorf("there were %d turns", turns)
	}
}

// Each event has a form in the log, and is the same event when it is read from there.
func TestEachEventIsRecorded(t *testing.T) {
	t.Parallel()
	var lines eventLines
	e := newEngine(Options{State: "none", Live: "live", eventsTo: lines.add}.withDefaults(), state{}, nil, noon)
	one := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}
	failed := fmt.Errorf("%w: it says why", push.ErrRefused)
	about := instance.About{Ref: instance.Ref{Name: "edge-1", UID: "u1", Joined: 2}, Known: instance.Known{Number: 3}}
	running := push.Running{Servers: []bind.Server{{Backend: "b", Name: "s1", Port: 80}}, Info: dataplane.RuntimeInfo{PID: 7}}
	for _, ev := range []Event{
		ViewRead{channel.View{IDs: []snapshots.ID{one}}, nil}, LiveRead{binding.Objects{}, failed},
		FleetRead{fleet.Fleet{Name: "edge", Instances: []fleet.Instance{{Name: "edge-1"}}}, nil}, PodsFound{fleet.Pods{Namespace: "edge"}, []fleet.Instance{{Name: "a"}}, failed},
		CredentialsMade{fleet.Pods{Namespace: "edge"}, failed},
		ClusterChanged{cluster.Change{Status: &cluster.Status{Slices: 3, Waits: []string{"more"}}}}, SnapshotRead{one, snapshots.Snapshot{}, failed},
		CertificatesOpened{one, map[string][]byte{"v": nil}, failed}, RejectionWritten{one, failed}, SaveEnded{failed}, LeaderSeen{"pusher-0"}, SnapshotsForgotten{},
		Raised{RaiseTerm{3, about.Ref}, 4, failed},
		OfInstance{instance.JoinFailed{About: about, Err: failed}}, OfInstance{instance.Renewed{About: about, Err: failed}},
		OfInstance{instance.Probed{About: about, Info: running.Info, Asked: noon}}, OfInstance{instance.Checked{About: about, Found: []preflight.Finding{{Check: "a"}}}},
		OfInstance{instance.ClaimEnded{About: about, Term: 4, Err: push.OutrankedError{Term: 4, By: 5}}},
		OfInstance{instance.PushEnded{About: about, Push: rollout.Push{Instance: "edge-1", Snapshot: one, Purpose: rollout.Wave}, Err: failed}},
		OfInstance{instance.UpdateEnded{About: about, Node: "n", Had: running, Have: running}}, OfInstance{instance.PersistEnded{About: about, Have: running}},
		OfInstance{instance.TidyEnded{About: about, Have: running}}, OfInstance{instance.CollectEnded{About: about, Removed: []push.Stored{{Name: "a"}}}},
		OfInstance{instance.InspectEnded{About: about, Found: push.Inspection{Faults: []push.Fault{{What: "w"}}}}},
		OfInstance{instance.MendEnded{About: about, Err: failed}}, OfInstance{instance.Sampled{About: about, Err: failed}},
	} {
		logged, err := e.eventLog.encode(ev)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(logged)
		if err != nil {
			t.Fatal(err)
		}
		var again loggedEvent
		if err := json.Unmarshal(data, &again); err != nil {
			t.Fatal(err)
		}
		r := replaying{t: t, engine: e, replay: e.bindings.Replay(), servers: map[string]serverLists{}}
		read := r.event(again)
		if read.String() != ev.String() || reflect.TypeOf(read) != reflect.TypeOf(ev) {
			t.Errorf("%s is read as %s from\n%s", ev, read, data)
		}
		if is, ok := ev.(OfInstance); ok && (!reflect.DeepEqual(read.(OfInstance).From(), is.From()) || reflect.TypeOf(read.(OfInstance).Event) != reflect.TypeOf(is.Event)) {
			t.Errorf("%s is read as %s from\n%s", ev, read, data)
		}
	}
}
