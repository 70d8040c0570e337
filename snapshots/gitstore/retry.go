package gitstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// How often an operation is tried, and the pauses in between: two seconds in
// all, for a repository that hiccups or writers that race. Waiting out a
// repository that is gone is the caller's, who can say so meanwhile.
const tries = 10

var pauses = wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Steps: tries, Cap: 500 * time.Millisecond}

// repeat runs f until it returns no error that is retryable.
func repeat(ctx context.Context, f func() error) error {
	for try, pauses := 1, pauses; ; try++ {
		err := f()
		if _, ok := errors.AsType[retryable](err); !ok {
			return err
		}
		if try == tries {
			return fmt.Errorf("after %d tries: %w", tries, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(pauses.Step()):
		}
	}
}
