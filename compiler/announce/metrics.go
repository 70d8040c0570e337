package announce

import "github.com/prometheus/client_golang/prometheus"

// metrics are those of one [Announcer].
type metrics struct {
	statuses *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		statuses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hapsnap_compiler_ingress_status_writes_total", Help: "Statuses of Ingresses brought to the API server, by result: written, refused (not tried again), error.",
		}, []string{"result"}),
	}
	for _, result := range []string{"written", "refused", "error"} {
		m.statuses.WithLabelValues(result)
	}
	r.MustRegister(m.statuses)
	return m
}
