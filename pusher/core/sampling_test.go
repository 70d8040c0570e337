package core

import (
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/rollout"
)

func TestSamplesTellThePast(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(after time.Duration, pid int, requests int64) rollout.Sample {
		return rollout.Sample{At: begin.Add(after), PID: pid, Counters: rollout.Counters{Requests: requests}}
	}
	tests := map[string]struct {
		samples []rollout.Sample
		started time.Duration
		want    rollout.Rate
	}{
		"none":                     {nil, 0, rollout.Rate{}},
		"one of an old worker":     {[]rollout.Sample{at(time.Hour, 1, 500)}, 0, rollout.Rate{Counters: rollout.Counters{Requests: 500}, For: time.Hour}},
		"since the oldest":         {[]rollout.Sample{at(time.Hour, 1, 500), at(time.Hour+time.Minute, 1, 530)}, 0, rollout.Rate{Counters: rollout.Counters{Requests: 30}, For: time.Minute}},
		"too old ones are dropped": {[]rollout.Sample{at(time.Hour, 1, 500), at(time.Hour+4*time.Minute, 1, 600), at(time.Hour+6*time.Minute, 1, 630)}, 0, rollout.Rate{Counters: rollout.Counters{Requests: 30}, For: 2 * time.Minute}},
		"a young worker":           {[]rollout.Sample{at(time.Minute, 1, 10), at(2*time.Minute, 1, 30)}, 0, rollout.Rate{Counters: rollout.Counters{Requests: 30}, For: 2 * time.Minute}},
		"another worker":           {[]rollout.Sample{at(time.Hour, 1, 500), at(time.Hour+time.Minute, 2, 10)}, time.Hour, rollout.Rate{Counters: rollout.Counters{Requests: 10}, For: time.Minute}},
		"another of that number":   {[]rollout.Sample{at(time.Hour, 1, 500), at(time.Hour+time.Minute, 1, 10)}, time.Hour, rollout.Rate{Counters: rollout.Counters{Requests: 10}, For: time.Minute}},
	}
	for name, test := range tests {
		var s samples
		for _, n := range test.samples {
			s = s.add(n)
		}
		if got := s.last(begin.Add(test.started)).Past; got != test.want {
			t.Errorf("%s: the past is %+v, want %+v", name, got, test.want)
		}
	}
}
