package pusher

import (
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

// uptimeSlack is by how much the age of a worker may be off: it is told in whole seconds,
// and some time after it was asked for.
const uptimeSlack = 3 * time.Second

// hearing is what a worker said of itself when it was asked at a time.
type hearing struct {
	dataplane.RuntimeInfo
	asked time.Time
}

// started returns when the worker began, or later: HAProxy takes a time in which it could
// not run, such as on a machine that was paused, for a clock that was set, and leaves it
// out of its age (seen with 2.6).
func (h hearing) started() time.Time { return h.asked.Add(-h.Uptime) }

// ofAnother reports whether this was said by another worker than the last that was heard,
// which began at a time. In a container that was restarted that may have the same number,
// and has the same node. It is younger than it should be, then, and no older than what
// passed since the last one was heard.
func (h hearing) ofAnother(last hearing, began time.Time) bool {
	switch {
	case h.PID != last.PID, h.LoadedNode() != last.LoadedNode(), h.Uptime+uptimeSlack < last.Uptime:
		return true
	case !h.started().After(began.Add(uptimeSlack)):
		return false
	}
	return h.Uptime <= h.asked.Sub(last.asked)+uptimeSlack
}
