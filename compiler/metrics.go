package compiler

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of one [Run].
type metrics struct {
	duration    prometheus.Histogram
	compiles    *prometheus.CounterVec
	quarantined prometheus.Gauge
	publishes   *prometheus.CounterVec
	success     prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "hapsnap_compiler_compile_duration_seconds", Help: "Time from reading the files to a validated draft.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 12),
		}),
		compiles: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hapsnap_compiler_compiles_total", Help: "Compiles, by result: ok, quarantined (objects were left out), templates (nothing could be compiled), error.",
		}, []string{"result"}),
		quarantined: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "hapsnap_compiler_quarantined_objects", Help: "Objects that the last compile left out, or a part of them.",
		}),
		publishes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hapsnap_compiler_publishes_total", Help: "Drafts brought to the store, by result: published, unchanged, error.",
		}, []string{"result"}),
		success: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "hapsnap_compiler_last_success_timestamp_seconds", Help: "When the store was last known to hold what the files said.",
		}),
	}
	for _, result := range []string{"ok", "quarantined", "templates", "error"} {
		m.compiles.WithLabelValues(result)
	}
	for _, result := range []string{"published", "unchanged", "error"} {
		m.publishes.WithLabelValues(result)
	}
	r.MustRegister(m.duration, m.compiles, m.quarantined, m.publishes, m.success)
	return m
}

func (m *metrics) compiled(took time.Duration, r Result, err error) {
	m.duration.Observe(took.Seconds())
	result := "ok"
	switch {
	case errors.Is(err, ErrTemplates), errors.Is(err, ErrGaveUp), errors.Is(err, ErrNothing):
		result = "templates"
	case err != nil:
		result = "error"
	case len(r.Draft.Quarantined) > 0:
		result = "quarantined"
	}
	m.compiles.WithLabelValues(result).Inc()
	if err == nil {
		m.quarantined.Set(float64(len(r.Draft.Quarantined)))
	}
}

func (m *metrics) published(published bool, err error, now time.Time) {
	result := "unchanged"
	switch {
	case err != nil:
		result = "error"
	case published:
		result = "published"
	}
	m.publishes.WithLabelValues(result).Inc()
	if err == nil {
		m.success.Set(float64(now.UnixNano()) / 1e9)
	}
}
