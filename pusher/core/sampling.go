package core

import (
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/rollout"
)

// sampling asks instances for statistics.
type sampling struct {
	*world
	backends []string // of the last sample; instances that have the same backends share the list
}

// How often the pusher asks instances for statistics: a few times in a soak time, and seldom
// without a rollout. Statistics are long if there are many backends.
const (
	samplesPerSoak = 5
	slowestSample  = 10 * time.Second
	idleSample     = time.Minute
)

// samplePace returns how often to ask for statistics, or 0 for never.
func samplePace(p rollout.Policy, poll time.Duration, busy bool) time.Duration {
	switch {
	case p.Gate.Off || p.Soak <= 0:
		return 0
	case busy:
		return max(poll, min(p.Soak/samplesPerSoak, slowestSample))
	}
	return max(poll, min(2*p.Soak, idleSample))
}

// beginSampling asks for the statistics of those instances whose last sample is older than the
// pace.
func (s *sampling) beginSampling(now time.Time) {
	pace := samplePace(s.policy, s.PollInterval, s.state.Rollout.Rollout != nil)
	if pace == 0 {
		return
	}
	for _, name := range s.names() {
		i := s.instances[name]
		if i.sampling || !i.reachable() || i.busy == workPush || now.Sub(i.sampled) < pace {
			continue
		}
		i.sampling, i.sampled = true, now
		s.do(instance.Sample{Ref: i.ref(), Ignore: s.policy.Gate.Ignore, At: now})
	}
}

// sampled takes the statistics of an instance.
func (s *sampling) sampled(i *instanceState, ev instance.Sampled, now time.Time) {
	i.sampling = false
	if ev.Err != nil {
		s.record(observe.Debug("statistics not had", "instance", i.Name, "err", ev.Err), now)
		return
	}
	if slices.Equal(s.backends, ev.Sample.Up.Backends) {
		ev.Sample.Up.Backends = s.backends
	} else {
		s.backends = ev.Sample.Up.Backends
	}
	i.samples = i.samples.add(ev.Sample)
}

// samples are the statistics of one worker, oldest first.
type samples []rollout.Sample

// add returns the samples with a new one. It drops those of another worker and those that are too
// old.
func (s samples) add(n rollout.Sample) samples {
	s = slices.DeleteFunc(slices.Clone(s), func(o rollout.Sample) bool {
		return o.PID != n.PID || o.Requests > n.Requests || n.At.Sub(o.At) > instance.Past
	})
	// Rates only need the last two samples, everything else that names backends the last one: there may be many.
	for i := range s {
		s[i].Up, s[i].Down, s[i].Flapped = rollout.ServersUp{}, nil, nil
	}
	for i := range s[:max(0, len(s)-1)] {
		s[i].Served, s[i].By = nil, nil
	}
	return append(s, n)
}

// traffic is the traffic of the backends of a fleet.
type traffic struct {
	made time.Time
	by   map[string]observe.Traffic
}

// trafficPace is the shortest time between two sums of the traffic.
const trafficPace = 2 * time.Second

// add adds the counts of one worker: its errors so far, and the rates between its last two samples.
func (t traffic) add(s samples, now time.Time) {
	if len(s) == 0 {
		return
	}
	last := s[len(s)-1]
	for backend, errors := range last.By {
		sum := t.by[backend]
		sum.Errors += errors
		t.by[backend] = sum
	}
	if len(s) == 1 || now.Sub(last.At) > instance.Past { // there is no rate, or the instance no longer answers
		return
	}
	before := s[len(s)-2]
	span := last.At.Sub(before.At).Seconds()
	if span <= 0 {
		return
	}
	for backend, requests := range last.Served {
		sum := t.by[backend]
		sum.Rate += float64(max(0, requests-before.Served[backend])) / span
		sum.ErrorRate += float64(max(0, last.By[backend]-before.By[backend])) / span
		t.by[backend] = sum
	}
}

// last returns the newest sample with the traffic since the oldest sample. If the worker started
// recently, or if there is only one sample, it has the traffic since the start.
func (s samples) last(started time.Time) rollout.Sample {
	if len(s) == 0 {
		return rollout.Sample{}
	}
	first, last := s[0], s[len(s)-1]
	last.Age = max(0, last.At.Sub(started))
	last.Past = rollout.Rate{Counters: last.Minus(first.Counters), For: last.At.Sub(first.At)}
	if age := last.At.Sub(started); age > 0 && (age <= instance.Past || len(s) == 1) {
		last.Past = rollout.Rate{Counters: last.Counters, For: age}
	}
	return last
}
