package cluster

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/snapshots"
)

// FleetStatus is the ConfigMap in which a pusher says what the workers of its fleet run. Nothing is
// known of it until its Run runs.
type FleetStatus struct{ configMap }

// NewFleetStatus returns the FleetStatus in a ConfigMap of a cluster.
func NewFleetStatus(c Connection, name types.NamespacedName) *FleetStatus {
	return &FleetStatus{newConfigMap(c, name)}
}

// Changes sends when the ConfigMap may be different from what was read.
func (s *FleetStatus) Changes() <-chan struct{} { return s.watches.Changes() }

// fresh is how old a status may be. A pusher writes one each minute, whatever happens.
const fresh = 5 * time.Minute

// FleetReport is what a pusher has said.
type FleetReport struct {
	Workers snapshots.Workers
	// Stopped says that the pusher rolls nothing out until somebody acts.
	Stopped bool
}

// Read returns what a pusher has said lately. The error says why nothing is known.
func (s *FleetStatus) Read(now time.Time) (FleetReport, error) {
	object, _, trouble := s.state()
	text, told := "", false
	if object != nil {
		text, told = object.Data[snapshots.WorkersKey]
	}
	switch {
	case !told && trouble != nil:
		return FleetReport{}, fmt.Errorf("%s cannot be read: %w", s.query, trouble)
	case !told:
		return FleetReport{}, fmt.Errorf("no pusher has written yet what the instances run into %s", s.query)
	}
	if updated, err := time.Parse(time.RFC3339, object.Data["updated"]); err != nil || now.Sub(updated) > fresh {
		return FleetReport{}, fmt.Errorf("no pusher has written lately what the instances run into %s", s.query)
	}
	workers, err := snapshots.ParseWorkers(text)
	if err != nil {
		return FleetReport{}, fmt.Errorf("%s: %w", s.query, err)
	}
	return FleetReport{Workers: workers, Stopped: object.Data["phase"] == "Degraded"}, nil
}
