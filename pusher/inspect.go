package pusher

import (
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/snapshots"
)

// workMend is the repair of what an inspection found on disk.
const workMend work = "mend"

// inspected takes what an inspection found, and has it repaired unless somebody else keeps
// undoing that.
func (e *engine) inspected(i *instance, found push.Inspection, want toBind, now time.Time) {
	e.noteHands(i, found.Running.ByHand)
	before := i.kept
	var repair bool
	i.kept, repair = i.judge(found.Faults, now)
	e.tellDrift(i, before, found.Faults, repair, now)
	if len(found.Faults) == 0 || repair {
		i.running = found.Running
	}
	e.dirty = true
	if repair && slices.ContainsFunc(found.Faults, onDisk) {
		i.begin(workMend)
		e.begin(mendFiles{e.remote(i), want})
	}
}

// onDisk reports whether a fault is of a file; the others are of servers and of maps in
// the worker, which the next update sees to.
func onDisk(f push.Fault) bool {
	return !strings.HasPrefix(f.What, "server ") && !strings.HasPrefix(f.What, "map ")
}

// tellDrift tells what an inspection found.
func (e *engine) tellDrift(i *instance, before kept, faults []push.Fault, repair bool, now time.Time) {
	log := e.logger(i.Name)
	for _, f := range faults {
		if repair {
			log.Warn("drift is repaired", "what", f.What, "want", f.Want, "found", f.Found)
		}
	}
	switch {
	case before.Conflict == nil && i.Conflict != nil:
		e.tell(repairsStop(i.Name, snapshots.ID{}, i.Conflict.String()), now)
	case before.Conflict != nil && i.Conflict == nil:
		e.tell(repairsGoOn(i.Name), now)
	}
}

// noteHands tells of servers that somebody else took out of traffic, or gave back.
func (e *engine) noteHands(i *instance, hands []push.Hand) {
	for _, h := range hands {
		if !slices.Contains(i.running.ByHand, h) {
			e.logger(i.Name).Info("somebody took a server out of traffic, it stays out", "server", h.String())
		}
	}
	for _, h := range i.running.ByHand {
		if !slices.ContainsFunc(hands, func(o push.Hand) bool { return o.Backend == h.Backend && o.Server == h.Server }) {
			e.logger(i.Name).Info("a server that somebody took out of traffic is back, or gone", "server", h.Backend+"/"+h.Server)
		}
	}
	i.running.ByHand = hands
}
