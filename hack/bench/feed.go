package main

import (
	"context"
	"encoding/json"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// feed is a cluster for a pusher in this process: it has what it is given. What it sends is the event of a
// watch, without the API server.
type feed struct {
	mu      sync.Mutex
	change  cluster.Change
	changes chan struct{}
	// endpoints are those of each Service port.
	endpoints map[snapshots.ServicePort][]snapshots.Endpoint
}

// newFeed has the EndpointSlices and Secrets of objects.
func newFeed(in inputs.Inputs) (*feed, error) {
	f := &feed{changes: make(chan struct{}, 1)}
	var list []discoveryv1.EndpointSlice
	namespaces := map[string]bool{}
	for _, o := range in.EndpointSlices {
		list = append(list, *o.Value)
		namespaces[o.Value.Namespace] = true
	}
	secrets, names := map[snapshots.SecretName]*corev1.Secret{}, []snapshots.SecretName{}
	for _, o := range in.Secrets {
		name := snapshots.SecretName{Namespace: o.Value.Namespace, Name: o.Value.Name}
		secrets[name], names = o.Value, append(names, name)
	}
	f.endpoints = live.Endpoints(list)
	text, err := json.Marshal(map[string]any{"namespaces": namespaces, "secrets": names, "slices": len(list)})
	if err != nil {
		return nil, err
	}
	status := &cluster.Status{}
	if err := status.UnmarshalJSON(text); err != nil {
		return nil, err
	}
	f.send(cluster.Change{Endpoints: maps.Clone(f.endpoints), Secrets: secrets, Status: status})
	return f, nil
}

// send has the pusher hear of a change, together with what it has not taken yet.
func (f *feed) send(c cluster.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.change.Endpoints == nil {
		f.change.Endpoints = map[snapshots.ServicePort][]snapshots.Endpoint{}
	}
	maps.Copy(f.change.Endpoints, c.Endpoints)
	if c.Secrets != nil {
		f.change.Secrets = c.Secrets
	}
	if c.Status != nil {
		f.change.Status = c.Status
	}
	f.change.Since = append(f.change.Since, c.Since...)
	select {
	case f.changes <- struct{}{}:
	default:
	}
}

// Run implements [pusher.Cluster]: there is nothing to follow.
func (f *feed) Run(ctx context.Context) { <-ctx.Done() }

// Want implements [pusher.Cluster]: all that there is was sent.
func (f *feed) Want(cluster.Wanted) {}

// Changes implements [pusher.Cluster].
func (f *feed) Changes() <-chan struct{} { return f.changes }

// Take implements [pusher.Cluster].
func (f *feed) Take() cluster.Change {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.change
	f.change = cluster.Change{}
	return c
}
