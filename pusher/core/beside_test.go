package core

import (
	"slices"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
)

// updates returns the updates among effects.
func updates(effects []Effect) (out []instance.Update) {
	for _, x := range effects {
		if on, ok := x.(OnInstance); ok {
			if u, ok := on.Effect.(instance.Update); ok {
				out = append(out, u)
			}
		}
	}
	return out
}

// Updates may change the worker while the file is written only if calls can do that, and if a write takes long.
func TestWhichWritesUpdatesDoNotWaitFor(t *testing.T) {
	t.Parallel()
	large, small := newChurn(t, dataplanetest.V34, 150, "a"), newChurn(t, dataplanetest.V34, 3, "a")
	for name, test := range map[string]struct {
		of                      *churn
		setsAddresses, deferred bool
		want                    bool
	}{
		"large":                               {large, true, false, true},
		"large, and calls set no addresses":   {large, false, false, false},
		"large, and dynamic servers stand in": {large, true, true, false},
		"small":                               {small, true, false, false},
	} {
		c := test.of
		i := c.instances["a"]
		before := i.running
		i.running.Persisted, i.running.SetsAddresses, i.running.Deferred, i.persisted = false, test.setsAddresses, test.deferred, time.Time{}
		c.Machine.jobs.beginWork(time.Now())
		if i.writing != test.want || (i.busy == workPersist) == test.want {
			t.Errorf("%s: busy with %q, writing %t", name, i.busy, i.writing)
		}
		i.running, i.busy, i.writing, c.effects = before, "", false, nil
	}
}

// A push that was approved before the write began waits for its end: otherwise the write would put the previous snapshot
// on the disk of a worker that runs the next one.
func TestApprovedPushWaitsForTheWrite(t *testing.T) {
	t.Parallel()
	c, i := writing(t, false)
	push := rollout.Push{Instance: "a", Snapshot: i.snapshot(), Purpose: rollout.CatchUp}
	c.Machine.saving.approved = []approval{{Push: push, on: i.ref(), decision: c.decision}}
	begin := func() work {
		c.Machine.jobs.beginApproved(true, time.Now())
		return i.busy
	}
	if got := begin(); got != "" || len(c.Machine.saving.approved) != 1 {
		t.Errorf("while the file is written: busy with %q, %d pushes are approved", got, len(c.Machine.saving.approved))
	}
	i.writing = false
	if got := begin(); got != workPush {
		t.Errorf("after that: busy with %q", got)
	}
}

// Beside the write, an update makes calls only. If those are not enough, the next one waits for the end of the write, or for
// something newer.
func TestUpdateBesideTheWrite(t *testing.T) {
	t.Parallel()
	c, i := writing(t, false)
	c.until(t, func() bool { return i.busy == "" && c.served() })
	c.replace(7)
	began := updates(c.Step(time.Now()))
	if len(began) != 1 || !began[0].Want.CallsOnly {
		t.Fatalf("the updates %v began", began)
	}
	ended := instance.UpdateEnded{About: instance.About{Ref: i.ref()}, Have: i.running}
	ended.Have.Unfinished, ended.Have.Waits = true, true
	if again := updates(c.Step(time.Now(), OfInstance{ended})); len(again) != 0 || !i.writing {
		t.Errorf("the updates %v began, though only a post can make the rest", again)
	}
	c.replace(8)
	if newer := updates(c.Step(time.Now())); len(newer) != 1 || !newer[0].Want.CallsOnly {
		t.Errorf("for newer changes the updates %v began", newer)
	}
}

// What is left of a round is no longer wanted. That is no reason to try again at once after a failure.
func TestRestThatIsNoLongerWanted(t *testing.T) {
	t.Parallel()
	c := newChurn(t, dataplanetest.V34, 3, "a")
	i := c.instances["a"]
	i.running.Unfinished, i.jobNotBefore = true, time.Now().Add(time.Hour)
	if began := updates(c.Step(time.Now())); len(began) != 0 {
		t.Errorf("the updates %v began", began)
	}
}

// A pod is replaced by another of its name while its file is written. The end of that write is not that of a write to the
// new one, and says nothing about its disk.
func TestFormerPodIsWrittenTo(t *testing.T) {
	t.Parallel()
	m := newMachine(State{}, noon)
	m.membership.join(fleet.Instance{Name: "a", URL: "http://127.0.0.1:1", UID: "1"}, noon)
	former := m.instances["a"].ref()
	m.instances["a"].writing = true
	m.membership.join(fleet.Instance{Name: "a", URL: "http://127.0.0.1:2", UID: "2"}, noon)
	i := m.instances["a"]
	if i.writing {
		t.Error("the new one waits for the end of a write to the former one")
	}
	own := push.Digest{9}
	i.writing, i.running.Disk = true, own
	OfInstance{instance.PersistEnded{About: instance.About{Ref: former}, Have: push.Running{Disk: push.Digest{1}}, Alone: true}}.apply(m, noon)
	if !i.writing || i.running.Disk != own {
		t.Errorf("writing %t, on disk is %v", i.writing, i.running.Disk)
	}
}

// A claim writes to the disk too, and waits for the end of another write.
func TestClaimWaitsForTheWrite(t *testing.T) {
	t.Parallel()
	m := newMachine(State{}, noon)
	m.Lead(1)
	i := &instanceState{Instance: fleet.Instance{Name: "a"}, asked: true, writing: true}
	m.instances["a"] = i
	if m.leadership.beginClaims(noon); i.busy != "" {
		t.Errorf("while the file is written: busy with %q", i.busy)
	}
	i.writing = false
	if m.leadership.beginClaims(noon); i.busy != workClaim {
		t.Errorf("after that: busy with %q", i.busy)
	}
}

// inspected has an instance inspected, and returns whether that repaired anything.
func (c *churn) inspected(t *testing.T, i *instanceState) (repaired bool) {
	t.Helper()
	before, repairs := i.inspections, slices.Clone(i.repairs)
	i.inspectAfter = time.Time{}
	c.until(t, func() bool { return i.inspections > before && i.doing() == "" })
	return !slices.Equal(repairs, i.repairs)
}

// A write beside which updates change the worker does not change it, not even what calls cannot: an update that it does not
// know of may have done so.
func TestWriteBesideUpdatesChangesNoServer(t *testing.T) {
	t.Parallel()
	c := newChurn(t, dataplanetest.V34, 150, "a")
	i := c.instances["a"]
	have := i.running
	have.Servers = slices.Clone(have.Servers)
	have.Servers[0].Weight++
	for _, alone := range []bool{true, false} {
		var ended instance.PersistEnded
		run := c.connections.Job(instance.Persist{Ref: i.ref(), Want: c.bindings.Unbound(i.snapshot(), i.Layout), Have: have, Alone: alone})
		run(t.Context(), func(ev instance.Event) { ended, _ = ev.(instance.PersistEnded) })
		if changed := ended.Have.Servers[0] != have.Servers[0]; ended.Err != nil || ended.Have.Written == nil || changed == alone {
			t.Errorf("alone: %t, a server was changed: %t, %v", alone, changed, ended.Err)
		}
	}
}
