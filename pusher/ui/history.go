package ui

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// historyTab is the tab of what happened, with the page of each snapshot and what differs between two.
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

// historyList is a page of what happened.
type historyList struct {
	Total int `json:"total"`
	Pages int `json:"pages"`
	// Searched is how many snapshots were searched for an object or a host, the newest ones.
	Searched int      `json:"searched,omitempty"`
	Items    []moment `json:"items"`
}

// momentsPerPage is how many moments are shown at once, and mostSearched how many snapshots are searched for
// what they change.
const momentsPerPage, mostSearched, mostRead = 50, 100, 500

// historyView is what the page of the history shows.
type historyView struct {
	timeline
	Object, Host, Person, Kind string
	Page, Pages, Total         int
	Searched                   int // snapshots, the newest ones, 0 where none had to be
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

// text is a value of the query without spaces around it.
func (q query) text(name string) string { return strings.TrimSpace(q.values.Get(name)) }

// page is the number of the page that a query asks for, from 1.
func (q query) page() int {
	n, err := strconv.Atoi(q.values.Get("page"))
	if err != nil {
		return 1
	}
	return max(n, 1)
}

// runs returns the snapshot that the fleet runs, as far as that is known.
func (q query) runs(l listing) snapshots.ID {
	if good := q.fleet.Status.Good; slices.Contains(l.view.IDs, good) {
		return good
	}
	return l.view.Head()
}

// commit returns where a browser finds the commit of a snapshot, "" where that is not known.
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

// filter leaves what is asked for. What a snapshot changes is searched for objects and hosts in the
// newest ones; acts and turns follow the snapshots that they are about.
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
	// Commit is where a browser finds its commit.
	Commit string          `json:"commit,omitempty"`
	Life   []channel.Entry `json:"life"`
}

// snapshot returns the snapshot that a name means.
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
	m, err := q.archive.manifest(ctx, id)
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

// gone says that a snapshot cannot be had.
func gone(id snapshots.ID, err error) error {
	return notFound(id.String()+" cannot be read: "+report.FirstLine(err.Error(), report.LongestMessage), "A snapshot may have been removed since the page was made, or the store is damaged: hapsnap verify says more.")
}

// Pinned, Rejected and Approvable say what people said of the snapshot, for the commands that make sense.
func (v snapshotView) Pinned() bool {
	return v.Channel.Spec.Pin != nil && v.Channel.Spec.Pin.Snapshot == v.ID
}

// Rejected reports whether its content is rejected.
func (v snapshotView) Rejected() bool {
	_, rejected := v.Channel.RejectionFor(v.ID, v.Status.Fleet)
	return rejected
}

// Approvable reports whether it waits for approval.
func (v snapshotView) Approvable() bool {
	return v.Channel.Spec.RequireApproval && !slices.Contains(v.Channel.Spec.Approved, v.ID)
}

// Before is the snapshot that it is compared with.
func (v snapshotView) Before() snapshots.ID { return v.Manifest.Spec.Parent }

// Author is who made the change, as far as that is known.
func (v snapshotView) Author() string { return cmp.Or(v.Manifest.Provenance.Author, "not known") }
