package pusher

import (
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
)

func TestFailureTwoPushersWithOneState(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	r.endpoints(echo(t, "one"))
	r.allRunAfter(r.publish(config("1", "")))
	if err := Run(t.Context(), r.options); err == nil || !strings.Contains(err.Error(), "another pusher is using it") {
		t.Errorf("a second pusher ended with: %v", err)
	}
}
