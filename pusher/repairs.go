package pusher

import (
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
)

// kept is what is remembered of an instance over restarts, apart from the rollout.
type kept struct {
	// Of is the UID of the pod that it is remembered of, "" without a pod.
	Of string `json:"of,omitempty"`
	// Alias is what its worker runs, where it was changed at run time.
	Alias push.Alias `json:"alias,omitzero"`
	// Record is what its worker was started from, and whether this state's pusher wrote
	// its file.
	Record push.Remembered `json:"record,omitzero"`
	// ByHand are the servers that somebody else took out of traffic.
	ByHand []push.Hand `json:"byHand,omitempty"`
	// Repairs are the last ones of files and servers, oldest first.
	Repairs []time.Time `json:"repairs,omitempty"`
	// Conflict is the one over files and servers that is going on.
	Conflict *Conflict `json:"fight,omitempty"`
}

// Conflict is what the pusher does not repair any more, because somebody else undoes each
// repair. It ends when what is found is what is wanted, or after an hour.
type Conflict struct {
	Since time.Time `json:"since"`
	// Faults are what is wanted and what was found instead.
	Faults []push.Fault `json:"faults"`
}

// String says what both sides want.
func (c Conflict) String() string {
	var sides []string
	for _, fault := range c.Faults {
		sides = append(sides, fault.String())
	}
	return rollout.DescribeConflict(strings.Join(sides, "; "))
}

// judge decides, after an inspection, whether to repair what it found. See
// [rollout.Repairs], which has the rules.
func (k kept) judge(faults []push.Fault, now time.Time) (next kept, repair bool) {
	repairs := rollout.Repairs{At: k.Repairs}
	if k.Conflict != nil {
		repairs.Stopped = k.Conflict.Since
	}
	if len(faults) == 0 {
		repairs = repairs.Settled()
	} else if repairs, repair = repairs.Due(now); repair {
		repairs = repairs.Done(now.UTC().Truncate(time.Second))
	}
	k.Repairs, k.Conflict = repairs.At, nil
	if repairs.InConflict() {
		k.Conflict = &Conflict{repairs.Stopped.UTC().Truncate(time.Second), faults}
	}
	return k, repair
}

// conflictOver returns the conflict over the snapshot that an instance runs, nil for none.
func conflictOver(r rollout.Repairs) *Conflict {
	if !r.InConflict() {
		return nil
	}
	return &Conflict{r.Stopped.UTC().Truncate(time.Second), []push.Fault{{What: "what it runs", Want: r.Snapshot.String(), Found: r.Found}}}
}

// conflict returns the conflict over an instance, nil for none: over its files and servers,
// or over what it runs.
func (e *engine) conflict(i *instance) *Conflict {
	if i.Conflict != nil {
		return i.Conflict
	}
	return conflictOver(e.state.Rollout.Repairs[i.Name])
}

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
