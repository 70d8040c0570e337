package rollout

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// fuzzBudget is small enough to matter. The fleet can still come to rest within the time that the fuzzer
// allows.
var fuzzBudget = Budget{PerMinute: 12, Burst: 3, Reloads: 4, Within: 2 * time.Minute, OldWorkers: 3, HardStopAfter: time.Minute}

// ledger lists the pushes, except those that turned out to change nothing. It is separate from the state, which
// it checks.
type ledger struct{ pushes []entry }

type entry struct {
	Push
	left bool // the instance has left the fleet since
}

func (l *ledger) giveBack(p Push) {
	n := slices.IndexFunc(l.pushes, func(q entry) bool { return q.Instance == p.Instance && q.Since.Equal(p.Since) })
	if n >= 0 {
		l.pushes = slices.Delete(l.pushes, n, n+1)
	}
}

// left keeps the counts of the fleet, and forgets an instance.
func (l *ledger) left(name string) {
	for i := range l.pushes {
		if l.pushes[i].Instance == name {
			l.pushes[i].left = true
		}
	}
}

// since counts the recent pushes to an instance, or to all for "".
func (l *ledger) since(name string, now time.Time, ago time.Duration) int {
	n := 0
	for _, q := range l.pushes {
		if (name == "" || (q.Instance == name && !q.left)) && now.Sub(q.Since) < ago {
			n++
		}
	}
	return n
}

// check checks a push against the budget, with counts from the ledger.
func (l *ledger) check(t *testing.T, p Push) {
	t.Helper()
	l.pushes = append(l.pushes[max(0, len(l.pushes)-40):], entry{Push: p})
	if p.Purpose == Undo {
		return
	}
	b := fuzzBudget
	if n := l.since(p.Instance, p.Since, b.Within); n > b.Reloads {
		t.Fatalf("%+v is number %d within %s", p, n, b.Within)
	}
	if n := l.since(p.Instance, p.Since, b.HardStopAfter); n > b.OldWorkers {
		t.Fatalf("%+v makes %d old workers", p, n)
	}
	for _, q := range l.pushes {
		ago := p.Since.Sub(q.Since)
		most := b.Burst + int(ago/(time.Minute/time.Duration(b.PerMinute)))
		if n := l.since("", p.Since, ago+1); n > most {
			t.Fatalf("%+v is number %d of the fleet within %s, and there may be %d", p, n, ago, most)
		}
	}
}

// checkBlackout finds instances that are touched first in a blackout, without a person's order.
func (w world) checkBlackout(p Push, before State, o Observation) {
	if p.Purpose != Wave || !o.MayWait || w.state.Good.IsZero() {
		return
	}
	if r := w.state.Rollout; r.Full || (r.Vouched > 0 && r.Vouched >= r.Wave) {
		return // a person promoted the rollout
	}
	touched := before.Rollout != nil && slices.ContainsFunc(before.Rollout.Touched, func(h Touch) bool {
		return h.Instance == p.Instance && h.Snapshot == p.Snapshot
	})
	if until, dark := w.policy.blackout(w.now); dark && !touched {
		w.t.Fatalf("%+v begins in a blackout, which ends %s", p, until)
	}
}

// checkWish finds a rollout of something else than what a person ordered.
func (w world) checkWish(o Observation) {
	_, failed := w.state.Failure(o.Want, o.Intent)
	if o.MayWait || o.Hold || failed || o.Want.IsZero() {
		return
	}
	if r := w.state.Rollout; r != nil && r.Target != o.Want && r.Phase != Undoing {
		w.t.Fatalf("%s is ordered, and %s rolled out", o.Want, r.Target)
	}
}

// checkRejected finds a rollout that waits for ever because its own failure has rejected its target.
func (w world) checkRejected(o Observation) {
	if r := w.state.Rollout; r != nil && r.Phase != Undoing && r.Target == o.Want && slices.Contains(o.Rejected, r.Target.Short) {
		w.t.Fatalf("%s is rejected, and its rollout is %s", r.Target, r.Phase)
	}
}

// checkAbort finds a rollout that goes on although a person aborted it.
func (w world) checkAbort(before State, o Observation) {
	was, is := before.Rollout, w.state.Rollout
	if was == nil || was.Phase == Undoing || o.Abort.Snapshot != was.Target || o.Abort.Mark == was.Aborted {
		return
	}
	if is != nil && is.Target == was.Target && is.Phase != Undoing {
		w.t.Fatalf("%s goes on, and was aborted: %+v", is.Target, is)
	}
}

// checkZones finds a wave that takes all serving instances of a zone with several instances, or of two zones.
func (w world) checkZones(before State, o Observation) {
	r := w.state.Rollout
	if r == nil || before.Rollout == nil || slices.Equal(r.Members, before.Rollout.Members) {
		return
	}
	up, taken := map[string]int{}, map[string]int{}
	zones := map[string]bool{}
	for _, i := range o.Instances {
		zones[i.Zone] = true
		if i.Reachable {
			up[i.Zone]++
		}
		if slices.Contains(r.Members, i.Name) {
			taken[i.Zone]++
		}
	}
	if len(zones) < 2 || len(r.Members) < len(before.Rollout.Members) && before.Rollout.Wave == r.Wave {
		return // the rest of a wave whose other members left
	}
	whole := 0
	for zone, n := range taken {
		switch {
		case n < up[zone]:
		case n > 1:
			w.t.Fatalf("wave %v takes all of zone %s, where %d serve", r.Members, zone, up[zone])
		default:
			whole++
		}
	}
	if whole > 1 {
		w.t.Fatalf("wave %v takes %d zones of one instance", r.Members, whole)
	}
}

// checkVerdict finds snapshots that are blamed for statistics although the untouched instances fail by the same
// measure.
func (w world) checkVerdict(before State, o Observation) {
	r := w.state.Rollout
	if r == nil || before.Rollout == nil || r.Target != before.Rollout.Target || len(w.state.Failed) == len(before.Failed) {
		return
	}
	if r.Phase != Undoing || !strings.Contains(r.Reason, "5xx") {
		return
	}
	var requests, failed int64
	for _, i := range o.Instances {
		untouched := !slices.ContainsFunc(r.Touched, func(h Touch) bool { return h.Instance == i.Name })
		if now, ok := i.Sample.since(before.Rollout.Counted[i.Name]); ok && untouched && i.Reachable {
			requests, failed = requests+now.Requests, failed+now.Errors
		}
	}
	if requests >= w.policy.Gate.Requests && 2*failed >= requests {
		w.t.Fatalf("%s is blamed: %s; of %d requests to instances that were not touched %d failed", r.Target, r.Reason, requests, failed)
	}
}
