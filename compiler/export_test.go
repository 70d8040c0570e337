package compiler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// RegisterMetrics registers the metrics of a compiler that has compiled a result.
func RegisterMetrics(r prometheus.Registerer, clock func() time.Time, compiled Result) {
	newMetrics(r, clock).compiled(time.Second, compiled, nil)
}
