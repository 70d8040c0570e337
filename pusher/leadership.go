package pusher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/statestore"
)

const (
	// maxRaises bounds how often the term is raised above that of others: whoever keeps
	// writing higher ones has a state of its own, and is not a former leader.
	maxRaises = 3
)

// leadership is the term in which this pusher leads. The zero value is that of one that has no
// others beside it.
type leadership struct {
	term   int64
	fenced bool   // what is written to instances says who leads
	holder string // who was last seen to lead, "" where nobody is elected
	raised int
}

// lead has the pusher lead in a term, 0 where there are none, before any instance has joined. It
// ends when end is called, or leads returns an error.
func (e *engine) lead(term int64, fence *push.Fence, end context.CancelCauseFunc) {
	e.leadership = leadership{term: term, fenced: true}
	e.services.fence, e.services.end = fence, end
	e.services.connections = instance.New(e.connectionOptions(), fence)
}

// outranked sees to an instance on which a later term was found. Either another pusher
// leads by now; or the state, which this one still has, was made anew after that term.
// Then the term is raised. It returns false where that is not tried.
func (e *engine) outranked(i *instanceState, err error) bool {
	by, ok := errors.AsType[push.OutrankedError](err)
	if !ok || by.By <= e.leadership.term || e.leadership.raised >= maxRaises {
		return false
	}
	if r := e.saves.raise; r == nil || by.By > r.Above {
		e.saves.raise = &RaiseTerm{by.By, i.ref()}
	}
	return true
}

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
func (e *engine) claimedAndJudged(i *instanceState) bool {
	return i.claimed == claim{true, e.leadership.term} && i.known.Record.Judged(i.info, i.told)
}

// unclaimed reports whether nothing may begin on an instance before it was looked at. An
// instance that could not be looked at is left to the work itself, which looks first.
func (e *engine) unclaimed(i *instanceState) bool {
	return e.leadership.fenced && i.reachable() && !i.claimFailed && !e.claimedAndJudged(i)
}

// beginClaims begins to look at the instances that are to be looked at. Where the term and
// the mark of this pusher are missing on an instance's disk, they are written there. Pushes
// do so as well; but where nothing is to be pushed, a former leader that was paused in the
// middle of a push could go on, and another pusher would find nobody.
func (e *engine) beginClaims(now time.Time) {
	for _, name := range e.names() {
		i := e.instances[name]
		if e.leadership.fenced && i.reachable() && i.busy == "" && !now.Before(i.claimAfter) && !e.claimedAndJudged(i) {
			i.begin(workClaim)
			e.do(instance.Claim{Ref: i.ref(), Term: e.leadership.term})
		}
	}
}

// notLed sees to an instance that another pusher turned out to lead: it is looked at again
// now and then, and so are all others at once, for that one may have taken them too.
func (e *engine) notLed(i *instanceState, err error) {
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
		if i.ledByOther() {
			led, by = append(led, name), i.known.Record.Leader
		}
		own = own || i.known.Record.Claimed
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
func (e *engine) tellRecord(i *instanceState, now time.Time) {
	by, led := i.known.Record.Leader, i.ledByOther()
	if who := by.String(); led && i.toldLed != who {
		i.toldLed = who
		e.tell(observe.Event{
			Bad: true, Log: "instance is led by another pusher, nothing is written to it", Keys: []any{"by", who}, Reason: "LedByOther",
			Text: i.Name + ": another pusher leads it: " + who, Instance: i.Name,
		}, now)
	}
	if !led && i.toldLed != "" {
		i.toldLed = ""
		e.tell(observe.Info("instance is led by this pusher again", "instance", i.Name), now)
	}
	if why := i.foreign(); why != i.toldForeign {
		if i.toldForeign = why; why != "" {
			e.tell(observe.Event{
				Bad: true, Log: "worker was started from another configuration, it is to be reloaded", Keys: []any{"reason", why, "pid", i.info.PID},
				Reason: "ForeignWorker", Text: i.Name + ": " + push.ErrForeign.Error() + ": " + why, Instance: i.Name,
			}, now)
		}
	}
}

// Leader is what the pusher needs of an election. See package internal/election.
type Leader interface {
	// Term returns a context for what only the leader may do, which ends with the term,
	// and false if this pusher does not lead. End is called when that is done.
	Term(ctx context.Context) (during context.Context, end context.CancelFunc, leading bool)
	// Leads returns nil while this pusher leads.
	Leads() error
	// Holder names who was last seen to lead.
	Holder() string
	// Changed receives when this pusher may have begun or ceased to lead.
	Changed() <-chan struct{}
	// Trouble returns why nobody can be elected, or nil.
	Trouble() error
}

// The waits after a term that ended with an error. Whoever has taken the state while this
// pusher led was elected by another Lease: somebody has to look at that, and two that take
// turns serve nobody.
const (
	leadRetry  = 10 * time.Second
	takenRetry = time.Minute
)

// leadAgain returns when to lead again after an error.
func leadAgain(err error, now time.Time) time.Time {
	if errors.Is(err, statestore.ErrTaken) {
		return now.Add(takenRetry)
	}
	return now.Add(leadRetry)
}

// candidate is a pusher that leads now and then.
type candidate struct {
	Options
	troubles observe.Troubles
}

// run leads whenever it is this pusher's turn, until ctx is done.
func (c *candidate) run(ctx context.Context) error {
	if _, err := fleet.Read(c.Fleet); err != nil {
		return err
	}
	look := time.NewTicker(time.Second)
	defer look.Stop()
	var notBefore time.Time
	for ctx.Err() == nil {
		if time.Now().After(notBefore) {
			err := c.term(ctx)
			c.note("state", err, time.Now())
			if err != nil {
				c.Log.Error("does not lead any more", "err", err)
				notBefore = leadAgain(err, time.Now())
			}
		}
		c.note("election", c.Leader.Trouble(), time.Now())
		c.stand(time.Now())
		select {
		case <-ctx.Done():
		case <-c.Leader.Changed():
		case <-look.C:
		}
	}
	return nil
}

// term leads for as long as that lasts, if it is this pusher's turn.
func (c *candidate) term(ctx context.Context) error {
	during, end, leading := c.Leader.Term(ctx)
	defer end()
	if !leading {
		return nil
	}
	o := c.Options
	metrics := &termMetrics{Registerer: o.Metrics}
	defer metrics.end()
	o.Metrics = metrics
	return lead(during, o)
}

// note is [engine.trouble] of a pusher that does not lead.
func (c *candidate) note(about string, err error, now time.Time) { c.troubles.Set(about, err, now) }

// stand says that this pusher waits for its turn.
func (c *candidate) stand(now time.Time) {
	if c.Status != nil {
		c.Status(observe.Standby(c.Leader.Holder(), c.Leader.Leads() == nil, c.troubles, now))
	}
}

// termMetrics are registered for the time of a term: a pusher that stands by has nothing
// to say of the fleet.
type termMetrics struct {
	prometheus.Registerer
	all []prometheus.Collector
}

// MustRegister registers for as long as the term lasts.
func (m *termMetrics) MustRegister(all ...prometheus.Collector) {
	m.Registerer.MustRegister(all...)
	m.all = append(m.all, all...)
}

func (m *termMetrics) end() {
	for _, c := range m.all {
		m.Unregister(c)
	}
}
