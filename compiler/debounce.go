package compiler

import "time"

// debounce decides when to compile. The first change is compiled at once;
// further ones wait until there has been none for the interval, but never
// longer than the maximum wait since the first of them. The zero times are
// "never". All its methods are given the time.
type debounce struct {
	interval, maxWait time.Duration

	first, last time.Time // changes that nothing was compiled for
	done        time.Time // the end of the last compile
}

// change takes note of a change.
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
	if d.first.Sub(d.done) >= d.interval {
		return d.first
	}
	quiet, limit := d.last.Add(d.interval), d.first.Add(d.maxWait)
	if quiet.After(limit) {
		return limit
	}
	return quiet
}

// begin takes the changes so far as compiled; later ones are new. It returns when
// the first of them was, zero if there was none.
func (d *debounce) begin() (first time.Time) {
	first = d.first
	d.first, d.last = time.Time{}, time.Time{}
	return first
}

// end takes note of the end of a compile.
func (d *debounce) end(now time.Time) { d.done = now }
