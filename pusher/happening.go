package pusher

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/notify"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
)

// happening is something that people may want to hear of: in the log, by a webhook
// and as an Event, from one source.
type happening struct {
	bad      bool   // a person may have to act
	log      string // its message in the log, "" for none
	keys     []any  // of the log, besides snapshot and instance
	event    notify.Event
	reason   string // of the Event, "" for none
	text     string // for people
	snapshot snapshots.ID
	instance string
}

// tell tells of a happening. What is said in Events is said with the next report.
func (e *engine) tell(h happening, now time.Time) {
	if h.log != "" {
		log := e.Log.Info
		if h.bad {
			log = e.Log.Error
		}
		log(h.log, h.logged()...)
	}
	if h.event != "" {
		n := notify.Notice{Event: h.event, Text: h.text, Time: now.UTC(), Instance: h.instance}
		if !h.snapshot.IsZero() {
			n.Snapshot = h.snapshot.String()
		}
		e.Notify(n)
	}
	if h.reason != "" {
		e.objects.happened = append(e.objects.happened, h)
	}
}

// logged returns the keys of the log and their values.
func (h happening) logged() []any {
	var out []any
	if h.instance != "" {
		out = append(out, "instance", h.instance)
	}
	if !h.snapshot.IsZero() {
		out = append(out, "snapshot", h.snapshot)
	}
	return append(out, h.keys...)
}

// happenings returns what a step of the rollout has to be told for.
func happenings(old, next rollout.State) []happening {
	return slices.Concat(failures(old, next), conflicts(old, next), course(old, next), stops(old.Rollout, next.Rollout))
}

// failures tells of snapshots that failed, and are rejected for it.
func failures(old, next rollout.State) []happening {
	var out []happening
	for _, f := range next.Failed {
		before, known := old.Failure(f.Snapshot, f.Intent)
		if !known {
			out = append(out, happening{
				bad: true, log: "rollout failed", keys: []any{"reason", f.Reason, "good", next.Good}, event: notify.RolloutFailed, reason: "RolloutFailed",
				text: fmt.Sprintf("rollout of %s failed: %s", f.Snapshot, firstLine(f.Reason, longestMessage)), snapshot: f.Snapshot,
			})
		}
		if f.Recorded && !before.Recorded {
			out = append(out, happening{
				bad: true, reason: "SnapshotRejected", text: fmt.Sprintf("%s is rejected, until pusher retry", f.Snapshot), snapshot: f.Snapshot,
			})
		}
	}
	return out
}

// conflicts tells of instances that somebody else keeps taking from their snapshot: when
// that begins, and when it is over.
func conflicts(old, next rollout.State) []happening {
	var out []happening
	for _, name := range slices.Sorted(maps.Keys(next.Repairs)) {
		if r := next.Repairs[name]; r.InConflict() && !old.Repairs[name].InConflict() {
			out = append(out, repairsStop(name, r.Snapshot, conflictOver(r).String()))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old.Repairs)) {
		if old.Repairs[name].InConflict() && !next.Repairs[name].InConflict() {
			out = append(out, repairsGoOn(name))
		}
	}
	return out
}

func repairsStop(instance string, id snapshots.ID, why string) happening {
	return happening{
		bad: true, log: "repairs stop", keys: []any{"reason", why}, event: notify.RepairsStop, reason: "RepairsStop",
		text: instance + ": " + why, snapshot: id, instance: instance,
	}
}

func repairsGoOn(instance string) happening {
	return happening{
		log: "repairs go on", event: notify.RepairsGoOn, reason: "RepairsGoOn", text: instance + ": repairs go on", instance: instance,
	}
}

// course tells how rollouts begin and end.
func course(old, next rollout.State) []happening {
	was, is := old.Rollout, next.Rollout
	switch {
	case is == nil && was != nil && next.Good == was.Target && old.Good != next.Good:
		return []happening{{
			log: "rollout done", event: notify.RolloutDone, reason: "RolloutDone",
			text: fmt.Sprintf("the fleet runs %s", next.Good), snapshot: next.Good,
		}}
	case is == nil && was != nil:
		text := fmt.Sprintf("rollout of %s is undone", was.Target)
		if !next.Good.IsZero() {
			text += fmt.Sprintf(", the fleet runs %s", next.Good)
		}
		return []happening{{
			log: "rollout undone", keys: []any{"good", next.Good}, event: notify.RolloutUndone, reason: "RolloutUndone", text: text, snapshot: was.Target,
		}}
	case is == nil && next.Good != old.Good:
		return []happening{{log: "fleet runs snapshot", snapshot: next.Good}}
	case is != nil && (was == nil || was.Target != is.Target):
		return []happening{{
			log: "rollout begins", keys: []any{"good", next.Good}, event: notify.RolloutBegins, reason: "RolloutBegins",
			text: fmt.Sprintf("rollout of %s begins", is.Target), snapshot: is.Target,
		}}
	}
	return nil
}

// stops tells where a rollout stands on its way.
func stops(old, is *rollout.Rollout) []happening {
	if is == nil {
		return nil
	}
	var out []happening
	was := cmp.Or(old, &rollout.Rollout{})
	switch {
	case is.Paused != "" && was.Paused == "":
		out = append(out, happening{
			bad: true, log: "rollout paused", keys: []any{"reason", is.Paused}, event: notify.RolloutPaused, reason: "RolloutPaused",
			text: fmt.Sprintf("rollout of %s is paused: %s", is.Target, firstLine(is.Paused, longestMessage)), snapshot: is.Target,
		})
	case is.Paused == "" && was.Paused != "" && is.Target == was.Target:
		out = append(out, happening{
			log: "pause of rollout ends", event: notify.RolloutGoesOn, reason: "RolloutGoesOn",
			text: fmt.Sprintf("rollout of %s goes on after its pause", is.Target), snapshot: is.Target,
		})
	}
	if is.Noted != "" && is.Noted != was.Noted {
		out = append(out, happening{log: "rollout goes on all the same", keys: []any{"noted", is.Noted}, snapshot: is.Target})
	}
	if is.Phase != was.Phase || !slices.Equal(is.Members, was.Members) {
		out = append(out, happening{
			log: "rollout goes on", keys: []any{"phase", string(is.Phase), "wave", is.Wave + 1, "members", is.Members}, snapshot: is.Target,
		})
	}
	return out
}
