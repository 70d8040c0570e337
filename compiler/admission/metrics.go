package admission

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of one server.
type metrics struct {
	reviews   *prometheus.CounterVec
	malformed prometheus.Counter
	duration  prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hapsnap_compiler_admission_reviews_total",
			Help: "Reviews of the admission webhook, by kind of object (Ingress, ConfigMap, other) and result: allowed, denied, unjudged (allowed or denied as the failure policy says).",
		}, []string{"kind", "result"}),
		malformed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hapsnap_compiler_admission_malformed_total", Help: "Requests to the admission webhook that were no reviews.",
		}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "hapsnap_compiler_admission_review_duration_seconds", Help: "Time to answer a review, the wait for the one before included.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 12),
		}),
	}
	for _, kind := range []string{"Ingress", "ConfigMap"} {
		for _, result := range []string{allowed, denied, notJudged} {
			m.reviews.WithLabelValues(kind, result)
		}
	}
	r.MustRegister(m.reviews, m.malformed, m.duration)
	return m
}

// reviewed counts a review. The kind is a label only where there are few of them.
func (m *metrics) reviewed(kind, result string, took time.Duration) {
	if kind != "Ingress" && kind != "ConfigMap" {
		kind = kindUnknown
	}
	m.reviews.WithLabelValues(kind, result).Inc()
	m.duration.Observe(took.Seconds())
}
