package ui

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// moment is something that happened: a snapshot was published, somebody did something to the channel,
// or a rollout took a turn.
type moment struct {
	At   time.Time `json:"at,omitzero"`
	Kind string    `json:"kind"` // snapshot, act or turn
	What string    `json:"what"` // published, or the verb of the act or turn
	// Title says it in a few words, and Text the rest: what changed, or why.
	Title    string       `json:"title"`
	Text     string       `json:"text,omitempty"`
	Snapshot snapshots.ID `json:"snapshot,omitzero"`
	Parent   snapshots.ID `json:"parent,omitzero"` // of a snapshot
	By       string       `json:"by,omitempty"`
	From     string       `json:"from,omitempty"`
	Fleet    string       `json:"fleet,omitempty"`
}

// The kinds of moments.
const (
	kindSnapshot = "snapshot"
	kindAct      = "act"
	kindTurn     = "turn"
)

// Dot is how a moment looks on the line of time.
func (m moment) Dot() string {
	switch {
	case m.Kind == kindSnapshot:
		return "pub"
	case m.What == string(channel.TurnDone), m.What == string(channel.VerbApprove):
		return "ok"
	case m.What == string(channel.TurnFailed), m.What == string(channel.TurnUndone), m.What == string(channel.VerbReject), m.What == string(channel.VerbAbort):
		return "bad"
	case m.Kind == kindAct:
		return "hand"
	}
	return ""
}

// Mark says the same as the dot to who does not see colours.
func (m moment) Mark() string {
	return map[string]string{"pub": "published", "ok": "good", "bad": "bad", "hand": "by hand"}[m.Dot()]
}

// titles say what was done, with the snapshot in place of %s.
var titles = map[channel.Verb]string{
	channel.VerbPin: "%s pinned", channel.VerbUnpin: "unpinned", channel.VerbRollback: "rolled back to %s", channel.VerbOverride: "%s runs for a while",
	channel.VerbOverrideEnd: "override ended", channel.VerbPause: "paused", channel.VerbResume: "resumed", channel.VerbApprove: "%s approved",
	channel.VerbReject: "%s rejected", channel.VerbRetry: "%s to be tried again", channel.VerbPromote: "rollout of %s promoted", channel.VerbAbort: "rollout of %s aborted",
	channel.VerbConfirmEndpoints: "loss of endpoints confirmed", channel.VerbAcceptRewind: "rewind of the store accepted", channel.VerbEdit: "channel edited",
	channel.TurnBegan: "rollout of %s began", channel.TurnWave: "wave of %s", channel.TurnPaused: "rollout of %s paused", channel.TurnGoesOn: "rollout of %s goes on",
	channel.TurnFailed: "rollout of %s failed", channel.TurnUndone: "rollout of %s undone", channel.TurnDone: "the fleet runs %s",
	channel.TurnExpired: "override expired", channel.TurnGone: "%s replaced",
}

// momentOf is an entry of the journal as a moment.
func momentOf(e channel.Entry) moment {
	m := moment{At: e.At.UTC(), Kind: kindAct, What: string(e.Verb), Snapshot: e.Snapshot, By: cmp.Or(e.By, e.Author), From: e.From, Fleet: e.Fleet, Text: e.Reason}
	if e.Turn {
		m.Kind, m.Text, m.By, m.From = kindTurn, e.Text, "", "" // the pusher says so of itself
	}
	title, known := titles[e.Verb]
	switch {
	case !known:
		m.Title = string(e.Verb)
	case strings.Contains(title, "%s"):
		m.Title = fmt.Sprintf(title, cmp.Or(short(e.Snapshot), "a snapshot"))
	default:
		m.Title = title
	}
	if e.Verb == channel.VerbEdit {
		m.Text = cmp.Or(e.Reason, e.Text)
	}
	return m
}

// published is a snapshot as a moment.
func published(id snapshots.ID, s snapshots.Manifest) moment {
	return moment{
		At: s.Provenance.Time.UTC(), Kind: kindSnapshot, What: "published", Title: short(id) + " published", Text: cmp.Or(s.Spec.Subject, s.Provenance.Trigger),
		Snapshot: id, Parent: s.Spec.Parent, By: s.Provenance.Author,
	}
}

// timeline is what happened, the newest first.
type timeline struct {
	Moments []moment
	// Unread is how many snapshots could not be read, or were not read in time. They are not among the moments.
	Unread int
	// Whole is set when nothing was left out at the end.
	Whole bool
}

// timelineOf returns the newest moments, at most this many. It reads no more manifests than that takes.
func timelineOf(ctx context.Context, a *archive, l listing, most int) timeline {
	var out timeline
	for _, e := range slices.Backward(l.journal) {
		out.Moments = append(out.Moments, momentOf(e))
	}
	read := 0
	for _, id := range slices.Backward(l.view.IDs) {
		if read == most {
			break
		}
		s, err := a.manifest(ctx, id)
		if err != nil {
			out.Unread++
			if ctx.Err() != nil {
				break
			}
			continue
		}
		read++
		out.Moments = append(out.Moments, published(id, s))
	}
	slices.SortStableFunc(out.Moments, func(x, y moment) int { return y.At.Compare(x.At) })
	out.Whole = len(out.Moments) <= most && out.Unread == 0 && read == len(l.view.IDs)
	out.Moments = out.Moments[:min(len(out.Moments), most)]
	return out
}
