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

// ofAnother reports whether this was said by another worker than the last that was heard.
// In a container that was restarted that may have the same number, and has the same node.
// It is younger, then, than the last would be by now, and no older than what passed since.
// One that is short of time loses a little of its age from look to look, which may add up.
func (h hearing) ofAnother(last hearing) bool {
	passed := h.asked.Sub(last.asked)
	switch {
	case h.PID != last.PID, h.LoadedNode() != last.LoadedNode(), h.Uptime+uptimeSlack < last.Uptime:
		return true
	case h.Uptime+uptimeSlack >= last.Uptime+passed:
		return false
	}
	return h.Uptime <= passed+time.Second // it is told in whole ones
}
