package dataplanetest

import (
	"context"
	"strings"
	"time"
)

// MeasuredCost is what a commit of a configuration with so many backends takes, of three
// checked servers each, be it a whole post or one structured change: measured with v3.2.5
// before HAProxy 3.2, with 34 ms for 100 backends, 128 ms for 1,000 and 1.1 s for 10,000.
// v3.4.2 takes the same within a tenth.
func MeasuredCost(backends int) time.Duration {
	return 20*time.Millisecond + time.Duration(backends)*108*time.Microsecond
}

// costs has a commit that began at a time take as long as it would with the real API, while
// no other commit can begin, as there. It takes no longer where the double itself took that
// long.
func (a *api) costs(ctx context.Context, began time.Time, text string) {
	if a.told.Cost == nil {
		return
	}
	left := a.told.Cost(strings.Count(text, "\nbackend ")) - time.Since(began)
	if left <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(left):
	}
}
