package cluster

import "time"

// Trouble is a query of which nothing new is heard. What was known is held.
type Trouble struct {
	Query Query
	Err   error
	Since time.Time
}

// Troubles returns what is not heard of at present, in the order of the plan.
// Optional kinds that the cluster does not know are no trouble.
func (c *Cluster) Troubles() []Trouble {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Trouble
	for _, q := range c.planned {
		f := c.followers[q]
		if f == nil {
			continue
		}
		f.mu.Lock()
		if f.err != nil && !(f.absent && q.Optional) {
			out = append(out, Trouble{q, f.err, f.since})
		}
		f.mu.Unlock()
	}
	return out
}
