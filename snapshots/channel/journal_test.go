package channel

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/snapshots"
)

// A journal keeps what was done last, and stays within its bounds whatever people write.
func TestJournalIsBounded(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	for name, reason := range map[string]string{"short": "slow", "long": strings.Repeat("é\n", 5000)} {
		var journal []byte
		for n := range 2 * MaxEntries {
			act := Act{Verb: VerbPin, Snapshot: snapshots.ID{Revision: uint64(n) + 1, Short: "9f3ac01b2d"}, By: reason, Reason: reason, Author: Person{Name: reason, Email: "x"}}
			var err error
			if journal, err = AppendEntries(journal, act.Entry("pin: "+reason, at.Add(time.Duration(n)*time.Second))); err != nil {
				t.Fatal(err)
			}
			if len(journal) > MaxJournalBytes {
				t.Fatalf("%s: it has %d bytes", name, len(journal))
			}
		}
		got := ParseEntries(journal)
		if len(got) > MaxEntries || len(got) < 50 || got[len(got)-1].Snapshot.Revision != 2*MaxEntries {
			t.Errorf("%s: %d entries, the last %+v", name, len(got), got[len(got)-1])
		}
		if bytes.Count(journal, []byte("\n")) != len(got) {
			t.Errorf("%s: an entry has more than a line", name)
		}
	}
}

// A line that is damaged takes nothing with it, and what is written twice is there once.
func TestJournalOfDamagedLines(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	one, two := Act{Verb: VerbPause, By: "ann"}.Entry("pause", at), Act{By: "bob"}.Entry("whatever", at)
	journal, err := AppendEntries([]byte("{half\n\n[]\n"), one, one, two)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Entry{one, two}, ParseEntries(journal)); diff != "" {
		t.Error(diff)
	}
	if two.Verb != VerbEdit || fmt.Sprint(Person{Name: "Ann", Email: "a@b"}) != "Ann <a@b>" {
		t.Errorf("%+v", two)
	}
}
