package cli

import (
	"os"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/testing/terminal"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
)

// What people see at terminals of 80 and of 120 columns.
func TestTerminal(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	old, next := snapshots.ID{Revision: 11, Short: "0c2ab01f2e"}, snapshots.ID{Revision: 12, Short: "9f3ac01b2d"}
	status := report.Status{
		Updated: now, Leader: "hapsnap-pusher-5d9c7b6f4-x2k8p", Term: 3, Good: old,
		Channel: report.Channel{Wanted: next, Newest: next, Message: next.String() + ", the newest"},
		Rollout: &report.Rollout{Target: next, Phase: rollout.Soaking, Wave: 1, Members: []string{"edge-1", "edge-2"}},
		Waits:   []rollout.Wait{{Instance: "edge-1", For: "soaking", Until: now.Add(40 * time.Second)}},
		Instances: []report.Instance{
			{Name: "edge-1", Zone: "eu-central-1a", Reachable: true, Running: next, InSync: true, Node: next.String(), PID: 412},
			{Name: "edge-2", Zone: "eu-central-1b", Reachable: true, Running: old, Node: old.String(), PID: 77, Pending: "waits for its turn in the second wave, after edge-1 has soaked for a minute"},
			{Name: "edge-3", Zone: "eu-central-1c", Error: "dial tcp 10.20.30.43:5555: connect: no route to host, which was so for the last three attempts"},
		},
	}
	terminal.Golden(t, "status", func(to *os.File) {
		if err := printStatus(process.On(to, to, false), status, now); err != nil {
			t.Error(err)
		}
	})
	list := []revision{
		{Snapshot: next, Time: now.Add(-5 * time.Minute), States: []string{"wanted", "rollout"}, Author: "Carol Danvers <carol@shop.example>", Subject: "+1 backend (Ingress shop/checkout), 2 routes changed"},
		{Snapshot: old, Time: now.Add(-49 * time.Hour), States: []string{"running"}, Author: "Bob <bob@shop.example>", Subject: "2 routes of shop.example changed (Ingress shop/web)"},
	}
	terminal.Golden(t, "history", func(to *os.File) {
		if err := printHistory(process.On(to, to, false), list, now); err != nil {
			t.Error(err)
		}
	})
}
