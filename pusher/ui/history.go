package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// historyTab is the tab of the history, with the page of each snapshot and of each difference.
func historyTab() tab {
	return tab{
		path: "/history", title: "History",
		pages: []page{
			{path: "/history", title: titled("History"), live: true, data: func(ctx context.Context, q query) (any, error) { return historyOf(ctx, q) }, parts: []part{{"history", "wide"}}},
			{
				path: "/snapshots/{name}", title: func(data any) string { return short(data.(snapshotView).ID) }, live: true, //nolint:forcetypeassert // see snapshotOf
				data: func(ctx context.Context, q query) (any, error) { return snapshotOf(ctx, q) }, parts: []part{{"snapshot", ""}, {"snapshot-life", ""}, {"snapshot-left", "wide"}, {"snapshot-files", "wide"}},
			},
			{
				path: "/diff", title: func(data any) string { v := data.(diffView); return short(v.A) + " → " + short(v.B) }, //nolint:forcetypeassert // see diffOf
				data: func(ctx context.Context, q query) (any, error) { return diffOf(ctx, q) }, parts: []part{{"diff", "wide"}},
			},
		},
		apis: []api{
			{path: "history", summary: "What happened, the newest first", example: historyList{}, params: historyParams, data: func(ctx context.Context, q query) (any, error) {
				v, err := historyOf(ctx, q)
				return historyList{Total: v.Total, Pages: v.Pages, Searched: v.Searched, Items: v.Moments}, err
			}},
			{path: "snapshots/{name}", summary: "A snapshot: its manifest and its life", example: snapshotAPI{}, data: func(ctx context.Context, q query) (any, error) {
				v, err := snapshotOf(ctx, q)
				return snapshotAPI{Manifest: v.Manifest, Commit: v.Commit, Life: v.Entries}, err
			}},
			{path: "diff", summary: "What differs between two snapshots: what pusher diff -o json prints", example: diffReport, params: []param{{"a", "the first snapshot, as r12, in full, or head"}, {"b", "the second one"}}, data: func(ctx context.Context, q query) (any, error) {
				v, err := diffOf(ctx, q)
				return v.Report, err
			}},
		},
	}
}

var historyParams = []param{
	{"object", "only what concerns this object, such as Ingress shop/web or shop/web"}, {"host", "only what concerns this host"}, {"person", "only what this person did or made"},
	{"kind", "only snapshot, act or turn"}, {"page", "from 1; a page has 50"},
}

// historyList is a page of the history.
type historyList struct {
	Total int `json:"total"`
	Pages int `json:"pages"`
	// Searched is how many snapshots were searched. These are the newest ones.
	Searched int      `json:"searched,omitempty"`
	Items    []moment `json:"items"`
}

// momentsPerPage is how many moments a page shows. mostSearched is how many snapshots are searched for an object or a
// host. mostRead bounds the moments of the whole history.
const momentsPerPage, mostSearched, mostRead = 50, 100, 500

// historyView is what the page of the history shows.
type historyView struct {
	timeline
	Object, Host, Person, Kind string
	Page, Pages, Total         int
	Searched                   int // how many snapshots were searched, the newest ones; 0 without a search
	Trouble                    string
	At                         listing
}

func historyOf(ctx context.Context, q query) (historyView, error) {
	l := q.archive.listing(ctx)
	if l.at.IsZero() && l.err != nil {
		return historyView{}, l.err
	}
	v := historyView{Object: q.text("object"), Host: q.text("host"), Person: q.text("person"), Kind: q.text("kind"), Page: q.page(), At: l}
	if l.err != nil {
		v.Trouble = report.FirstLine(l.err.Error(), report.LongestMessage)
	}
	all := len(l.view.IDs) + len(l.journal)
	most := v.Page * momentsPerPage
	if v.filtered() {
		most = all
	}
	v.timeline = timelineOf(ctx, q.archive, l, min(most, mostRead))
	v.Total = all
	if v.filtered() {
		v.filter(ctx, q.archive, l)
		v.Total = len(v.Moments)
	}
	v.Pages = pagesOf(v.Total, momentsPerPage)
	v.Page = min(v.Page, v.Pages)
	v.Moments = cut(v.Moments, v.Page, momentsPerPage)
	return v, nil
}

// text is a value of the query, without surrounding spaces.
func (q query) text(name string) string { return strings.TrimSpace(q.values.Get(name)) }

// page is the number of the page that a query asks for. The first is 1.
func (q query) page() int {
	n, err := strconv.Atoi(q.values.Get("page"))
	if err != nil {
		return 1
	}
	return max(n, 1)
}

// runs returns the snapshot that the fleet runs. If that is not known or not in the store, it returns the newest.
func (q query) runs(l listing) snapshots.ID {
	if good := q.fleet.Status.Good; slices.Contains(l.view.IDs, good) {
		return good
	}
	return l.view.Head()
}

// commit returns the URL of the commit of a snapshot, "" if it is not known.
func (q query) commit(ctx context.Context, id snapshots.ID) string {
	u, err := url.Parse(q.source.Repository)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return ""
	}
	hash, err := q.archive.commit(ctx, id)
	if err != nil {
		return ""
	}
	return u.JoinPath("commit", hash).String()
}

func (v historyView) filtered() bool {
	return v.Object != "" || v.Host != "" || v.Person != "" || v.Kind != ""
}

// filter keeps the moments that a query asks for. An object or host matches the text of a moment, or what the
// snapshot of the moment changes. Only the newest snapshots are searched for changes.
func (v *historyView) filter(ctx context.Context, a *archive, l listing) {
	concerned := map[snapshots.ID]bool{}
	if v.Object != "" || v.Host != "" {
		for _, id := range slices.Backward(l.view.IDs) {
			if v.Searched == mostSearched || ctx.Err() != nil {
				break
			}
			t, err := a.touched(ctx, id)
			if err != nil {
				continue
			}
			v.Searched++
			concerned[id] = t.concerns(v.Object) && t.concerns(v.Host)
		}
	}
	v.Moments = slices.DeleteFunc(v.Moments, func(m moment) bool {
		says := func(text string) bool {
			return text == "" || strings.Contains(strings.ToLower(m.Title+" "+m.Text), strings.ToLower(text))
		}
		return v.Kind != "" && m.Kind != v.Kind || !strings.Contains(strings.ToLower(m.By), strings.ToLower(v.Person)) ||
			!concerned[m.Snapshot] && !(says(v.Object) && says(v.Host))
	})
}

// snapshotView is what the page of a snapshot shows.
type snapshotView struct {
	ID       snapshots.ID
	Manifest snapshots.Manifest
	Life     []moment // the newest first
	Entries  []channel.Entry
	Channel  channel.Channel
	Newest   snapshots.ID
	Next     snapshots.ID // published after it
	Status   report.Status
	Runs     int // how many instances run it
	Commit   string
	Trouble  string
}

// snapshotAPI is a snapshot as JSON.
type snapshotAPI struct {
	snapshots.Manifest
	// Commit is the URL of its commit.
	Commit string          `json:"commit,omitempty"`
	Life   []channel.Entry `json:"life"`
}

// snapshot returns the snapshot that a name stands for.
func (q query) snapshot(ctx context.Context, name string) (snapshots.ID, listing, error) {
	l := q.archive.listing(ctx)
	if l.at.IsZero() && l.err != nil {
		return snapshots.ID{}, l, l.err
	}
	id, ok := snapshots.FindID(l.view.IDs, name)
	if !ok {
		return id, l, notFound("The store holds no snapshot "+name+".", "Name one that the history lists, in full, as r12, or head. Old ones are removed from a store after a while.")
	}
	return id, l, nil
}

func snapshotOf(ctx context.Context, q query) (snapshotView, error) {
	id, l, err := q.snapshot(ctx, q.path("name"))
	if err != nil {
		return snapshotView{}, err
	}
	m, err := q.archive.manifestOf(ctx, id)
	if err != nil {
		return snapshotView{}, gone(id, err)
	}
	v := snapshotView{ID: id, Manifest: m, Channel: l.view.Channel, Newest: l.view.Head(), Status: q.fleet.Status, Commit: q.commit(ctx, id), Entries: channel.Life(id, l.journal)}
	if v.Entries == nil {
		v.Entries = []channel.Entry{}
	}
	for _, e := range slices.Backward(v.Entries) {
		v.Life = append(v.Life, momentOf(e))
	}
	v.Life = append(v.Life, published(id, m))
	if i := slices.Index(l.view.IDs, id); i >= 0 && i+1 < len(l.view.IDs) {
		v.Next = l.view.IDs[i+1]
	}
	for _, i := range q.fleet.Status.Instances {
		v.Runs += boolTo(i.Reachable && i.Running == id)
	}
	if l.err != nil {
		v.Trouble = report.FirstLine(l.err.Error(), report.LongestMessage)
	}
	return v, nil
}

// gone returns the problem of a snapshot that cannot be read.
func gone(id snapshots.ID, err error) error {
	if errors.Is(err, errNotRead) {
		return err
	}
	return notFound(id.String()+" cannot be read: "+report.FirstLine(err.Error(), report.LongestMessage), "A snapshot may have been removed since the page was made, or the store is damaged: hapsnap verify says more.")
}

// Pinned reports whether the snapshot is pinned. The page offers only commands that make sense.
func (v snapshotView) Pinned() bool {
	return v.Channel.Spec.Pin != nil && v.Channel.Spec.Pin.Snapshot == v.ID
}

// Rejected reports whether its content is rejected.
func (v snapshotView) Rejected() bool {
	_, rejected := v.Channel.RejectionFor(v.ID, v.Status.Fleet)
	return rejected
}

// Approvable reports whether the snapshot waits for approval.
func (v snapshotView) Approvable() bool {
	return v.Channel.Spec.RequireApproval && !slices.Contains(v.Channel.Spec.Approved, v.ID)
}

// Before is the parent, with which the page compares the snapshot.
func (v snapshotView) Before() snapshots.ID { return v.Manifest.Spec.Parent }

// Author is the author of the change.
func (v snapshotView) Author() string { return cmp.Or(v.Manifest.Provenance.Author, "not known") }

// moment is an entry of the history: a published snapshot, an act on the channel, or a turn of a rollout.
type moment struct {
	At   time.Time `json:"at,omitzero"`
	Kind string    `json:"kind"` // snapshot, act or turn
	What string    `json:"what"` // published, or the verb of the act or turn
	// Title is the short form, and Text has the details: what changed, or why.
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

// Dot is the class of the moment's dot on the time line.
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

// Mark shows without colours what the dot shows with them.
func (m moment) Mark() string {
	return map[string]string{"pub": "published", "ok": "good", "bad": "bad", "hand": "by hand"}[m.Dot()]
}

// titles are the titles of acts and entries about rollouts, with the snapshot in place of %s.
var titles = map[channel.Verb]string{
	channel.VerbPin: "%s pinned", channel.VerbUnpin: "unpinned", channel.VerbRollback: "rolled back to %s", channel.VerbOverride: "%s runs for a while",
	channel.VerbOverrideEnd: "override ended", channel.VerbPause: "paused", channel.VerbResume: "resumed", channel.VerbApprove: "%s approved",
	channel.VerbReject: "%s rejected", channel.VerbRetry: "%s to be tried again", channel.VerbPromote: "rollout of %s promoted", channel.VerbAbort: "rollout of %s aborted",
	channel.VerbConfirmEndpoints: "loss of endpoints confirmed", channel.VerbAcceptRewind: "rewind of the store accepted", channel.VerbEdit: "channel edited",
	channel.TurnBegan: "rollout of %s began", channel.TurnWave: "wave of %s", channel.TurnPaused: "rollout of %s paused", channel.TurnGoesOn: "rollout of %s goes on",
	channel.TurnFailed: "rollout of %s failed", channel.TurnUndone: "rollout of %s undone", channel.TurnDone: "the fleet runs %s",
	channel.TurnExpired: "override expired", channel.TurnGone: "%s replaced",
}

// momentOf returns an entry of the journal as a moment.
func momentOf(e channel.Entry) moment {
	m := moment{At: e.At.UTC(), Kind: kindAct, What: string(e.Verb), Snapshot: e.Snapshot, By: cmp.Or(e.By, e.Author), From: e.From, Fleet: e.Fleet, Text: e.Reason}
	if e.Turn {
		m.Kind, m.Text, m.By, m.From = kindTurn, e.Text, "", "" // a turn is by the pusher itself
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

// published returns a snapshot as a moment.
func published(id snapshots.ID, s snapshots.Manifest) moment {
	return moment{
		At: s.Provenance.Time.UTC(), Kind: kindSnapshot, What: "published", Title: short(id) + " published", Text: cmp.Or(s.Spec.Subject, s.Provenance.Trigger),
		Snapshot: id, Parent: s.Spec.Parent, By: s.Provenance.Author,
	}
}

// timeline is the history, the newest moment first.
type timeline struct {
	Moments []moment
	// Unread is how many snapshots could not be read, or not in time. They are not among the moments.
	Unread int
	// Whole is set if the oldest moments are included.
	Whole bool
}

// timelineOf returns the newest moments, at most this many. It reads only the manifests that it needs.
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
