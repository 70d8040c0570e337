package pusher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/rollout"
)

// past is how long what an instance counted is remembered, to be compared with.
const past = 5 * time.Minute

// The pace at which instances are asked for statistics, which are long with many
// backends: a few times in a soak time, and seldom while nothing is rolled out.
const (
	samplesPerSoak = 5
	slowestSample  = 10 * time.Second
	idleSample     = time.Minute
)

// samplePace returns how often to ask for statistics; never is 0.
func samplePace(p rollout.Policy, poll time.Duration, busy bool) time.Duration {
	switch {
	case p.Gate.Off || p.Soak <= 0:
		return 0
	case busy:
		return max(poll, min(p.Soak/samplesPerSoak, slowestSample))
	}
	return max(poll, min(2*p.Soak, idleSample))
}

// samples are what the workers of an instance counted, oldest first, all of one worker.
type samples []rollout.Sample

// add returns the samples with one more, without those of another worker and those
// that are too old.
func (s samples) add(n rollout.Sample) samples {
	s = slices.DeleteFunc(slices.Clone(s), func(o rollout.Sample) bool {
		return o.PID != n.PID || o.Requests > n.Requests || n.At.Sub(o.At) > past
	})
	return append(s, n)
}

// last returns the newest, with the traffic before it: since the oldest, or since the
// worker started, if that was not long ago or nothing else is known.
func (s samples) last(started time.Time) rollout.Sample {
	if len(s) == 0 {
		return rollout.Sample{}
	}
	first, last := s[0], s[len(s)-1]
	last.Age = max(0, last.At.Sub(started))
	last.Past = rollout.Rate{Counters: last.Minus(first.Counters), For: last.At.Sub(first.At)}
	if age := last.At.Sub(started); age > 0 && (age <= past || len(s) == 1) {
		last.Past = rollout.Rate{Counters: last.Counters, For: age}
	}
	return last
}

// beginSampling asks the instances for statistics whose turn it is.
func (e *engine) beginSampling(now time.Time) {
	pace := samplePace(e.policy, e.PollInterval, e.state.Rollout.Rollout != nil)
	if pace == 0 {
		return
	}
	for _, name := range e.names() {
		i := e.instances[name]
		if i.sampling || !i.reachable() || i.busy == workPush || now.Sub(i.sampled) < pace {
			continue
		}
		i.sampling, i.sampled = true, now
		e.begin(sampleStatistics{e.remote(i), e.policy.Gate.Ignore, now})
	}
}

var errReplaced = errors.New("the worker was replaced meanwhile")

// sample asks for statistics, and makes sure that one worker gave them all.
func sample(ctx context.Context, c *dataplane.Client, ignore []string, asked time.Time) (rollout.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, viewTimeout)
	defer cancel()
	before, err := c.RuntimeInfo(ctx)
	if err != nil {
		return rollout.Sample{}, fmt.Errorf("sample statistics: %w", err)
	}
	frontends, err := c.FrontendStatistics(ctx)
	if err != nil {
		return rollout.Sample{}, fmt.Errorf("sample statistics: %w", err)
	}
	backends, err := c.BackendStatistics(ctx)
	if err != nil {
		return rollout.Sample{}, fmt.Errorf("sample statistics: %w", err)
	}
	after, err := c.RuntimeInfo(ctx)
	if err == nil && after.PID != before.PID {
		err = errReplaced
	}
	if err != nil {
		return rollout.Sample{}, fmt.Errorf("sample statistics: %w", err)
	}
	return summary(frontends, backends, ignore, rollout.Sample{At: asked, PID: after.PID}), nil
}

// summary adds up what clients caused, and lists what is down, or was so for a moment.
// What it does not have at first, a backend may have lost before.
func summary(frontends []dataplane.FrontendStatistics, backends []dataplane.BackendStatistics, ignore []string, s rollout.Sample) rollout.Sample {
	for _, f := range frontends {
		if !slices.Contains(ignore, f.Name) {
			s.Requests, s.Errors, s.Connections = s.Requests+f.Requests, s.Errors+f.Errors, s.Connections+f.Connections
		}
	}
	for _, b := range backends {
		if b.Down {
			s.Down = append(s.Down, b.Name)
		}
		if (b.Down && b.Downs > 1) || (!b.Down && b.Downs > 0 && b.Since < past) {
			s.Flapped = append(s.Flapped, b.Name)
		}
		if b.Errors > 0 {
			if s.By == nil {
				s.By = map[string]int64{}
			}
			s.By[b.Name] = b.Errors
		}
	}
	slices.Sort(s.Down)
	slices.Sort(s.Flapped)
	return s
}
