package pusher

import (
	"fmt"
	"time"

	"github.com/hapsnap/hapsnap/pusher/notify"
	"github.com/hapsnap/hapsnap/pusher/rollout"
)

// tellAfter is how long a trouble lasts before anybody is notified of it: most are
// over by then.
const tellAfter = time.Minute

func (e *engine) notify(n notify.Notice, now time.Time) {
	n.Time = now.UTC()
	e.Notify(n)
}

// noticesOf returns what a step of the rollout has to be told for.
func noticesOf(old, next rollout.State) []notify.Notice {
	var out []notify.Notice
	add := func(event notify.Event, id fmt.Stringer, format string, args ...any) {
		out = append(out, notify.Notice{Event: event, Snapshot: id.String(), Text: fmt.Sprintf(format, args...)})
	}
	for _, f := range next.Failed {
		if _, known := old.Failure(f.Snapshot, f.Intent); !known {
			add(notify.RolloutFailed, f.Snapshot, "rollout of %s failed: %s", f.Snapshot, firstLine(f.Reason, 300))
		}
	}
	for name, r := range next.Repairs {
		if !r.Stopped.IsZero() && old.Repairs[name].Stopped.IsZero() {
			out = append(out, notify.Notice{
				Event: notify.RepairsStop, Instance: name, Snapshot: r.Snapshot.String(), Text: name + ": " + next.Instances[name].Error,
			})
		}
	}
	switch was, is := old.Rollout, next.Rollout; {
	case is == nil && was != nil && next.Good == was.Target && old.Good != next.Good:
		add(notify.RolloutDone, next.Good, "the fleet runs %s", next.Good)
	case is == nil && was != nil && next.Good.IsZero():
		add(notify.RolloutUndone, was.Target, "rollout of %s is undone", was.Target)
	case is == nil && was != nil:
		add(notify.RolloutUndone, was.Target, "rollout of %s is undone, the fleet runs %s", was.Target, next.Good)
	case is != nil && (was == nil || was.Target != is.Target):
		add(notify.RolloutBegins, is.Target, "rollout of %s begins", is.Target)
	}
	return out
}

// notifyOfTroubles tells of those that have lasted for a while.
func (e *engine) notifyOfTroubles(now time.Time) {
	for about, t := range e.troubles {
		if !e.told[about] && now.Sub(t.Since) >= tellAfter {
			e.told[about] = true
			e.notify(notify.Notice{Event: notify.Trouble, Text: fmt.Sprintf("%s: %s", about, firstLine(t.Error, 300))}, now)
		}
	}
	for about := range e.told {
		if _, still := e.troubles[about]; !still {
			delete(e.told, about)
			e.notify(notify.Notice{Event: notify.TroubleOver, Text: about + ": the trouble is over"}, now)
		}
	}
}
