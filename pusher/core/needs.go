package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// workFor classifies what an instance needs; now is only looked at for the kinds
// of work that have to wait.
func (w *world) workFor(i *instanceState, now time.Time) work { return classify(w.needsOf(i), now) }

func (w *world) needsOf(i *instanceState) instanceNeeds {
	n, ok := w.bindings.Node(i.snapshot(), i.Layout)
	s := instanceNeeds{
		Busy: i.busy != "" || w.unclaimed(i), Reachable: i.reachable() && !i.ledByOther(), Bound: ok && n.Err == nil,
		SameNode: n.Name != "" && n.Name == i.info.Node || bind.SameNode(n.Name, i.info.Node), NotBefore: i.jobNotBefore,
		// While somebody else keeps changing its files, writing them is a repair as well.
		Persisted: i.running.Persisted || i.conflict != nil && slices.ContainsFunc(i.conflict.Faults, push.Fault.OnDisk), PersistAfter: i.persisted.Add(w.PersistInterval),
		Garbage: len(i.garbage) > 0, CollectAfter: i.collectAfter, Overdue: w.overdue(i), InspectAfter: i.inspectAfter,
	}
	if s.Bound && s.SameNode {
		p, _ := w.bindings.Of(i.snapshot())
		servers := p.Servers
		s.SameServers = i.hasServers(servers)
		s.Unserved = i.leavesUnserved(servers)
		s.UrgentAfter = i.persisted.Add(i.persistTook)
		s.Deferred, s.DeferredUntil = i.running.Deferred, i.persisted.Add(deferral(i.persistTook, w.PersistInterval))
		s.Leftover, s.TidyAfter = len(i.running.Dynamic) > 0 && len(i.running.Leftovers()) > 0, i.tidied.Add(tidyInterval)
		s.Updated = i.lastWork == workUpdate
		s.SameMaps = i.running.Maps == n.Entries
		s.SameCertificates = i.hasCertificates(n.Certificates)
	}
	return s
}

// overdue reports whether the files to be removed from an instance have waited for long
// enough. An undo waits for nothing.
func (w *world) overdue(i *instanceState) bool {
	r := w.state.Rollout.Rollout
	return len(i.garbage) > 0 && i.reviewed.at.Sub(i.garbageSince) >= collectPatience && (r == nil || r.Phase != rollout.Undoing)
}

// collectsFirst reports whether an instance gets no push now, so that files can be
// removed from it.
func (w *world) collectsFirst(i *instanceState, now time.Time) bool {
	return w.overdue(i) && i.busy == "" && w.workFor(i, now) == workCollect
}

// unclaimed reports whether nothing may begin on an instance before it was looked at. An
// instance that could not be looked at is left to the work itself, which looks first.
func (w *world) unclaimed(i *instanceState) bool {
	return w.term.fenced && i.reachable() && !i.claimFailed && !w.claimedAndJudged(i)
}

// claimedAndJudged reports whether nothing is to be found out of an instance: this pusher
// leads it, and it is known what the worker was started from.
func (w *world) claimedAndJudged(i *instanceState) bool {
	return i.claimed == claim{true, w.term.number} && i.known.Record.Judged(i.info, i.infoAsked)
}

// lacks reports whether the wanted snapshot has to wait for what the pusher cannot have,
// and what that is.
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

// What a snapshot needs and the pusher cannot have is known before the first wave.
// These are the rules:
//
//   - A snapshot with live endpoints, or with something of Secrets, and no source of live
//     data, cannot be bound. It waits, whoever wants it, and what runs is left as it is.
//   - A list of EndpointSlices, or a Secret, that may not be read is no sign that there
//     is nothing. A snapshot that needs it waits, if the last good one can do without it.
//     Once the permission is there, it goes on by itself.
//   - What the last good snapshot lacks as well is no reason to wait: one missing role
//     must not hold up changes of everybody else. Its endpoints stay as they were. But a
//     Service that only the newer snapshot has, in a namespace that may not be read, would
//     get no servers, and the snapshot waits.
//   - A snapshot that a person named, by a pin or an override, does not wait for
//     permissions: a rollback in an incident must not depend on the role of one tenant.
//   - A Secret that is not there (404) is allowed, as ever: its owner may add it later.
//   - The fleet is not Healthy while a snapshot in use lacks anything, whatever was
//     decided.

// lacking is lacks of a snapshot that is wanted for a reason, after a good one.
func lacking(wanted, good binding.Prepared, because channel.Reason) []string {
	switch {
	case !wanted.Known:
		return wanted.Lacks // it cannot be bound
	case because != channel.BecauseNewest:
		return nil
	}
	// What the last good one lacks as well does not count.
	return slices.DeleteFunc(slices.Clone(wanted.Lacks), func(lack string) bool { return slices.Contains(good.Lacks, lack) })
}

// some joins the first of several texts.
func some(list []string) string {
	const most = 3
	if more := len(list) - most; more > 0 {
		return fmt.Sprintf("%s, and %d more", strings.Join(list[:most], ", "), more)
	}
	return strings.Join(list, ", ")
}

// work is a kind of work on an instance: what it needs, or the job that is under way.
type work string

// The kinds of work. classify returns all but the last three, and reload is for the rollout to begin.
const (
	workNothing work = "nothing"
	workReload  work = "reload"
	workUpdate  work = "update"
	workPersist work = "persist"
	workCollect work = "collect"
	workInspect work = "inspect"
	workTidy    work = "tidy"
	// workPush is a push, which the rollout begins.
	workPush work = "push"
	// workClaim looks who leads an instance and what its worker was started from, and writes
	// to its disk that this pusher leads it.
	workClaim work = "claim"
	// workMend is the repair of what an inspection found on disk.
	workMend work = "mend"
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

// arrived reports whether the worker has all that is live, whatever the instance is busy
// with: one that writes its file meanwhile may not have begun to change the worker. One
// that is out of reach, or whose snapshot cannot be bound, is not waited for.
func arrived(s instanceNeeds) bool {
	return !s.Reachable || !s.Bound || s.SameNode && s.SameServers && s.SameMaps && s.SameCertificates
}

// pending says what it takes to be in sync.
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

// tidyInterval is how long dynamic servers that still had connections are left alone.
const tidyInterval = 5 * time.Second

// deferral returns how long after a post the next one waits that gives slots the addresses
// which dynamic servers serve meanwhile: posts of this kind take a fifth of the time, and
// an endpoint is without health checks for no longer than the file on disk may be behind.
func deferral(took, persistInterval time.Duration) time.Duration {
	const least = 500 * time.Millisecond
	return min(max(least, 4*took), persistInterval)
}

// claim is what is known of an instance's disk: that it says who leads, in a term.
type claim struct {
	made bool
	term int64
}
