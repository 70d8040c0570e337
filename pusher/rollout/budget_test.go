package rollout

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBudgetLeft(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) Reload { return Reload{At: now.Add(-d), Gone: now.Add(-d).Add(5 * time.Minute)} }
	bucket := Budget{PerMinute: 6, Burst: 3} // one in ten seconds
	each := Budget{Reloads: 3, Within: 10 * time.Minute}
	for name, test := range map[string]struct {
		budget Budget
		state  State
		want   Left
	}{
		"no limit":        {Budget{Burst: 1}, State{}, Left{Instances: map[string]int{}}},
		"full":            {bucket, State{}, Left{Limited: true, Fleet: 3, Instances: map[string]int{}}},
		"long full":       {bucket, State{Full: now.Add(-time.Hour)}, Left{Limited: true, Fleet: 3, Instances: map[string]int{}}},
		"one taken":       {bucket, State{Full: now.Add(10 * time.Second)}, Left{Limited: true, Fleet: 2, Instances: map[string]int{}}},
		"partly refilled": {bucket, State{Full: now.Add(11 * time.Second)}, Left{Limited: true, Fleet: 1, Instances: map[string]int{}}},
		"empty":           {bucket, State{Full: now.Add(21 * time.Second)}, Left{Limited: true, Instances: map[string]int{}}},
		"overdrawn":       {bucket, State{Full: now.Add(time.Hour)}, Left{Limited: true, Instances: map[string]int{}}},
		"without a burst": {Budget{PerMinute: 6}, State{}, Left{Limited: true, Fleet: 1, Instances: map[string]int{}}},
		"of each": {
			each, State{Reloads: map[string][]Reload{"a": {ago(11 * time.Minute), ago(9 * time.Minute), ago(time.Minute)}}},
			Left{Instances: map[string]int{"a": 1, "b": 3}},
		},
		"old workers": {
			Budget{OldWorkers: 2}, State{Reloads: map[string][]Reload{"a": {ago(6 * time.Minute), ago(time.Minute)}, "b": {ago(3), ago(2), ago(1)}}},
			Left{Instances: map[string]int{"a": 1, "b": 0}},
		},
		"whichever is less": {
			Budget{Reloads: 3, Within: time.Hour, OldWorkers: 2}, State{Reloads: map[string][]Reload{"a": {ago(7 * time.Minute), ago(6 * time.Minute)}}},
			Left{Instances: map[string]int{"a": 1, "b": 2}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, test.budget.Left(test.state, []string{"a", "b"}, now)); diff != "" {
				t.Errorf("left differs (-want +got):\n%s", diff)
			}
		})
	}
}

// Left is what Step allows: each reload takes one, and at none it waits.
func TestBudgetLeftIsWhatStepAllows(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, budget := range []Budget{
		{PerMinute: 6, Burst: 3, Reloads: 5, Within: 10 * time.Minute, OldWorkers: 4, HardStopAfter: 5 * time.Minute},
		{PerMinute: 60, Burst: 30, Reloads: 30, Within: 10 * time.Minute},
	} {
		current := &step{Policy: Policy{Budget: budget}, State: State{Reloads: map[string][]Reload{}}, seen: map[string]Seen{}}
		before := 0
		for n := range 200 {
			current.now = now.Add(time.Duration(n) * 3 * time.Second)
			current.forgetReloads()
			current.seen["a"] = Seen{Name: "a"}
			left := budget.Left(current.State, []string{"a"}, current.now)
			_, over := current.overBudget("a", false)
			if may := left.Fleet > 0 && left.Instances["a"] > 0; may == over || n > 0 && left.Instances["a"] < before-1 {
				t.Fatalf("after %d steps there is left %+v, and over budget is %v", n, left, over)
			}
			before = left.Instances["a"]
			if !over && n%4 != 3 {
				current.spend("a")
			}
		}
	}
}
