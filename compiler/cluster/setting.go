package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"

	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/snapshots"
)

// SettingKey is the key of a ConfigMap under which a configuration is.
const SettingKey = "config.yaml"

// Setting is a ConfigMap that holds the configuration of a compiler. Nothing is known
// of it until [Setting.Run] runs.
type Setting struct {
	client   dynamic.Interface
	kinds    resolver
	poll     time.Duration
	changed  chan struct{}
	follower *follower
}

// SettingQuery is what is watched of a ConfigMap with a configuration.
func SettingQuery(name snapshots.SecretName) Query {
	return Query{APIVersion: "v1", Kind: "ConfigMap", Namespace: name.Namespace, Name: name.Name}
}

// NewSetting returns the Setting in a ConfigMap of a cluster.
func NewSetting(c Connection, name snapshots.SecretName) *Setting {
	s := &Setting{client: c.Dynamic, kinds: resolver{c.Discovery}, poll: pollInterval, changed: make(chan struct{}, 1)}
	s.follower = newFollower(SettingQuery(name), func() { signal(s.changed) })
	return s
}

// Run follows the ConfigMap until ctx is done.
func (s *Setting) Run(ctx context.Context, log *slog.Logger) {
	s.follower.run(ctx, s.client, s.kinds, s.poll, log)
}

// Read returns the configuration, and the name that it has in diagnostics. The error
// wraps [inputs.ErrIncomplete] while nothing is known of the ConfigMap yet, or
// [fs.ErrNotExist] if there is none, or none with the key.
func (s *Setting) Read(context.Context) (name string, data []byte, err error) {
	q := s.follower.query
	name = q.String() + " " + SettingKey
	s.follower.mu.Lock()
	defer s.follower.mu.Unlock()
	if !s.follower.synced {
		return name, nil, fmt.Errorf("read configuration: %s: %w", q, errors.Join(inputs.ErrIncomplete, s.follower.err))
	}
	object, _ := s.follower.objects[q.Namespace+"/"+q.Name].(*corev1.ConfigMap)
	if object == nil {
		return name, nil, fmt.Errorf("read configuration: %s: %w", q, fs.ErrNotExist)
	}
	text, exists := object.Data[SettingKey]
	if !exists {
		return name, nil, fmt.Errorf("read configuration: %s: key %s: %w", q, SettingKey, fs.ErrNotExist)
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
		case <-s.changed:
		}
	}
}

// Changes sends when the ConfigMap may be different from what was read.
func (s *Setting) Changes(context.Context, *slog.Logger) <-chan struct{} { return s.changed }
