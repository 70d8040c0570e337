// Package storetest is the contract of a snapshot store, as a test suite. Every kind of store runs it, so that
// all kinds behave alike as far as the pusher and the compiler can see:
//
//   - A snapshot is there whole and verified, or not at all: [Run] stops writers
//     at every step, tampers with what is stored, and reads while others write.
//   - Revisions are consecutive, whoever writes, and nothing that was published
//     is lost.
//   - What cannot be read is an error, and never an empty store.
//
// What is particular to a store, such as its commits, is for its own tests.
package storetest

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// Reader has the methods that a pusher calls.
type Reader interface {
	View(ctx context.Context) (channel.View, error)
	IDs(ctx context.Context) ([]snapshots.ID, error)
	Remember(seen channel.Seen)
	Get(ctx context.Context, id snapshots.ID) (snapshots.Snapshot, error)
	Manifest(ctx context.Context, id snapshots.ID) (snapshots.Manifest, error)
}

// Writer has the methods that change a store.
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
	Journal(ctx context.Context) ([]channel.Entry, error)
	Record(ctx context.Context, now time.Time, entries ...channel.Entry) error
}

// Backend is an empty place for snapshots, such as a directory or a repository, and what the suite does to the
// place without the knowledge of its stores.
type Backend struct {
	// Open returns one more Store on the place. If step is not nil, the store calls it at each point where its
	// process could be killed. After an error from step, the store does nothing more and leaves everything as
	// it is.
	Open func(step func(string) error) Store
	// Tamper changes one stored file of a snapshot.
	Tamper func(id snapshots.ID, path string)
	// SetChannel stores these bytes as the channel.
	SetChannel func(data []byte)
	// RemoveChannel takes the channel away.
	RemoveChannel func()
	// Litter lists what is left in the place without use for anybody.
	Litter func() []string
	// Place tells another process, in one line, where the place is; see [Main]. Only [RunKilled] needs it.
	Place string
	// Sends is set if only what a store sends to others can be left half done.
	Sends bool
	// Break takes the place away, as when a disk is not mounted.
	Break func()
}

// testCase is a test with a backend of its own.
type testCase struct {
	*testing.T
	Backend
}

// test is one of the suite.
type test struct {
	name string
	run  func(t testCase)
}

// Run runs the suite. Each test gets a backend of its own.
func Run(t *testing.T, newBackend func(t *testing.T) Backend) {
	t.Helper()
	run(t, newBackend, suite())
}

// RunSome runs the tests of the suite with these names. It is for a second way of access to a place, if another
// run has tested everything.
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
			test.run(testCase{t, newBackend(t)})
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
		{"the journal has acts and entries about rollouts", testJournal},
		{"a channel that cannot be read is an error", testChannelUnreadable},
		{"a channel that is gone holds until a person gives it up", testChannelGone},
		{"a tampered snapshot is corrupt", testTampered},
		{"the next snapshot is put on top of a tampered one", testTamperedHead},
		{"a newest snapshot that is damaged later is followed by the next", testDamagedLater},
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

// epoch is the time of everything in the suite.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Draft returns a draft whose content differs by the name of its backend. More files are given as path and
// content in turn.
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

// publish publishes a draft that must be new.
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

// wantHistory checks that the store lists a chain of snapshots from revision 1 on, all readable, and returns
// the digests of the backends' drafts.
func wantHistory(tb testing.TB, s Reader) map[snapshots.Digest]snapshots.ID {
	tb.Helper()
	return wantHistoryAfter(tb, s, snapshots.ID{})
}

// wantHistoryAfter is wantHistory for a store from which a snapshot and all before it were deleted.
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

// approve is an edit that differs from others, so that a lost one is noticed.
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

// The journal has acts and entries about rollouts in their order, also with several writers. An act that changes nothing is not
// in it.
func testJournal(t testCase) {
	a, b := t.Open(nil), t.Open(nil)
	defer a.Close()
	defer b.Close()
	if got, err := a.Journal(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("the journal of an empty store is %v, %v", got, err)
	}
	id, _, err := a.Publish(t.Context(), Draft("a"))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	act := func(s Store, verb channel.Verb, after time.Duration, change func(channel.Channel) channel.Channel) {
		t.Helper()
		err := s.UpdateChannel(t.Context(), string(verb)+" it", at.Add(after), func(c *channel.Channel) error {
			*c = change(*c)
			c.Act = channel.Act{Verb: verb, Snapshot: id, By: "ann", Reason: "slow", From: "desk", Author: channel.Person{Name: "Ann", Email: "ann@example.com"}}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	pinned := func(c channel.Channel) channel.Channel { return c.Pinned(channel.Pin{Snapshot: id}) }
	act(a, channel.VerbPin, 0, pinned)
	act(b, channel.VerbPin, time.Minute, pinned)
	turn := channel.Entry{At: at.Add(2 * time.Minute), Turn: true, Verb: channel.TurnBegan, Snapshot: id, Fleet: "edge", By: "pusher", Text: "rollout begins"}
	for range 2 { // as after a lost answer
		if err := b.Record(t.Context(), turn.At, turn); err != nil {
			t.Fatal(err)
		}
	}
	act(b, channel.VerbUnpin, 3*time.Minute, channel.Channel.Unpinned)
	got, err := t.Open(nil).Journal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []channel.Entry{
		{At: at, Verb: channel.VerbPin, Snapshot: id, By: "ann", Author: "Ann <ann@example.com>", Reason: "slow", From: "desk", Text: "pin it"},
		turn,
		{At: at.Add(3 * time.Minute), Verb: channel.VerbUnpin, Snapshot: id, By: "ann", Author: "Ann <ann@example.com>", Reason: "slow", From: "desk", Text: "unpin it"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("the journal is\n%+v\nnot\n%+v", got, want)
	}
	c, err := a.View(t.Context())
	if err != nil || c.Channel.Spec.Pin != nil {
		t.Errorf("the channel is %+v, %v", c.Channel.Spec, err)
	}
}

// Follower has the methods to follow changes of a store.
type Follower interface {
	Follow(ctx context.Context, changed func())
}

// Followed follows a store until the test ends; a value arrives after each change.
func Followed(t *testing.T, s Follower) <-chan struct{} {
	t.Helper()
	changes, ended := make(chan struct{}, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		s.Follow(ctx, func() {
			select {
			case changes <- struct{}{}:
			default:
			}
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return changes
}

// Hears waits for changes until something is true.
func Hears(t *testing.T, changes <-chan struct{}, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case <-changes:
			if ok() {
				return
			}
		case <-deadline:
			t.Fatalf("nothing was heard of %s", what)
		}
	}
}

// RunFollowing tests that a reader that follows a store learns about published and deleted snapshots, and about
// changes of the channel. changes is what Followed returned for the reader.
func RunFollowing(t *testing.T, changes <-chan struct{}, reader Reader, writer Store) {
	t.Helper()
	publish := func(content string) snapshots.ID {
		id, _, err := writer.Publish(t.Context(), Draft(content))
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	view := func() channel.View {
		v, err := reader.View(t.Context())
		if err != nil {
			t.Error(err)
		}
		return v
	}
	first := publish("a")
	Hears(t, changes, "a snapshot", func() bool { return len(view().IDs) == 1 })
	second := publish("b")
	Hears(t, changes, "another one", func() bool { return len(view().IDs) == 2 })
	pause := func(c *channel.Channel) error { *c = c.Paused(channel.Pause{By: "ops"}); return nil }
	if err := writer.UpdateChannel(t.Context(), "pause", time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), pause); err != nil {
		t.Fatal(err)
	}
	Hears(t, changes, "a pause", func() bool { return view().Channel.Spec.Pause != nil })
	if err := writer.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	Hears(t, changes, "a deletion", func() bool { ids := view().IDs; return len(ids) == 1 && ids[0] == second })
}
