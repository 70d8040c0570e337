package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// epoch is when everything in the suite happens.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Draft returns a draft whose content is told apart by the name of its backend.
// More files are given as path and content in turn.
func Draft(backend string, more ...string) snapshots.Draft {
	d := snapshots.Draft{
		Files: []snapshots.File{
			{Path: snapshots.ConfigFile, Content: []byte("global\n    maxconn 100\n\nbackend " + backend + "\n")},
			{Path: "maps/host.map", Content: []byte("shop.example " + backend + "\n")},
		},
		Certificates: []snapshots.CertificateRef{{
			File:   "certs/shop_web-tls.pem",
			Secret: snapshots.SecretName{Namespace: "shop", Name: "web-tls"},
		}},
		Provenance: snapshots.Provenance{CompilerVersion: "v0.1.0", HAProxyVersion: "2.6.12"},
		Time:       epoch,
		Subject:    "~1 backend (" + backend + ")",
	}
	for pair := range slices.Chunk(more, 2) {
		d.Files = append(d.Files, snapshots.File{Path: pair[0], Content: []byte(pair[1])})
	}
	return d
}

// publish publishes what must be new.
func publish(tb testing.TB, s Writer, d snapshots.Draft) snapshots.ID {
	tb.Helper()
	id, published, err := s.Publish(tb.Context(), d)
	if err != nil || !published {
		tb.Fatalf("publish: %v, published %v, %v", id, published, err)
	}
	return id
}

// publishAll publishes one snapshot for each backend.
func publishAll(tb testing.TB, s Writer, backends ...string) []snapshots.ID {
	tb.Helper()
	var ids []snapshots.ID
	for _, backend := range backends {
		ids = append(ids, publish(tb, s, Draft(backend)))
	}
	return ids
}

func view(tb testing.TB, s Reader) channel.View {
	tb.Helper()
	v, err := s.View(tb.Context())
	if err != nil {
		tb.Fatalf("view: %v", err)
	}
	return v
}

// wantIDs checks what the store lists.
func wantIDs(tb testing.TB, s Reader, want ...snapshots.ID) {
	tb.Helper()
	if got := view(tb, s).IDs; !slices.Equal(got, want) {
		tb.Errorf("the store lists %v, want %v", got, want)
	}
}

func get(tb testing.TB, s Reader, id snapshots.ID) snapshots.Snapshot {
	tb.Helper()
	snapshot, err := s.Get(tb.Context(), id)
	if err != nil {
		tb.Fatalf("get %s: %v", id, err)
	}
	if err := snapshot.Verify(); err != nil {
		tb.Fatalf("get %s: %v", id, err)
	}
	return snapshot
}

// wantHistory checks that the store lists a chain of snapshots from revision 1
// on, all of which can be read, and returns the backends' drafts' digests.
func wantHistory(tb testing.TB, s Reader) map[snapshots.Digest]snapshots.ID {
	tb.Helper()
	return wantHistoryAfter(tb, s, snapshots.ID{})
}

// wantHistoryAfter is wantHistory where all before a snapshot were deleted, and it.
func wantHistoryAfter(tb testing.TB, s Reader, parent snapshots.ID) map[snapshots.Digest]snapshots.ID {
	tb.Helper()
	digests := map[snapshots.Digest]snapshots.ID{}
	for _, id := range view(tb, s).IDs {
		snapshot := get(tb, s, id)
		if id.Revision != parent.Revision+1 || snapshot.ID() != id {
			tb.Errorf("the snapshot after %s is %s and listed as %s", parent, snapshot.ID(), id)
		}
		if snapshot.Manifest.Spec.Parent != parent {
			tb.Errorf("the parent of %s is %q, want %q", id, snapshot.Manifest.Spec.Parent, parent)
		}
		digests[snapshot.Manifest.Spec.Digest] = id
		parent = id
	}
	return digests
}

// wantPublished checks that the store holds the content of all backends.
func wantPublished(tb testing.TB, s Reader, backends ...string) {
	tb.Helper()
	digests := wantHistory(tb, s)
	for _, backend := range backends {
		if _, ok := digests[Draft(backend).Digest()]; !ok {
			tb.Errorf("the snapshot of %s is lost", backend)
		}
	}
	if len(digests) != len(backends) {
		tb.Errorf("the store has %d snapshots, want %d", len(digests), len(backends))
	}
}

// approve is an edit that can be told from others, and seen to be lost.
func approve(id snapshots.ID) func(*channel.Channel) error {
	return func(c *channel.Channel) error {
		*c = c.Approve(id)
		return nil
	}
}

func backends(prefix string, n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%s_%d", prefix, i))
	}
	return names
}
