package pusher

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/statestore"
)

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
	troubles map[string]Trouble
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
func (c *candidate) note(about string, err error, now time.Time) {
	known, was := c.troubles[about]
	switch {
	case err == nil:
		delete(c.troubles, about)
	case !was || known.Error != err.Error():
		since := now.UTC().Truncate(time.Second)
		if was {
			since = known.Since
		}
		c.troubles[about] = Trouble{About: about, Error: err.Error(), Since: since}
	}
}

// stand says that this pusher waits for its turn.
func (c *candidate) stand(now time.Time) {
	if c.Status != nil {
		c.Status(standby(c.Leader.Holder(), c.Leader.Leads() == nil, c.troubles, now))
	}
}

// standby is the status of a pusher that does not push.
func standby(holder string, leads bool, troubles map[string]Trouble, now time.Time) Status {
	s := Status{Updated: now.UTC().Truncate(time.Second), Standby: true, Leader: holder, Instances: []InstanceStatus{}}
	_, unheard := troubles["election"]
	said := "another pusher leads: " + holder
	switch {
	case leads:
		said = "this pusher leads, and could not begin: instances stay as they are"
	case unheard:
		said = "it is not known who leads: instances stay as they are"
	case holder == "":
		said = "no pusher leads: instances stay as they are"
	}
	s.Channel = ChannelStatus{Hold: true, Message: said}
	for _, about := range []string{"election", "state"} {
		if t, ok := troubles[about]; ok {
			s.Troubles = append(s.Troubles, t)
		}
	}
	return s
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
