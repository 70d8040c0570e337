package election

import (
	"strings"
	"testing"
	"time"
)

func TestTimesAreChecked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lease, renew, retry time.Duration
		want                string
	}{
		"the defaults":       {15 * time.Second, 10 * time.Second, 2 * time.Second, ""},
		"short":              {time.Second, 500 * time.Millisecond, 100 * time.Millisecond, ""},
		"no duration":        {0, 10 * time.Second, 2 * time.Second, "lease duration 0s: not a number of whole seconds"},
		"parts of a second":  {1500 * time.Millisecond, time.Second, 100 * time.Millisecond, "lease duration 1.5s: not a number of whole seconds"},
		"two could lead":     {10 * time.Second, 10 * time.Second, 2 * time.Second, "renew deadline 10s: not shorter than the lease duration 10s"},
		"one attempt at all": {15 * time.Second, 3 * time.Second, 2 * time.Second, "renew deadline 3s: shorter than two retry periods of 2s"},
		"no pause":           {15 * time.Second, 10 * time.Second, 0, "retry period: not more than 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := Times{LeaseDuration: test.lease, RenewDeadline: test.renew, RetryPeriod: test.retry}.Check()
			if got := text(err); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestATermEndsByEitherClock(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	for name, test := range map[string]struct {
		term term
		now  time.Time
		want bool
	}{
		"none":               {term{}, begun, false},
		"just begun":         {term{begun, 10 * time.Second}, begun, true},
		"a moment before":    {term{begun, 10 * time.Second}, begun.Add(9 * time.Second), true},
		"at the deadline":    {term{begun, 10 * time.Second}, begun.Add(10 * time.Second), false},
		"after a long pause": {term{begun, 10 * time.Second}, begun.Add(time.Hour), false},
		"the machine slept":  {term{begun.Round(0), 10 * time.Second}, begun.Round(0).Add(time.Minute), false},
		"before it began":    {term{begun, 10 * time.Second}, begun.Add(-time.Hour), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := test.term.holds(test.now); got != test.want {
				t.Errorf("holds: %v, want %v", got, test.want)
			}
		})
	}
}

func TestIdentitiesDiffer(t *testing.T) {
	t.Parallel()
	one, two := Identity("compiler-0"), Identity("compiler-0")
	if one == two || !strings.HasPrefix(one, "compiler-0_") {
		t.Errorf("%s and %s", one, two)
	}
}
