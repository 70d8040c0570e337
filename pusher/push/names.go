package push

import (
	"context"
	"sync"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// Alias is what a worker runs since it was changed at run time, though it goes on
// naming what it was loaded with: a worker cannot be given another name. What it was
// changed to has been read back, and is what is on disk.
type Alias struct {
	PID     int       `json:"pid"`
	Started time.Time `json:"started"` // by the pusher's clock
	Loaded  string    `json:"loaded"`  // its node
	Runs    string    `json:"runs"`    // the node of what it runs
	// Maps are the files that it has loaded and knows its maps by.
	Maps []string `json:"maps,omitempty"`
}

// startSlack is by how much the start of a worker may be off: its age is told in whole
// seconds, and clocks of machines on which pushers run one after the other may differ. It
// need not be exact. A worker of the same number that loaded the same would have its maps
// brought to what this one had.
const startSlack = time.Minute

// of reports whether what a worker said of itself when it was asked is of this one. In
// a container that was restarted another may have the same number.
func (a Alias) of(info dataplane.RuntimeInfo, asked time.Time) bool {
	return a.Runs != "" && a.PID == info.PID && a.Loaded == info.Node && !asked.Add(-info.Uptime).After(a.Started.Add(startSlack))
}

// Names knows what the worker of one instance runs, where that is not what it names.
type Names struct {
	mu    sync.Mutex
	alias Alias
}

// Alias returns what is known, the zero value if the worker runs what it names.
func (n *Names) Alias() Alias {
	if n == nil {
		return Alias{}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.alias
}

// Set remembers what the worker runs.
func (n *Names) Set(a Alias) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.alias = a
}

// named returns what a worker said of itself, under the name of what it runs.
func (n *Names) named(info dataplane.RuntimeInfo, asked time.Time) dataplane.RuntimeInfo {
	if n == nil {
		return info
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.alias.of(info, asked) {
		info.Loaded, info.Node = info.Node, n.alias.Runs
	}
	return info
}

// RuntimeInfo asks the worker, and has Node say what it runs.
func (i Instance) RuntimeInfo(ctx context.Context) (dataplane.RuntimeInfo, error) {
	asked := time.Now()
	info, err := i.API.RuntimeInfo(ctx)
	if err != nil {
		return info, err
	}
	info = i.Names.named(info, asked)
	i.Record.heard(info, asked)
	return info, nil
}

// rename notes that the worker runs what was bound, where that is not what it loaded.
func (i Instance) rename(info dataplane.RuntimeInfo, want bind.Bound, maps []string) {
	loaded := info.LoadedNode()
	if bind.SameNode(loaded, want.Node) {
		i.Names.Set(Alias{})
		return
	}
	i.Names.Set(Alias{PID: info.PID, Started: time.Now().Add(-info.Uptime), Loaded: loaded, Runs: want.Node, Maps: maps})
}
