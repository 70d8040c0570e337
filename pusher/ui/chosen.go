package ui

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/request"
	"github.com/hapsnap/hapsnap/snapshots/routetable"
)

// chosen is the snapshot that a page is about, and why it is that one.
type chosen struct {
	ID      snapshots.ID `json:"snapshot"`
	Because string       `json:"because"`
	// Now says that it runs now, so that what is known of servers is about it.
	Now bool `json:"now"`
}

// choose returns the snapshot that a text means: that of a name such as r12, the newest, the one that ran at a
// time, or without a text the one that runs now.
func choose(ctx context.Context, q query, text string) (chosen, error) {
	l := q.archive.listing(ctx)
	if len(l.view.IDs) == 0 {
		if l.err != nil {
			return chosen{}, l.err
		}
		return chosen{}, notFound("The store holds no snapshot yet.", "The compiler publishes the first one.")
	}
	text = strings.TrimSpace(text)
	switch runs := q.runs(l); {
	case text == "" || text == "running":
		switch good := q.fleet.Status.Good; good {
		case snapshots.ID{}:
			return chosen{runs, "the newest; what the fleet runs is not known", true}, nil
		case runs:
			return chosen{runs, "which the fleet runs", true}, nil
		default:
			return chosen{runs, "the newest; the store does not hold " + short(good) + " any more, which the fleet runs", false}, nil
		}
	case text == snapshots.Newest || text == "newest":
		return chosen{l.view.Head(), "the newest", l.view.Head() == runs}, nil
	case snapshots.IsName(text):
		id, ok := snapshots.FindID(l.view.IDs, text)
		if !ok {
			return chosen{}, notFound("The store has no snapshot "+text+".", fmt.Sprintf("It has those from %s to %s.", short(l.view.IDs[0]), short(l.view.Head())))
		}
		return chosen{id, "as you asked", id == runs}, nil
	}
	return ranThen(ctx, q, l, text)
}

// chooseManifest returns the snapshot that the query names, with its manifest.
func chooseManifest(ctx context.Context, q query) (chosen, snapshots.Manifest, error) {
	of, err := choose(ctx, q, q.values.Get("snapshot"))
	if err != nil {
		return of, snapshots.Manifest{}, err
	}
	m, err := q.archive.manifest(ctx, of.ID)
	return of, m, err
}

// ranThen returns the snapshot that ran at a time: as the journal says, or else the newest of then.
func ranThen(ctx context.Context, q query, l listing, text string) (chosen, error) {
	at, err := process.ParseTime(text, q.now.UTC())
	if err != nil {
		return chosen{}, problem{http.StatusBadRequest, fmt.Sprintf("%q is neither a snapshot nor a time: %v.", text, err), "Write r12, or a time in UTC such as yesterday 14:03."}
	}
	running := channel.RunningAt(l.journal, at)
	fleet := q.fleet.Status.Fleet
	if _, known := running[fleet]; !known && len(running) == 1 {
		fleet = slices.Collect(maps.Keys(running))[0]
	}
	ran := running[fleet]
	switch {
	case ran.Snapshot.IsZero():
		return newestThen(ctx, q, l, at)
	case !slices.Contains(l.view.IDs, ran.Snapshot):
		return chosen{}, notFound(fmt.Sprintf("The fleet ran %s then, and the store does not hold it any more.", short(ran.Snapshot)), "Its oldest one is "+short(l.view.IDs[0])+".")
	}
	because := "which the fleet ran at " + at.Format(time.RFC3339)
	if !ran.Next.IsZero() {
		because += "; a rollout of " + short(ran.Next) + " was under way, so some instances ran that"
	}
	return chosen{ran.Snapshot, because, false}, nil
}

// newestThen returns the newest snapshot of a time. Snapshots are published one after the other.
func newestThen(ctx context.Context, q query, l listing, at time.Time) (chosen, error) {
	var failed error
	n := sort.Search(len(l.view.IDs), func(i int) bool {
		m, err := q.archive.manifest(ctx, l.view.IDs[i])
		failed = errors.Join(failed, err)
		return m.Provenance.Time.After(at)
	})
	switch {
	case failed != nil:
		return chosen{}, failed
	case n == 0:
		return chosen{}, notFound("The store holds no snapshot from before "+at.Format(time.RFC3339)+".", "Its oldest one is "+short(l.view.IDs[0])+".")
	}
	return chosen{l.view.IDs[n-1], "the newest that was published by " + at.Format(time.RFC3339) + "; the journal does not say what ran", false}, nil
}

// readSnapshot is a snapshot that was read for questions about its routes.
type readSnapshot struct {
	snapshots.Snapshot
	table    *routetable.Table
	requests *request.Reader
	recorded map[snapshots.ServicePort][]snapshots.Endpoint // that are a file of it, nil without one
}

// keptTables is how many are kept: one of 100,000 routes takes about 100 MB.
const keptTables = 2

// routes returns a snapshot with its routes. It is read once, and nobody changes it.
func (a *archive) routes(ctx context.Context, id snapshots.ID) (readSnapshot, error) {
	if read, ok := a.tables.get(id); ok {
		return read, nil
	}
	s, err := a.snapshot(ctx, id)
	if err != nil {
		return readSnapshot{}, err
	}
	if err := a.begin(ctx); err != nil { // one is read at a time, for whoever asks
		return readSnapshot{}, err
	}
	defer a.end()
	if read, ok := a.tables.get(id); ok {
		return read, nil
	}
	read, err := tableOf(s)
	if err != nil {
		return read, problem{http.StatusInternalServerError, fmt.Sprintf("Snapshot %s cannot be read by this version: %v.", short(id), err), "A pusher of the version that it was made for can."}
	}
	a.tables.put(id, read)
	return read, nil
}

// tableOf reads the routes of a snapshot. One that this version stumbles over is an error, whoever reads it.
func tableOf(s snapshots.Snapshot) (read readSnapshot, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("a fault of this program: %v", fault)
		}
	}()
	table, err := routetable.Of(s)
	if err != nil {
		return read, err
	}
	read = readSnapshot{Snapshot: s, table: table, requests: request.Read(s.Files)}
	if recorded, all, err := s.RecordedEndpoints(); err == nil && all {
		read.recorded = recorded
	}
	return read, nil
}

// routesKnown returns a snapshot with its routes if it is in memory. Else it begins to read it, for the next time.
func (a *archive) routesKnown(id snapshots.ID) (readSnapshot, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	read, ok := a.tables.get(id)
	if !ok && a.store != nil && !id.IsZero() && !a.tabling && time.Since(a.tabled) > listingAge {
		a.tabling = true
		a.jobs.Go(func() {
			ctx, cancel := context.WithTimeout(a.ctx, readTimeout)
			defer cancel()
			_, err := a.routes(ctx, id)
			a.mu.Lock()
			a.tabling, a.tabled = false, time.Now()
			a.mu.Unlock()
			if err == nil {
				a.changed()
			}
		})
	}
	return read, ok
}
