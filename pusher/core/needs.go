package core

import (
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// workFor returns the work that an instance needs. It uses now for kinds of work that have to wait.
func (w *world) workFor(i *instanceState, now time.Time) work { return classify(w.needsOf(i), now) }

func (w *world) needsOf(i *instanceState) instanceNeeds {
	n, ok := w.bindings.Node(i.snapshot(), i.Layout)
	s := instanceNeeds{
		Busy: i.busy != "" || w.unclaimed(i), Writing: i.writing, Waits: i.waits, Reachable: i.reachable() && !i.ledByOther(), Bound: ok && n.Err == nil,
		SameNode: n.Name != "" && n.Name == i.info.Node || bind.SameNode(n.Name, i.info.Node), NotBefore: i.jobNotBefore,
		// While somebody else keeps changing the instance's files, repairs have stopped. Writing
		// servers to disk would be a repair.
		Persisted: i.running.Persisted || i.conflictOnDisk(), PersistAfter: i.persisted.Add(betweenWrites(i.persistTook, w.PersistInterval)),
		DiskFailed: i.diskFailed(), Garbage: len(i.garbage) > 0, CollectAfter: i.collectAfter, Overdue: w.overdue(i), InspectAfter: i.inspectAfter,
	}
	if s.Bound && s.SameNode {
		p, _ := w.bindings.Of(i.snapshot())
		servers := p.Servers
		s.SameServers = i.hasServers(servers)
		s.Persisted = s.Persisted && (i.wrote(servers) || i.conflictOnDisk())
		s.Waits = s.Waits && i.attempted.equal(wantsOf(servers, n.Entries, n.Certificates)) // newer changes may take calls only
		s.Unserved = i.leavesUnserved(servers)
		s.UrgentAfter = i.persisted.Add(i.persistTook)
		s.Deferred, s.DeferredUntil = i.running.Deferred, i.persisted.Add(deferral(i.persistTook, w.PersistInterval))
		s.Leftover, s.TidyAfter = len(i.running.Dynamic) > 0 && len(i.running.Leftovers()) > 0, i.tidied.Add(tidyInterval)
		s.Updated = i.lastWork == workUpdate
		s.SameMaps = i.running.Maps == n.Entries
		s.SameCertificates = i.hasCertificates(n.Certificates)
		if s.differs() {
			rest := i.running.Unfinished && !s.SameServers
			s.Stuck = i.stuck != nil && !rest && i.stuck.equal(wantsOf(servers, n.Entries, n.Certificates))
			if s.Untried = !s.Stuck; s.Untried && i.stuck != nil && i.lastWork == workUpdate {
				s.NotBefore = time.Time{} // nothing has failed but other changes
			}
		}
	}
	return s
}

// overdue reports whether files have waited so long to be removed from an instance that other work
// has to wait for that. An undo never waits.
func (w *world) overdue(i *instanceState) bool {
	r := w.state.Rollout.Rollout
	return len(i.garbage) > 0 && i.reviewed.at.Sub(i.garbageSince) >= collectPatience && (r == nil || r.Phase != rollout.Undoing)
}

// collectsFirst reports whether the next push to an instance waits until files were removed from it.
func (w *world) collectsFirst(i *instanceState, now time.Time) bool {
	return w.overdue(i) && i.doing() == "" && w.workFor(i, now) == workCollect
}

// unclaimed reports whether nothing may begin on an instance before it is claimed. If its claim
// failed, work may begin: it checks who leads the instance before it writes.
func (w *world) unclaimed(i *instanceState) bool {
	return w.term.fenced && i.reachable() && !i.claimFailed && !w.claimedAndJudged(i)
}

// claimedAndJudged reports whether this pusher leads an instance in this term, and it is known what
// the worker was started from.
func (w *world) claimedAndJudged(i *instanceState) bool {
	return i.claimed == claim{true, w.term.number} && i.known.Record.Judged(i.info, i.infoAsked)
}

// lacks returns what the wanted snapshot has to wait for: what it needs, and the pusher cannot
// have.
func (w *world) lacks() []string {
	wanted, atHand := w.bindings.Of(w.decision.ID)
	if !atHand {
		return nil
	}
	good, _ := w.bindings.Of(w.state.Rollout.Good)
	out := lacking(wanted, good, w.decision.Because)
	if wanted.Known && w.decision.Because == channel.BecauseNewest {
		out = append(out, w.live.NewlyUnread(wanted, good)...)
	}
	return out
}

// Before the first wave, the pusher finds out what a snapshot needs that it cannot have. These are
// the rules:
//
//   - A snapshot with live endpoints, or with something of Secrets, cannot be bound without a source
//     of live data. It waits, even if a person named it, and the instances keep what they run.
//   - If the pusher may not read EndpointSlices or a Secret, it does not know whether they exist. A
//     snapshot that needs them waits if the last good one does not need them. It goes on by itself
//     once the pusher has the permission.
//   - A snapshot does not wait for what the last good one lacks as well: one missing role must not
//     hold up everybody else's changes. Its endpoints stay as they were. But a Service that only the
//     newer snapshot has, in a namespace that may not be read, would get no servers, so the snapshot
//     waits.
//   - A snapshot that a person named, by a pin or an override, does not wait for permissions: a
//     rollback in an incident must not depend on the role of one tenant.
//   - A missing Secret (404) does not count: its owner may add it later.
//   - The fleet is not Healthy while a snapshot in use lacks anything, whatever was decided.

// lacking is lacks for a wanted snapshot and the last good one. because is the reason why it is
// wanted.
func lacking(wanted, good binding.Prepared, because channel.Reason) []string {
	switch {
	case !wanted.Known:
		return wanted.Lacks // without a source it cannot be bound
	case because != channel.BecauseNewest:
		return nil
	}
	// Leave out what the last good one lacks as well.
	return slices.DeleteFunc(slices.Clone(wanted.Lacks), func(lack string) bool { return slices.Contains(good.Lacks, lack) })
}

// mostLacks is how many of the things that a snapshot lacks a message lists.
const mostLacks = 3

// work is a kind of work on an instance. It names what the instance needs, or the job under way.
type work string

// The kinds of work. classify returns all but the last three. A reload is begun by the rollout.
const (
	workNothing work = "nothing"
	workReload  work = "reload"
	workUpdate  work = "update"
	workPersist work = "persist"
	workCollect work = "collect"
	workInspect work = "inspect"
	workTidy    work = "tidy"
	// workPush is a push of the rollout.
	workPush work = "push"
	// workClaim reads who leads an instance and what its worker was started from, and writes to its
	// disk that this pusher leads it.
	workClaim work = "claim"
	// workMend repairs faults that an inspection found on disk.
	workMend work = "mend"
)

// instanceNeeds compares what an instance has with what it needs: the snapshot that it runs, bound
// to current live data.
type instanceNeeds struct {
	Busy, Reachable bool
	// Writing is set while the file is written and the worker may be changed by calls. Waits is set if calls are not enough.
	Writing, Waits bool
	// Untried is set if the worker lacks something that no update has failed to give it, or the rest of what the last one
	// gave it in part. That does not wait, whatever else failed: a worker takes it although its disk is full.
	Untried bool
	// Bound is set if the snapshot that it runs was read and could be bound.
	Bound bool
	// SameNode is set if the worker runs what was bound. SameServers, SameMaps and SameCertificates
	// are set if the worker is known to have those that were bound.
	SameNode, SameServers, SameMaps, SameCertificates bool
	// Persisted is set if the file on disk has the servers too.
	Persisted    bool
	PersistAfter time.Time
	// Unserved is set if a HAProxy that starts from the file on disk would serve nothing in some
	// backend that has endpoints, see [push.Unserved]. UrgentAfter limits how often the file is
	// written for that.
	Unserved    bool
	UrgentAfter time.Time
	// Deferred is set while dynamic servers stand in for addresses that slots get with the next post,
	// which is due at DeferredUntil. Leftover is set while there are dynamic servers that nothing
	// needs any more.
	Deferred      bool
	DeferredUntil time.Time
	Leftover      bool
	TidyAfter     time.Time
	// Updated is set if the last job was an update. Stuck is set if an update for the same data failed: other
	// work comes before the next one.
	Updated   bool
	Stuck     bool
	NotBefore time.Time
	// Garbage is set if there are files to remove, and Overdue if they waited so long that removing
	// them comes before other work without a reload.
	Garbage, Overdue bool
	CollectAfter     time.Time
	// DiskFailed is set if the last try to write the file failed.
	DiskFailed   bool
	InspectAfter time.Time
}

// classify decides which work an instance needs: a reload, a change at run time, a change on disk
// only, or nothing.
func classify(s instanceNeeds, now time.Time) work {
	switch {
	case !s.Reachable || !s.Bound:
		return workNothing
	case !s.SameNode:
		return workReload
	case s.Busy || now.Before(s.NotBefore) && !s.Untried:
		return workNothing
	case s.Writing:
		if s.SameServers || s.Waits || s.Stuck || !s.SameMaps || !s.SameCertificates {
			return workNothing
		}
		return workUpdate
	case now.Before(s.NotBefore):
		return workUpdate
	case s.DiskFailed && s.Overdue && !now.Before(s.CollectAfter):
		return workCollect // perhaps there is no room for the file
	case s.Unserved && s.urgent() && !now.Before(s.UrgentAfter), s.Deferred && s.urgent() && !now.Before(s.DeferredUntil):
		return workPersist
	case s.Overdue && !now.Before(s.CollectAfter):
		return workCollect
	case s.differs() && !s.Stuck:
		return workUpdate
	case !s.Persisted && !now.Before(s.PersistAfter):
		return workPersist
	case s.Leftover && !now.Before(s.TidyAfter):
		return workTidy
	case s.Persisted && s.Garbage && !now.Before(s.CollectAfter):
		return workCollect
	case s.Persisted && !now.Before(s.InspectAfter):
		return workInspect
	case s.differs():
		return workUpdate
	default:
		return workNothing
	}
}

// differs reports whether the worker lacks live data.
func (s instanceNeeds) differs() bool { return !s.SameServers || !s.SameMaps || !s.SameCertificates }

// urgent reports whether the pusher writes the file before it changes the worker. Writing the file
// gives the worker its servers too, but takes long for a large configuration. So the pusher changes
// the worker first, but only once. After that it writes the file even if the servers keep changing.
func (s instanceNeeds) urgent() bool { return s.SameServers || s.Updated }

// inSync reports whether the worker needs no change, and the file on disk is not due for one. It
// does not matter whether the instance is busy. If the file may be written later, the instance is
// in sync nevertheless, unless some backend would serve nothing from the file.
func inSync(s instanceNeeds) bool {
	if s.Unserved {
		return false
	}
	s.Busy, s.Writing, s.NotBefore, s.Garbage, s.Overdue = false, false, time.Time{}, false, false
	return classify(s, time.Time{}) == workNothing
}

// arrived reports whether the worker has all live data. It returns false while a job writes the
// file, since that job may not have changed the worker yet. An instance that is unreachable, or
// whose snapshot cannot be bound, counts as having the data.
func arrived(s instanceNeeds) bool {
	return !s.Reachable || !s.Bound || s.SameNode && s.SameServers && s.SameMaps && s.SameCertificates
}

// pending returns a text for people: what is missing for the instance to be in sync.
func (s instanceNeeds) pending(w work) string {
	switch w {
	case workReload:
		return "a reload is to come: its servers have outgrown their slots, or other lines changed"
	case workUpdate:
		var what []string
		for _, part := range []struct {
			same bool
			name string
		}{{s.SameServers, "servers"}, {s.SameMaps, "entries of maps"}, {s.SameCertificates, "certificates"}} {
			if !part.same {
				what = append(what, part.name)
			}
		}
		return strings.Join(what, ", ") + " are being brought up to date"
	case workPersist:
		return "its servers are to be written to its disk"
	case workCollect:
		return "files that nothing needs are to be removed"
	case workInspect:
		return "its files and servers are to be compared with what was left there"
	case workNothing:
	}
	if !s.Bound {
		return "the snapshot that it runs was not read yet"
	}
	return ""
}

// tidyInterval is the wait before another try to delete dynamic servers that had connections.
const tidyInterval = 5 * time.Second

// betweenWrites returns the least time between two writes of servers to disk. Before the API stores the file, it has
// HAProxy check it, which takes seconds for a large configuration. An endpoint that changes meanwhile waits for that, since an
// instance has one job at a time. So writes take at most a tenth of the time, and the disk may be further behind.
func betweenWrites(took, persistInterval time.Duration) time.Duration {
	const most = 2 * time.Minute
	return max(min(9*took, most), persistInterval)
}

// deferral returns the least time between two posts that give slots the addresses which dynamic
// servers serve meanwhile. So these posts take at most a fifth of the time, and an endpoint is
// without health checks no longer than the file on disk may be behind.
func deferral(took, persistInterval time.Duration) time.Duration {
	const least = 500 * time.Millisecond
	return min(max(least, 4*took), persistInterval)
}

// claim says whether the disk of an instance names this pusher as the leader, and in which term.
type claim struct {
	made bool
	term int64
}
