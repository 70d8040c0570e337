package controller

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/compiler"
)

// metrics are those of one [Run]. Only its goroutine updates them; other goroutines may read the ages.
type metrics struct {
	duration, wait       prometheus.Histogram
	stages               *prometheus.HistogramVec
	compiles, publishes  *prometheus.CounterVec
	objects              *prometheus.GaugeVec
	ingresses            *prometheus.GaugeVec
	quarantined, success prometheus.Gauge
	held, configRefused  prometheus.Gauge
	templatesRefused     prometheus.Gauge
	rivals               prometheus.Gauge
	configReloads        *prometheus.CounterVec
	rendered             *prometheus.CounterVec
	written, used        int // what the counters hold already

	failed            bool         // the last compile
	succeeded, behind atomic.Int64 // Unix nanoseconds; behind is 0 if the store is not
}

// newMetrics registers the metrics of a compiler that starts now.
func newMetrics(r prometheus.Registerer, clock func() time.Time) *metrics {
	m := &metrics{
		duration: histogram("compile_duration_seconds", "Time from reading the files to a validated draft.", 0.01, 12),
		wait:     histogram("queue_wait_seconds", "Time from the first change that a compile serves to its beginning.", 0.001, 15),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hapsnap_compiler_stage_duration_seconds", Help: "Time that a compile, or a try to publish, spent in a stage. Rounds of a compile add up.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"stage"}),
		compiles:         counters("compiles_total", "Compiles, by result: ok, quarantined (objects were left out), templates (nothing could be compiled), error.", "result", "ok", "quarantined", "templates", "error"),
		publishes:        counters("publishes_total", "Drafts brought to the store, by result: published, unchanged, held (too much is gone, somebody must approve it), replaced (by a newer one, before the store could take it), error.", "result", "published", "unchanged", "held", "replaced", "error"),
		rendered:         counters("rendered_pieces_total", "Pieces of files, by where they came from: template (written anew), memory (used again).", "from", "template", "memory"),
		quarantined:      gauge("quarantined_objects", "Objects that the last compile left out, or a part of them."),
		success:          gauge("last_success_timestamp_seconds", "When the store was last known to hold what the files said."),
		held:             gauge("held_drafts", "1 while the newest draft waits for approval, since too much is gone."),
		rivals:           gauge("rivals", "1 while another compiler, of no common Lease, publishes to the same store."),
		configReloads:    counters("config_reloads_total", "Changes of the configuration, by result: accepted, refused, waiting (not all objects that it asks for are known), error (it could not be read).", "result", "accepted", "refused", "waiting", "error"),
		configRefused:    gauge("config_refused", "1 while the configuration as it is written is not the one that is used."),
		templatesRefused: gauge("templates_refused", "1 while the templates as they are written are not the ones that are used."),
		objects: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hapsnap_compiler_objects", Help: "Objects that the last compile read, by kind.",
		}, []string{"kind"}),
		ingresses: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hapsnap_compiler_ingresses", Help: "Ingresses that the last compile saw, by class: ours, other (not compiled).",
		}, []string{"class"}),
	}
	for _, name := range compiler.StageNames {
		m.stages.WithLabelValues(name)
	}
	m.succeeded.Store(clock().UnixNano())
	r.MustRegister(m.duration, m.wait, m.stages, m.compiles, m.publishes, m.rendered, m.quarantined, m.success, m.held, m.rivals, m.configReloads, m.configRefused, m.templatesRefused, m.objects, m.ingresses,
		age("seconds_since_last_success", "Time since the store was last known to hold what the files said, or since the start. It grows while nothing changes.", &m.succeeded, clock),
		age("behind_seconds", "For how long there has been a change that the store does not hold yet; 0 while there is none.", &m.behind, clock))
	return m
}

func histogram(name, help string, least float64, buckets int) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "hapsnap_compiler_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(least, 2, buckets),
	})
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: "hapsnap_compiler_" + name, Help: help})
}

// counters returns a counter for each value of a label, which begin at 0.
func counters(name, help, label string, values ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "hapsnap_compiler_" + name, Help: help}, []string{label})
	for _, v := range values {
		c.WithLabelValues(v)
	}
	return c
}

// age returns the time since a moment, computed when it is read, or 0 for the zero moment.
func age(name, help string, since *atomic.Int64, clock func() time.Time) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "hapsnap_compiler_" + name, Help: help}, func() float64 {
		at := since.Load()
		if at == 0 {
			return 0
		}
		return max(0, clock().Sub(time.Unix(0, at)).Seconds())
	})
}

// begins records that a compile begins, and when the first change that it compiles was made; zero if there is none.
func (m *metrics) begins(change, now time.Time) {
	if change.IsZero() {
		return
	}
	m.wait.Observe(max(0, now.Sub(change).Seconds()))
	m.behind.CompareAndSwap(0, change.UnixNano())
}

// spent records the time spent on the stages.
func (m *metrics) spent(took map[string]time.Duration) {
	for stage, d := range took {
		m.stages.WithLabelValues(stage).Observe(d.Seconds())
	}
}

// pieces records how much was rendered since the start.
func (m *metrics) pieces(written, used int) {
	m.rendered.WithLabelValues("template").Add(float64(written - m.written))
	m.rendered.WithLabelValues("memory").Add(float64(used - m.used))
	m.written, m.used = written, used
}

func (m *metrics) compiled(took time.Duration, r compiler.Result, err error) {
	m.duration.Observe(took.Seconds())
	m.compiles.WithLabelValues(resultOf(r, err)).Inc()
	if m.failed = err != nil; !m.failed {
		m.quarantined.Set(float64(r.LeftOut))
		m.read(r)
	}
}

// resultOf names what came of a compile.
func resultOf(r compiler.Result, err error) string {
	switch {
	case errors.Is(err, compiler.ErrTemplates), errors.Is(err, compiler.ErrGaveUp), errors.Is(err, compiler.ErrNothing):
		return "templates"
	case err != nil:
		return "error"
	case r.LeftOut > 0:
		return "quarantined"
	}
	return "ok"
}

// read counts the objects that a draft was made from. Kinds that are gone are
// not said to be there.
func (m *metrics) read(r compiler.Result) {
	m.ingresses.WithLabelValues("ours").Set(float64(r.Ingresses.Compiled))
	m.ingresses.WithLabelValues("other").Set(float64(r.Ingresses.Other()))
	m.objects.Reset()
	for _, o := range r.Draft.Provenance.Inputs {
		m.objects.WithLabelValues(o.Kind).Inc()
	}
}

// published records an attempt to publish. A draft that waited is no success if a later compile failed.
func (m *metrics) published(published bool, err error, now time.Time) {
	m.publishes.WithLabelValues(publishOf(published, err)).Inc()
	if err == nil {
		m.held.Set(0)
	}
	if err == nil && !m.failed {
		m.success.Set(float64(now.UnixNano()) / 1e9)
		m.succeeded.Store(now.UnixNano())
		m.behind.Store(0)
	}
}

// heldDraft counts a draft that waits for approval.
func (m *metrics) heldDraft() {
	m.publishes.WithLabelValues("held").Inc()
	m.held.Set(1)
}

// replacedDraft counts a draft that was never published.
func (m *metrics) replacedDraft() { m.publishes.WithLabelValues("replaced").Inc() }

// publishOf names what came of a try to publish.
func publishOf(published bool, err error) string {
	_, held := errors.AsType[*ShrinkError](err)
	switch {
	case held:
		return "held"
	case err != nil:
		return "error"
	case published:
		return "published"
	}
	return "unchanged"
}

// reconfigured counts a change of the configuration; refused says that the one
// before is used.
func (m *metrics) reconfigured(result string, refused bool) {
	m.configReloads.WithLabelValues(result).Inc()
	m.configRefused.Set(0)
	if refused {
		m.configRefused.Set(1)
	}
}
