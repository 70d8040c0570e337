package pusher

import (
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/push"
)

// hearing is what a worker said of itself when it was asked at a time.
type hearing struct {
	dataplane.RuntimeInfo
	asked time.Time
}

// started returns when the worker began, or later. See [push.Process.Started].
func (h hearing) started() time.Time { return h.worker().Started() }

func (h hearing) worker() push.Process { return push.ProcessOf(h.RuntimeInfo, h.asked) }

// ofAnother reports whether this was said by another worker than the last that was heard.
func (h hearing) ofAnother(last hearing) bool { return h.worker().OtherThan(last.worker()) }
