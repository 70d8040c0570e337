package channel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/snapshots"
)

// A journal keeps the latest acts, and stays within its bounds whatever people write.
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

// A damaged line does not affect other lines, and an entry that is written twice is kept once.
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

// A fleet ran what the last finished rollout brought, also while another rollout is under way or was undone.
func TestRunningAt(t *testing.T) {
	t.Parallel()
	id := func(n uint64) snapshots.ID { return snapshots.ID{Revision: n, Short: "0123456789"} }
	begin := time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	at := func(minute int) time.Time { return begin.Add(time.Duration(minute) * time.Minute) }
	turn := func(minute int, fleet string, verb Verb, n uint64) Entry {
		return Entry{At: at(minute), Turn: true, Fleet: fleet, Verb: verb, Snapshot: id(n)}
	}
	journal := []Entry{
		turn(0, "edge", TurnBegan, 1), turn(1, "edge", TurnWave, 1), turn(2, "edge", TurnDone, 1),
		{At: at(3), Verb: VerbPin, Snapshot: id(9)},
		turn(4, "lab", TurnDone, 5),
		turn(5, "edge", TurnBegan, 2), turn(6, "edge", TurnFailed, 2), turn(7, "edge", TurnUndone, 2),
		turn(8, "edge", TurnBegan, 3), turn(9, "edge", TurnPaused, 3), turn(10, "edge", TurnDone, 3),
	}
	for minute, want := range map[int]string{
		-1: "map[]", 0: "map[edge:{ - r000001-0123456789}]", 2: "map[edge:{r000001-0123456789 2 }]", 3: "map[edge:{r000001-0123456789 2 }]",
		4:  "map[edge:{r000001-0123456789 2 } lab:{r000005-0123456789 4 }]",
		6:  "map[edge:{r000001-0123456789 2 r000002-0123456789} lab:{r000005-0123456789 4 }]",
		7:  "map[edge:{r000001-0123456789 2 } lab:{r000005-0123456789 4 }]",
		9:  "map[edge:{r000001-0123456789 2 r000003-0123456789} lab:{r000005-0123456789 4 }]",
		99: "map[edge:{r000003-0123456789 10 } lab:{r000005-0123456789 4 }]",
	} {
		got := map[string]string{}
		for fleet, r := range RunningAt(journal, at(minute)) {
			since := "-"
			if !r.Since.IsZero() {
				since = fmt.Sprint(int(r.Since.Sub(begin) / time.Minute))
			}
			got[fleet] = fmt.Sprintf("{%s %s %s}", r.Snapshot, since, r.Next)
		}
		if text := fmt.Sprint(got); text != want {
			t.Errorf("minute %d: %s, want %s", minute, text, want)
		}
	}
}

// The history of a snapshot says why it was replaced: an act, or an override that expired.
func TestLifeTellsWhy(t *testing.T) {
	t.Parallel()
	one, two := snapshots.ID{Revision: 1, Short: "1111111111"}, snapshots.ID{Revision: 2, Short: "2222222222"}
	minute := 0
	at := func(e Entry) Entry {
		minute++
		e.At = time.Date(2026, 1, 1, 12, minute, 0, 0, time.UTC)
		return e
	}
	turn := func(verb Verb, id snapshots.ID) Entry {
		return at(Entry{Turn: true, Fleet: "edge", Verb: verb, Snapshot: id, By: "pusher"})
	}
	begun := []Entry{at(Entry{Verb: VerbOverride, Snapshot: one, By: "ann"}), turn(TurnBegan, one), turn(TurnDone, one)}
	next := []Entry{turn(TurnBegan, two), turn(TurnDone, two)}
	for want, why := range map[string]Entry{
		"r000002-2222222222 took its place after an override had expired": turn(TurnExpired, one),
		"r000002-2222222222 took its place after pin by bob":              at(Entry{Verb: VerbPin, Snapshot: two, By: "bob"}),
	} {
		told := Life(one, append(append(begun[:len(begun):len(begun)], why), next...))
		if last := told[len(told)-1]; last.Text != want {
			t.Errorf("%q, want %q", last.Text, want)
		}
	}
	if told := Life(one, begun); strings.Contains(told[len(told)-1].Text, "place") {
		t.Errorf("%v", told)
	}
}

// Who may write a journal or a channel cannot command the terminals of those who read it, or turn its text around.
func TestJournalsDoNotCommandTerminals(t *testing.T) {
	t.Parallel()
	bad := "a\x1b[2Jb\u202ec"
	line, err := json.Marshal(Entry{At: time.Unix(1e9, 0).UTC(), Verb: Verb(bad), By: bad, Author: bad, Reason: bad, From: bad, Fleet: bad, Text: bad})
	if err != nil {
		t.Fatal(err)
	}
	want := `a\x1b[2Jb\u202ec`
	got := ParseEntries(append(line, '\n'))
	if len(got) != 1 || got[0] != (Entry{At: time.Unix(1e9, 0).UTC(), Verb: Verb(want), By: want, Author: want, Reason: want, From: want, Fleet: want, Text: want}) {
		t.Errorf("read as %+v", got)
	}
	if got := Said(bad, bad); got != " by "+want+": "+want {
		t.Errorf("said is %q", got)
	}
}
