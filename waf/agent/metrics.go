package agent

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of an agent. Their labels are bounded: policies by those that are held, rules by those that
// there are.
type metrics struct {
	requests *prometheus.CounterVec
	matches  *prometheus.CounterVec
	errors   *prometheus.CounterVec
	seconds  prometheus.Histogram
	prepared prometheus.Histogram
	policies prometheus.Gauge
	lost     prometheus.Counter
	others   prometheus.Counter
}

func newMetrics(r *prometheus.Registry, connections, requests func() float64) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "hapsnap_waf_requests_total", Help: "Requests, by action (allow, detect, deny, error) and by the digest of the policy."}, []string{"action", "policy"}),
		matches:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "hapsnap_waf_rule_matches_total", Help: "Requests in which a rule found something."}, []string{"rule"}),
		errors:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "hapsnap_waf_errors_total", Help: "Requests that were not inspected, by reason: message, version, policy, deadline, busy, panic, engine."}, []string{"reason"}),
		seconds:  prometheus.NewHistogram(prometheus.HistogramOpts{Name: "hapsnap_waf_inspection_seconds", Help: "How long the inspection of a request took.", Buckets: prometheus.ExponentialBuckets(0.00025, 2, 14)}),
		prepared: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "hapsnap_waf_policy_compile_seconds", Help: "How long the preparation of a policy took.", Buckets: prometheus.ExponentialBuckets(0.01, 2, 10)}),
		policies: prometheus.NewGauge(prometheus.GaugeOpts{Name: "hapsnap_waf_policies", Help: "Policies that are held, prepared."}),
		lost:     prometheus.NewCounter(prometheus.CounterOpts{Name: "hapsnap_waf_audit_lost_total", Help: "Lines of the audit log that were left out because nobody read fast enough."}),
	}
	m.others = prometheus.NewCounter(prometheus.CounterOpts{Name: "hapsnap_waf_other_rules_total", Help: "Requests for which HAProxy asked for a version of the rules that the agent does not have."})
	r.MustRegister(m.requests, m.matches, m.errors, m.seconds, m.prepared, m.policies, m.lost, m.others,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "hapsnap_waf_connections", Help: "Connections of HAProxy."}, connections),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "hapsnap_waf_requests_under_way", Help: "Requests that wait for an inspection or are inspected."}, requests))
	for _, reason := range reasons {
		m.errors.WithLabelValues(reason)
	}
	return m
}

func (m *metrics) answered(action, digest string) { m.requests.WithLabelValues(action, digest).Inc() }

func (m *metrics) matched(rule int) { m.matches.WithLabelValues(strconv.Itoa(rule)).Inc() }

// forget takes away what was counted for a policy that is held no more.
func (m *metrics) forget(digest string) {
	if digest != noPolicy {
		m.requests.DeletePartialMatch(prometheus.Labels{"policy": digest})
	}
}
