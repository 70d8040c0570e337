package pusher

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// workMend is the repair of what an inspection found on disk.
const workMend work = "mend"

// inspect compares an instance with what was left on it.
func (e *engine) inspect(ctx context.Context, i *instance, bind func() (bind.Bound, error)) {
	have, round := i.running, i.inspections
	e.start(func() {
		job, cancel := context.WithTimeout(ctx, e.jobTime())
		defer cancel()
		found := push.Inspection{Running: have}
		want, err := bind()
		if err == nil {
			found, err = i.target.Inspect(job, want, have, round)
			err = withoutSecrets(err, want)
		}
		if errors.Is(err, push.ErrElsewhere) {
			err = nil // it was reloaded meanwhile, and is looked at again
			found = push.Inspection{Running: have}
		}
		e.send(context.WithoutCancel(ctx), func(now time.Time) {
			e.ended(i, workInspect, err, now)
			i.inspectAfter = now.Add(e.InspectInterval)
			if err == nil && i.info.PID == have.Info.PID {
				i.inspections++
				e.inspected(ctx, i, found, bind, now)
			}
		})
	})
}

// inspected takes what an inspection found, and has it repaired unless that is a
// fight.
func (e *engine) inspected(ctx context.Context, i *instance, found push.Inspection, bind func() (bind.Bound, error), now time.Time) {
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
		e.mend(ctx, i, bind)
	}
}

// onDisk reports whether a fault is of a file; the others are of servers and of maps in
// the worker, which the next update sees to.
func onDisk(f push.Fault) bool {
	return !strings.HasPrefix(f.What, "server ") && !strings.HasPrefix(f.What, "map ")
}

// mend puts files back.
func (e *engine) mend(ctx context.Context, i *instance, bind func() (bind.Bound, error)) {
	e.start(func() {
		ctx, cancel := context.WithTimeout(ctx, e.jobTime())
		defer cancel()
		want, err := bind()
		var disk push.Digest
		if err == nil {
			disk, err = i.target.Mend(ctx, want, i.onDisk)
			err = withoutSecrets(err, want)
		}
		e.send(context.WithoutCancel(ctx), func(now time.Time) {
			e.ended(i, workMend, err, now)
			i.running.Disk, i.running.Written, i.persisted = disk, want.Servers, now
			if err != nil {
				i.running.Written = nil
			}
		})
	})
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
	case before.Fight == nil && i.Fight != nil:
		e.tell(repairsStop(i.Name, snapshots.ID{}, i.Fight.String()), now)
	case before.Fight != nil && i.Fight == nil:
		e.tell(repairsGoOn(i.Name), now)
	}
}

// noteHands tells of servers that another hand took out of traffic, or gave back.
func (e *engine) noteHands(i *instance, hands []push.Hand) {
	for _, h := range hands {
		if !slices.Contains(i.running.ByHand, h) {
			e.logger(i.Name).Info("another hand took a server out of traffic", "server", h.String())
		}
	}
	for _, h := range i.running.ByHand {
		if !slices.ContainsFunc(hands, func(o push.Hand) bool { return o.Backend == h.Backend && o.Server == h.Server }) {
			e.logger(i.Name).Info("a server is back in traffic or gone, as another hand or its endpoint would have it", "server", h.Backend+"/"+h.Server)
		}
	}
	i.running.ByHand = hands
}
