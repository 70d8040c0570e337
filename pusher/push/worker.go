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

// uptimeSlack is by how much the reported age of a worker may be off: it is in whole
// seconds, and a little older than the answer.
const uptimeSlack = 3 * time.Second

// Process is what the worker of an instance reported about itself at a time.
type Process struct {
	PID    int           `json:"pid"`
	Loaded string        `json:"loaded"` // the node of what it loaded
	Uptime time.Duration `json:"uptime"`
	Asked  time.Time     `json:"asked"`
}

// ProcessOf returns the report of a time.
func ProcessOf(info dataplane.RuntimeInfo, asked time.Time) Process {
	return Process{PID: info.PID, Loaded: info.LoadedNode(), Uptime: info.Uptime, Asked: asked}
}

// Started returns when the worker began, or a later time. If HAProxy could not run for a
// while, such as on a paused machine, it assumes that the clock was set, and leaves that
// time out of its age (seen with 2.6).
func (w Process) Started() time.Time { return w.Asked.Add(-w.Uptime) }

// OtherThan reports whether another worker than the last one gave this report. After a
// container was restarted the new worker may have the same PID and the same node. It is
// then younger than the last one would be by now, and no older than the time since the last
// report. A machine under load loses a little of a worker's age from look to look, which
// may add up.
func (w Process) OtherThan(last Process) bool {
	passed := w.Asked.Sub(last.Asked)
	switch {
	case w.PID != last.PID, w.Loaded != last.Loaded, w.Uptime+uptimeSlack < last.Uptime:
		return true
	case w.Uptime+uptimeSlack >= last.Uptime+passed:
		return false
	}
	return w.Uptime <= passed+time.Second // it is reported in whole seconds
}

// Override says what a worker runs since it was changed at run time. Such a worker still
// names the snapshot that it was loaded with, since HAProxy cannot change that name in a
// worker. What it was changed to has been read back, and is the same on disk.
type Override struct {
	PID     int       `json:"pid"`
	Started time.Time `json:"started"` // by the pusher's clock
	Loaded  string    `json:"loaded"`  // its node
	Runs    string    `json:"runs"`    // the node of what it runs
	// Maps are the files that it has loaded and knows its maps by.
	Maps []string `json:"maps,omitempty"`
}

// startSlack is by how much the start of a worker may be off: its age is in whole seconds,
// and the clocks of machines on which pushers run one after the other may differ. It need
// not be exact. At worst a worker with the same PID that loaded the same snapshot has its
// maps brought to what the other one had.
const startSlack = time.Minute

// of reports whether the override belongs to the worker that gave this answer when it was
// asked. After a container was restarted another worker may have the same PID.
func (o Override) of(info dataplane.RuntimeInfo, asked time.Time) bool {
	return o.Runs != "" && o.PID == info.PID && o.Loaded == info.Node && !asked.Add(-info.Uptime).After(o.Started.Add(startSlack))
}

// RunningOverride holds the [Override] of the worker of one instance. It is safe for
// concurrent use.
type RunningOverride struct {
	mu    sync.Mutex
	value Override
}

// Get returns the override; it is zero if the worker runs what it names.
func (r *RunningOverride) Get() Override {
	if r == nil {
		return Override{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value
}

// Set replaces the override.
func (r *RunningOverride) Set(o Override) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.value = o
}

// applied returns what a worker said of itself, with the override in place of the node that
// it names.
func (r *RunningOverride) applied(info dataplane.RuntimeInfo, asked time.Time) dataplane.RuntimeInfo {
	if r == nil {
		return info
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.value.of(info, asked) {
		info.Loaded, info.Node = info.Node, r.value.Runs
	}
	return info
}

// RuntimeInfo asks the worker, and sets Node to what it runs.
func (i Instance) RuntimeInfo(ctx context.Context) (dataplane.RuntimeInfo, error) {
	asked := time.Now()
	info, err := i.API.RuntimeInfo(ctx)
	if err != nil {
		return info, err
	}
	info = i.Override.applied(info, asked)
	i.Record.heard(info, asked)
	return info, nil
}

// setOverride notes that the worker runs what was bound. It clears the override if that is
// what the worker loaded.
func (i Instance) setOverride(info dataplane.RuntimeInfo, want bind.Bound, maps []string) {
	loaded := info.LoadedNode()
	if bind.SameNode(loaded, want.Node) {
		i.Override.Set(Override{})
		return
	}
	i.Override.Set(Override{PID: info.PID, Started: time.Now().Add(-info.Uptime), Loaded: loaded, Runs: want.Node, Maps: maps})
}

// ErrDescriptors is the error of an instance whose HAProxy may not open as many files as a
// worker of the snapshot would need. Such a worker does not start, and neither does HAProxy
// when it is restarted. The instance is at fault, not the snapshot.
var ErrDescriptors = errors.New("too few file descriptors")

// checkDescriptors compares the files that a worker needs at least with those that it may
// open, as far as that is known. It runs before anything is written.
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

// processLimit returns how many files the running worker may open. HAProxy reports how many
// it may come to use. If its configuration leaves maxconn to HAProxy, that is as many as it
// may open, or fd-hard-limit. Otherwise it is what it needs, and its limit is not known.
func processLimit(runs bind.Descriptors, p dataplane.Process) (limit int, known bool) {
	limit = p.Sockets + 1 // HAProxy rounds down to pairs
	return limit, p.Sockets > 0 && runs.MaxConn == 0 && (runs.HardLimit == 0 || limit < runs.HardLimit)
}

// fits checks that the instance may run what is wanted, from what is known of the worker
// and of the configuration that it runs. If the API does not report that, HAProxy will
// decide.
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
