package pusher

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

const (
	// keptChanges is how many changes are remembered, for the history.
	keptChanges = 20
	// longestChange is how much of a line is told, in bytes.
	longestChange = 160
)

// Change is what it took to bring an instance to a snapshot, and the line that decided:
// of the snapshot, or of what ran before where Old is set. Text has no secrets.
type Change struct {
	Snapshot snapshots.ID `json:"snapshot"`
	// From is what ran before, zero where that is not at hand.
	From  snapshots.ID `json:"from,omitzero"`
	Class bind.Verdict `json:"class"`
	Old   bool         `json:"old,omitempty"`
	// File is a path in the snapshot, "" where none is known to decide. Line counts from
	// 1, and is 0 where no line shows it; what was joined to a directive has its line.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Text string `json:"text,omitempty"`
	// Began is when the rollout did.
	Began time.Time `json:"began,omitzero"`
}

// changeOf returns the change from what runs, nil where that is not known, to what was
// bound. Where it took a reload although what differs could be changed without one, it
// was a reload.
func changeOf(running *bind.Bound, want bind.Bound, reloaded bool) Change {
	if running == nil {
		return Change{Snapshot: want.ID, Class: bind.Reload}
	}
	c := bind.Classify(*running, want)
	if reloaded {
		c.Verdict = bind.Reload
	}
	side := want
	if c.Old {
		side = *running
	}
	if c.File == snapshots.ConfigFile {
		c.Line, c.Text = shownLine(side, c.Line, c.Text)
	}
	return Change{
		Snapshot: want.ID, From: running.ID, Class: c.Verdict, Old: c.Old, File: c.File, Line: c.Line,
		Text: firstLine(c.Text, longestChange),
	}
}

// shownLine returns a line of a bound configuration as people are told of it: by its number in
// the snapshot, and for an empty one, which comes with a section, the next that is not.
func shownLine(b bind.Bound, line int, text string) (int, string) {
	if line < 1 || line > len(b.Lines) {
		return line, text
	}
	if strings.TrimSpace(text) == "" {
		for i, next := range strings.Split(string(b.Config), "\n")[line:] {
			if next = strings.TrimSpace(next); next != "" && line+i < len(b.Lines) && b.Lines[line+i] > 0 {
				return b.Lines[line+i], b.Redact(next)
			}
		}
	}
	return b.Lines[line-1], text
}

// Because says what decided, "" where that is not known.
func (c Change) Because() string {
	sign := "+"
	if c.Old {
		sign = "-"
	}
	switch {
	case c.Class == bind.Reload && c.From.IsZero():
		return "what ran before is not known"
	case c.File == "":
		return ""
	case c.Line == 0:
		return sign + c.File
	}
	return fmt.Sprintf("%s:%d: %s%s", c.File, c.Line, sign, c.Text)
}

// String says what it took, and why.
func (c Change) String() string {
	return strings.TrimSuffix(string(c.Class)+": "+c.Because(), ": ")
}

// logged returns the keys of the log and their values, none where nothing was bound.
func (c Change) logged() []any {
	if c.Class == "" {
		return nil
	}
	out := []any{"class", string(c.Class)}
	if because := c.Because(); because != "" {
		out = append(out, "because", because)
	}
	return out
}

// noteChange remembers what the push of a wave took. One that found all as it should be
// took nothing, and one that could not be bound says nothing.
func (e *engine) noteChange(p rollout.Push, c Change, reloaded bool, err error) {
	took := reloaded || err != nil || c.Class != bind.Reload
	if p.Purpose == rollout.Wave && took && !c.Snapshot.IsZero() {
		e.changes = withChange(e.changes, c, e.state.Rollout.Rollout)
	}
}

// withChange returns the changes with one of a rollout: there is one for each snapshot, as
// the first instance of its rollout took it, the newest last.
func withChange(list []Change, c Change, r *rollout.Rollout) []Change {
	if r == nil || r.Target != c.Snapshot || c.From.Short == c.Snapshot.Short {
		return list
	}
	c.Began = r.Started.UTC().Truncate(time.Second)
	if known, ok := changeTo(list, c.Snapshot); ok && known.Began.Equal(c.Began) {
		return list
	}
	list = slices.DeleteFunc(slices.Clone(list), func(old Change) bool { return old.Snapshot == c.Snapshot })
	list = append(list, c)
	return list[max(0, len(list)-keptChanges):]
}

// changeTo returns the change to a snapshot, if it is known.
func changeTo(list []Change, id snapshots.ID) (Change, bool) {
	i := slices.IndexFunc(list, func(c Change) bool { return c.Snapshot == id })
	if i < 0 {
		return Change{}, false
	}
	return list[i], true
}

// ChangeTo returns what it took to bring instances to a snapshot, if it is known.
func (s Status) ChangeTo(id snapshots.ID) (Change, bool) { return changeTo(s.Changes, id) }
