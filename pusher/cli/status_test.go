package cli

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/pusher/rollout"
)

func TestDescribeWaits(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	got := describeWaits([]rollout.Wait{
		{For: "its push", Instance: "a"},
		{For: "reload budget", Instance: "b", Until: now.Add(12 * time.Second)},
		{For: "reload budget", Instance: "c", Until: now.Add(12 * time.Second)},
		{For: "reload budget", Instance: "d", Until: now.Add(time.Minute)},
		{For: "soak", Until: now.Add(-time.Second)},
	}, now)
	want := []string{"its push: a", "reload budget, in 12s: b c", "reload budget, in 1m0s: d", "soak, in 0s"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("told otherwise (-want +got):\n%s", diff)
	}
}
