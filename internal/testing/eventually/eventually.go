// Package eventually waits in tests for what other goroutines or programs are about to do. It looks again and again, and
// ends the test if that does not come.
package eventually

import (
	"errors"
	"testing"
	"time"
)

const (
	// patience is enough for a busy machine that starts pods.
	patience = 3 * time.Minute
	// pause is the time between two looks.
	pause = 10 * time.Millisecond
)

// Holds waits until something holds. The test says in a few words what that is.
func Holds(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	Succeeds(tb, what, func() error {
		if !holds() {
			return errors.New("it does not hold")
		}
		return nil
	})
}

// Succeeds waits until a check returns no error.
func Succeeds(tb testing.TB, what string, check func() error) {
	tb.Helper()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("waited in vain: %s: %v", what, err)
		}
	}
}
