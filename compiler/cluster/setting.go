package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/kubewatch"
)

// SettingKey is the key of a ConfigMap under which a configuration is.
const SettingKey = "config.yaml"

// Setting is a ConfigMap that holds the configuration of a compiler. Nothing is known
// of it until [Setting.Run] runs.
type Setting struct {
	query   kubewatch.Query
	watches *kubewatch.Set
}

// SettingQuery is what is watched of a ConfigMap with a configuration.
func SettingQuery(name types.NamespacedName) kubewatch.Query {
	return kubewatch.Query{APIVersion: "v1", Kind: "ConfigMap", Namespace: name.Namespace, Name: name.Name}
}

// NewSetting returns the Setting in a ConfigMap of a cluster.
func NewSetting(c Connection, name types.NamespacedName) *Setting {
	s := &Setting{query: SettingQuery(name), watches: newSet(c)}
	s.watches.Plan([]kubewatch.Query{s.query})
	return s
}

// Run follows the ConfigMap until ctx is done.
func (s *Setting) Run(ctx context.Context, log *slog.Logger) { s.watches.Run(ctx, log) }

// Read returns the configuration, and the name that it has in diagnostics. The error
// wraps [inputs.ErrIncomplete] while nothing is known of the ConfigMap yet, or
// [fs.ErrNotExist] if there is none, or none with the key.
func (s *Setting) Read(context.Context) (name string, data []byte, err error) {
	name = s.query.String() + " " + SettingKey
	var object *corev1.ConfigMap
	var synced bool
	var trouble error
	s.watches.Read(func(list []kubewatch.Standing) {
		for _, standing := range list { // the one, or none once Run has ended
			synced, trouble = standing.Synced, standing.Err
			object, _ = standing.Objects[types.NamespacedName{Namespace: s.query.Namespace, Name: s.query.Name}].(*corev1.ConfigMap)
		}
	})
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
