package pusher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// liveData is what was read of the live objects.
type liveData struct {
	snapshots.Live
	slices   int      // how many EndpointSlices there are
	problems []string // what could not be used
	broken   map[snapshots.SecretName]bool
	unsure   bool // something could not be parsed: what is absent may be in there
}

// watchLive reads the directory now and after each change, and sends what it
// holds, until ctx is done.
func watchLive(ctx context.Context, dir string, log *slog.Logger, send func(liveData, error)) {
	changed := manifests.Watch(ctx, []string{dir}, log)
	var reader manifests.Reader
	for {
		set, err := reader.Read(dir)
		if err != nil {
			send(liveData{}, fmt.Errorf("read live objects: %w", err))
		} else {
			send(translate(set), nil)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// translate picks the EndpointSlices and Secrets from a set of objects.
func translate(set manifests.Set) liveData {
	var endpointSlices []discoveryv1.EndpointSlice
	var secrets []corev1.Secret
	out := liveData{broken: map[snapshots.SecretName]bool{}, unsure: len(set.Problems) > 0}
	for _, p := range set.Problems {
		out.problems = append(out.problems, fmt.Sprintf("%s: %s", p.Position, p.Message))
	}
	for _, o := range set.Objects {
		switch o.GVK() {
		case manifests.GVK{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}:
			decodeInto(&out, o, &endpointSlices)
		case manifests.GVK{APIVersion: "v1", Kind: "Secret"}:
			decodeInto(&out, o, &secrets)
		}
	}
	out.slices = len(endpointSlices)
	out.Endpoints = live.Endpoints(endpointSlices)
	certificates, problems := live.Certificates(secrets)
	out.Certificates = certificates
	for _, p := range problems {
		out.broken[p.Secret] = true
		out.problems = append(out.problems, p.Error())
	}
	return out
}

// decodeInto appends the object. One that breaks its schema is a problem, and
// what it held before is kept.
func decodeInto[T any](out *liveData, o manifests.Object, list *[]T) {
	var v T
	if faults := o.Decode(&v); len(faults) > 0 {
		out.unsure = true
		out.problems = append(out.problems, fmt.Sprintf("%s: %s: %s", faults[0].Position, o, faults[0].Error()))
		return
	}
	*list = append(*list, namespaced(v, o))
}

// namespaced gives an object the namespace that the manifest left out.
func namespaced[T any](v T, o manifests.Object) T {
	switch v := any(&v).(type) {
	case *discoveryv1.EndpointSlice:
		v.Namespace = o.Namespace
	case *corev1.Secret:
		v.Namespace = o.Namespace
	}
	return v
}

var errNoSlices = errors.New("no EndpointSlice is left, where there were some; what was known is kept")

// mergeLive returns the live data to use after a read. The last usable
// certificate of a Secret that is broken now stays in use. Where something could
// not be parsed, what is absent may be in there, and is kept too. If all
// EndpointSlices are gone at once, that is taken for a fault.
func mergeLive(old, read liveData) (liveData, error) {
	var err error
	if read.slices == 0 && old.slices > 0 {
		read.Endpoints, read.slices, err = old.Endpoints, old.slices, errNoSlices
	}
	certificates := maps.Clone(read.Certificates)
	for name, pem := range old.Certificates {
		if _, there := certificates[name]; !there && (read.broken[name] || read.unsure) {
			certificates[name] = pem
		}
	}
	read.Certificates = certificates
	if read.unsure {
		endpoints := maps.Clone(read.Endpoints)
		for service, list := range old.Endpoints {
			if _, there := endpoints[service]; !there {
				endpoints[service] = list
			}
		}
		read.Endpoints = endpoints
	}
	return read, err
}
