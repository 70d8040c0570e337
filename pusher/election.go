package pusher

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/observe"
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
	troubles   observe.Troubles
	conditions []metav1.Condition // while it waits for its turn
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

// note notes what keeps a pusher that does not lead from its work.
func (c *candidate) note(about string, err error, now time.Time) { c.troubles.Set(about, err, now) }

// stand says that this pusher waits for its turn.
func (c *candidate) stand(now time.Time) {
	if c.Status != nil {
		s := observe.Standby(c.Leader.Holder(), c.Leader.Leads() == nil, c.troubles, c.conditions, now)
		c.conditions = s.Conditions
		c.Status(s)
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
