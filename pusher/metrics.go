package pusher

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/pusher/rollout"
)

// metrics are what the pusher counts.
type metrics struct {
	instances, inSync, reachable, refused, refusedEndpoints, behind, rewound, troubles, conflicts, lastSync, foreign, ledByOther prometheus.Gauge
	phase                                                                                                                        *prometheus.GaugeVec
	pushes, updates                                                                                                              *prometheus.CounterVec
	reloads, lost                                                                                                                prometheus.Counter
	took, propagation                                                                                                            *prometheus.HistogramVec
	gauges                                                                                                                       gauges
}

func newMetrics(r prometheus.Registerer) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "hapsnap", Subsystem: "pusher", Name: name, Help: help})
		r.MustRegister(g)
		return g
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "hapsnap", Subsystem: "pusher", Name: name, Help: help}, labels)
		r.MustRegister(c)
		return c
	}
	m := &metrics{
		instances:        gauge("instances", "Instances of the fleet."),
		inSync:           gauge("instances_in_sync", "Instances that run what is wanted, with today's servers and certificates."),
		reachable:        gauge("instances_reachable", "Instances whose worker says what it runs."),
		refused:          gauge("instances_refused", "Instances whose version of HAProxy or of the Dataplane API is not supported: nothing is pushed to them."),
		refusedEndpoints: gauge("endpoints_refused", "Endpoints of EndpointSlices that are refused for their addresses: nothing is sent there."),

		behind:     gauge("revisions_behind", "Snapshots in the store that are newer than what the fleet runs."),
		rewound:    gauge("store_rewound", "1 while the store, or its channel, is behind what the pusher saw of it, or gone: what runs is held."),
		troubles:   gauge("troubles", "Things that keep the pusher from its work, such as a store that is gone."),
		conflicts:  gauge("fights", "Instances that are no longer repaired, because somebody else keeps undoing the repairs: of what they run, of files, or of servers."),
		foreign:    gauge("instances_foreign", "Instances whose worker was started from another configuration than the pusher wrote, whatever it names."),
		ledByOther: gauge("instances_led_by_other", "Instances that another pusher leads: nothing is written to them."),
		lastSync:   gauge("last_sync_timestamp_seconds", "When all instances were last in sync, as Unix time."),
		pushes:     counters("pushes_total", "Pushes of a snapshot to an instance, by how they ended.", "result"),
		updates:    counters("runtime_changes_total", "Changes of instances without a reload, by kind and how they ended.", "kind", "result"),
		reloads: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "hapsnap", Subsystem: "pusher", Name: "reloads_total", Help: "Reloads of HAProxy that pushes caused.",
		}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "hapsnap", Subsystem: "pusher", Name: "map_entries_lost_total",
			Help: "Changes of map entries that an instance acknowledged and did not make.",
		}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "hapsnap", Subsystem: "pusher", Name: "push_duration_seconds", Help: "Time that a push took, by how it ended.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 14),
		}, []string{"result"}),
		propagation: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "hapsnap", Subsystem: "pusher", Name: "propagation_seconds",
			Help:    "Time from a change in the cluster until all instances in reach had it, by what changed.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
		}, []string{"kind"}),
		phase: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "hapsnap", Subsystem: "pusher", Name: "rollout_phase", Help: "1 for the phase that the rollout is in, else 0.",
		}, []string{"phase"}),
	}
	r.MustRegister(m.reloads, m.lost, m.took, m.propagation, m.phase, &m.gauges)
	for _, kind := range []string{spreadEndpoints, spreadSecrets} {
		m.propagation.WithLabelValues(kind)
	}
	for _, o := range []rollout.Outcome{rollout.Applied, rollout.Refused, rollout.Trouble} {
		m.pushes.WithLabelValues(string(o))
		m.took.WithLabelValues(string(o))
	}
	for _, w := range []work{workUpdate, workPersist, workCollect, workInspect, workMend, workClaim} {
		m.updates.WithLabelValues(string(w), "done")
		m.updates.WithLabelValues(string(w), "failed")
	}
	return m
}

func (m *metrics) pushed(o rollout.Outcome, reloaded bool, took time.Duration) {
	m.pushes.WithLabelValues(string(o)).Inc()
	m.took.WithLabelValues(string(o)).Observe(took.Seconds())
	if reloaded {
		m.reloads.Inc()
	}
}

func (m *metrics) worked(w work, err error) {
	result := "done"
	if err != nil {
		result = "failed"
	}
	m.updates.WithLabelValues(string(w), result).Inc()
}

func (m *metrics) observe(s Status) {
	reachable, refused, conflicts, foreign, ledByOther := 0, 0, 0, 0, 0
	for _, i := range s.Instances {
		if i.Refused {
			refused++
		}
		if i.Conflict != nil {
			conflicts++
		}
		if i.Foreign != "" {
			foreign++
		}
		if i.LedBy != "" {
			ledByOther++
		}
		if i.Reachable {
			reachable++
		}
	}
	m.instances.Set(float64(len(s.Instances)))
	m.inSync.Set(float64(s.InSync()))
	m.reachable.Set(float64(reachable))
	m.refused.Set(float64(refused))
	m.behind.Set(float64(s.Channel.Behind))
	m.conflicts.Set(float64(conflicts))
	m.foreign.Set(float64(foreign))
	m.ledByOther.Set(float64(ledByOther))
	m.rewound.Set(0)
	if s.Channel.Rewound {
		m.rewound.Set(1)
	}
	m.troubles.Set(float64(len(s.Troubles)))
	if len(s.Instances) > 0 && s.InSync() == len(s.Instances) {
		m.lastSync.Set(float64(s.Updated.Unix()))
	}
	for _, phase := range []rollout.Phase{"idle", rollout.Pushing, rollout.Soaking, rollout.Undoing} {
		value := 0.0
		if s.Phase() == phase || (s.Rollout == nil && phase == "idle") {
			value = 1
		}
		m.phase.WithLabelValues(string(phase)).Set(value)
	}
}
