package pusher

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// A pod that takes the place of another between two looks, with its name and even its
// address, is another instance: nothing that was known of the old one is believed of
// it, and what is still done with the old one ends, and counts for nothing.
func TestPodReplacedUnderTheSameName(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	one, two := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}, snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}
	s := state{
		Uploads: map[string][]upload{"edge-0": {{}}, "edge-1": {{}}},
		Rollout: rollout.State{
			Good: one, Repairs: map[string]rollout.Repairs{"edge-0": {Snapshot: one}}, Reloads: map[string][]rollout.Reload{"edge-0": {{At: now}}},
			Rollout: &rollout.Rollout{Target: two, Phase: rollout.Soaking, Members: []string{"edge-0"}, Touched: []rollout.Touch{
				{Instance: "edge-0", Snapshot: two, Applied: true}, {Instance: "edge-1", Snapshot: two, Applied: true},
			}},
		},
		Instances: map[string]kept{"edge-0": {Of: "u0", Repairs: []time.Time{now}}, "edge-1": {Of: "u1", Repairs: []time.Time{now}}},
	}
	e := newEngine(Options{State: filepath.Join(t.TempDir(), "state.json"), PollInterval: time.Hour}.withDefaults(), s, nil, now)
	pod := func(name, uid string) fleet.Instance {
		return fleet.Instance{Name: name, UID: uid, URL: "http://127.0.0.1:1", Username: "u", Password: "p", Layout: bind.Layout{Maps: "/m", Certificates: "/c", General: "/g"}}
	}
	e.pods = &fleet.Pods{Namespace: "edge"}
	e.takePods(*e.pods, []fleet.Instance{pod("edge-0", "u0"), pod("edge-1", "u1")}, nil, now)
	old := e.instances["edge-0"]
	if len(old.Repairs) != 1 || len(e.state.Rollout.Rollout.Touched) != 2 {
		t.Fatalf("after a restart of the pusher the pods are the same: %+v", old.kept)
	}

	e.takePods(*e.pods, []fleet.Instance{pod("edge-0", "new"), pod("edge-1", "u1")}, nil, now)
	is, r := e.instances["edge-0"], e.state.Rollout
	switch {
	case is == old || is.UID != "new":
		t.Errorf("the instance is that of the pod %s", is.UID)
	case is.Of != "new" || len(is.Repairs) > 0 || is.asked:
		t.Errorf("of the new one is remembered %+v", is.kept)
	case len(r.Rollout.Touched) != 1 || r.Rollout.Touched[0].Instance != "edge-1" || len(r.Repairs)+len(r.Reloads) > 0:
		t.Errorf("of the rollout is remembered %+v, %+v", r.Rollout, r)
	case len(e.state.Uploads["edge-0"]) > 0 || len(e.state.Uploads["edge-1"]) != 1:
		t.Errorf("uploads are %+v", e.state.Uploads)
	case e.instances["edge-1"].Of != "u1" || len(e.instances["edge-1"].Repairs) != 1:
		t.Errorf("of the other one is remembered %+v", e.instances["edge-1"].kept)
	}
	end := instance.PushEnded{About: instance.About{Ref: old.ref()}, Push: rollout.Push{Instance: "edge-0", Snapshot: two}}
	OfInstance{end}.apply(e, now)
	if len(e.results) > 0 || is.asked {
		t.Errorf("a push to the old one counts for the new one: %+v", e.results)
	}
}

// What an effect on an earlier connection came to is no news of the one that there is: it may be to
// another address. Of what is known of an instance the latest counts, in whatever order it comes.
func TestEventsOfFormerConnectionsAreNoNews(t *testing.T) {
	t.Parallel()
	e := newEngine(Options{State: filepath.Join(t.TempDir(), "state.json")}.withDefaults(), state{}, nil, noon)
	e.join(fleet.Instance{Name: "a", URL: "http://127.0.0.1:1"}, noon)
	former := e.instances["a"].ref()
	e.instances["a"].busy = workUpdate
	e.join(fleet.Instance{Name: "a", URL: "http://127.0.0.1:2"}, noon)
	i := e.instances["a"]
	take := func(r instance.Ref, number int, by string, pid int) {
		known := instance.Known{Number: number, Record: push.RecordView{Leader: push.Pusher{State: by}}}
		OfInstance{instance.Probed{About: instance.About{Ref: r, Known: known}, Info: dataplane.RuntimeInfo{PID: pid}, Asked: noon.Add(time.Second)}}.apply(e, noon)
	}
	take(former, 9, "former", 7)
	if i.asked || i.known.Record.Leader.State != "" || i.info.PID != 0 {
		t.Errorf("the former counts: %+v", i)
	}
	if i.busy != workUpdate {
		t.Errorf("the job that goes on is forgotten: %q", i.busy)
	}
	OfInstance{instance.UpdateEnded{About: instance.About{Ref: former}, Have: push.Running{Persisted: true}}}.apply(e, noon)
	if i.busy != "" || i.running.Persisted {
		t.Errorf("after its end it is busy with %q, and %+v is known", i.busy, i.running)
	}
	take(i.ref(), 3, "later", 8)
	take(i.ref(), 2, "earlier", 8)
	if !i.asked || i.known.Record.Leader.State != "later" || i.info.PID != 8 {
		t.Errorf("known is %+v", i.known)
	}
}
