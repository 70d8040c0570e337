package storetest

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// Reader is what a pusher calls.
type Reader interface {
	View(ctx context.Context) (channel.View, error)
	IDs(ctx context.Context) ([]snapshots.ID, error)
	Remember(seen channel.Seen)
	Get(ctx context.Context, id snapshots.ID) (snapshots.Snapshot, error)
	Manifest(ctx context.Context, id snapshots.ID) (snapshots.Manifest, error)
}

// Writer is what changes a store.
type Writer interface {
	Publish(ctx context.Context, d snapshots.Draft) (snapshots.ID, bool, error)
	UpdateChannel(ctx context.Context, subject string, now time.Time, edit func(*channel.Channel) error) error
	Delete(ctx context.Context, ids ...snapshots.ID) error
}

// Store is a store under test.
type Store interface {
	Reader
	Writer
	io.Closer
}

// Backend is an empty place for snapshots, such as a directory or a repository,
// and what the suite does to it behind the back of its stores.
type Backend struct {
	// Open returns one more Store on the place. The store calls step, unless it
	// is nil, at each point where its process could be killed; after an error
	// from it, it does nothing more and leaves everything as it is.
	Open func(step func(string) error) Store
	// Tamper changes one stored file of a snapshot.
	Tamper func(id snapshots.ID, path string)
	// SetChannel stores these bytes as the channel.
	SetChannel func(data []byte)
	// RemoveChannel takes the channel away.
	RemoveChannel func()
	// Litter names what is in the place and of no use to anybody.
	Litter func() []string
	// Place is where a process of its own finds the place, in one line; see [Main].
	// Only [RunKilled] needs it.
	Place string
	// Sends is set where only what a store sends to others can be left half done.
	Sends bool
	// Break takes the place away, as when a disk is not mounted.
	Break func()
}

// trial is a test with a backend of its own.
type trial struct {
	*testing.T
	Backend
}

// test is one of the suite.
type test struct {
	name string
	run  func(t trial)
}

// Run runs the suite. Each test gets a backend of its own.
func Run(t *testing.T, newBackend func(t *testing.T) Backend) {
	t.Helper()
	run(t, newBackend, suite())
}

// RunSome runs the tests of the suite with these names, for one more way to a
// place that another run has tried everything on.
func RunSome(t *testing.T, newBackend func(t *testing.T) Backend, names ...string) {
	t.Helper()
	some := slices.DeleteFunc(suite(), func(test test) bool { return !slices.Contains(names, test.name) })
	if len(some) != len(names) {
		t.Fatalf("of the tests %q there are %d", names, len(some))
	}
	run(t, newBackend, some)
}

func run(t *testing.T, newBackend func(t *testing.T) Backend, tests []test) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(trial{t, newBackend(t)})
		})
	}
}

func suite() []test {
	return []test{
		{"an empty store has no snapshots and no error", testEmpty},
		{"what is published is read", testPublish},
		{"the same content twice is one snapshot", testUnchanged},
		{"revisions ascend and name their parents", testOrder},
		{"going back to old content is a new revision", testRevert},
		{"a file that is left out is gone", testFileRemoved},
		{"names that some systems reserve are names", testNames},
		{"a large file is kept", testLarge},
		{"a draft that would configure nothing is refused", testRefused},
		{"sealed certificates are kept as they were", testSealed},
		{"what is closed and opened is the same", testReopen},
		{"deleted snapshots are gone, the newest is kept", testDelete},
		{"the channel is kept", testChannel},
		{"a channel that cannot be read is an error", testChannelUnreadable},
		{"a channel that is gone holds until a person gives it up", testChannelGone},
		{"a tampered snapshot is corrupt", testTampered},
		{"the next snapshot is put on top of a tampered one", testTamperedHead},
		{"a place that is gone is an error", testBroken},
		{"a cancelled call does nothing", testCancelled},
		{"writers that race lose nothing", testRacingWriters},
		{"a draft that follows a snapshot follows no other", testAfter},
		{"of writers that follow the same snapshot one wins", testRacingAfter},
		{"goroutines that share a store lose nothing", testSharedStore},
		{"channel edits that race lose nothing", testRacingEdits},
		{"a reader beside a writer sees whole snapshots", testReaderBesideWriter},
		{"a publish that is killed is there or not", killedPublish(byStep)},
		{"a channel edit that is killed is there or not", killedEdit(byStep)},
		{"a deletion that is killed is made up for", killedDelete(byStep)},
	}
}
