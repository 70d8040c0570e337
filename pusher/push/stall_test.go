package push

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

// waiting is an instance whose API does not answer some calls until the client gives up.
type waiting struct {
	*fake
	posts, infos, raws bool // which calls hang after the first post
	posted             bool
	first              bool // only the first post hangs
}

func (w *waiting) PostRaw(ctx context.Context, config []byte, o dataplane.PostOptions) (dataplane.Posted, error) {
	hangs := w.posts && !(w.first && w.posted)
	w.posted = true
	if hangs {
		_, _ = w.fake.PostRaw(ctx, config, dataplane.PostOptions{Version: o.Version, SkipReload: true})
		<-ctx.Done()
		return dataplane.Posted{}, classed{dataplane.ErrUnknownOutcome}
	}
	return w.fake.PostRaw(ctx, config, o)
}

func (w *waiting) RuntimeInfo(ctx context.Context) (dataplane.RuntimeInfo, error) {
	if w.infos && w.posted {
		return dataplane.RuntimeInfo{}, hung(ctx)
	}
	return w.fake.RuntimeInfo(ctx)
}

func (w *waiting) Raw(ctx context.Context) (dataplane.Raw, error) {
	if w.raws && w.posted {
		return dataplane.Raw{}, hung(ctx)
	}
	return w.fake.Raw(ctx)
}

// hung waits as long as the client does for the answer to a read.
func hung(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	<-ctx.Done()
	return classed{dataplane.ErrUnavailable}
}

// HAProxy dies in a forced reload, or the API hangs from then on. The pusher gives up when the reload can no
// longer succeed, and the rollout goes on without the instance.
func TestReloadIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	const reload = 30 * time.Second
	gone := func() (dataplane.RuntimeInfo, error) { return dataplane.RuntimeInfo{}, classed{dataplane.ErrRuntime} }
	for name, prepare := range map[string]func(w *waiting){
		"the post hangs, and HAProxy is gone": func(w *waiting) {
			w.posts = true
			w.info = func() (dataplane.RuntimeInfo, error) {
				if w.posted {
					return gone()
				}
				return dataplane.RuntimeInfo{Node: w.node, PID: w.pid}, nil
			}
		},
		"the post fails, and HAProxy is gone": func(w *waiting) {
			w.post = func(string, dataplane.PostOptions) (dataplane.Posted, error) {
				w.info = gone
				return dataplane.Posted{}, classed{dataplane.ErrReload}
			}
		},
		"the answer is lost, and HAProxy is gone": func(w *waiting) {
			w.post = func(text string, o dataplane.PostOptions) (dataplane.Posted, error) {
				o.ForceReload = false
				_, _ = w.commit(text, o)
				w.info = gone
				return dataplane.Posted{}, classed{dataplane.ErrUnknownOutcome}
			}
		},
		"the reload succeeds, and HAProxy is gone": func(w *waiting) {
			w.post = func(text string, o dataplane.PostOptions) (dataplane.Posted, error) {
				w.info = gone
				return w.commit(text, o)
			}
		},
		"all hangs":                       func(w *waiting) { w.posts, w.infos, w.raws = true, true, true },
		"the post hangs, and the worker":  func(w *waiting) { w.posts, w.infos = true, true },
		"the post hangs, and the file":    func(w *waiting) { w.posts, w.raws = true, true },
		"the answer comes, and then none": func(w *waiting) { w.infos = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &waiting{fake: newFake(t)}
				prepare(w)
				i := Instance{API: w, ReloadTimeout: reload}
				began := time.Now()
				_, err := i.Push(t.Context(), bound(2, nil), nil, CertificateHashes{})
				if err == nil || errors.Is(err, ErrRefused) {
					t.Errorf("error is %v", err)
				}
				if took := time.Since(began); took > reload+3*momentOfReload {
					t.Errorf("it was waited for %s, and the reload may take %s", took, reload)
				}
			})
		})
	}
}

// A slow reload is waited for, although its answer was lost at once.
func TestSlowReloadIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.post = func(text string, o dataplane.PostOptions) (dataplane.Posted, error) {
			o.ForceReload = false
			_, _ = f.commit(text, o)
			at, asked := time.Now().Add(28*time.Second), f.info
			f.info = func() (dataplane.RuntimeInfo, error) {
				if !time.Now().Before(at) {
					f.load()
					f.info = asked
				}
				return asked()
			}
			return dataplane.Posted{}, classed{dataplane.ErrUnknownOutcome}
		}
		i := Instance{API: f, ReloadTimeout: 30 * time.Second}
		done, err := i.Push(t.Context(), bound(2, nil), nil, CertificateHashes{})
		if err != nil || !done.Reloaded {
			t.Errorf("%+v: %v", done, err)
		}
	})
}
