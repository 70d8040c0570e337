package pusher

import (
	"context"
	"errors"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

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

// isRefused reports whether an instance is refused for what it is.
func isRefused(err error) bool {
	_, refused := errors.AsType[dataplane.UnsupportedError](err)
	return refused
}
