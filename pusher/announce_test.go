package pusher

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Conditions are told once each, not too often, and the newest only; what could not be
// told is told later.
func TestAnnouncer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // waiting in a bubble orders what comes before, not what comes after
		var told []string
		var broken bool
		a := newAnnouncer(func(_ context.Context, fields map[string]string) error {
			mu.Lock()
			defer mu.Unlock()
			if broken {
				return errors.New("forbidden")
			}
			told = append(told, fields["message"])
			return nil
		}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { a.run(ctx); close(ended) }()
		offer := func(messages ...string) {
			for _, m := range messages {
				a.offer(Condition{Message: m})
				synctest.Wait()
			}
		}
		wait := func() { <-time.After(announceInterval); synctest.Wait() } // of the bubble
		said := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(told)
		}
		breaks := func(is bool) {
			mu.Lock()
			defer mu.Unlock()
			broken = is
		}
		offer("a", "b", "c")
		if got := said(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("at once: %v", got)
		}
		wait()
		offer("c", "c")
		wait()
		breaks(true)
		offer("d")
		wait()
		breaks(false)
		offer("d")
		if got, want := said(), []string{"a", "c", "d"}; !slices.Equal(got, want) {
			t.Errorf("%v, not %v", got, want)
		}
		cancel()
		<-ended
	})
}
