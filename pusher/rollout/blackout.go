package rollout

import (
	"slices"
	"time"
)

// Blackout is a time of the week in which no wave begins. Whatever brings back what
// ran before, or brings an instance to what the others run, goes on, and so does
// what a person orders by a pin or an override.
type Blackout struct {
	// Days are those on which it begins; none stands for every day.
	Days []time.Weekday
	// From and To count from midnight. If To is not after From, it is on the next day.
	From, To time.Duration
	// Zone is where the clock hangs; nil is UTC.
	Zone *time.Location
}

// until returns the end of the blackout, if now is within it.
func (b Blackout) until(now time.Time) (time.Time, bool) {
	zone := b.Zone
	if zone == nil {
		zone = time.UTC
	}
	local := now.In(zone)
	for _, ago := range []int{0, 1} {
		y, m, d := local.AddDate(0, 0, -ago).Date()
		from, to := clock(y, m, d, b.From, zone), clock(y, m, d, b.To, zone)
		if b.To <= b.From {
			to = clock(y, m, d+1, b.To, zone)
		}
		// Noon has the weekday of the date also where midnight is skipped.
		on := clock(y, m, d, 12*time.Hour, zone).Weekday()
		if (len(b.Days) == 0 || slices.Contains(b.Days, on)) && !now.Before(from) && now.Before(to) {
			return to, true
		}
	}
	return time.Time{}, false
}

// clock returns when a clock on the wall shows the time since midnight.
func clock(y int, m time.Month, d int, since time.Duration, zone *time.Location) time.Time {
	return time.Date(y, m, d, 0, 0, int(since/time.Second), 0, zone)
}

// week bounds how many blackouts can follow on one another before it is always dark.
const week = 7

// blackout returns when a wave may begin again, if none may now. Blackouts that
// follow on one another are one.
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

// dark reports whether no wave may begin now, and notes that this is waited for.
// Where nothing is known to be good there is nothing that should be left alone.
func (t *turn) dark() bool {
	if !t.o.MayWait || t.Good.IsZero() {
		return false
	}
	until, dark := t.blackout(t.now)
	if dark {
		t.wait(Wait{For: "end of the blackout", Until: until})
	}
	return dark
}
