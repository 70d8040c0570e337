package pusher

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Conditions are told once each, not too often, and the newest only; what could not be
// told is told later.
func TestAnnouncer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		var broken bool
		a := newAnnouncer(func(_ context.Context, fields map[string]string) error {
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
		offer("a", "b", "c")
		if !slices.Equal(told, []string{"a"}) {
			t.Errorf("at once: %v", told)
		}
		wait()
		offer("c", "c")
		wait()
		broken = true
		offer("d")
		wait()
		broken = false
		offer("d")
		if want := []string{"a", "c", "d"}; !slices.Equal(told, want) {
			t.Errorf("%v, not %v", told, want)
		}
		cancel()
		<-ended
	})
}
