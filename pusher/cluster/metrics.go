package cluster

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/internal/kubewatch"
)

// What the metrics are called, and say.
var (
	watchesDescription  = prometheus.NewDesc("hapsnap_pusher_watches", "Lists of objects of the cluster that are watched, by kind.", []string{"kind"}, nil)
	troublesDescription = prometheus.NewDesc("hapsnap_pusher_watches_interrupted", "Lists of which nothing new is heard, by kind; what was known is held.", []string{"kind"}, nil)
)

// Describe and Collect are those of [prometheus.Collector].
func (c *Cluster) Describe(out chan<- *prometheus.Desc) {
	out <- watchesDescription
	out <- troublesDescription
}

// Collect counts the queries and those that are in trouble.
func (c *Cluster) Collect(out chan<- prometheus.Metric) {
	watches := map[string]int{kindSlice: 0, kindSecret: 0}
	troubles := map[string]int{}
	c.watches.Read(func(list []kubewatch.Standing) {
		for _, s := range list {
			if watches[s.Query.Kind]++; s.Err != nil {
				troubles[s.Query.Kind]++
			}
		}
	})
	for kind, n := range watches {
		out <- prometheus.MustNewConstMetric(watchesDescription, prometheus.GaugeValue, float64(n), kind)
		out <- prometheus.MustNewConstMetric(troublesDescription, prometheus.GaugeValue, float64(troubles[kind]), kind)
	}
}
