package rollout

import "time"

// Left is how many reloads the budget has left, where it has a limit.
type Left struct {
	// Fleet is how many the fleet may begin at once, if Limited.
	Fleet   int
	Limited bool
	// Instances says it of each instance, and is empty without a limit for them. A
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
