package controller

import (
	"cmp"
	"time"
)

// The shortest and the longest time between tries while the store or the files cannot be reached.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// retry says when to try again. Each failure doubles the wait.
type retry struct {
	at   time.Time // zero: not at all
	wait time.Duration
}

func (r *retry) reset()            { *r = retry{} }
func (r *retry) now(now time.Time) { *r = retry{at: now} }

// later waits the longest time, for errors that only a person can fix.
func (r *retry) later(now time.Time) { *r = retry{at: now.Add(lastRetry)} }

func (r *retry) fail(now time.Time) {
	r.wait = min(max(2*r.wait, firstRetry), lastRetry)
	r.at = now.Add(r.wait)
}

// debounce decides when to compile. After a quiet time, changes are compiled once there was none for a moment. So are
// changes during that compile: somebody who applies a Service and then its Ingress waits for two compiles at most. Later
// changes wait until there was none for the interval, but never longer than the interval since the first of them, twice of
// it before the next compile, and so on up to maxWait: what changes once in a while is not held up by other changes, and
// where something changes all the time, not each change makes a snapshot. A zero time means never. The caller passes the
// time to all methods.
type debounce struct {
	interval, maxWait time.Duration

	first, last time.Time     // changes that no compile has covered
	done        time.Time     // the end of the last compile
	afterQuiet  bool          // the last compile was the first after a quiet time
	patience    time.Duration // how long changes wait at most; zero is the interval
}

// A change after a quiet time waits a moment for the changes that belong to it, and five moments at most.
const (
	moment  = 20 * time.Millisecond
	moments = 5 * moment
)

// change records a change.
func (d *debounce) change(now time.Time) {
	if d.first.IsZero() {
		d.first = now
	}
	d.last = now
}

// due returns when to compile, or the zero time.
func (d *debounce) due() time.Time {
	if d.first.IsZero() {
		return time.Time{}
	}
	wait, most := d.interval, min(cmp.Or(d.patience, d.interval), d.maxWait)
	if d.quiet() || d.afterQuiet {
		wait, most = min(moment, wait), min(moments, most)
	}
	calm, limit := d.last.Add(wait), d.first.Add(most)
	if calm.After(limit) {
		return limit
	}
	return calm
}

// quiet reports whether there was a quiet time before the changes.
func (d *debounce) quiet() bool { return !d.first.IsZero() && d.first.Sub(d.done) >= d.interval }

// begin takes the changes so far as compiled; later ones are new. It returns when
// the first of them was, zero if there was none.
func (d *debounce) begin() (first time.Time) {
	quiet := d.quiet()
	switch {
	case quiet:
		d.patience = 0
	case !d.first.IsZero() && !d.afterQuiet:
		d.patience = min(2*cmp.Or(d.patience, d.interval), d.maxWait)
	}
	d.afterQuiet = quiet
	first = d.first
	d.first, d.last = time.Time{}, time.Time{}
	return first
}

// end records the end of a compile.
func (d *debounce) end(now time.Time) { d.done = now }
