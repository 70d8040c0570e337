package pusher

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/snapshots"
)

// workClaim looks who leads an instance and what its worker was started from, and writes
// to its disk that this pusher leads it.
const workClaim work = "claim"

// claimRetry is the wait after an instance could not be claimed.
const claimRetry = 10 * time.Second

// claim is what is known of an instance's disk: that it says who leads, in a term.
type claim struct {
	made bool
	term int64
}

// claimedAndJudged reports whether nothing is to be found out of an instance: this pusher
// leads it, and it is known what the worker was started from.
func (e *engine) claimedAndJudged(i *instance) bool {
	return i.claimed == claim{true, e.reign.term} && i.target.Record.Judged(i.info, i.told)
}

// unclaimed reports whether nothing may begin on an instance before it was looked at. An
// instance that could not be looked at is left to the work itself, which looks first.
func (e *engine) unclaimed(i *instance) bool {
	return e.reign.fence != nil && i.reachable() && !i.claimFailed && !e.claimedAndJudged(i)
}

// beginClaims begins to look at the instances that are to be looked at. Where the term and
// the mark of this pusher are missing on an instance's disk, they are written there. Pushes
// do so as well; but where nothing is to be pushed, a former leader that was paused in the
// middle of a push could go on, and another pusher would find nobody.
func (e *engine) beginClaims(now time.Time) {
	for _, name := range e.names() {
		i := e.instances[name]
		if e.reign.fence != nil && i.reachable() && i.busy == "" && !now.Before(i.claimAfter) && !e.claimedAndJudged(i) {
			i.begin(workClaim)
			e.begin(claimInstance{e.remote(i), e.reign.term, e.reign.fence})
		}
	}
}

// notLed sees to an instance that another pusher turned out to lead: it is looked at again
// now and then, and so are all others at once, for that one may have taken them too.
func (e *engine) notLed(i *instance, err error) {
	if _, led := errors.AsType[push.LedByOtherError](err); !led {
		return
	}
	was := i.claimed.made
	i.claimed = claim{}
	for _, other := range e.instances {
		if was && other != i && !other.ledByOther() {
			other.claimed, other.claimAfter = claim{}, time.Time{}
		}
	}
}

// leadsFleet reports whether this pusher may decide for the fleet. It may not while another
// one leads an instance and none is its own: then it is the second one, and whatever it
// wrote to the others would be the beginning of a fight. Where some are its own it leaves
// those alone that are not.
func (e *engine) leadsFleet(now time.Time) bool {
	var led []string
	var by push.Pusher
	own := false
	for _, name := range e.names() {
		i := e.instances[name]
		if p, is := i.target.Record.LedBy(); is {
			led, by = append(led, name), p
		}
		own = own || i.target.Record.Claimed()
		e.tellRecord(i, now)
	}
	if len(led) == 0 || own {
		e.trouble("pusher", nil, now)
		return true
	}
	e.trouble("pusher", fmt.Errorf("another pusher leads %s: %s; nothing is written to any instance. If that one is gone for good, start this one with --take-over",
		strings.Join(led, ", "), by), now)
	return false
}

// tellRecord tells of an instance that another pusher leads, and of a worker that was
// started from another configuration.
func (e *engine) tellRecord(i *instance, now time.Time) {
	by, led := i.target.Record.LedBy()
	if who := by.String(); led && i.toldLed != who {
		i.toldLed = who
		e.tell(happening{
			bad: true, log: "instance is led by another pusher, nothing is written to it", keys: []any{"by", who}, reason: "LedByOther",
			text: i.Name + ": another pusher leads it: " + who, instance: i.Name,
		}, now)
	}
	if !led && i.toldLed != "" {
		i.toldLed = ""
		e.logger(i.Name).Info("instance is led by this pusher again")
	}
	if why := i.foreign(); why != i.toldForeign {
		if i.toldForeign = why; why != "" {
			e.tell(happening{
				bad: true, log: "worker was started from another configuration, it is to be reloaded", keys: []any{"reason", why, "pid", i.info.PID},
				reason: "ForeignWorker", text: i.Name + ": " + push.ErrForeign.Error() + ": " + why, snapshot: snapshots.ID{}, instance: i.Name,
			}, now)
		}
	}
}
