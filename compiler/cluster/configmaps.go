package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/kubewatch"
	"github.com/hapsnap/hapsnap/snapshots"
)

// SettingKey is the key of a ConfigMap under which a configuration is.
const SettingKey = "config.yaml"

// ConfigMapQuery is what is watched of a single ConfigMap.
func ConfigMapQuery(name types.NamespacedName) kubewatch.Query {
	return kubewatch.Query{APIVersion: "v1", Kind: "ConfigMap", Namespace: name.Namespace, Name: name.Name}
}

// configMap is a ConfigMap that is watched. Nothing is known about it until Run runs.
type configMap struct {
	query   kubewatch.Query
	watches *kubewatch.Set
}

func newConfigMap(c Connection, name types.NamespacedName) configMap {
	m := configMap{query: ConfigMapQuery(name), watches: newSet(c)}
	m.watches.Plan([]kubewatch.Query{m.query})
	return m
}

// Run follows the ConfigMap until ctx is done.
func (m configMap) Run(ctx context.Context, log *slog.Logger) { m.watches.Run(ctx, log) }

// state returns the ConfigMap, or nil if none exists or is known; whether that is certain; and the error that prevents it.
func (m configMap) state() (object *corev1.ConfigMap, synced bool, trouble error) {
	m.watches.Read(func(list []kubewatch.QueryState) {
		for _, state := range list { // the one, or none once Run has ended
			synced, trouble = state.Synced, state.Err
			object, _ = state.Objects[types.NamespacedName{Namespace: m.query.Namespace, Name: m.query.Name}].(*corev1.ConfigMap)
		}
	})
	return object, synced, trouble
}

// Setting is a ConfigMap that holds the configuration of a compiler. Nothing is known
// of it until its Run runs.
type Setting struct{ configMap }

// NewSetting returns the Setting in a ConfigMap of a cluster.
func NewSetting(c Connection, name types.NamespacedName) *Setting {
	return &Setting{newConfigMap(c, name)}
}

// Read returns the configuration, and the name that it has in diagnostics. The error
// wraps [inputs.ErrIncomplete] while nothing is known of the ConfigMap yet, or
// [fs.ErrNotExist] if there is none, or none with the key.
func (s *Setting) Read(context.Context) (name string, data []byte, err error) {
	name = s.query.String() + " " + SettingKey
	object, synced, trouble := s.state()
	if !synced {
		return name, nil, fmt.Errorf("read configuration: %s: %w", s.query, errors.Join(inputs.ErrIncomplete, trouble))
	}
	if object == nil {
		return name, nil, fmt.Errorf("read configuration: %s: %w", s.query, fs.ErrNotExist)
	}
	text, exists := object.Data[SettingKey]
	if !exists {
		return name, nil, fmt.Errorf("read configuration: %s: key %s: %w", s.query, SettingKey, fs.ErrNotExist)
	}
	return name, []byte(text), nil
}

// First waits until something is known of the ConfigMap, and returns it as Read does.
func (s *Setting) First(ctx context.Context) (name string, data []byte, err error) {
	for {
		name, data, err = s.Read(ctx)
		if !errors.Is(err, inputs.ErrIncomplete) {
			return name, data, err
		}
		select {
		case <-ctx.Done():
			return name, nil, errors.Join(ctx.Err(), err)
		case <-s.watches.Changes():
		}
	}
}

// Changes sends when the ConfigMap may be different from what was read.
func (s *Setting) Changes(context.Context, *slog.Logger) <-chan struct{} { return s.watches.Changes() }

// FleetStatus is the ConfigMap in which a pusher says what the workers of its fleet run. Nothing is
// known of it until its Run runs.
type FleetStatus struct {
	configMap
	times writingTimes
}

// NewFleetStatus returns the FleetStatus in a ConfigMap of a cluster.
func NewFleetStatus(c Connection, name types.NamespacedName) *FleetStatus {
	return &FleetStatus{configMap: newConfigMap(c, name)}
}

// Changes sends when the ConfigMap may be different from what was read.
func (s *FleetStatus) Changes() <-chan struct{} { return s.watches.Changes() }

// fresh is how old a status may be, or how far in the future. A pusher writes one each minute, whatever happens.
const fresh = 5 * time.Minute

// writtenLately says why a status of this time does not count, "" if it does. One that is further in the future would
// otherwise count until then, whether its pusher runs or not.
func writtenLately(updated string, now time.Time) string {
	at, err := time.Parse(time.RFC3339, updated)
	switch {
	case err != nil || now.Sub(at) > fresh:
		return "no pusher has written lately"
	case at.Sub(now) > fresh:
		return "the clock of the pusher is ahead of this one, so that nobody can say when it wrote"
	}
	return ""
}

// writingTimes are the times of a status, as its writer has them, with the time at which they last changed here. A pusher whose
// clock is wrong is heard by that: it writes each minute.
type writingTimes struct {
	mu      sync.Mutex
	updated string
	changed time.Time // by this clock; zero while only one time was seen
}

// lately says why a status does not count, "" if it does. That it changed while it was watched counts as much as its time.
func (w *writingTimes) lately(updated string, now time.Time) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if updated != w.updated {
		if w.updated != "" {
			w.changed = now
		}
		w.updated = updated
	}
	if !w.changed.IsZero() && now.Sub(w.changed) <= fresh {
		return ""
	}
	return writtenLately(updated, now)
}

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
	if why := s.times.lately(object.Data["updated"], now); why != "" {
		return FleetReport{}, fmt.Errorf("%s what the instances run into %s", why, s.query)
	}
	workers, err := snapshots.ParseWorkers(text)
	if err != nil {
		return FleetReport{}, fmt.Errorf("%s: %w", s.query, err)
	}
	return FleetReport{Workers: workers, Stopped: object.Data["phase"] == "Degraded"}, nil
}
