package controller

import (
	"slices"
	"testing"
	"time"
)

func TestDebounce(t *testing.T) {
	t.Parallel()
	at := func(ms int) time.Time {
		return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(ms) * time.Millisecond)
	}
	const calm, busy = true, false // before the last compile
	for name, c := range map[string]struct {
		before  bool
		done    int // end of the last compile, or -1
		changes []int
		want    int // -1: nothing is due
	}{
		"no change":                            {calm, -1, nil, -1},
		"the very first":                       {calm, -1, []int{10}, 30},
		"the first after a quiet time":         {busy, 0, []int{700}, 720},
		"those that are made with it":          {busy, 0, []int{700, 710, 725}, 745},
		"but no more":                          {busy, 0, []int{700, 715, 730, 745, 760, 775, 790}, 800},
		"what the first compile missed":        {calm, 0, []int{1}, 21},
		"what the second one missed":           {busy, 0, []int{1}, 501},
		"soon after a compile":                 {busy, 0, []int{100}, 600},
		"waits for no others":                  {busy, 0, []int{100, 300, 500}, 600},
		"but not for long":                     {busy, 0, []int{100, 500, 900, 1300, 1700, 2100}, 600},
		"a quiet time as long as the interval": {busy, 0, []int{500}, 520},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := debounce{interval: 500 * time.Millisecond, maxWait: 2 * time.Second}
			if c.done >= 0 {
				if c.before == busy {
					d.change(at(c.done - 100))
					d.begin()
					d.end(at(c.done - 100))
				}
				d.change(at(c.done))
				d.begin()
				d.end(at(c.done))
			}
			for _, ms := range c.changes {
				d.change(at(ms))
			}
			want := time.Time{}
			if c.want >= 0 {
				want = at(c.want)
			}
			if got := d.due(); !got.Equal(want) {
				t.Errorf("due %v, want %v", got, want)
			}
			d.begin()
			if !d.due().IsZero() {
				t.Error("due again with no change since")
			}
		})
	}
}

// Where something changes all the time, the waits grow, so that not each change makes a snapshot. A quiet time ends that.
func TestDebounceOfConstantChange(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	d := debounce{interval: 500 * time.Millisecond, maxWait: 3 * time.Second}
	var waits []time.Duration
	compile := func() {
		waits = append(waits, now.Sub(d.first))
		d.begin()
		now = now.Add(50 * time.Millisecond)
		d.end(now)
	}
	constantly := func(compiles int) {
		for n := len(waits) + compiles; len(waits) < n; now = now.Add(10 * time.Millisecond) {
			if d.change(now); !now.Before(d.due()) {
				compile()
			}
		}
	}
	constantly(7)
	now = now.Add(time.Second)
	constantly(4)
	ms := time.Millisecond
	if want := []time.Duration{100 * ms, 100 * ms, 500 * ms, 1000 * ms, 2000 * ms, 3000 * ms, 3000 * ms, 100 * ms, 100 * ms, 500 * ms, 1000 * ms}; !slices.Equal(waits, want) {
		t.Errorf("waits %v, want %v", waits, want)
	}
}

func TestRetryDoublesUpToALimit(t *testing.T) {
	t.Parallel()
	var r retry
	now := time.Unix(0, 0)
	for i, want := range []float64{1, 2, 4, 8, 16, 30, 30} {
		if r.fail(now); r.at.Sub(now).Seconds() != want {
			t.Errorf("wait %d is %v, want %v seconds", i, r.at.Sub(now), want)
		}
	}
}
