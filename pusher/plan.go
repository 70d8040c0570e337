package pusher

import (
	"time"
)

// work is what an instance needs apart from the rollout.
type work string

// The kinds of work. A reload is for the rollout to begin.
const (
	workNothing work = "nothing"
	workReload  work = "reload"
	workUpdate  work = "update"
	workPersist work = "persist"
	workCollect work = "collect"
	workInspect work = "inspect"
	workTidy    work = "tidy"
)

// instanceNeeds is what an instance has and lacks of the snapshot that it runs, joined with
// today's live data.
type instanceNeeds struct {
	Busy, Reachable bool
	// Bound is set when the snapshot that it runs is at hand and could be bound.
	Bound bool
	// SameNode is set when the worker runs what was bound, SameServers, SameMaps and
	// SameCertificates when it is known to have them.
	SameNode, SameServers, SameMaps, SameCertificates bool
	// Persisted is set when the file on disk has the servers too.
	Persisted    bool
	PersistAfter time.Time
	// Unserved is set when a HAProxy that starts from the file on disk would serve nothing
	// in some backend that has endpoints, see [push.Unserved]. UrgentAfter paces what is
	// done about it.
	Unserved    bool
	UrgentAfter time.Time
	// Deferred is set while dynamic servers make up for addresses that slots get with the
	// next post, which is due at DeferredUntil. Leftover is set while there are dynamic
	// servers that nothing needs any more.
	Deferred      bool
	DeferredUntil time.Time
	Leftover      bool
	TidyAfter     time.Time
	// Updated is set when the last job was an update.
	Updated   bool
	NotBefore time.Time
	// Garbage is set when there are files to be removed, and Overdue when they waited so
	// long that this comes before all that is done without a reload.
	Garbage, Overdue bool
	CollectAfter     time.Time
	InspectAfter     time.Time
}

// classify decides what an instance needs: what must change by a reload, by a
// change at run time, on disk only, or not at all.
func classify(s instanceNeeds, now time.Time) work {
	switch {
	case !s.Reachable || !s.Bound:
		return workNothing
	case !s.SameNode:
		return workReload
	case s.Busy || now.Before(s.NotBefore):
		return workNothing
	case s.Unserved && s.urgent() && !now.Before(s.UrgentAfter), s.Deferred && s.urgent() && !now.Before(s.DeferredUntil):
		return workPersist
	case s.Overdue && !now.Before(s.CollectAfter):
		return workCollect
	case !s.SameServers || !s.SameMaps || !s.SameCertificates:
		return workUpdate
	case !s.Persisted && !now.Before(s.PersistAfter):
		return workPersist
	case s.Leftover && !now.Before(s.TidyAfter):
		return workTidy
	case s.Persisted && s.Garbage && !now.Before(s.CollectAfter):
		return workCollect
	case s.Persisted && !now.Before(s.InspectAfter):
		return workInspect
	default:
		return workNothing
	}
}

// urgent reports whether the file comes before the worker. Writing it gives the worker its
// servers too, but takes as long as the configuration is large, so the worker is changed
// first, once: updates that never end do not keep the file from being written.
func (s instanceNeeds) urgent() bool { return s.SameServers || s.Updated }

// inSync reports whether nothing is to be changed in the worker, or on disk by now,
// whatever the instance is busy with. A file that may wait for a while does not count; one
// from which a backend would serve nothing does.
func inSync(s instanceNeeds) bool {
	if s.Unserved {
		return false
	}
	s.Busy, s.NotBefore, s.Garbage, s.Overdue = false, time.Time{}, false, false
	return classify(s, time.Time{}) == workNothing
}

// tidyInterval is how long dynamic servers that still had connections are left alone.
const tidyInterval = 5 * time.Second

// deferral returns how long after a post the next one waits that gives slots the addresses
// which dynamic servers serve meanwhile: posts of this kind take a fifth of the time, and
// an endpoint is without health checks for no longer than the file on disk may be behind.
func deferral(took, persistInterval time.Duration) time.Duration {
	const least = 500 * time.Millisecond
	return min(max(least, 4*took), persistInterval)
}
