package gitstore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// The authors of a source commit become those of the snapshot's commit, as far as git allows their names.
func TestPersons(t *testing.T) {
	t.Parallel()
	ann, bob := channel.Person{Name: "Ann Example", Email: "ann@example.com"}, channel.Person{Name: "Doe, Bob", Email: "bob@example.com"}
	for text, want := range map[string][]channel.Person{
		"":                              nil,
		"Ann":                           nil,
		"Ann Example <ann@example.com>": {ann},
		"Ann Example <ann@example.com>, Doe, Bob <bob@example.com>": {ann, bob},
		"<ann@example.com>, Doe, Bob <bob@example.com>, Eve":        {bob},
	} {
		if got := persons(text); !slices.Equal(got, want) {
			t.Errorf("%q names %v, not %v", text, got, want)
		}
	}
	m := snapshots.Manifest{Provenance: snapshots.Provenance{Author: ann.String() + ", " + bob.String()}}
	if got := snapshotMessage("edge", m); strings.Count(got, "Co-authored-by: ") != 1 || !strings.Contains(got, "\nCo-authored-by: Doe, Bob <bob@example.com>\n") {
		t.Errorf("the message is %q", got)
	}
}

// The history of a channel is fetched once for each change of it, however often somebody looks.
func TestJournalFetchesOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	writer, reader := r.open(t), r.open(t)
	id := publish(t, writer, storetest.Draft("a"))
	m := meddle(reader)
	reader.cache.limit = 3
	for change := range 3 {
		err := writer.UpdateChannel(t.Context(), "pause", time.Unix(1e9+int64(change), 0), func(c *channel.Channel) error {
			*c = c.Paused(channel.Pause{By: fmt.Sprint("ann", change)})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		before := m.fetches
		for range 5 {
			if got, err := reader.Journal(t.Context()); err != nil || len(got) != change+1 {
				t.Errorf("after %d changes the journal has %v, %v", change+1, got, err)
			}
			if _, err := reader.Get(t.Context(), id); err != nil { // which may make room for the history
				t.Fatal(err)
			}
		}
		if n := m.fetches - before; n > 4 {
			t.Errorf("five looks at change %d took %d fetches", change+1, n)
		}
	}
}

// Nobody gets an act into the journal but by the history of the channel: the file of turns is not signed.
func TestActsAreNotTurns(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	s := r.open(t)
	publish(t, s, storetest.Draft("a"))
	line := `{"at":"2026-11-27T03:00:00Z","verb":"pin","by":"ann","text":"pin r5"}` + "\n" + `{"at":"2026-11-27T03:01:00Z","turn":true,"verb":"done","fleet":"edge","text":"done"}` + "\n"
	r.git(t, "update-ref", "refs/heads/edge-journal", r.commitFile(t, "", journalFile, line))
	if got, err := s.Journal(t.Context()); err != nil || len(got) != 1 || !got[0].Turn {
		t.Errorf("the journal has %+v, %v", got, err)
	}
}
