package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/rollout"
)

// askTimeout bounds how long an instance may take to say what it runs.
const askTimeout = 5 * time.Second

// ask returns the job that asks an instance again and again what its worker runs.
func (c *connection) ask(o Options) Job {
	return func(ctx context.Context, send func(Event)) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.asked, cancel)()
		ask(ctx, c, o.PollInterval, cmp.Or(min(askTimeout, o.ReloadTimeout), askTimeout), func(info dataplane.RuntimeInfo, err error, asked time.Time) {
			send(Probed{c.about(), info, err, asked})
		})
	}
}

// RuntimeInfo asks the worker what it runs.
func (c *connection) RuntimeInfo(ctx context.Context) (dataplane.RuntimeInfo, error) {
	return c.target.RuntimeInfo(ctx)
}

// Supported returns an error of an API that is not worked with.
func (c *connection) Supported(ctx context.Context) error { return c.client.Supported(ctx) }

// respondent is an instance that is asked what it runs.
type respondent interface {
	RuntimeInfo(ctx context.Context) (dataplane.RuntimeInfo, error)
	// Supported returns an error of an API that is not worked with.
	Supported(ctx context.Context) error
}

// ask asks the instance again and again what it runs, and reports each answer,
// until ctx is done. Of its version the API is asked when it is met, and after it
// was out of reach: it may be another one then.
func ask(ctx context.Context, api respondent, every, timeout time.Duration, report func(dataplane.RuntimeInfo, error, time.Time)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for met := false; ; {
		asked := time.Now()
		once, cancel := context.WithTimeout(ctx, timeout)
		info, err := askOnce(once, api, met)
		cancel()
		if ctx.Err() != nil {
			return
		}
		met = err == nil || (met && errors.Is(err, dataplane.ErrRuntime))
		report(info, err, asked)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func askOnce(ctx context.Context, api respondent, met bool) (dataplane.RuntimeInfo, error) {
	if !met {
		if err := api.Supported(ctx); err != nil {
			return dataplane.RuntimeInfo{}, err
		}
	}
	info, err := api.RuntimeInfo(ctx)
	if err == nil {
		err = dataplane.CheckHAProxy(info.Version)
	}
	return info, err
}

// Past is how long what an instance counted is remembered, to be compared with.
const Past = 5 * time.Minute

var errReplaced = errors.New("the worker was replaced meanwhile")

// sample asks for statistics, and makes sure that one worker gave them all.
func sample(ctx context.Context, c *dataplane.Client, ignore []string, asked time.Time) (rollout.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
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
	s.Served = map[string]int64{}
	backends = slices.SortedFunc(slices.Values(backends), func(a, b dataplane.BackendStatistics) int { return cmp.Compare(a.Name, b.Name) })
	for _, b := range backends {
		s.Up.Backends, s.Up.Counts = append(s.Up.Backends, b.Name), append(s.Up.Counts, uint16(min(b.Up, math.MaxUint16))) //nolint:gosec // it is bounded
		if b.Down {
			s.Down = append(s.Down, b.Name)
		}
		if (b.Down && b.Downs > 1) || (!b.Down && b.Downs > 0 && b.Since < Past) {
			s.Flapped = append(s.Flapped, b.Name)
		}
		if b.Requests > 0 {
			s.Served[b.Name] = b.Requests
		}
		if b.Errors > 0 {
			if s.By == nil {
				s.By = map[string]int64{}
			}
			s.By[b.Name] = b.Errors
		}
	}
	return s
}

// sampleTimeout bounds how long an instance may take to give its statistics.
const sampleTimeout = 30 * time.Second
