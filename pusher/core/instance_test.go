package core

import (
	"slices"
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

func TestReviewOfUploads(t *testing.T) {
	a, b := push.Stored{Kind: bind.MapFile, Name: "a-01234567.map"}, push.Stored{Kind: bind.GeneralFile, Name: "b-01234567.lua"}
	list := uploaded(nil, []push.Stored{a, b})
	needed := map[push.Stored]bool{a: true}

	list, garbage := reviewFiles(list, needed, noon, time.Hour)
	if len(garbage) > 0 {
		t.Errorf("%v is garbage at once", garbage)
	}
	list, garbage = reviewFiles(list, needed, noon.Add(59*time.Minute), time.Hour)
	if len(garbage) > 0 {
		t.Errorf("%v is garbage too early", garbage)
	}
	if _, garbage = reviewFiles(list, needed, noon.Add(time.Hour), time.Hour); !slices.Equal(garbage, []push.Stored{b}) {
		t.Errorf("garbage is %v, want %v", garbage, b)
	}
	// A file that is needed again stays, also after the time at which it would have been removed.
	list, _ = reviewFiles(list, map[push.Stored]bool{a: true, b: true}, noon.Add(time.Hour), time.Hour)
	if _, garbage = reviewFiles(list, needed, noon.Add(2*time.Hour), time.Hour); len(garbage) > 0 {
		t.Errorf("%v is garbage although it was needed a moment ago", garbage)
	}
	if again := uploaded(list, []push.Stored{b}); len(again) != 2 {
		t.Errorf("uploads are %v", again)
	}
}

func TestHearingOfAnotherWorker(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(after, uptime int, change ...func(*dataplane.RuntimeInfo)) answer {
		info := dataplane.RuntimeInfo{PID: 8, Node: "r1", Uptime: time.Duration(uptime) * time.Second}
		for _, c := range change {
			c(&info)
		}
		return answer{info, begin.Add(time.Duration(after) * time.Second)}
	}
	node := func(name string) func(*dataplane.RuntimeInfo) {
		return func(i *dataplane.RuntimeInfo) { i.Node = name }
	}
	changed := func(i *dataplane.RuntimeInfo) { i.Loaded, i.Node = "r1", "r2" }
	for name, test := range map[string]struct {
		last, now answer
		want      bool
	}{
		"nothing was heard before":             {answer{}, at(0, 0), true},
		"the same":                             {at(10, 10), at(12, 12), false},
		"another number":                       {at(10, 10), at(12, 12, func(i *dataplane.RuntimeInfo) { i.PID = 9 }), true},
		"another node":                         {at(10, 10), at(12, 12, node("r2")), true},
		"changed at run time":                  {at(10, 10), at(12, 12, changed), false},
		"asked before the last":                {at(10, 10), at(9, 9), false},
		"an answer that took long":             {at(10, 10), at(12, 20), false},
		"restarted under its number":           {at(100, 100), at(102, 0), true},
		"restarted while it was out of reach":  {at(100, 100), at(300, 150), true},
		"restarted soon after it began":        {at(5, 5), at(15, 6), true},
		"paused for ten seconds":               {at(100, 100), at(112, 102), false},
		"short of time since it began":         {at(9, 2), at(10, 2), false},
		"restarted when it was three":          {at(3, 3), at(4, 0), true},
		"paused again and again":               {at(1000, 700), at(1002, 702), false},
		"slow, and asked for its age too late": {at(1000, 700), at(1010, 702), false},
	} {
		if got := test.now.ofAnother(test.last); got != test.want {
			t.Errorf("%s: another is %v, want %v", name, got, test.want)
		}
	}
}

// A pod may replace another one between two looks, with the same name and even the same address. It is another
// instance: nothing that is known about the old one counts for it. What is still being done with the old one
// ends, and its result is ignored.
func TestPodReplacedUnderTheSameName(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	one, two := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}, snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}
	s := State{
		Uploads: map[string][]Upload{"edge-0": {{}}, "edge-1": {{}}},
		Rollout: rollout.State{
			Good: one, Repairs: map[string]rollout.Repairs{"edge-0": {Snapshot: one}}, Reloads: map[string][]rollout.Reload{"edge-0": {{At: now}}},
			Rollout: &rollout.Rollout{Target: two, Phase: rollout.Soaking, Members: []string{"edge-0"}, Touched: []rollout.Touch{
				{Instance: "edge-0", Snapshot: two, Applied: true}, {Instance: "edge-1", Snapshot: two, Applied: true},
			}},
		},
		Instances: map[string]savedInstance{"edge-0": {Of: "u0", Repairs: []time.Time{now}}, "edge-1": {Of: "u1", Repairs: []time.Time{now}}},
	}
	e := newMachine(s, now)
	pod := func(name, uid string) fleet.Instance {
		return fleet.Instance{Name: name, UID: uid, URL: "http://127.0.0.1:1", Username: "u", Password: "p", Layout: bind.Layout{Maps: "/m", Certificates: "/c", General: "/g"}}
	}
	e.pods = &fleet.Pods{Namespace: "edge"}
	e.membership.takePods(*e.pods, []fleet.Instance{pod("edge-0", "u0"), pod("edge-1", "u1")}, nil, now)
	old := e.instances["edge-0"]
	if len(old.repairs) != 1 || len(e.state.Rollout.Rollout.Touched) != 2 {
		t.Fatalf("after a restart of the pusher the pods are the same: %+v", remembered(old))
	}

	e.membership.takePods(*e.pods, []fleet.Instance{pod("edge-0", "new"), pod("edge-1", "u1")}, nil, now)
	is, r := e.instances["edge-0"], e.state.Rollout
	switch {
	case is == old || is.UID != "new":
		t.Errorf("the instance is that of the pod %s", is.UID)
	case len(is.repairs) > 0 || is.asked:
		t.Errorf("of the new one is remembered %+v", remembered(is))
	case len(r.Rollout.Touched) != 1 || r.Rollout.Touched[0].Instance != "edge-1" || len(r.Repairs)+len(r.Reloads) > 0:
		t.Errorf("of the rollout is remembered %+v, %+v", r.Rollout, r)
	case len(e.state.Uploads["edge-0"]) > 0 || len(e.state.Uploads["edge-1"]) != 1:
		t.Errorf("uploads are %+v", e.state.Uploads)
	case e.instances["edge-1"].UID != "u1" || len(e.instances["edge-1"].repairs) != 1:
		t.Errorf("of the other one is remembered %+v", remembered(e.instances["edge-1"]))
	}
	end := instance.PushEnded{About: instance.About{Ref: old.ref()}, Push: rollout.Push{Instance: "edge-0", Snapshot: two}}
	OfInstance{end}.apply(e, now)
	if len(e.results) > 0 || is.asked {
		t.Errorf("a push to the old one counts for the new one: %+v", e.results)
	}
}

// The result of an effect on an earlier connection is ignored, since it may be from another address. Of what is
// known about an instance, the latest counts, in whatever order it arrives.
func TestEventsOfFormerConnectionsAreNoNews(t *testing.T) {
	t.Parallel()
	e := newMachine(State{}, noon)
	e.membership.join(fleet.Instance{Name: "a", URL: "http://127.0.0.1:1"}, noon)
	former := e.instances["a"].ref()
	e.instances["a"].busy = workUpdate
	e.membership.join(fleet.Instance{Name: "a", URL: "http://127.0.0.1:2"}, noon)
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

// A newer snapshot that has the content of the good one need not have been read, such as where the store went away. Instances
// follow their endpoints as those of the good one meanwhile.
func TestTheGoodSnapshotIsKnown(t *testing.T) {
	t.Parallel()
	good, newer := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}, snapshots.ID{Revision: 3, Short: "aaaaaaaaaa"}
	m := newMachine(State{Rollout: rollout.State{Good: good}}, noon)
	m.decision.ID = newer
	for _, runs := range []snapshots.ID{good, newer} {
		i := &instanceState{Instance: fleet.Instance{Name: "a"}, asked: true, info: dataplane.RuntimeInfo{Node: runs.String() + "_00000000"}}
		m.instances["a"] = i
		if m.tellInstances(); i.snapshot() != good {
			t.Errorf("what names %s is taken for %s", runs, i.snapshot())
		}
	}
}
