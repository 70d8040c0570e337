package cli

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/testing/terminal"
	"github.com/hapsnap/hapsnap/pusher/preflight"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// This is the output on terminals of 80 and of 120 columns.
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
			{Name: "edge-3", Zone: "eu-central-1c", Since: now.Add(-time.Minute), Error: "dial tcp 10.20.30.43:5555: connect: no route to host, which was so for the last three attempts"},
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
	terminal.Golden(t, "show", func(to *os.File) {
		if err := printShown(process.On(to, to, false), shownAtTerminal(next, old, now), now); err != nil {
			t.Error(err)
		}
	})
	published := audited{Time: now.Add(-9 * time.Minute), Kind: "snapshot", What: "published", Snapshot: next, By: "compiler v0.9.0", Reason: "Ingress shop/checkout", Signature: "SHA256:abcdefghijklmnopqrstuvwxyz", Text: "+1 backend (Ingress shop/checkout)"}
	pinned := audited{Time: now.Add(-5 * time.Minute), Kind: "act", What: "confirm-endpoints", By: "carol", Reason: "checkout moved to another cluster", Text: "confirm that endpoints are gone, loss 3f9a2c1d: checkout moved to another cluster"}
	terminal.Golden(t, "audit", func(to *os.File) {
		if err := printAudit(process.On(to, to, false), []audited{published, pinned}); err != nil {
			t.Error(err)
		}
	})
	found := preflight.Report{Instances: []preflight.Instance{{Name: "edge-1", URL: "http://10.0.0.11:5555", API: "v3.2.5", HAProxy: "2.6.12", Findings: []preflight.Finding{{
		Check: "reloads", Warning: true, Message: "the API reloads HAProxy 2.6.12 by its reload_cmd, not through the master socket", Hint: "use HAProxy 2.7 or later, or make sure that reload_cmd works without a shell",
	}}}}}
	terminal.Golden(t, "check", func(to *os.File) {
		if err := printReport(process.On(to, to, false), found); err != nil {
			t.Error(err)
		}
	})
	acts := entries{
		{At: now.Add(-time.Minute), Turn: true, Verb: channel.TurnWave, Snapshot: next, By: "pusher", Fleet: "edge", From: "secret:hapsnap/hapsnap-pusher", Text: "wave 1: edge-1, edge-2 (" + next.String() + ")"},
		{At: now.Add(-5 * time.Minute), Verb: channel.VerbUnpin, Snapshot: old, By: "carol", From: "carols-laptop", Reason: "checkout answers again, and the sale begins at noon"},
	}
	terminal.Golden(t, "acts", func(to *os.File) {
		if err := printActs(process.On(to, to, false), acts, now); err != nil {
			t.Error(err)
		}
	})
}

// shownAtTerminal is a snapshot with some of everything that show prints.
func shownAtTerminal(id, parent snapshots.ID, now time.Time) snapshotDetails {
	digest := snapshots.Digest("sha256:" + strings.Repeat("9f3ac01b2d", 6) + "9f3a")
	var s snapshotDetails
	s.Metadata.Name = id.String()
	s.Spec.Subject, s.Spec.Parent, s.Spec.Digest = "+1 backend (Ingress shop/checkout), 2 routes of shop.example changed", parent, digest
	s.Spec.Certificates = []snapshots.CertificateRef{
		{File: "certs/fallback.pem"}, {File: "certs/shop--checkout-tls.pem", Secret: snapshots.SecretName{Namespace: "shop", Name: "checkout-tls"}},
	}
	s.Spec.Quarantined = []snapshots.Quarantined{{
		Kind: "Ingress", Namespace: "wiki", Name: "pages",
		Reason: "annotation hapsnap.dev/rate-limit: \"lots\" is not a number\nhint: use requests per second, such as 100, or take the annotation away",
	}}
	s.Spec.Files = []snapshots.FileDigest{
		{Path: snapshots.ConfigFile, Size: 48211, SHA256: strings.Repeat("0c2ab01f2e", 6) + "0c2a"}, {Path: "maps/prefix.map", Size: 902, SHA256: strings.Repeat("d3adb33f00", 6) + "d3ad"},
	}
	s.Provenance = snapshots.Provenance{
		Time: now.Add(-5 * time.Minute), TemplatesDigest: digest, CompilerVersion: "v0.9.0", HAProxyVersion: "2.6.12", Author: "Carol Danvers <carol@shop.example>",
		Trigger: "Ingress shop/checkout; compiler 5d9c7b6f4 since 2026-03-01T08:00:00.000Z, configuration 1f2e3d4c5b, on hapsnap-compiler-0, of https://10.0.0.1:443",
	}
	s.Life = []channel.Entry{
		{At: now.Add(-4 * time.Minute), Verb: channel.VerbApprove, Snapshot: id, By: "dave", Reason: "looked at the difference with carol, and tried it on the staging fleet", From: "daves-laptop"},
		{At: now.Add(-3 * time.Minute), Turn: true, Verb: channel.TurnBegan, Snapshot: id, Fleet: "edge", Text: "rollout of " + id.String() + " begins"},
	}
	return s
}
