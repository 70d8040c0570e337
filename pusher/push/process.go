package push

import (
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
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
