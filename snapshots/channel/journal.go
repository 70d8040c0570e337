package channel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Verb is what a person did to a channel, or what a rollout did.
type Verb string

// The verbs of acts on a channel.
const (
	VerbPin              Verb = "pin"
	VerbUnpin            Verb = "unpin"
	VerbRollback         Verb = "rollback"
	VerbOverride         Verb = "override"
	VerbOverrideEnd      Verb = "override-end"
	VerbPause            Verb = "pause"
	VerbResume           Verb = "resume"
	VerbApprove          Verb = "approve"
	VerbReject           Verb = "reject"
	VerbRetry            Verb = "retry"
	VerbPromote          Verb = "promote"
	VerbAbort            Verb = "abort"
	VerbConfirmEndpoints Verb = "confirm-endpoints"
	VerbAcceptRewind     Verb = "accept-rewind"
	// VerbEdit is a change that names no verb, such as one by a person with an editor.
	VerbEdit Verb = "edit"
)

// The verbs of entries about a rollout.
const (
	TurnBegan  Verb = "began"
	TurnWave   Verb = "wave"
	TurnPaused Verb = "paused"
	TurnGoesOn Verb = "goes-on"
	TurnFailed Verb = "failed"
	TurnUndone Verb = "undone"
	TurnDone   Verb = "done"
	// TurnExpired is the end of an override that nobody ended before.
	TurnExpired Verb = "expired"
	// TurnGone occurs only in the [Life] of a snapshot: another snapshot took its place in a fleet.
	TurnGone Verb = "gone"
)

// Act is something that was done to a channel, by a person or by a program.
type Act struct {
	Verb     Verb
	Snapshot snapshots.ID // that it was about, if any
	By       string       // as the channel says it
	Reason   string
	From     string // the machine that it was done on
	Author   Person // the zero value: the program itself
}

// Person is a person as git names them.
type Person struct{ Name, Email string }

// String returns the person as git writes them.
func (p Person) String() string {
	if p.Email == "" {
		return p.Name
	}
	return p.Name + " <" + p.Email + ">"
}

// Entry is one line of a journal: who did what, when, why and from where. No decision depends on it.
type Entry struct {
	At       time.Time    `json:"at"`
	Turn     bool         `json:"turn,omitempty"` // set for an entry about a rollout; otherwise the channel was changed
	Verb     Verb         `json:"verb"`
	Snapshot snapshots.ID `json:"snapshot,omitzero"`
	By       string       `json:"by,omitempty"`
	Author   string       `json:"author,omitempty"` // of the commit, in git
	Reason   string       `json:"reason,omitempty"`
	From     string       `json:"from,omitempty"`
	Fleet    string       `json:"fleet,omitempty"` // of a rollout
	Text     string       `json:"text,omitempty"`
}

// Entry returns the act as an entry of a journal. Subject is the subject of the change.
func (a Act) Entry(subject string, at time.Time) Entry {
	e := Entry{At: stableTime(at), Verb: a.Verb, Snapshot: a.Snapshot, By: a.By, Author: a.Author.String(), Reason: a.Reason, From: a.From, Text: subject}
	if e.Verb == "" {
		e.Verb = VerbEdit
	}
	return e.bounded()
}

// The bounds of a journal that is not in git. Beyond them, the oldest entries are removed.
const (
	MaxEntries      = 1000
	MaxJournalBytes = 200 << 10
)

// The bounds of the texts of one entry, in bytes.
const maxEntryText, maxEntryName = 600, 200

// bounded returns the entry with texts short enough for a line of a journal, and without characters that command a
// terminal: people may write anything into a channel, or into a journal.
func (e Entry) bounded() Entry {
	short := func(text string, most int) string {
		return printable.Shortened(printable.Text(strings.Join(strings.Fields(text), " ")), most)
	}
	e.By, e.Author, e.From, e.Fleet = short(e.By, maxEntryName), short(e.Author, maxEntryName), short(e.From, maxEntryName), short(e.Fleet, maxEntryName)
	e.Reason, e.Text, e.Verb = short(e.Reason, maxEntryText), short(e.Text, maxEntryText), Verb(short(string(e.Verb), maxEntryName))
	return e
}

// AppendEntries returns a journal, one line of JSON for each entry, with more entries at its end. It removes
// the oldest entries from a journal that has too many entries or bytes. It does not repeat an entry that is the
// last one already.
func AppendEntries(journal []byte, entries ...Entry) ([]byte, error) {
	lines := bytes.SplitAfter(journal, []byte("\n"))
	lines = slices.DeleteFunc(lines, func(line []byte) bool { return len(bytes.TrimSpace(line)) == 0 })
	for _, e := range entries {
		line, err := json.Marshal(e.bounded())
		if err != nil {
			return nil, err
		}
		if line = append(line, '\n'); len(lines) == 0 || !bytes.Equal(lines[len(lines)-1], line) {
			lines = append(lines, line)
		}
	}
	lines = lines[max(0, len(lines)-MaxEntries):]
	size, first := 0, len(lines)
	for first > 0 && size+len(lines[first-1]) <= MaxJournalBytes {
		first--
		size += len(lines[first])
	}
	return bytes.Join(lines[first:], nil), nil
}

// ParseEntries reads a journal, the oldest entry first. It skips lines that it cannot read, so that a damaged
// journal still tells the rest.
func ParseEntries(journal []byte) []Entry {
	var out []Entry
	for line := range bytes.Lines(journal) {
		var e Entry
		if json.Unmarshal(line, &e) == nil && !e.At.IsZero() {
			out = append(out, e.bounded())
		}
	}
	return out
}

// Running is what a fleet ran at a time, according to its journal.
type Running struct {
	Snapshot snapshots.ID // the zero value: no rollout had ended
	Since    time.Time    // when the rollout of it ended
	Next     snapshots.ID // that was being rolled out
}

// RunningAt returns what each fleet ran at a time, by name. The journal has the oldest entry first. A fleet
// without an earlier entry in the journal is not in the result.
func RunningAt(journal []Entry, at time.Time) map[string]Running {
	out := map[string]Running{}
	for _, e := range journal {
		if !e.Turn || e.Verb == TurnExpired || e.At.After(at) {
			continue
		}
		r := out[e.Fleet]
		switch e.Verb {
		case TurnBegan, TurnWave:
			r.Next = e.Snapshot
		case TurnUndone:
			r.Next = snapshots.ID{}
		case TurnDone:
			r = Running{Snapshot: e.Snapshot, Since: e.At}
		}
		out[e.Fleet] = r
	}
	return out
}

// Life returns what the journal says of a snapshot, the oldest first: what people did to it, when it reached
// which fleet, and what replaced it.
func Life(id snapshots.ID, journal []Entry) []Entry {
	var out []Entry
	ran := map[string]bool{}           // fleets that run it
	var cause Entry                    // the last act that says what should run
	causes := map[snapshots.ID]Entry{} // when a rollout began
	for _, e := range journal {
		switch {
		case e.Snapshot == id:
			out = append(out, e)
			if e.Turn {
				ran[e.Fleet] = e.Verb == TurnDone || ran[e.Fleet] && e.Verb != TurnUndone
			}
		case e.Turn && ran[e.Fleet] && e.Verb == TurnDone:
			ran[e.Fleet] = false
			e.Text = fmt.Sprintf("%s took its place", e.Snapshot)
			if c := causes[e.Snapshot]; c.Verb == TurnExpired {
				e.Text += " after an override had expired"
			} else if c.Snapshot == e.Snapshot || c.Snapshot == id {
				e.Text += fmt.Sprintf(" after %s%s", c.Verb, Said(c.By, c.Reason))
			}
			e.Verb = TurnGone
			out = append(out, e)
		}
		switch {
		case !e.Turn && !e.Snapshot.IsZero(), e.Turn && e.Verb == TurnExpired:
			cause = e
		case e.Turn && e.Verb == TurnBegan:
			causes[e.Snapshot] = cause
		}
	}
	return out
}
