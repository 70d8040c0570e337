package push

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// uptimeSlack is by how much the age of a worker may be off: it is told in whole seconds,
// and some time after it was asked for.
const uptimeSlack = 3 * time.Second

// Process is what the worker of an instance said of itself when it was asked at a time.
type Process struct {
	PID    int           `json:"pid"`
	Loaded string        `json:"loaded"` // the node of what it loaded
	Uptime time.Duration `json:"uptime"`
	Asked  time.Time     `json:"asked"`
}

// ProcessOf returns what was said at a time.
func ProcessOf(info dataplane.RuntimeInfo, asked time.Time) Process {
	return Process{PID: info.PID, Loaded: info.LoadedNode(), Uptime: info.Uptime, Asked: asked}
}

// Started returns when the worker began, or later: HAProxy takes a time in which it could
// not run, such as on a machine that was paused, for a clock that was set, and leaves it
// out of its age (seen with 2.6).
func (w Process) Started() time.Time { return w.Asked.Add(-w.Uptime) }

// OtherThan reports whether this was said by another worker than the last that was heard.
// In a container that was restarted that may have the same number, and has the same node.
// It is younger, then, than the last would be by now, and no older than what passed since.
// A machine that is short of time loses a little of its age from look to look, which may add up.
func (w Process) OtherThan(last Process) bool {
	passed := w.Asked.Sub(last.Asked)
	switch {
	case w.PID != last.PID, w.Loaded != last.Loaded, w.Uptime+uptimeSlack < last.Uptime:
		return true
	case w.Uptime+uptimeSlack >= last.Uptime+passed:
		return false
	}
	return w.Uptime <= passed+time.Second // it is told in whole ones
}

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

// ErrDescriptors is the error of an instance whose HAProxy may not open as many files as a
// worker of the snapshot would need. Such a worker does not start, and neither does HAProxy
// when it is restarted. The instance is at fault, not what the snapshot says.
var ErrDescriptors = errors.New("too few file descriptors")

// checkDescriptors compares what a worker needs at least with what it may have, as far as
// that is known. It is told before anything is written.
func checkDescriptors(want, runs bind.Descriptors, p dataplane.Process) error {
	least := want.Least()
	if limit := want.HardLimit; limit > 0 && least > limit {
		return fmt.Errorf("%w: a worker needs at least %d (%s), and fd-hard-limit is %d; raise it, or have fewer spare slots or checks",
			ErrDescriptors, least, want, limit)
	}
	if limit, known := processLimit(runs, p); known && least > limit {
		return fmt.Errorf("%w: a worker needs at least %d (%s), and HAProxy may open %d; raise its limit of open files (LimitNOFILE= of systemd, --ulimit nofile of a container)",
			ErrDescriptors, least, want, limit)
	}
	return nil
}

// processLimit returns how many files the running worker may open. It tells how many it may
// come to use. Where its configuration leaves maxconn to HAProxy, that is as many as it may
// open, or fd-hard-limit; else it is what it needs, and nobody tells what it may.
func processLimit(runs bind.Descriptors, p dataplane.Process) (limit int, known bool) {
	limit = p.Sockets + 1 // HAProxy rounds down to pairs
	return limit, p.Sockets > 0 && runs.MaxConn == 0 && (runs.HardLimit == 0 || limit < runs.HardLimit)
}

// fits checks that the instance may run what is wanted, by what is told of the worker and
// of the configuration that it runs. Where the API cannot tell, HAProxy will.
func (p *attempt) fits(ctx context.Context, s sight) error {
	var process dataplane.Process
	var runs bind.Descriptors
	if s.disk.node == s.info.LoadedNode() { // else the text on disk is not the worker's
		var err error
		if process, err = p.API.Process(ctx); err != nil {
			process = dataplane.Process{}
		}
		runs = bind.CountDescriptors(s.raw.Config)
	}
	return checkDescriptors(bind.CountDescriptors(p.want.Config), runs, process)
}
