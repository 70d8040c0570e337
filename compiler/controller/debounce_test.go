package controller

import (
	"testing"
	"time"
)

func TestDebounce(t *testing.T) {
	t.Parallel()
	at := func(ms int) time.Time {
		return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(ms) * time.Millisecond)
	}
	for name, c := range map[string]struct {
		done    int // end of the last compile, or -1
		changes []int
		want    int // -1: nothing is due
	}{
		"no change":                       {-1, nil, -1},
		"the very first":                  {-1, []int{10}, 10},
		"the first after a quiet time":    {0, []int{700}, 700},
		"soon after a compile":            {0, []int{100}, 600},
		"waits for quiet":                 {0, []int{100, 300, 500}, 1000},
		"but not for ever":                {0, []int{100, 500, 900, 1300, 1700, 2100}, 2100},
		"changes after the first at once": {0, []int{700, 800}, 700},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := debounce{interval: 500 * time.Millisecond, maxWait: 2 * time.Second}
			if c.done >= 0 {
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
