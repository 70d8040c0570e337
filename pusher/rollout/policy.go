package rollout

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// Policy says how careful a rollout is.
type Policy struct {
	// Waves are how many instances have the snapshot after each wave, counted from the
	// start of the rollout. The last wave is followed by all remaining instances, or, if it
	// is a zone, by one zone after another.
	Waves []Size
	// Soak is how long everything pushed so far has to stay healthy before the
	// next wave, and before the snapshot counts as good.
	Soak time.Duration
	// Deadline is how long the pushes of one wave may take. An instance that was
	// touched and has not taken the snapshot by then is a failure.
	Deadline time.Duration
	// Grace is how long an instance that has the snapshot may be out of reach
	// before that is a failure.
	Grace time.Duration
	// Retry is the wait after a push that failed; it doubles with each further failure, up
	// to RetryMax.
	Retry, RetryMax time.Duration
	// Budget limits how often workers are replaced.
	Budget Budget
	// Blackouts are the times in which no wave begins.
	Blackouts []Blackout
	// Gate says by which statistics an instance counts as healthy.
	Gate Gate
}

// DefaultPolicy is one canary, then a quarter, then all.
func DefaultPolicy() Policy {
	return Policy{
		Waves:    []Size{{Count: 1}, {Percent: 25}, {Percent: 100}},
		Soak:     30 * time.Second,
		Deadline: 5 * time.Minute,
		Grace:    10 * time.Second,
		Retry:    time.Second,
		RetryMax: 2 * time.Minute,
		Budget:   Budget{Burst: 1, Reloads: 30, Within: 10 * time.Minute, HardStopAfter: 30 * time.Minute},
		Gate: Gate{
			Requests: 100, Errors: 0.05, Times: 2, Connections: 0.1,
			CannotTell: Proceed, Extend: 10 * time.Minute, Ignore: []string{"status", "hapsnap_mirror"},
		},
	}
}

// Size is a number of instances, absolute, in percent of the fleet, or one more zone.
type Size struct {
	Count   int
	Percent int
	Zone    bool
}

// oneZone is the text of the size of one more zone.
const oneZone = "zone"

// ParseSize reads "3", "25%" or "zone".
func ParseSize(s string) (Size, error) {
	digits, percent := strings.CutSuffix(s, "%")
	n, err := strconv.Atoi(digits)
	switch {
	case s == oneZone:
		return Size{Zone: true}, nil
	case err != nil || n < 1 || (percent && n > 100):
		return Size{}, fmt.Errorf("%q is not a size of a wave: want a number such as 1, a share such as 25%%, or zone", s)
	case percent:
		return Size{Percent: n}, nil
	default:
		return Size{Count: n}, nil
	}
}

// CheckOrder returns an error if no wave can have a size after the sizes before it. A size counts all instances that have
// the snapshot: after ["10%", "10%"] comes the rest of the fleet, and after ["100%", "1"] there is no canary.
func CheckOrder(before []Size, next Size) error {
	for _, b := range before {
		if b.Percent == 100 || !next.Zone && (b.Count > 0 && next.Count > 0 && next.Count <= b.Count || next.Percent > 0 && next.Percent <= b.Percent) {
			return fmt.Errorf("no wave has the size %s after %s: a size counts all instances that have the snapshot after the wave", next, b)
		}
	}
	return nil
}

// String returns what [ParseSize] reads.
func (s Size) String() string {
	switch {
	case s.Zone:
		return oneZone
	case s.Percent > 0:
		return strconv.Itoa(s.Percent) + "%"
	}
	return strconv.Itoa(s.Count)
}

// of returns the number of instances in a fleet of n, shares rounded up.
func (s Size) of(n int) int {
	switch {
	case s.Zone:
		return n
	case s.Percent > 0:
		return (n*s.Percent + 99) / 100
	}
	return min(s.Count, n)
}

// size returns the size of a wave; the first wave is 0. The waves after the last configured one have all
// remaining instances, or one zone each if the last one is a zone.
func (p Policy) size(wave int) Size {
	switch n := len(p.Waves); {
	case wave < n:
		return p.Waves[wave]
	case n > 0 && p.Waves[n-1].Zone:
		return p.Waves[n-1]
	}
	return Size{Percent: 100}
}

// backoff returns the wait after the given number of failures in a row.
func (p Policy) backoff(failures int) time.Duration {
	wait := p.Retry
	for range min(failures, 30) - 1 {
		wait = min(2*wait, p.RetryMax)
	}
	return wait
}

// Blackout is a time of the week in which no wave begins. Pushes that restore what ran
// before, or that bring an instance to what the others run, go on, and so does what a
// person orders by a pin or an override.
type Blackout struct {
	// Days are those on which it begins. If empty, it begins every day.
	Days []time.Weekday
	// From and To count from midnight. If To is not after From, it is on the next day.
	From, To time.Duration
	// Zone is the time zone; nil is UTC.
	Zone *time.Location
}

// until returns the end of the blackout, if now is within it.
func (b Blackout) until(now time.Time) (time.Time, bool) {
	zone := b.Zone
	if zone == nil {
		zone = time.UTC
	}
	y, m, d := now.In(zone).Date()
	// The following day is needed too: a clock that is set back at midnight has already shown it.
	for _, day := range []int{d + 1, d, d - 1, d - 2} {
		date := time.Date(y, m, day, 0, 0, 0, 0, time.UTC)
		if len(b.Days) > 0 && !slices.Contains(b.Days, date.Weekday()) {
			continue
		}
		if from, to := b.on(date, zone); !now.Before(from) && now.Before(to) {
			return to, true
		}
	}
	return time.Time{}, false
}

// on returns the blackout of a day. It lasts from the first to the last time at which the clock shows a time
// within it, so an hour that comes twice is covered both times. If the clock is set forward over its beginning,
// the blackout begins at that moment. If the clock is set forward over its end, the blackout ends when a clock
// that was not set would show the end.
func (b Blackout) on(date time.Time, zone *time.Location) (from, to time.Time) {
	begin, end := date.Add(b.From), date.Add(b.To)
	if b.To <= b.From {
		end = date.AddDate(0, 0, 1).Add(b.To)
	}
	first, last := read(begin, zone), read(end.Add(-time.Second), zone)
	from, to = first.first, read(end, zone).last
	if last.setAt.IsZero() {
		to = last.last.Add(time.Second)
	}
	if !to.After(from) {
		to = from.Add(end.Sub(first.setAt)) // the clock skips all of it
	}
	return from, to
}

// reading is when a clock shows a certain time.
type reading struct {
	first, last time.Time // different if the clock is set back over the time
	// setAt is set if the clock is set forward over the time. It is what the clock would have shown at that
	// moment. first is that moment, and last is when a clock that was not set would show the time.
	setAt time.Time
}

// read returns when a clock shows the time that a clock in UTC shows at wall.
func read(wall time.Time, zone *time.Location) reading {
	y, m, d := wall.Date()
	guess := time.Date(y, m, d, 0, 0, int(wall.Sub(time.Date(y, m, d, 0, 0, 0, 0, time.UTC))/time.Second), 0, zone)
	var r reading
	for _, o := range offsetsAround(guess) {
		t := wall.Add(-o).In(zone)
		if offset(t) != o {
			continue
		}
		if r.first.IsZero() || t.Before(r.first) {
			r.first = t
		}
		if t.After(r.last) {
			r.last = t
		}
	}
	if !r.first.IsZero() {
		return r
	}
	// The clock is set forward over the time. The guess may be before or after that moment.
	start, end := guess.ZoneBounds()
	set := end
	if wallClock(guess).After(wall) {
		set = start
	}
	before := offset(set.Add(-time.Second))
	return reading{first: set, last: wall.Add(-before).In(zone), setAt: set.UTC().Add(before)}
}

// offsetsAround returns the clock's offsets to UTC at a time, before the last change and after the next one.
func offsetsAround(t time.Time) []time.Duration {
	out := []time.Duration{offset(t)}
	start, end := t.ZoneBounds()
	if !start.IsZero() {
		out = append(out, offset(start.Add(-time.Second)))
	}
	if !end.IsZero() {
		out = append(out, offset(end))
	}
	return out
}

func offset(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// wallClock returns the local time of t as if it were UTC.
func wallClock(t time.Time) time.Time { return t.UTC().Add(offset(t)) }

// week limits how many blackouts can follow on one another before all time is a blackout.
const week = 7

// blackout returns when a wave may begin again, if none may begin now. Adjacent blackouts
// count as one.
func (p Policy) blackout(now time.Time) (until time.Time, dark bool) {
	until = now
	for range week * max(len(p.Blackouts), 1) {
		n := slices.IndexFunc(p.Blackouts, func(b Blackout) bool { _, in := b.until(until); return in })
		if n < 0 {
			break
		}
		until, _ = p.Blackouts[n].until(until)
		dark = true
	}
	return until, dark
}

// dark reports whether no wave may begin now, and records the wait. A blackout does not apply while no good
// snapshot is known, as there is nothing to protect.
func (t *step) dark() bool {
	if !t.o.MayWait || t.Good.IsZero() {
		return false
	}
	until, dark := t.blackout(t.now)
	if dark {
		t.wait(Wait{For: "end of the blackout", Until: until})
	}
	return dark
}

// Budget limits how often workers are replaced. Zero means no limit. An undo counts for the budget, but does
// not wait for it: the last good snapshot is urgent.
type Budget struct {
	// PerMinute is how many reloads the fleet may have in a minute, and Burst how many of
	// them at once, as a bucket that holds Burst tokens and is refilled steadily.
	PerMinute, Burst int
	// Reloads is how many reloads an instance may have in any period of length Within. From 10 on, a third of them may
	// come at once, and the rest evenly.
	Reloads int
	Within  time.Duration
	// OldWorkers is how many old workers an instance may have that still finish their connections. The pusher
	// cannot count them. It assumes that a replaced worker lives as long as its configuration allows, or for
	// HardStopAfter if its configuration does not say.
	OldWorkers    int
	HardStopAfter time.Duration
}

// Reload is one replaced worker.
type Reload struct {
	At time.Time `json:"at"`
	// Gone is when the replaced worker is gone at the latest.
	Gone time.Time `json:"gone"`
}

// interval is the time between two tokens.
func (b Budget) interval() time.Duration { return time.Minute / time.Duration(b.PerMinute) }

// fleet returns when the fleet may have the next reload. full is when its bucket will be full.
func (b Budget) fleet(full time.Time) time.Time {
	if b.PerMinute <= 0 {
		return time.Time{}
	}
	return full.Add(-time.Duration(max(b.Burst, 1)-1) * b.interval())
}

// often returns when Reloads and Within allow an instance with these reloads the next one, apart from [Budget.spread].
func (b Budget) often(reloads []Reload) time.Time {
	if b.Reloads <= 0 || len(reloads) < b.Reloads {
		return time.Time{}
	}
	return reloads[len(reloads)-b.Reloads].At.Add(b.Within)
}

// leastSpread is the smallest number of reloads that are spread over the period.
const leastSpread = 10

// spread returns when the next reload may come after a third of them came in one period: from then on they come evenly.
// Otherwise an object that takes a reload every second, of whichever tenant, would use up all of them at once, and the
// changes of all others would wait for most of the period. What is urgent does not wait for that: what a person
// orders, and instances that run no snapshot, which serve nobody.
func (b Budget) spread(reloads []Reload) time.Time {
	atOnce := b.Reloads / 3
	if b.Reloads < leastSpread || len(reloads) < atOnce {
		return time.Time{}
	}
	fewer := reloads[len(reloads)-atOnce].At.Add(b.Within)
	evenly := reloads[len(reloads)-1].At.Add(b.Within / time.Duration(b.Reloads-atOnce))
	if fewer.Before(evenly) {
		return fewer
	}
	return evenly
}

// crowded returns when an instance with these reloads certainly has fewer old workers than it may have.
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

// overBudget returns the limit that a reload of the instance has to wait for the longest, if any.
func (t *step) overBudget(name string, urgent bool) (Wait, bool) {
	b, reloads := t.Budget, t.Reloads[name]
	var evenly time.Time
	if !urgent {
		evenly = b.spread(reloads)
	}
	var out Wait
	for _, w := range []Wait{
		{For: fmt.Sprintf("reload budget of the fleet, %d a minute", b.PerMinute), Until: b.fleet(t.Full)},
		{For: fmt.Sprintf("reload budget, %d in %s", b.Reloads, b.Within), Until: b.often(reloads)},
		{For: fmt.Sprintf("reload budget, %d in %s, which is spread", b.Reloads, b.Within), Until: evenly},
		{For: fmt.Sprintf("old workers to end, of which there may be %d", b.OldWorkers), Until: b.crowded(reloads)},
	} {
		if w.Until.After(t.now) && w.Until.After(out.Until) {
			out = w
		}
	}
	out.Instance = name
	return out, !out.Until.IsZero()
}

// spend records a reload of an instance.
func (t *step) spend(name string) {
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

// giveBack returns the token of a reload that was planned at a time and did not happen. The bucket gets only
// the part that has not been refilled since.
func (t *step) giveBack(name string, at time.Time) {
	if t.Budget.PerMinute > 0 {
		t.Full = t.Full.Add(-max(0, t.Budget.interval()-t.now.Sub(at)))
	}
	n := slices.IndexFunc(t.Reloads[name], func(r Reload) bool { return r.At.Equal(at) })
	if n >= 0 {
		t.Reloads[name] = slices.Delete(t.Reloads[name], n, n+1)
	}
}

// forgetReloads drops reloads that no longer count for any limit.
func (t *step) forgetReloads() {
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
	// Instances is the same for each instance. It is empty if instances have no limit. A reload needs both.
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
	often := b.Reloads - within
	if b.spread(reloads).After(now) {
		often = 0
	} else if b.Reloads >= leastSpread {
		often = min(often, max(1, b.Reloads/3-within))
	}
	switch {
	case b.OldWorkers <= 0:
		return max(0, often)
	case b.Reloads <= 0:
		return max(0, b.OldWorkers-crowd)
	}
	return max(0, min(often, b.OldWorkers-crowd))
}

// needsNoReload reports whether an instance can be brought to a snapshot without a reload, and so without the
// budget.
func (t *step) needsNoReload(name string, id snapshots.ID) bool {
	return slices.Contains(t.seen[name].WithoutReload, id)
}

// Figures are what the gate compares. They are for people: the gate does not decide by them.
type Figures struct {
	// Target are the requests of the wave's instances with the new snapshot, Before those of the same instances
	// in the minutes before, and Others those of the instances that the wave is compared with, at the same
	// time.
	Target Counters `json:"target"`
	Before Counters `json:"before"`
	Others Counters `json:"others"`
	// Needed is how many requests the target must have before the gate judges.
	Needed int64 `json:"needed"`
	// Connected is how many connections came to the wave. Expected is how many its past lets expect, 0 if that
	// is not known. OthersConnected and OthersExpected are those of the others.
	Connected       int64   `json:"connected"`
	Expected        float64 `json:"expected"`
	OthersConnected int64   `json:"othersConnected"`
	OthersExpected  float64 `json:"othersExpected"`
	// Down is how many backends have no server up on an instance of the wave. DownBefore is how many had none
	// on any instance before the wave.
	Down       int `json:"down"`
	DownBefore int `json:"downBefore"`
}

// Share is the share of requests that were answered with 5xx, from 0 to 1.
func (c Counters) Share() float64 { return c.share() }

// Figures returns what the gate compares in the present rollout, nil if there is nothing to compare.
func (p Policy) Figures(s State, instances []Seen) *Figures {
	t := &step{Policy: p, State: s, o: Observation{Instances: instances}}
	if t.Rollout == nil || t.Rollout.Phase == Undoing || !t.judged() {
		return nil
	}
	out := &Figures{Needed: p.Gate.Requests, DownBefore: len(t.Rollout.Down)}
	var wave []Seen
	down := map[string]bool{}
	for _, seen := range instances {
		if !slices.Contains(t.Rollout.Members, seen.Name) || !t.has(seen.Name) {
			continue
		}
		wave = append(wave, seen)
		out.Before = out.Before.plus(t.Rollout.Counted[seen.Name].Past.Counters)
		for _, backend := range seen.Sample.Down {
			down[backend] = true
		}
	}
	if len(wave) == 0 {
		return nil
	}
	now, others := t.traffic(wave), t.traffic(t.others())
	out.Target, out.Others, out.Down = now.Counters, others.Counters, len(down)
	out.Connected, out.Expected, out.OthersConnected, out.OthersExpected = now.connected, now.expected, others.connected, others.expected
	return out
}

// WaveSize is how many instances have a snapshot after a wave: a number, or one more zone.
type WaveSize struct {
	Size string `json:"size"` // as in the Fleet
	// Instances is how many instances that is. It is 0 for zones, which follow one another.
	Instances int `json:"instances,omitempty"`
}

// Sizes returns the waves of a rollout through n instances. The rollout may have more waves: no wave takes a
// whole zone at once.
func (p Policy) Sizes(n int) []WaveSize {
	var out []WaveSize
	for wave := range len(p.Waves) + 1 {
		size := p.size(wave)
		if size.Zone {
			return append(out, WaveSize{Size: size.String()})
		}
		w := WaveSize{Size: size.String(), Instances: size.of(n)}
		if w.Instances >= n {
			return append(out, WaveSize{Size: size.String(), Instances: n})
		}
		out = append(out, w)
	}
	return out
}
