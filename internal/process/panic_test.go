package process_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/hapsnap/hapsnap/internal/process"
)

func breaks(list []int) int { return list[len(list)] }

// A panic of another goroutine reaches the one that waits, with its place.
func TestCatcher(t *testing.T) {
	t.Parallel()
	err := process.Caught(func() error {
		var running sync.WaitGroup
		var panics process.Catcher
		for i := range 4 {
			running.Go(func() {
				panics.Do(func() {
					if i == 2 {
						breaks(nil)
					}
				})
			})
		}
		running.Wait()
		panics.Rethrow()
		return errors.New("nothing panicked")
	})
	p, ok := errors.AsType[process.PanicError](err)
	if !ok || !strings.Contains(p.Place, "process_test.breaks, line 12") || !strings.Contains(err.Error(), "index out of range [0]") {
		t.Errorf("%v", err)
	}
}

// A function that does not panic is called as usual.
func TestCaughtReturnsErrors(t *testing.T) {
	t.Parallel()
	wanted := errors.New("wanted")
	if err := process.Caught(func() error { return wanted }); !errors.Is(err, wanted) {
		t.Errorf("%v", err)
	}
	if err := process.Caught(func() error { panic("why") }); err == nil || !strings.Contains(err.Error(), "panic: why, in ") {
		t.Errorf("%v", err)
	}
	var panics process.Catcher
	panics.Do(func() {})
	panics.Rethrow()
}
