package core

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/report"
)

// maxRaises bounds how often the term is raised above that of other pushers. A pusher that
// keeps writing higher terms has a state of its own, and is not a former leader.
const maxRaises = 3

// leadership prevents two pushers from leading the same instances.
type leadership struct {
	*world
	saving *saving
	raised int // how often the term was raised
}

// outranked handles the error that an instance has a later term. Either another pusher leads by
// now, or the state of this pusher was created anew after that term. outranked requests a higher
// term; that request fails if another pusher has taken the state. It returns false for any other
// error, and if the term was raised too often. It also does not raise the term so far that none would
// be left for later pushers: only the instance that names such a term waits for a person.
func (l *leadership) outranked(i *instanceState, err error) bool {
	by, ok := errors.AsType[push.OutrankedError](err)
	if !ok || by.By <= l.term.number || by.By > push.MaxTerm/2 || l.raised >= maxRaises {
		return false
	}
	if s := l.saving; (s.raise == nil || by.By > s.raise.Above) && (s.raising == nil || by.By > s.raising.Above) {
		s.raise = &RaiseTerm{by.By, i.ref()}
	}
	return true
}

// claimRetry is the wait after an instance could not be claimed.
const claimRetry = 10 * time.Second

// beginClaims begins to claim the instances that are not claimed in this term: it reads who leads
// them, and writes the term and the mark of this pusher to their disks if they are missing. A push
// writes them as well. But if there is nothing to push, a former leader that was paused in the
// middle of a push could go on, and another pusher would not see that this one leads.
//
// If the last claim judged another worker than the last probe told of, the next probe decides. The answer to a probe
// that began before the end of a claim does not count, so that claims without a break would keep the pusher from it.
func (l *leadership) beginClaims(now time.Time) {
	for i := range l.served() {
		heard := i.claimed != claim{true, l.term.number} || !i.infoAsked.Before(i.claimEnded)
		if l.term.fenced && heard && i.reachable() && i.doing() == "" && !now.Before(i.claimAfter) && !l.claimedAndJudged(i) {
			i.begin(workClaim)
			l.do(instance.Claim{Ref: i.ref(), Term: l.term.number})
		}
	}
}

// notLed handles the error that another pusher leads an instance. This pusher claims the instance
// again later. It claims all other instances again at once, because the other pusher may have taken
// them too.
func (l *leadership) notLed(i *instanceState, err error) {
	if _, led := errors.AsType[push.LedByOtherError](err); !led {
		return
	}
	was := i.claimed.made
	i.claimed = claim{}
	for _, other := range l.instances {
		if was && other != i && !other.ledByOther() {
			other.claimed, other.claimAfter = claim{}, time.Time{}
		}
	}
}

// leadsFleet reports whether this pusher may decide for the fleet. If another pusher leads some
// instances and this one leads none, then this one came second, and the two would overwrite each
// other. If this pusher leads some instances, it may decide, and leaves the others alone.
func (l *leadership) leadsFleet(now time.Time) bool {
	var led []string
	by, own := "", false
	for _, name := range l.names() {
		i := l.instances[name]
		if i.ledByOther() {
			led, by = append(led, name), i.known.Record.LeaderText()
		}
		own = own || i.known.Record.Claimed
		l.tellRecord(i, now)
	}
	if len(led) == 0 || own {
		l.trouble(report.AboutPusher, nil, now)
		return true
	}
	l.trouble(report.AboutPusher, fmt.Errorf("another pusher leads %s: %s; nothing is written to any instance. If that one is gone for good, start this one with --take-over",
		strings.Join(led, ", "), by), now)
	return false
}

// tellRecord reports that another pusher leads an instance, and that the worker was started from a
// configuration that this pusher did not write. It reports each only once.
func (l *leadership) tellRecord(i *instanceState, now time.Time) {
	led := i.ledByOther()
	if who := i.known.Record.LeaderText(); led && i.toldLed != who {
		i.toldLed = who
		l.record(observe.Event{
			Bad: true, Log: "instance is led by another pusher, nothing is written to it", Keys: []any{"by", who}, Reason: "LedByOther",
			Text: i.Name + ": another pusher leads it: " + who, Instance: i.Name,
		}, now)
	}
	if !led && i.toldLed != "" {
		i.toldLed = ""
		l.record(observe.Info("instance is led by this pusher again", "instance", i.Name), now)
	}
	if why := i.foreign(); why != i.toldForeign {
		if i.toldForeign = why; why != "" {
			log := "worker was started from another configuration, it is to be reloaded"
			if push.IsDamage(why) {
				log = "worker was changed so that only a reload mends it, it is to be reloaded"
			}
			l.record(observe.Event{
				Bad: true, Log: log, Keys: []any{"reason", why, "pid", i.info.PID},
				Reason: "ForeignWorker", Text: i.Name + ": " + push.ForeignText(why), Instance: i.Name,
			}, now)
		}
	}
}

// raiseEnded takes the result of raising the term.
func (l *leadership) raiseEnded(r Raised, now time.Time) {
	l.saving.underWay, l.saving.raising = false, nil
	if r.Err != nil {
		l.trouble(report.AboutState, r.Err, now)
		if r.Taken {
			l.begin(EndTerm{fmt.Errorf("instance %s is of term %d: %w", r.Of.Name, r.Above, r.Err)})
		}
		return
	}
	l.record(observe.Warn("term raised: an instance has a later one", "instance", r.Of.Name, "found", r.Above, "term", r.Term), now)
	l.raised++
	l.term.number = r.Term
	for i := range l.served() {
		i.claimAfter = now // claim all instances in the new term
	}
	l.dirty = true
}
