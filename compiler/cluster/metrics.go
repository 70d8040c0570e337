package cluster

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/internal/kubewatch"
)

// What the metrics are called, and say.
var (
	watchesDescription  = prometheus.NewDesc("hapsnap_compiler_watches", "Lists of objects of the cluster that are watched, by kind.", []string{"kind"}, nil)
	troublesDescription = prometheus.NewDesc("hapsnap_compiler_watches_interrupted", "Lists of which nothing new is heard, by kind; what was known is held.", []string{"kind"}, nil)
)

// Describe and Collect are those of [prometheus.Collector]. Both metrics are there
// for every kind that is watched.
func (c *Cluster) Describe(out chan<- *prometheus.Desc) {
	out <- watchesDescription
	out <- troublesDescription
}

// Collect counts the queries and those that are in trouble.
func (c *Cluster) Collect(out chan<- prometheus.Metric) {
	watches, troubles := map[string]int{}, map[string]int{}
	c.watches.Read(func(list []kubewatch.Standing) {
		for _, s := range list {
			if watches[s.Query.Kind]++; s.Trouble() != nil {
				troubles[s.Query.Kind]++
			}
		}
	})
	for kind, n := range watches {
		out <- prometheus.MustNewConstMetric(watchesDescription, prometheus.GaugeValue, float64(n), kind)
		out <- prometheus.MustNewConstMetric(troublesDescription, prometheus.GaugeValue, float64(troubles[kind]), kind)
	}
}

// Trouble is a query of which nothing new is heard. What was known is held.
type Trouble struct {
	Query kubewatch.Query
	Err   error
	Since time.Time
}

// Troubles returns what is not heard of at present, in the order of the plan.
// Optional kinds that the cluster does not know are no trouble.
func (c *Cluster) Troubles() []Trouble {
	var out []Trouble
	c.watches.Read(func(list []kubewatch.Standing) {
		for _, s := range list {
			if err := s.Trouble(); err != nil {
				out = append(out, Trouble{s.Query, err, s.Since})
			}
		}
	})
	return out
}
