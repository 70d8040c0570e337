package pusher

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/core"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/preflight"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/pusher/statestore"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

var (
	replayed      = flag.String("replay", "", "the event log that TestReplayOfALog replays")
	replayedStore = flag.String("replay-store", "", "the store that it was recorded with, as --store takes it, or the folder of --snapshots-dir")
)

// TestReplayOfALog replays a log from elsewhere:
//
//	go test ./pusher -run TestReplayOfALog -args -replay FILE -replay-store STORE
func TestReplayOfALog(t *testing.T) {
	t.Parallel()
	if *replayed == "" {
		return
	}
	data, err := os.ReadFile(*replayed)
	if err != nil {
		t.Fatal(err)
	}
	store, err := recordedWith(t.Context(), *replayedStore)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d turns came to the same effects", replay(t, data, store))
}

// recordedWith opens what somebody names as the store of a log. A store in ConfigMaps is in the cluster of $KUBECONFIG.
func recordedWith(ctx context.Context, name string) (getter, error) {
	store, err := stores.Open(ctx, name, stores.Options{
		Cluster: kubeconfig.Options{File: os.Getenv("KUBECONFIG")}, Log: slog.New(slog.DiscardHandler),
	})
	return keptOrStored{name, store}, err
}

// keptOrStored has the snapshots that a pusher keeps on its disk, or those of a store.
type keptOrStored struct {
	dir   string
	store getter
}

func (k keptOrStored) Get(ctx context.Context, id snapshots.ID) (snapshots.Snapshot, error) {
	if s, err := readKept(k.dir, id); err == nil {
		return s, nil
	}
	return k.store.Get(ctx, id)
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

// inMemory returns the snapshots of a store whose folder is removed before the log is replayed.
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

// replay gives the events of a log to a machine, at the times in the log, and checks that each turn
// has the same effects. It returns the number of turns.
func replay(t *testing.T, log []byte, store getter) int {
	t.Helper()
	r := replaying{t: t, store: store, servers: map[string]serverLists{}}
	turns, number := 0, 0
	lines := bufio.NewScanner(bytes.NewReader(log))
	lines.Buffer(nil, 256<<20)
	var taken []core.Event // events for the next step
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
		if r.machine == nil {
			t.Fatalf("line %d: the log does not begin with the state", number)
		}
		switch {
		case line.Event != nil:
			taken = append(taken, r.event(*line.Event))
		case line.Turn:
			turns++
			for _, n := range line.Nodes {
				r.replay.Give(n)
			}
			var got []string
			for _, x := range r.machine.Step(line.At, taken...) {
				got = append(got, x.String())
			}
			if taken = nil; !slices.Equal(got, line.Effects) {
				t.Fatalf("line %d: effects are\n%q, and were\n%q", number, got, line.Effects)
			}
			r.machine.Facts()
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return turns
}

// replaying is a replay in progress.
type replaying struct {
	t       *testing.T
	store   getter
	machine *core.Machine
	replay  *binding.Replay
	servers map[string]serverLists
}

func (r *replaying) begin(b logBegin, at time.Time) {
	r.t.Helper()
	if b.Version != eventLogVersion {
		r.t.Fatalf("the log is of version %d", b.Version)
	}
	s, err := core.ParseState(b.State, "the log")
	if err != nil {
		r.t.Fatal(err)
	}
	r.machine = core.New(b.Settings, s, nil, at)
	if b.Term != nil {
		r.machine.Lead(*b.Term)
	}
	r.replay = r.machine.Replay()
}

// event returns an event of the log.
func (r *replaying) event(v loggedEvent) core.Event {
	r.t.Helper()
	err := v.Err.error()
	switch v.Kind {
	case "view":
		return core.ViewRead{View: read[channel.View](r, v), Err: err}
	case "live":
		return core.LiveRead{Live: r.replay.Objects(read[binding.RecordedObjects](r, v)), Err: err}
	case "fleet":
		return core.FleetRead{Fleet: read[loggedFleet](r, v).fleet(r), Err: err}
	case "pods":
		data := read[loggedPods](r, v)
		of, found := data.Of, membersOf(data.Found)
		if data.Known && found == nil {
			found = []fleet.Instance{}
		}
		return core.PodsFound{Of: of, Found: found, Err: err}
	case "credentials":
		return core.CredentialsMade{Of: read[fleet.Pods](r, v), Err: err}
	case "status":
		return core.StatusWritten{Err: err}
	case "cluster":
		return core.ClusterChanged{Change: r.replay.Change(read[binding.RecordedChange](r, v))}
	case "snapshot":
		return r.snapshot(read[snapshots.ID](r, v), v.Err)
	case "leader":
		return core.LeaderSeen{Holder: read[string](r, v)}
	case "forgotten":
		return core.SnapshotsForgotten{}
	case "certificates":
		data, found := read[loggedCertificates](r, v), map[string][]byte{}
		for version, digest := range data.Found {
			found[version] = []byte(digest)
		}
		return core.CertificatesOpened{ID: data.Snapshot, Found: found, Err: err}
	case "rejection":
		return core.RejectionWritten{ID: read[snapshots.ID](r, v), Err: err}
	case "save":
		return core.SaveEnded{Err: err, Taken: errors.Is(err, statestore.ErrTaken)}
	}
	return r.eventOfInstance(v, err)
}

func (r *replaying) eventOfInstance(v loggedEvent, err error) core.Event {
	r.t.Helper()
	if v.About == nil {
		r.t.Fatalf("event %q is not known", v.Kind)
	}
	about := *v.About
	switch v.Kind {
	case "raised":
		data := read[loggedRaise](r, v)
		return core.Raised{RaiseTerm: core.RaiseTerm{Above: data.Above, Of: about.Ref}, Term: data.Term, Err: err, Taken: errors.Is(err, statestore.ErrTaken)}
	case "join-failed":
		return core.OfInstance{Event: instance.JoinFailed{About: about, Err: err}}
	case "renewed":
		return core.OfInstance{Event: instance.Renewed{About: about, Err: err}}
	case "probed":
		data := read[loggedProbe](r, v)
		return core.OfInstance{Event: instance.Probed{About: about, Info: data.Info, Err: err, Asked: data.Asked}}
	case "checked":
		return core.OfInstance{Event: instance.Checked{About: about, Found: read[[]preflight.Finding](r, v), Err: err}}
	case "claim":
		return core.OfInstance{Event: instance.ClaimEnded{About: about, Term: read[int64](r, v), Err: err}}
	case "push":
		return core.OfInstance{Event: r.push(about, read[loggedPush](r, v), err)}
	case "update":
		data := read[loggedUpdate](r, v)
		had := push.Running{}
		if data.Had {
			had.Servers = []bind.Server{}
		}
		return core.OfInstance{Event: instance.UpdateEnded{About: about, Node: data.Node, Began: data.Began, Had: had, Have: r.running(about, data.Have), Err: err}}
	case "persist":
		data := read[loggedPersist](r, v)
		return core.OfInstance{Event: instance.PersistEnded{About: about, Have: r.running(about, data.Have), Took: data.Took, Err: err, Alone: data.Alone}}
	case "tidy":
		return core.OfInstance{Event: instance.TidyEnded{About: about, Have: r.running(about, read[loggedRunning](r, v)), Err: err}}
	case "collect":
		data := read[loggedCollect](r, v)
		return core.OfInstance{Event: instance.CollectEnded{About: about, Garbage: data.Garbage, Removed: data.Removed, Err: err}}
	case "inspect":
		data := read[loggedInspect](r, v)
		x := instance.Inspect{Have: push.Running{Info: dataplane.RuntimeInfo{PID: data.Had}}, Want: binding.Unbound{ID: data.Want}}
		return core.OfInstance{Event: instance.InspectEnded{About: about, Inspect: x, Found: push.Inspection{Running: r.running(about, data.Found), Faults: data.Faults}, Err: err}}
	case "mend":
		data := read[loggedMend](r, v)
		return core.OfInstance{Event: instance.MendEnded{About: about, Disk: data.Disk, Servers: data.Servers, Err: err}}
	case "sample":
		return core.OfInstance{Event: instance.Sampled{About: about, Sample: read[rollout.Sample](r, v), Err: err}}
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

func (r *replaying) snapshot(id snapshots.ID, failed *loggedError) core.Event {
	r.t.Helper()
	if failed != nil && !failed.Unkept {
		return core.SnapshotRead{ID: id, Snapshot: snapshots.Snapshot{}, Err: failed.error()}
	}
	s, err := r.store.Get(r.t.Context(), id)
	if err != nil {
		r.t.Fatalf("the log names a snapshot that the store does not have: %v", err)
	}
	return core.SnapshotRead{ID: id, Snapshot: s, Err: failed.error()}
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
		out = append(out, fleet.Instance{Name: m.Name, URL: m.URL, Zone: m.Zone, UID: m.UID, Layout: m.Layout, Username: m.Credentials, Also: m.Also})
	}
	return out
}

// replayedError is an error from a log.
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

// replayAll replays the logs of several lives.
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

// Each event has a form in the log, and reading that form gives the same event.
func TestEachEventIsRecorded(t *testing.T) {
	t.Parallel()
	var lines eventLines
	machine := core.New(core.Settings{Source: binding.FromDirectory}, core.State{}, nil, noon)
	l := newEventLog(lines.add, core.Settings{}, core.State{}, slog.New(slog.DiscardHandler), noon)
	one := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}
	failed := fmt.Errorf("%w: it says why", push.ErrRefused)
	about := instance.About{Ref: instance.Ref{Name: "edge-1", UID: "u1", Joined: 2}, Known: instance.Known{Number: 3}}
	running := push.Running{Servers: []bind.Server{{Backend: "b", Name: "s1", Port: 80}}, Info: dataplane.RuntimeInfo{PID: 7}}
	for _, ev := range []core.Event{
		core.ViewRead{View: channel.View{IDs: []snapshots.ID{one}}}, core.LiveRead{Live: binding.Objects{}, Err: failed},
		core.FleetRead{Fleet: fleet.Fleet{Name: "edge", Instances: []fleet.Instance{{Name: "edge-1"}}}}, core.PodsFound{Of: fleet.Pods{Namespace: "edge"}, Found: []fleet.Instance{{Name: "a"}}, Err: failed},
		core.CredentialsMade{Of: fleet.Pods{Namespace: "edge"}, Err: failed}, core.StatusWritten{Err: failed},
		core.ClusterChanged{Change: cluster.Change{Status: &cluster.Status{Slices: 3, Waits: []string{"more"}}}}, core.SnapshotRead{ID: one, Snapshot: snapshots.Snapshot{}, Err: failed},
		core.CertificatesOpened{ID: one, Found: map[string][]byte{"v": nil}, Err: failed}, core.RejectionWritten{ID: one, Err: failed}, core.SaveEnded{Err: failed}, core.LeaderSeen{Holder: "pusher-0"}, core.SnapshotsForgotten{},
		core.Raised{RaiseTerm: core.RaiseTerm{Above: 3, Of: about.Ref}, Term: 4, Err: failed},
		core.OfInstance{Event: instance.JoinFailed{About: about, Err: failed}}, core.OfInstance{Event: instance.Renewed{About: about, Err: failed}},
		core.OfInstance{Event: instance.Probed{About: about, Info: running.Info, Asked: noon}}, core.OfInstance{Event: instance.Checked{About: about, Found: []preflight.Finding{{Check: "a"}}}},
		core.OfInstance{Event: instance.ClaimEnded{About: about, Term: 4, Err: push.OutrankedError{Term: 4, By: 5}}},
		core.OfInstance{Event: instance.PushEnded{About: about, Push: rollout.Push{Instance: "edge-1", Snapshot: one, Purpose: rollout.Wave}, Err: failed}},
		core.OfInstance{Event: instance.UpdateEnded{About: about, Node: "n", Had: running, Have: running}}, core.OfInstance{Event: instance.PersistEnded{About: about, Have: running}},
		core.OfInstance{Event: instance.TidyEnded{About: about, Have: running}}, core.OfInstance{Event: instance.CollectEnded{About: about, Removed: []push.Stored{{Name: "a"}}}},
		core.OfInstance{Event: instance.InspectEnded{About: about, Found: push.Inspection{Faults: []push.Fault{{What: "w"}}}}},
		core.OfInstance{Event: instance.MendEnded{About: about, Err: failed}}, core.OfInstance{Event: instance.Sampled{About: about, Err: failed}},
	} {
		logged, err := l.encode(ev)
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
		r := replaying{t: t, machine: machine, replay: machine.Replay(), servers: map[string]serverLists{}}
		read := r.event(again)
		if read.String() != ev.String() || reflect.TypeOf(read) != reflect.TypeOf(ev) {
			t.Errorf("%s is read as %s from\n%s", ev, read, data)
		}
		if is, ok := ev.(core.OfInstance); ok && (!reflect.DeepEqual(read.(core.OfInstance).From(), is.From()) || reflect.TypeOf(read.(core.OfInstance).Event) != reflect.TypeOf(is.Event)) {
			t.Errorf("%s is read as %s from\n%s", ev, read, data)
		}
	}
}
