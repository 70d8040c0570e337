package instance

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/rollout"
)

func TestSummaryOfStatistics(t *testing.T) {
	t.Parallel()
	got := summary(
		[]dataplane.FrontendStatistics{{Name: "http", Requests: 10, Errors: 2, Connections: 5}, {Name: "status", Requests: 7, Errors: 7}, {Name: "tcp", Connections: 3}},
		[]dataplane.BackendStatistics{{Name: "b", Down: true}, {Name: "c", Requests: 12, Errors: 3, Up: 2}, {Name: "a", Down: true}},
		[]string{"status"}, rollout.Sample{PID: 4},
	)
	want := rollout.Sample{PID: 4, Counters: rollout.Counters{Requests: 10, Errors: 2, Connections: 8}, Down: []string{"a", "b"}, By: map[string]int64{"c": 3}, Served: map[string]int64{"c": 12}, Up: rollout.ServersUp{Backends: []string{"a", "b", "c"}, Counts: []uint16{0, 0, 2}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("added up otherwise (-want +got):\n%s", diff)
	}
}
