package pusher

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
)

// report tells the status to whoever listens.
func (e *engine) report(now time.Time) {
	s := e.status(now)
	e.metrics.observe(s)
	without, failing := s.Backends.gauges()
	e.metrics.gauges.set(s.Instances, e.policy.Budget.Left(e.state.Rollout, e.names(), now), pinAge(e.view.Channel, now), liveGauges{lacking: e.lacking, kept: len(e.losses.guard.kept), withoutEndpoints: without, failingChecks: failing})
	e.observePropagation(now)
	e.tally.log(e.Log, now)
	e.notifyOfTroubles(now)
	e.sayObjects(s.Instances, now)
	if e.Status != nil {
		e.Status(s)
	}
	if e.announcer != nil {
		e.announcer.offer(s.Condition())
	}
	e.reported = s
}

// status returns what the pusher says of itself.
func (e *engine) status(now time.Time) Status {
	s := Status{
		Updated: now.UTC().Truncate(time.Second), Leader: e.leader(), Term: e.leadership.term, Channel: e.channelStatus(), Rollout: e.rolloutStatus(),
		Good: e.state.Rollout.Good, Rejected: e.state.Rollout.Failed, Waits: wholeSeconds(e.waits), Instances: []InstanceStatus{},
		Changes: e.changes, Fleet: e.view.Fleet, Proven: e.state.Rollout.Proven,
		Kept: e.keptStatus(), Backends: e.backendsStatus(now),
	}
	for _, about := range slices.Sorted(maps.Keys(e.troubles)) {
		s.Troubles = append(s.Troubles, e.troubles[about])
	}
	for _, name := range e.names() {
		s.Instances = append(s.Instances, e.instanceStatus(e.instances[name]))
	}
	return s
}

// wholeSeconds returns the waits with their ends as they are told.
func wholeSeconds(waits []rollout.Wait) []rollout.Wait {
	out := slices.Clone(waits)
	for i, w := range out {
		if !w.Until.IsZero() {
			out[i].Until = w.Until.UTC().Truncate(time.Second)
		}
	}
	return out
}

func (e *engine) channelStatus() ChannelStatus {
	d := e.decision
	s := ChannelStatus{Wanted: d.ID, Because: d.Because, Hold: d.Hold, Message: d.Message, Rewound: e.rewound}
	if !e.viewRead {
		return ChannelStatus{Hold: true, Message: NotRead, Rewound: e.rewound}
	}
	s.Newest = e.view.Head()
	for _, id := range e.view.IDs {
		if good := e.state.Rollout.Good; id.Compare(good) > 0 {
			s.Behind++
		}
	}
	return s
}

func (e *engine) rolloutStatus() *RolloutStatus {
	r := e.state.Rollout.Rollout
	if r == nil {
		return nil
	}
	s := &RolloutStatus{
		Target: r.Target, Phase: r.Phase, Wave: r.Wave + 1, Members: r.Members,
		Since: r.Since.UTC().Truncate(time.Second), Reason: r.Reason, Paused: r.Paused, Noted: firstLine(r.Noted, longestMessage),
	}
	if c, ok := changeTo(e.changes, r.Target); ok && c.Began.Equal(r.Started.UTC().Truncate(time.Second)) {
		s.Change = &c
	}
	return s
}

func (e *engine) instanceStatus(i *instance) InstanceStatus {
	remembered := e.state.Rollout.Instances[i.Name]
	s := InstanceStatus{
		Name: i.Name, Zone: i.Zone, Reachable: i.reachable(), Since: i.since.UTC().Truncate(time.Second),
		Running: i.snapshot(), Node: i.info.Node, Loaded: i.info.Loaded, PID: i.info.PID, Doing: string(i.busy),
		ByHand: i.running.ByHand, Conflict: e.conflict(i), Findings: i.findings,
		Error: cmp.Or(remembered.Error, i.jobError),
	}
	if s.ErrorAt = remembered.ErrorAt; remembered.Error == "" {
		s.ErrorAt = i.jobErrorAt
	}
	if s.Conflict != nil {
		s.Error, s.ErrorAt = s.Conflict.String(), s.Conflict.Since
	}
	if i.err != nil {
		s.Error, s.ErrorAt, s.Refused = brief(i.err), i.since, isRefused(i.err)
	}
	if by, led := i.target.Record.LedBy(); led {
		s.LedBy = by.String()
	}
	if s.Foreign = i.foreign(); s.Foreign != "" && s.Error == "" {
		s.Error, s.ErrorAt = push.ErrForeign.Error()+": "+s.Foreign, i.started
	}
	s.ErrorAt = s.ErrorAt.UTC().Truncate(time.Second)
	s.InSync = s.Reachable && !e.unknown(s.Running) && s.Error == "" && !s.Running.IsZero() && s.Running == e.target() &&
		i.busy != workPush && i.busy != workUpdate && inSync(e.needsOf(i))
	if s.Reachable && !s.InSync && s.Error == "" {
		s.Pending = e.pending(i)
	}
	return s
}

// target returns what the fleet should run in the end.
func (e *engine) target() snapshots.ID {
	if e.decision.Hold {
		return e.state.Rollout.Good
	}
	return e.decision.ID
}

// pending says what is on its way to an instance that is not in sync though nothing failed.
func (e *engine) pending(i *instance) string {
	running, target := i.snapshot(), e.target()
	switch {
	case i.busy == workPush:
		return "a snapshot is being pushed to it"
	case target.IsZero():
		return "no snapshot is wanted yet"
	case running.IsZero():
		return fmt.Sprintf("runs another configuration, %s is to come", target)
	case running != target:
		return fmt.Sprintf("%s is to come", target)
	case e.unclaimed(i):
		return "looks what its worker was started from"
	case e.unknown(running):
		return "waits for endpoints and certificates to be read"
	}
	s := e.needsOf(i)
	s.Busy, s.NotBefore = false, time.Time{}
	return s.pending(classify(s, time.Time{}))
}

// pending says what it takes to be in sync.
func (s instanceNeeds) pending(w work) string {
	switch w {
	case workReload:
		return "a reload is to come: its servers have outgrown their slots, or other lines changed"
	case workUpdate:
		var what []string
		for _, part := range []struct {
			same bool
			name string
		}{{s.SameServers, "servers"}, {s.SameMaps, "entries of maps"}, {s.SameCertificates, "certificates"}} {
			if !part.same {
				what = append(what, part.name)
			}
		}
		return strings.Join(what, ", ") + " are being brought up to date"
	case workPersist:
		return "its servers are to be written to its disk"
	case workCollect:
		return "files that nothing needs are to be removed"
	case workInspect:
		return "its files and servers are to be compared with what was left there"
	case workNothing:
	}
	if !s.Bound {
		return "what it runs is not at hand"
	}
	return ""
}
