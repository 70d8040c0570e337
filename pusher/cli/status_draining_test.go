package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
)

// A terminating pod is shown below the instances, and is none of them.
func TestStatusShowsWhatDrains(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	is := func(name string) report.Instance {
		return report.Instance{Name: name, Reachable: true, InSync: true, Running: snapshots.ID{Revision: 1, Short: "0123456789"}}
	}
	both := report.Status{Updated: now, Instances: []report.Instance{is("edge-0"), is("edge-1")}}
	drains := report.Status{Updated: now, Instances: both.Instances[:1], Draining: both.Instances[1:]}
	gone := report.Status{Updated: now, Instances: both.Instances[:1]}
	var out bytes.Buffer
	if err := printStatus(&out, drains, now); err != nil {
		t.Fatal(err)
	}
	table := strings.Split(strings.TrimSpace(out.String()[strings.Index(out.String(), "INSTANCE"):]), "\n")
	if len(table) != 3 || !strings.Contains(table[1], " yes ") || !strings.HasPrefix(table[2], "edge-1 ") || !strings.Contains(table[2], " draining ") {
		t.Errorf("the table is\n%s", strings.Join(table, "\n"))
	}
	for _, c := range []struct {
		old, now report.Status
		want     string
	}{{both, drains, "edge-1: drains"}, {drains, gone, "edge-1: left the fleet"}, {both, gone, "edge-1: left the fleet"}, {drains, drains, ""}} {
		if got := strings.Join(changesOf(c.old, c.now), "; "); got != c.want {
			t.Errorf("it says %q, want %q", got, c.want)
		}
	}
}
