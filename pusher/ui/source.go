package ui

import (
	"context"
	"encoding/json"
	"time"

	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// Store is what the page needs of a snapshot store.
type Store interface {
	View(ctx context.Context) (channel.View, error)
	Manifest(ctx context.Context, id snapshots.ID) (snapshots.Manifest, error)
	Get(ctx context.Context, id snapshots.ID) (snapshots.Snapshot, error)
	Journal(ctx context.Context) ([]channel.Entry, error)
}

// Source says what the page is made of. Functions may be nil: then that is not known.
type Source struct {
	// Channel is the name of the channel, for the header.
	Channel string
	// Fleet returns what is known of the fleet now. It waits for nothing, and nobody changes what
	// it returned.
	Fleet func() Fleet
	// Follow calls changed after each change of that, until ctx is done.
	Follow func(ctx context.Context, changed func())
	// Store is where snapshots and acts are, nil for none.
	Store Store
	// Repository is the URL of a git store, from which links to commits are made, "" for none.
	Repository string
	// Servers asks instances for the servers of a backend. It may wait; nil where nobody can be asked.
	Servers func(ctx context.Context, backend string) []ServerState
	// Origins says which objects wrote the lines that answer a request. It may wait; nil where nobody knows.
	Origins func(ctx context.Context, q Question) ([]Wrote, error)
	// Lines says which objects wrote lines of files, each named as FILE:LINE, as they are compiled now, in the same
	// order. It may wait; nil where nobody knows.
	Lines func(ctx context.Context, places []string) ([]Wrote, error)
	// Compiled asks a compiler for its status, the JSON of its /status. It may wait.
	Compiled func(ctx context.Context) (json.RawMessage, error)
}

// Fleet is what is known of a fleet at a time.
type Fleet struct {
	Status report.Status
	// Live is nil where no running pusher was asked.
	Live *Live
	// Trouble says why nothing newer is known, "" if this is of now.
	Trouble string
	// At is when this was known.
	At time.Time
}
