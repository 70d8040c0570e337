package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/compiler"
)

// RegisterMetrics registers the metrics of a compiler that has compiled a result.
func RegisterMetrics(r prometheus.Registerer, clock func() time.Time, compiled compiler.Result) {
	newMetrics(r, clock).compiled(time.Second, compiled, nil)
}
