package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// Budget limits how often workers are replaced. Zero means no limit. An undo takes from the
// budget as everything else does, but does not wait for it: what is broken is worse than
// what is busy.
type Budget struct {
	// PerMinute is how many reloads the fleet may have in a minute, and Burst how many of
	// them at once, as a bucket that holds Burst tokens and is refilled steadily.
	PerMinute, Burst int
	// Reloads is how many reloads an instance may have in any period of length Within.
	Reloads int
	Within  time.Duration
	// OldWorkers is how many old workers an instance may have that still finish their
	// connections. They cannot be counted from outside. A worker that was replaced counts
	// as long as its configuration lets it live, or for HardStopAfter if its configuration
	// does not say.
	OldWorkers    int
	HardStopAfter time.Duration
}

// Reload is one replaced worker.
type Reload struct {
	At time.Time `json:"at"`
	// Gone is when the worker that was replaced is gone at the latest.
	Gone time.Time `json:"gone"`
}

// interval is the time between two tokens.
func (b Budget) interval() time.Duration { return time.Minute / time.Duration(b.PerMinute) }

// fleet returns when the fleet may have the next reload; full is when the bucket would be
// full again.
func (b Budget) fleet(full time.Time) time.Time {
	if b.PerMinute <= 0 {
		return time.Time{}
	}
	return full.Add(-time.Duration(max(b.Burst, 1)-1) * b.interval())
}

// often returns when an instance with these reloads may have the next.
func (b Budget) often(reloads []Reload) time.Time {
	if b.Reloads <= 0 || len(reloads) < b.Reloads {
		return time.Time{}
	}
	return reloads[len(reloads)-b.Reloads].At.Add(b.Within)
}

// crowded returns when an instance with these reloads certainly has fewer old workers than
// it may have.
func (b Budget) crowded(reloads []Reload) time.Time {
	if b.OldWorkers <= 0 || len(reloads) < b.OldWorkers {
		return time.Time{}
	}
	gone := make([]time.Time, 0, len(reloads))
	for _, r := range reloads {
		gone = append(gone, r.Gone)
	}
	slices.SortFunc(gone, time.Time.Compare)
	return gone[len(gone)-b.OldWorkers]
}

// overBudget returns what a reload of the instance has to wait for, if it has to wait: the
// limit that takes longest.
func (t *turn) overBudget(name string) (Wait, bool) {
	b, reloads := t.Budget, t.Reloads[name]
	var out Wait
	for _, w := range []Wait{
		{For: fmt.Sprintf("reload budget of the fleet, %d a minute", b.PerMinute), Until: b.fleet(t.Full)},
		{For: fmt.Sprintf("reload budget, %d in %s", b.Reloads, b.Within), Until: b.often(reloads)},
		{For: fmt.Sprintf("old workers to end, of which there may be %d", b.OldWorkers), Until: b.crowded(reloads)},
	} {
		if w.Until.After(t.now) && w.Until.After(out.Until) {
			out = w
		}
	}
	out.Instance = name
	return out, !out.Until.IsZero()
}

// spend notes a reload of an instance.
func (t *turn) spend(name string) {
	b := t.Budget
	if b.PerMinute > 0 {
		if t.Full.Before(t.now) {
			t.Full = t.now
		}
		t.Full = t.Full.Add(b.interval())
	}
	lives := t.seen[name].HardStopAfter
	if lives <= 0 {
		lives = b.HardStopAfter
	}
	if b.Reloads > 0 || b.OldWorkers > 0 {
		t.Reloads[name] = append(t.Reloads[name], Reload{At: t.now, Gone: t.now.Add(lives)})
	}
}

// giveBack returns the token of a reload that was begun at a time but did not happen. The
// bucket gets only what has not been refilled since.
func (t *turn) giveBack(name string, at time.Time) {
	if t.Budget.PerMinute > 0 {
		t.Full = t.Full.Add(-max(0, t.Budget.interval()-t.now.Sub(at)))
	}
	n := slices.IndexFunc(t.Reloads[name], func(r Reload) bool { return r.At.Equal(at) })
	if n >= 0 {
		t.Reloads[name] = slices.Delete(t.Reloads[name], n, n+1)
	}
}

// forgetReloads drops reloads that no limit counts any more.
func (t *turn) forgetReloads() {
	for name, list := range t.Reloads {
		_, there := t.seen[name]
		list = t.Budget.counted(list, t.now)
		if t.Reloads[name] = list; len(list) == 0 || !there {
			delete(t.Reloads, name)
		}
	}
}

// Left is how many reloads the budget has left.
type Left struct {
	// Fleet is how many reloads the fleet may begin at once, if Limited.
	Fleet   int
	Limited bool
	// Instances is the same for each instance. It is empty without a limit for instances. A
	// reload has to fit into both.
	Instances map[string]int
}

// Left returns what is left for these instances.
func (b Budget) Left(s State, instances []string, now time.Time) Left {
	out := Left{Limited: b.PerMinute > 0, Instances: map[string]int{}}
	if out.Limited {
		missing := max(0, s.Full.Sub(now))
		out.Fleet = max(0, int((time.Duration(max(b.Burst, 1))*b.interval()-missing)/b.interval()))
	}
	if b.Reloads <= 0 && b.OldWorkers <= 0 {
		return out
	}
	for _, name := range instances {
		out.Instances[name] = b.leftOf(s.Reloads[name], now)
	}
	return out
}

// leftOf returns what is left for an instance with these reloads.
func (b Budget) leftOf(reloads []Reload, now time.Time) int {
	within, crowd := 0, 0
	for _, r := range reloads {
		if r.At.Add(b.Within).After(now) {
			within++
		}
		if r.Gone.After(now) {
			crowd++
		}
	}
	switch {
	case b.OldWorkers <= 0:
		return max(0, b.Reloads-within)
	case b.Reloads <= 0:
		return max(0, b.OldWorkers-crowd)
	}
	return max(0, min(b.Reloads-within, b.OldWorkers-crowd))
}

// needsNoReload reports whether an instance can be brought to a snapshot without a reload,
// and so without the budget.
func (t *turn) needsNoReload(name string, id snapshots.ID) bool {
	return slices.Contains(t.seen[name].WithoutReload, id)
}
