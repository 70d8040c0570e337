package compiler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// RegisterMetrics registers the metrics of a compiler that has compiled a result.
func RegisterMetrics(r prometheus.Registerer, clock func() time.Time, compiled Result) {
	newMetrics(r, clock).compiled(time.Second, compiled, nil)
}

// Compiled tells a judge of a source that has compiled without a fault.
func Compiled(j *Judge, source Source) { j.note(compiled{source: source}) }

// HoldAside takes the place in which large Ingresses and configurations are judged.
func HoldAside(j *Judge) (release func()) {
	j.slow <- struct{}{}
	return func() { <-j.slow }
}

// NewCrashes returns a memory of objects that a compile panicked for.
func NewCrashes() *crashes { return &crashes{} }
