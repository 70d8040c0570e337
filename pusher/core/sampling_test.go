package core

import (
	"errors"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/instance"
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

// Only the newest sample has what names backends, and the one before it the counts: an instance may name a million.
func TestOldSamplesNameNoBackends(t *testing.T) {
	t.Parallel()
	var s samples
	for n := range 4 {
		s = s.add(rollout.Sample{
			At: time.Date(2026, 11, 21, 12, 0, n, 0, time.UTC), PID: 7, By: map[string]int64{"web": int64(n)}, Served: map[string]int64{"web": int64(n)},
			Down: []string{"web"}, Flapped: []string{"web"}, Up: rollout.ServersUp{Backends: []string{"web"}},
		})
	}
	for n, is := range s {
		newest, rates := n == len(s)-1, n >= len(s)-2
		if (is.Down != nil) != newest || (is.Flapped != nil) != newest || (is.Up.Backends != nil) != newest || (is.By != nil) != rates || (is.Served != nil) != rates {
			t.Errorf("sample %d of %d is %+v", n, len(s), is)
		}
	}
}

// People see the servers that the running worker reported last. Names of backends are stored once, and only the
// figures of the last sample are kept: there may be 100,000 backends on each of 100 instances.
func TestServersUpOfSamples(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	w := &world{instances: map[string]*instanceState{}}
	for _, name := range []string{"a", "b", "away", "restarted", "unasked"} {
		w.instances[name] = &instanceState{asked: true, info: dataplane.RuntimeInfo{PID: 7}}
	}
	w.instances["away"].err = errors.New("it is gone")
	w.instances["restarted"].info.PID = 8
	s, r := &sampling{world: w}, &reporting{world: w}
	sampled := func(name string, at time.Time, up uint16) {
		sample := rollout.Sample{At: at, PID: 7, Up: rollout.ServersUp{Backends: []string{"api", "web"}, Counts: []uint16{1, up}}}
		s.sampled(w.instances[name], instance.Sampled{Sample: sample}, at)
	}
	sampled("a", now.Add(-time.Minute), 1)
	for i, name := range []string{"a", "b", "away", "restarted"} {
		sampled(name, now, uint16(2+i)) //nolint:gosec // it is small
	}
	got := r.serversUp(now)
	if len(got) != 2 || got[0].Counts[1] != 2 || got[1].Counts[1] != 3 {
		t.Fatalf("got %v", got)
	}
	if &got[0].Backends[0] != &got[1].Backends[0] {
		t.Error("names are kept for each instance")
	}
	if of := w.instances["a"].samples; len(of) != 2 || of[0].Up.Counts != nil {
		t.Errorf("kept of an instance: %v", of)
	}
	if up, known := got[1].Of("web"); up != 3 || !known {
		t.Errorf("web has %d, %v", up, known)
	}
	if _, known := got[0].Of("nobody"); known {
		t.Error("a backend is known that nobody has")
	}
	if late := r.serversUp(now.Add(instance.Past + time.Second)); len(late) != 0 {
		t.Errorf("what is old is shown: %v", late)
	}
}
